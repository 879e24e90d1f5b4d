"""The products whose weights can be quantized, and why the other weights stay as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from graphgen.ir import Function, Module, Op, Value
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.quantization.product_weight import (
    ProductWeight,
    chosen_matrices,
    product_weight,
)
from graphgen.passes.weights.derived import PreparedValues, WeightNumbers
from graphgen.passes.weights.materialization import weight_of


def router_products(function: Function) -> set[Op]:
    """The products from which the numbers and weights of a token's experts follow."""
    found: set[Op] = set()
    mixtures = [op for op in function.block if op.name == "experts"]
    work = [value for op in mixtures for value in op.operands[1:3]]
    seen = set(work)
    while work:
        op = work.pop().op
        if op is not None and op.name == "dot_general":
            found.add(op)
        elif op is not None:
            fresh = [value for value in op.operands if value not in seen]
            seen.update(fresh)
            work += fresh
    return found


# The depth of a refusal of a weight that somebody asked to skip.
_SKIPPED = 6
# The operands of ``experts`` that are stacks of matrices [experts,out,in].
MATRICES = (3, 4, 5)


class QuantizableProducts:
    """The products of a module with a weight that nothing else reads.

    ``experts`` are products with three weights each. A weight is kept in one form: one that some
    program reads otherwise stays as it is, unless copies are allowed.

    Args:
        module: its programs are all considered.
        skip: weights that keep their type: parts of dotted names, as in ``layers.0.mlp``.
        copies: whether products of a weight that is read elsewhere too count.
    """

    def __init__(self, module: Module, skip: Sequence[str], *, copies: bool = False) -> None:
        self._skip = tuple(skip)
        self._copies = copies
        numbers: WeightNumbers = {}
        self.programs = [
            PreparedValues(module, function, numbers) for function in module.programs()
        ]
        self._routers = {
            op for prepared in self.programs for op in router_products(prepared.function)
        }
        self._read_otherwise: set[int] = set()
        forms: dict[int, tuple[tuple[int, ...], int]] = {}
        for prepared in self.programs:
            found: set[int] = set()
            for weight in self._weights(prepared):
                number = prepared.number(weight.value)
                found.add(number)
                form = tuple(sorted(weight.contracted)), weight.output
                if forms.setdefault(number, form) != form:
                    self._read_otherwise.add(number)
            self._read_otherwise |= set(prepared.read) - found

    def _weights(self, prepared: PreparedValues) -> Iterator[ProductWeight]:
        """The weights that one program multiplies by, and could read as narrow numbers."""
        for op in prepared.function.block:
            if op.name == "dot_general" and self._why_not(op, prepared) is None:
                yield self.weight(op, prepared)
            elif op.name == "experts":
                for value in mixture_weights(op):
                    if self._why_wide(value, value, prepared) is None:
                        yield ProductWeight(value, None, (2,), 1, (0, 1, 2))

    def weight(self, op: Op, prepared: PreparedValues) -> ProductWeight:
        """The weight of a product that can be quantized."""
        made = product_weight(op, prepared.of_weights)
        assert isinstance(made, ProductWeight)
        return made

    def lookups(self, prepared: PreparedValues) -> list[Op]:
        """The ops that choose matrices of what can be quantized, in program order."""
        found: list[Op] = []
        for op in prepared.function.block:
            if op.name == "dot_general" and self.why_not(op, prepared) is None:
                lookup = self.weight(op, prepared).lookup
                found += [] if lookup is None else [lookup]
        return found

    def why_not(self, op: Op, prepared: PreparedValues) -> NoMatch | None:
        """Why the weight of a ``dot_general`` stays as it is, ``None`` where it need not."""
        why = self._why_not(op, prepared)
        return why or self._read_elsewhere(self.weight(op, prepared).value, prepared)

    def why_not_of_mixture(self, value: Value, prepared: PreparedValues) -> NoMatch | None:
        """The same of a weight that ``experts`` read."""
        return self._why_wide(value, value, prepared) or self._read_elsewhere(value, prepared)

    def _read_elsewhere(self, weight: Value, prepared: PreparedValues) -> NoMatch | None:
        if not self._copies and prepared.number(weight) in self._read_otherwise:
            what = "another program of the module reads the weight otherwise"
            return no_match(what, weight, depth=8)
        return None

    def _why_not(self, op: Op, prepared: PreparedValues) -> NoMatch | None:
        """The same as far as one program can tell."""
        lhs, rhs = op.operands[0], weight_of(op)
        stored = chosen_matrices(rhs, prepared)
        if op in self._routers:
            return no_match("it chooses experts, and keeps its type", rhs)
        why = self._why_wide(rhs, stored, prepared)
        if why is not None and why.depth < _SKIPPED:
            return why
        if lhs in prepared:
            return no_match("its left operand is made of weights itself", lhs, depth=3)
        form = product_weight(op, prepared.of_weights)
        if isinstance(form, str):
            return no_match(form, rhs, depth=4)
        if form.lookup is not None and prepared.only_reader(rhs) is None:
            return no_match("the chosen matrices are read elsewhere too", rhs, depth=5)
        return why

    def _why_wide(self, read: Value, stored: Value, prepared: PreparedValues) -> NoMatch | None:
        """Why a weight is wide where it is read, and stays so."""
        if not read.dtype.is_float or read.dtype.bits <= 8:
            return no_match(f"its right operand is {read.dtype} already", read)
        if not prepared.of_weights(stored):
            return no_match("its right operand is not made of weights alone", read, depth=2)
        for name in prepared.sources(stored):
            for pattern in self._skip:
                if names(pattern, name):
                    return no_match(f"skip={pattern} names {name}", read, depth=_SKIPPED)
        if not self._copies and prepared.readers(stored) != 1:
            return no_match(
                "the weight is read elsewhere too, and would be kept twice", read, depth=7
            )
        return None


def mixture_weights(op: Op) -> list[Value]:
    """The weights [experts,out,in] that ``experts`` read."""
    return [op.operands[index] for index in MATRICES]


def names(pattern: str, weight: str) -> bool:
    """True if a run of the weight's dotted parts matches the pattern, part by part."""
    wanted, parts = pattern.split("."), weight.split(".")
    return any(
        all(fnmatchcase(part, want) for part, want in zip(parts[at:], wanted, strict=False))
        for at in range(len(parts) - len(wanted) + 1)
    )
