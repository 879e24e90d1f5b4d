"""ATen ops of complex tensors, written for real and imaginary parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphgen.ir import Value
from graphgen.lowering.aten.call import ATEN, AtenCall, AtenResult
from graphgen.lowering.aten.complex_value import ComplexValue, aten_complex, of_parts

# Ops that move elements and do not look at them.
_MOVES = (
    "view.default _unsafe_view.default unsqueeze.default squeeze.default squeeze.dim squeeze.dims "
    "clone.default alias.default permute.default transpose.int t.default expand.default "
    "slice.Tensor select.int cat.default stack.default split_with_sizes.default split.Tensor "
    "unbind.int flip.default roll.default repeat.default index.Tensor index_select.default "
    "gather.default neg.default sum.default sum.dim_IntList mean.dim"
)


@aten_complex(*_MOVES.split())
def _each_part(c: AtenCall) -> AtenResult | ComplexValue | Sequence[ComplexValue]:
    """The op of the real parts and of the imaginary ones; sums are linear and belong here too."""
    pair = [ATEN[c.op](of_parts(c, part)) for part in ("real", "imag")]
    real, imag = ([made] if isinstance(made, Value) else list(made) for made in pair)
    made = [ComplexValue(a, b) for a, b in zip(real, imag, strict=True)]
    return made[0] if len(made) == 1 else made


@aten_complex("add.Tensor", "sub.Tensor")
def _add(c: AtenCall) -> ComplexValue:
    """Part by part; a real operand has no imaginary part."""
    zero = c.full(0, c.dtype, c.shape)
    made: list[Value] = []
    for part in ("real", "imag"):
        call = of_parts(c, part)
        if part == "imag":
            real = [k for k in ("self", "other") if not isinstance(c.given[k], ComplexValue)]
            call = replace(call, given={**call.given, **dict.fromkeys(real, zero)})
        sums = ATEN[c.op](call)
        assert isinstance(sums, Value)
        made.append(sums)
    return ComplexValue(*made)


@aten_complex("polar.default")
def _polar(c: AtenCall) -> ComplexValue:
    """``abs * (cos(angle) + i sin(angle))``."""
    length, angle = c.same(c.dtype, "abs", "angle")
    cosine, sine = c.b.cosine(angle), c.b.sine(angle)
    return ComplexValue(c.b.multiply(length, cosine), c.b.multiply(length, sine))


@aten_complex("complex.default")
def _complex(c: AtenCall) -> ComplexValue:
    real, imag = c.same(c.dtype, "real", "imag")
    return ComplexValue(real, imag)


@aten_complex("view_as_complex.default")
def _view_as_complex(c: AtenCall) -> ComplexValue:
    """The last dimension, of 2, is the real and the imaginary part."""
    x = c.value("self")
    last = x.type.rank - 1
    halves = [c.b.slice_dim(x, last, index, index + 1) for index in range(2)]
    real, imag = (c.b.reshape(half, c.shape) for half in halves)
    return ComplexValue(real, imag)


@aten_complex("view_as_real.default")
def _view_as_real(c: AtenCall) -> AtenResult:
    x = _operand(c, "self")
    shape = (*x.real.shape, 1)
    parts = [c.b.reshape(part, shape) for part in (x.real, x.imag)]
    return c.b.concatenate(parts, len(shape) - 1)


@aten_complex("mul.Tensor", "mul.Scalar")
def _multiply(c: AtenCall) -> ComplexValue:
    """``(a + ib)(c + id) = (ac - bd) + i(ad + bc)``; a real factor scales both parts."""
    left, right = (_spread(c, name) for name in ("self", "other"))
    if isinstance(left, ComplexValue) and isinstance(right, ComplexValue):
        product = c.b.multiply
        return ComplexValue(
            c.b.subtract(product(left.real, right.real), product(left.imag, right.imag)),
            c.b.add(product(left.real, right.imag), product(left.imag, right.real)),
        )
    if isinstance(left, ComplexValue):
        return _scaled(c, left, right)
    assert isinstance(right, ComplexValue)
    return _scaled(c, right, left)


def _scaled(c: AtenCall, x: ComplexValue, by: Value | ComplexValue) -> ComplexValue:
    assert isinstance(by, Value)
    return ComplexValue(c.b.multiply(x.real, by), c.b.multiply(x.imag, by))


def _spread(c: AtenCall, name: str) -> Value | ComplexValue:
    found = c.given[name]
    if isinstance(found, ComplexValue):
        parts = [c.spread(c.cast(part, c.dtype), c.shape) for part in (found.real, found.imag)]
        return ComplexValue(*parts)
    return c.full(c.operand(name), c.dtype, c.shape)


@aten_complex("_conj.default", "_conj_physical.default")
def _conjugate(c: AtenCall) -> ComplexValue:
    x = _operand(c, "self")
    return ComplexValue(x.real, c.b.negate(x.imag))


@aten_complex("abs.default")
def _abs(c: AtenCall) -> AtenResult:
    x = _operand(c, "self")
    squares = [c.b.multiply(part, part) for part in (x.real, x.imag)]
    return c.b.sqrt(c.b.add(*squares))


def _operand(c: AtenCall, name: str) -> ComplexValue:
    found = c.given[name]
    assert isinstance(found, ComplexValue), f"{c.op}: {name}"
    return found
