"""Match the gating of an MLP between its products: activation, clamps, offset."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from graphgen.passes.raising.axes import (
    Followed,
    UnlikeError,
    beneath,
    factors_of,
    matched,
)
from graphgen.passes.raising.pattern_rule import logistic
from graphgen.pattern import apply, number, variables


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
        for (activation, glu), pattern in _ACTIVATIONS.items():
            for found, numbers in matched(act, pattern):
                gate, scale = _bounded(found["x"]), numbers.get("scale", 1.0)
                added = next(matched(up, _X + number("offset")), None)
                rest, offset = (added[0]["x"], added[1]["offset"]) if added else (up, 0.0)
                return Gating(activation, gate, _bounded(rest), glu, scale, offset)
    raise UnlikeError(
        "the operand of the experts' last product is not act(gate) * up", hidden.value, 3
    )


def _bounded(found: Followed) -> Bounded:
    """The value under constant bounds (:class:`UnlikeError` for bounds in the wrong order)."""
    lower, upper = -inf, inf
    while (inner := next(matched(found, _BOUNDS), None)) is not None:
        found, numbers = inner[0]["x"], inner[1]
        lower = max(lower, numbers.get("lower", -inf))
        upper = min(upper, numbers.get("upper", inf))
    found = beneath(found)
    if lower > upper:
        raise UnlikeError("bounds of a gate leave nothing between them", found.value, 4)
    return Bounded(found, lower, upper)


(_X,) = variables("x")
_BOUNDS = (
    apply("clamp", number("lower"), _X, number("upper"))
    | apply("maximum", _X, number("lower"))
    | apply("minimum", _X, number("upper"))
)
# By activation and ``glu`` of the op ``experts``; the rules of ACTIVATIONS ran before.
_ACTIVATIONS = {
    ("relu", "glu"): apply("maximum", _X, 0.0),
    ("silu", "glu"): apply("silu", _X),
    ("gelu", "glu"): apply("gelu", _X, approximate="none"),
    ("gelu_pytorch_tanh", "glu"): apply("gelu", _X, approximate="tanh"),
    ("quick_gelu", "glu"): apply("gelu", _X, approximate="sigmoid"),
    ("sigmoid", "glu"): logistic(_X),
    ("sigmoid", "swiglu"): _X * logistic(_X * number("scale")),
}
