"""Decompositions of Neuron's custom calls, so that programs with them run on the CPU as well.

``graphgen.eval`` defines them in NumPy; operands and configurations are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphgen.build import Builder
from graphgen.composites.basics import gelu, silu
from graphgen.composites.native_kernels import decompose_native
from graphgen.composites.top_k import top_k
from graphgen.ir import Op, TensorType, Value, attrs_of
from graphgen.ir.dtype import f32, s32
from graphgen.ops.admitted_calls import PARTITIONER_MARKER, is_marker
from graphgen.ops.custom_calls import NKI, is_number, native_call
from graphgen.passes.core import NoMatch, no_match, rule

# (builder, operands, the number in the configuration, result types) -> the results.
Plain = Callable[[Builder, Sequence[Value], int, Sequence[TensorType]], Sequence[Value]]


def _over(x: Value, dim: int) -> tuple[int, list[int]]:
    """A dimension counted from the front, and the others."""
    axis = dim % max(x.type.rank, 1)
    return axis, [other for other in range(x.type.rank) if other != axis]


def _rms_norm(
    b: Builder, x: Sequence[Value], dim: int, types: Sequence[TensorType]
) -> Sequence[Value]:
    wide, weight, epsilon = (b.convert(value, f32) for value in x[:3])
    axis, kept = _over(wide, dim)
    count = float(wide.type.dims[axis])
    mean = b.divide(b.reduce(b.multiply(wide, wide), [axis], "add"), count)
    if mean.shape:
        epsilon = b.broadcast_in_dim(epsilon, mean.shape, ())
    scale = b.broadcast_in_dim(b.rsqrt(b.add(mean, epsilon)), wide.shape, kept)
    spread = b.broadcast_in_dim(b.reshape(weight, (wide.shape[axis],)), wide.shape, [axis])
    return [b.convert(b.multiply(b.multiply(wide, scale), spread), types[0].dtype)]


def _softmax(
    b: Builder, x: Sequence[Value], dim: int, types: Sequence[TensorType]
) -> Sequence[Value]:
    wide = b.convert(x[0], f32)
    axis, _ = _over(wide, dim)
    return [b.convert(b.softmax(wide, axis), types[0].dtype)]


def _extreme(kind: str) -> Plain:
    """Of equal elements the first."""

    def plain(
        b: Builder, x: Sequence[Value], dim: int, types: Sequence[TensorType]
    ) -> Sequence[Value]:
        axis, kept = _over(x[0], dim)
        best = b.broadcast_in_dim(b.reduce(x[0], [axis], kind), x[0].shape, kept)
        places = b.iota(s32, x[0].shape, axis)
        behind = b.full(x[0].type.dims[axis], places.type)
        found = b.select(b.compare(x[0], best, "EQ"), places, behind)
        return [b.convert(b.reduce(found, [axis], "minimum"), types[0].dtype)]

    return plain


def _top_k(b: Builder, x: Sequence[Value], k: int, types: Sequence[TensorType]) -> Sequence[Value]:
    made = top_k(b, x, attrs_of({"k": k}))
    return [b.convert(value, type_.dtype) for value, type_ in zip(made, types, strict=True)]


def _gelu(approximate: str) -> Plain:
    attrs = attrs_of({"approximate": approximate})
    return lambda b, x, dim, types: gelu(b, x, attrs)


_PLAIN: dict[str, Plain] = {
    "AwsNeuronRmsNorm": _rms_norm,
    "AwsNeuronSoftmax": _softmax,
    "AwsNeuronArgMax": _extreme("maximum"),
    "AwsNeuronArgMin": _extreme("minimum"),
    "AwsNeuronTopK": _top_k,
    "AwsNeuronGelu": _gelu("none"),
    "AwsNeuronGeluApprxTanh": _gelu("tanh"),
    "AwsNeuronSilu": lambda b, x, dim, types: silu(b, x, attrs_of({})),
}


def is_known(op: Op) -> bool:
    """True for a call of a kernel whose meaning is published."""
    target = op.attrs.text("target")
    return target in _PLAIN or (is_marker(target) and _hands_on(op))


def _hands_on(op: Op) -> bool:
    """True for a call whose results have the types of its operands."""
    return [value.type for value in op.operands] == [value.type for value in op.results]


@rule("custom_call")
def kernel_by_ops(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """A kernel whose meaning is published is that meaning.

    Given:
        arg %x : f32[2,4]
        %y = custom_call(%x) target="AwsNeuronSilu" results=[f32[2,4]] : f32[2,4]

    Result:
        arg %x : f32[2,4]
        %0 = logistic(%x) : f32[2,4]
        %y = multiply(%x, %0) : f32[2,4]
    """
    target, config = op.attrs.text("target"), op.attrs.text("config")
    if target == NKI:
        return _native(op, b)
    if target == PARTITIONER_MARKER:
        return no_match("XLA reads the sharding and removes the call")
    if is_marker(target) and _hands_on(op):
        return list(op.operands)
    plain = _PLAIN.get(target)
    if plain is None:
        return no_match(f"nothing is known about {target}")
    if config and not is_number(config):
        return no_match(f"the configuration of {target} is '{config}', not a number", depth=2)
    types = [result.type for result in op.results]
    made = plain(b, op.operands, int(config or -1), types)
    if [value.type for value in made] != types:
        given = ", ".join(value.type.text for value in made)
        return no_match(
            f"{target} gives {given}, and states {', '.join(t.text for t in types)}", depth=3
        )
    return made


def _native(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    call = native_call(op.attrs)
    made = decompose_native(b, call, op.operands)
    if made is None:
        return no_match(f"nothing is known about the native kernel '{call.kernel}'", depth=2)
    types = [result.type for result in op.results]
    if [value.type for value in made] != types:
        given = ", ".join(value.type.text for value in made)
        stated = ", ".join(type_.text for type_ in types)
        return no_match(f"kernel '{call.kernel}' gives {given}, and states {stated}", depth=3)
    return made
