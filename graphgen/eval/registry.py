"""Registry of evaluation rules: op name -> NumPy function of attributes and operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from graphgen.eval.arithmetic import Arithmetic, Array
from graphgen.ir import Attrs

# A rule of an op with one result, and one of an op with several.
EvalRule = Callable[[Arithmetic, Attrs, Sequence[Array]], Array]
MultiResultRule = Callable[[Arithmetic, Attrs, Sequence[Array]], Sequence[Array]]
# One of an op that writes parts of its first operand: into the last argument, which begins as that.
WriteRule = Callable[[Arithmetic, Attrs, Sequence[Array], Array], None]
# Per rank, the operand, to the result; all ranks at once.
CollectiveRule = Callable[[Attrs, Sequence[Array]], list[Array]]

RULES: dict[str, EvalRule] = {}
SEVERAL: dict[str, MultiResultRule] = {}
COMPOSITES: dict[str, MultiResultRule] = {}
COLLECTIVES: dict[str, CollectiveRule] = {}


@dataclass(frozen=True, slots=True)
class Update:
    """The rule of an op that writes parts of its first operand.

    Attributes:
        write: writes them.
        new: number of the operand that is written.
    """

    write: WriteRule
    new: int

    def __call__(
        self, how: Arithmetic, attrs: Attrs, x: Sequence[Array], *, donated: bool = False
    ) -> Array:
        """The first operand with its new parts: a copy, or itself where it is donated."""
        old, new = x[0], x[self.new]
        # Integers may be joined by floats that are carried in the place of such.
        carried = how.carries(new)
        same = old.dtype == new.dtype or not carried
        if not (donated and same and old.flags.owndata and old.flags.writeable):
            out = old.astype(new.dtype) if carried else old.copy()
        else:
            out = old
        self.write(how, attrs, x, out)
        return out


UPDATES: dict[str, Update] = {}

F = TypeVar("F")


def _register(table: dict[str, F], name: str) -> Callable[[F], F]:
    def enter(rule: F) -> F:
        assert name not in table, name
        table[name] = rule
        return rule

    return enter


def eval_rule(name: str) -> Callable[[EvalRule], EvalRule]:
    """Register the rule of the op ``name``, which has one result."""
    return _register(RULES, name)


def multi_result_rule(name: str) -> Callable[[MultiResultRule], MultiResultRule]:
    """Register the rule of the op ``name``, which may have several results."""
    return _register(SEVERAL, name)


def composite_rule(name: str) -> Callable[[MultiResultRule], MultiResultRule]:
    """Register the rule of the composite ``name``, written from its definition."""
    return _register(COMPOSITES, name)


def update_rule(name: str, new: int) -> Callable[[WriteRule], Update]:
    """Register the rule of the op ``name``, which writes operand ``new`` into its first one."""
    return lambda write: _register(UPDATES, name)(Update(write, new))


def collective_rule(name: str) -> Callable[[CollectiveRule], CollectiveRule]:
    """Register the rule of the collective ``name``, which runs all ranks at once."""
    return _register(COLLECTIVES, name)


def static(attrs: Attrs, key: str) -> tuple[int, ...]:
    """A list of dimensions; all sizes are bound when a program is evaluated."""
    return tuple([dim for dim in attrs.dims(key) if isinstance(dim, int)])
