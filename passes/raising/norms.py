"""Raise rms_norm and layer_norm, also without weight or bias, which are ones and zeros then."""

from __future__ import annotations

from graphgen.build import Builder
from graphgen.ir import Value, tensor
from graphgen.ir.dtype import f64
from graphgen.ops import op_def
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.core.rule import Rule
from graphgen.passes.raising.matchers import placed
from graphgen.passes.raising.pattern_rule import ROW, Found, PatternRule, derived, first_operand
from graphgen.pattern import OpPattern, apply, number, total, variables

_VECTORS = {"weight": 1.0, "bias": 0.0}


def _places(found: Found) -> list[list[int]]:
    """The dimensions of each vector; without one, those along which the sum is."""
    given = [found.places(name) for name in _VECTORS if name in found.bound.values]
    rows, shape = found.places_of_op("reduce"), found.root.result.shape
    return given or [[i for i, size in enumerate(shape) if i not in rows and size != 1]]


def _check(found: Found) -> NoMatch | None:
    """Require one dimension: the mean is over it, and weight and bias are along it."""
    places, at = _places(found), found.value("operand")
    if any(len(place) != 1 or place != places[0] for place in places):
        bare = "weight" not in found.bound.values
        return no_match(f"the {'mean' if bare else 'weight'} is not one row for all", at)
    ((dim,), *_), shape = places, found.root.result.shape
    rows = found.places_of_op("reduce")
    others = [i for i, size in enumerate(shape) if i != dim and size != 1]
    if dim in rows or any(other not in rows for other in others):
        return no_match("the mean is along another dimension than the weight", at, depth=2)
    count, inverse, size = found.number("count"), found.number("inverse"), shape[dim]
    # A factor only where it is exact, so that both are equal.
    exact = isinstance(size, int) and size & (size - 1) == 0 and inverse == 1 / size
    if count != size and not exact:
        return no_match("the sum is not divided by the count of its terms", at, depth=3)
    if found.root.result.dtype is f64:
        return no_match("it is computed in f64, the composite in f32", found.root.result, depth=4)
    return None


def _along_last(found: Found, b: Builder, name: str) -> Value:
    """Build the norm along the weight's dimension, transposed to be the last one."""
    ((dim,), *_), epsilon = _places(found), found.number("epsilon") or 0.0
    shape = found.root.result.shape
    order = [*(other for other in range(len(shape)) if other != dim), dim]
    x = placed(b, *found.operand("operand"), order, [shape[i] for i in order])
    row = tensor(found.root.result.dtype, x.shape[-1:])
    made = b.op(
        name,
        x,
        *[
            found.vector(b, vector) if vector in found.bound.values else b.full(number, row)
            for vector, number in _VECTORS.items()
            if vector in op_def(name).operands
        ],
        epsilon=epsilon,
    )
    return placed(b, made, order, range(len(shape)), shape)


def _of_squares() -> OpPattern:
    """The variance as the mean of squares less the square of the mean, as Flax has it."""
    x, weight, bias = variables("operand weight bias")
    mean = total(x) / number("count") | total(x) * number("inverse")
    square = total(x * x) / number("count") | total(x * x) * number("inverse")
    variance = square - mean * mean
    kept = variance | apply("maximum", variance, 0.0)
    root = apply("rsqrt", kept + number("epsilon"))
    return (x - mean) * (root * weight) + bias


def _scaled_root() -> OpPattern:
    """The root is multiplied by the weight first."""
    x, weight, bias = variables("operand weight bias")
    mean = total(x) / number("count") | total(x) * number("inverse")
    centered = x - mean
    squares = total(centered * centered)
    variance = squares / number("count") | squares * number("inverse")
    root = apply("rsqrt", variance + number("epsilon"))
    return centered * (root * weight) + bias


def _rule(name: str, part: str, reason: str, *patterns: OpPattern) -> Rule:
    return PatternRule(
        f"raise-{name.replace('_', '-')}{part}",
        patterns,
        lambda found, b: _check(found) or _along_last(found, b, name),
        reason,
    ).rule


_TOKENS = (5, 5, ROW)
_LAYER = derived("layer_norm", _TOKENS, (ROW,), (ROW,), captured="epsilon")
_RMS = derived("rms_norm", _TOKENS, (ROW,), captured="epsilon")
_NO_ROOT = "no row is divided by the root of its mean square"
_NO_DEVIATION = "no row is centered and divided by the root of its variance"
# Applied one after another, the forms with weight and bias first: those without are parts of them.
NORMS = (
    _rule("layer_norm", "", _NO_DEVIATION, _LAYER, _scaled_root(), _of_squares()),
    _rule("layer_norm", "-without-bias", _NO_DEVIATION, first_operand(_LAYER)),
    _rule("rms_norm", "", _NO_ROOT, _RMS),
    _rule("layer_norm", "-bare", _NO_DEVIATION, first_operand(first_operand(_LAYER))),
    _rule("rms_norm", "-bare", _NO_ROOT, first_operand(_RMS)),
)
