"""Match the gating of an MLP between its products: activation, clamps, offset."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from graphgen.ir import Value
from graphgen.passes.raising.activations import logistic_operand
from graphgen.passes.raising.expert_axes import Followed, beneath, factors_of
from graphgen.passes.raising.expert_choice import UnlikeError
from graphgen.pattern.see_through import scalar

# Activation of ``experts`` by the approximation of gelu.
_GELUS = {"none": "gelu", "tanh": "gelu_pytorch_tanh", "sigmoid": "quick_gelu"}


@dataclass(frozen=True, slots=True)
class Bounded:
    """A value within bounds, infinite where it has none."""

    value: Followed
    lower: float = -inf
    upper: float = inf


@dataclass(frozen=True, slots=True)
class Gating:
    """``act(gate) (up + offset)``, or with ``swiglu`` ``gate act(scale gate) (up + offset)``.

    Attributes:
        activation, glu, scale, offset: as of the op ``experts``.
        gate, up: what the products give, and its bounds.
    """

    activation: str
    gate: Bounded
    up: Bounded
    glu: str = "glu"
    scale: float = 1.0
    offset: float = 0.0

    @property
    def keeps_zero(self) -> bool:
        """True if features are 0 where gate and up are."""
        bounds = (self.gate, self.up)
        return self.offset == 0 and all(each.lower <= 0 <= each.upper for each in bounds)

    def attributes(self) -> dict[str, str | float]:
        """Attributes of ``experts`` that are not at their defaults."""
        found: dict[str, str | float] = {
            "glu": self.glu,
            "activation_scale": self.scale,
            "up_offset": self.offset,
            "gate_lower": self.gate.lower,
            "gate_upper": self.gate.upper,
            "up_lower": self.up.lower,
            "up_upper": self.up.upper,
        }
        plain = ("glu", 1.0, 0.0, -inf, inf, -inf, inf)
        held = {
            name: value
            for (name, value), own in zip(found.items(), plain, strict=True)
            if value != own
        }
        return {"activation": self.activation, **held}


def gating_of(hidden: Followed) -> Gating:
    """The gating that makes the features which experts sum last (:class:`UnlikeError`)."""
    for act, up in factors_of(hidden):
        gate = _activated(act) or _swiglu(act)
        if gate is None:
            continue
        activation, glu, scale, inside = gate
        offset, rest = _offset(up)
        return Gating(activation, _bounded(inside), _bounded(rest), glu, scale, offset)
    raise UnlikeError(
        "the operand of the experts' last product is not act(gate) * up", hidden.value, 3
    )


def _activated(found: Followed) -> tuple[str, str, float, Followed] | None:
    """Match an activation: its name, and its operand."""
    found = beneath(found)
    op = found.value.op
    if op is None:
        return None
    if op.name == "maximum" and scalar(op.operands[1]) == 0:
        name = "relu"
    elif op.name == "gelu":
        name = _GELUS[op.attrs.text("approximate")]
    elif op.name == "silu":
        name = "silu"
    else:
        inside = logistic_operand(found)
        return None if inside is None else ("sigmoid", "glu", 1.0, inside)
    return name, "glu", 1.0, Followed(op.operands[0], found.dims)


def _swiglu(found: Followed) -> tuple[str, str, float, Followed] | None:
    """Match ``gate logistic(scale gate)``."""
    for gate, factor in factors_of(beneath(found)):
        inside = logistic_operand(factor)
        if inside is None:
            continue
        under, own = beneath(inside), beneath(gate)
        product = under.value.producer("multiply")
        for x, number in _either(product.operands if product else ()):
            scale = scalar(number)
            same = beneath(Followed(x, under.dims))
            if scale is not None and (same.value, same.dims) == (own.value, own.dims):
                return "sigmoid", "swiglu", scale, own
    return None


def _offset(found: Followed) -> tuple[float, Followed]:
    """A constant that is added, and the other addend."""
    found = beneath(found)
    op = found.value.producer("add")
    for x, number in _either(op.operands if op else ()):
        offset = scalar(number)
        if offset is not None:
            return offset, Followed(x, found.dims)
    return 0.0, found


def _bounded(found: Followed) -> Bounded:
    """The value under constant bounds (:class:`UnlikeError` for bounds in the wrong order)."""
    lower, upper = -inf, inf
    found = beneath(found)
    while (op := found.value.op) is not None:
        if op.name == "clamp":
            low, inside, high = op.operands
            bounds = scalar(low), scalar(high)
        elif op.name in ("maximum", "minimum"):
            inside, number = next(
                ((x, number) for x, number in _either(op.operands) if scalar(number) is not None),
                op.operands,
            )
            known = scalar(number)
            bounds = (known, inf) if op.name == "maximum" else (-inf, known)
        else:
            break
        if bounds[0] is None or bounds[1] is None:
            break
        lower, upper = max(lower, bounds[0]), min(upper, bounds[1])
        found = beneath(Followed(inside, found.dims))
    if lower > upper:
        raise UnlikeError("bounds of a gate leave nothing between them", found.value, 4)
    return Bounded(found, lower, upper)


def _either(operands: tuple[Value, ...]) -> tuple[tuple[Value, Value], ...]:
    """Two operands in both orders; nothing for another number."""
    if len(operands) != 2:
        return ()
    first, second = operands
    return (first, second), (second, first)
