"""Complex tensors as two real ones, and the registry of rules that take or make them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from graphgen.errors import GraphgenError
from graphgen.ir import Value

if TYPE_CHECKING:
    from graphgen.lowering.aten.call import Argument, AtenCall, AtenResult

# The element type of each part, by the name that torch prints.
PARTS = {
    "torch.complex32": "torch.float16",
    "torch.complex64": "torch.float32",
    "torch.complex128": "torch.float64",
}


@dataclass(frozen=True, slots=True)
class ComplexValue:
    """A complex tensor: Neuron has none, so every op on one is written for its parts.

    Attributes:
        real: the real part.
        imag: the imaginary part, of the same type.
    """

    real: Value
    imag: Value


ComplexRule = Callable[["AtenCall"], "AtenResult | ComplexValue | Sequence[ComplexValue]"]
COMPLEX: dict[str, ComplexRule] = {}


def aten_complex(*names: str) -> Callable[[ComplexRule], ComplexRule]:
    """Register the rule of the ops ``names`` for complex operands or results."""

    def enter(rule: ComplexRule) -> ComplexRule:
        for name in names:
            assert name not in COMPLEX, f"two rules for complex {name}"
            COMPLEX[name] = rule
        return rule

    return enter


def is_complex(given: Argument) -> bool:
    """Test whether an argument is complex, or a list with a complex tensor."""
    if isinstance(given, list | tuple):
        return any(map(is_complex, given))
    return isinstance(given, ComplexValue)


def complex_rule(op: str) -> ComplexRule:
    """Look up the rule of an op for complex numbers (GG0103 if there is none)."""
    if op not in COMPLEX:
        known = ", ".join(sorted({name.partition(".")[0] for name in COMPLEX}))
        raise GraphgenError(
            "GG0103", f"no rule for {op} of complex numbers", help=f"they are known to {known}"
        )
    return COMPLEX[op]


def of_parts(call: AtenCall, part: str) -> AtenCall:
    """The call with the real or imaginary part in place of each complex argument."""
    given: Mapping[str, Argument] = {k: _part(v, part) for k, v in call.given.items()}
    return replace(call, given=given)


def _part(given: Argument, part: str) -> Argument:
    if isinstance(given, list | tuple):
        return [_part(item, part) for item in given]
    if isinstance(given, ComplexValue):
        return given.real if part == "real" else given.imag
    return given
