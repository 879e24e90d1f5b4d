"""Semantics of native kernels by name: a NumPy function, and a decomposition into ops.

A custom call ``AwsNeuronCustomNativeKernel`` names a kernel that Neuron's compiler brings, or a
user's own. With a meaning here, a program that calls it is evaluated, compared and run on the CPU;
HLO for Neuron keeps the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import Value, tensor
from graphgen.ir.dtype import f32, s32
from graphgen.ops.custom_calls import NativeCall

if TYPE_CHECKING:
    from graphgen.eval.native_kernels import NumpyRule

# (builder, the call, operands) -> results.
Decomposition = Callable[[Builder, NativeCall, Sequence[Value]], Sequence[Value]]


@dataclass(frozen=True, slots=True)
class NativeKernel:
    """The meaning of a kernel.

    Attributes:
        name: the kernel's, without leading underscores.
        numpy: its results; floats come in f32 or wider, and are rounded to the stated types.
        decomposition: the ops that give them, of any type; they are converted to the stated ones.
    """

    name: str
    numpy: NumpyRule
    decomposition: Decomposition


def register_native_kernel(kernel: NativeKernel) -> None:
    """Give a kernel a meaning, for this process (GG0107 if it has one)."""
    from graphgen.eval.native_kernels import NUMPY_RULES

    if kernel.name in NUMPY_RULES:
        raise GraphgenError(
            "GG0107",
            f"native kernel '{kernel.name}' has a meaning",
            help=f"forget_native_kernel('{kernel.name}') takes it away",
        )
    NUMPY_RULES[kernel.name] = kernel.numpy
    _DECOMPOSITIONS[kernel.name] = kernel.decomposition


def forget_native_kernel(name: str) -> None:
    """Take the meaning of a kernel away."""
    from graphgen.eval.native_kernels import NUMPY_RULES

    NUMPY_RULES.pop(name, None)
    _DECOMPOSITIONS.pop(name, None)


def decompose_native(b: Builder, call: NativeCall, x: Sequence[Value]) -> Sequence[Value] | None:
    """The results by plain ops, of the stated element types; ``None`` for an unknown kernel."""
    found = _DECOMPOSITIONS.get(call.kernel)
    if found is None:
        return None
    made = found(b, call, x)
    return [b.convert(value, type_.dtype) for value, type_ in zip(made, call.types, strict=True)]


def _cumsum(b: Builder, call: NativeCall, x: Sequence[Value]) -> Sequence[Value]:
    """Add each value to the one 1, 2, 4, ... places on: all sums after log2(n) steps."""
    total = b.convert(x[0], f32) if x[0].dtype.is_float else x[0]
    axis = int(call.number("axis", -1)) % total.type.rank
    size, zero = total.type.dims[axis], b.full(0, tensor(total.dtype))
    step = 1
    while step < size:
        front = [step if dim == axis else 0 for dim in range(total.type.rank)]
        kept = b.slice_dim(total, axis, 0, size - step)
        total = b.add(total, b.pad(kept, zero, front, [0] * total.type.rank))
        step *= 2
    return [total]


def _attention(b: Builder, x: Sequence[Value], scale: float, causal: bool) -> Sequence[Value]:
    query, key, value = (b.convert(item, f32) for item in x[:3])
    rank = query.type.rank
    groups = query.type.dims[rank - 3] // key.type.dims[rank - 3]
    if groups > 1:
        key, value = _repeated(b, key, groups), _repeated(b, value, groups)
    heads = tuple(range(rank - 2))
    over, batch = ((rank - 2,), (rank - 2,)), (heads, heads)
    scores = b.multiply(b.dot_general(query, key, over, batch, f32), scale)
    if causal:
        rows, columns = (b.iota(s32, scores.shape, rank - 2 + i) for i in (0, 1))
        below = b.compare(columns, rows, "LE")
        scores = b.select(below, scores, b.full(float("-inf"), scores.type))
    weights = b.softmax(scores, rank - 1)
    return [b.dot_general(weights, value, ((rank - 1,), (rank - 2,)), batch, f32)]


def _repeated(b: Builder, x: Value, groups: int) -> Value:
    """Each head of [..., heads, a, b] ``groups`` times over."""
    rank, (*front, heads, a, c) = x.type.rank, x.type.dims
    kept = [*range(rank - 2), rank - 1, rank]
    wide = b.broadcast_in_dim(x, (*front, heads, groups, a, c), kept)
    return b.reshape(wide, (*front, heads * groups, a, c))


def _flash_forward(b: Builder, call: NativeCall, x: Sequence[Value]) -> Sequence[Value]:
    scale = call.number("softmax_scale", x[0].type.dims[-2] ** -0.5)
    return _attention(b, x, scale, bool(call.number("use_causal_mask", 1)))


def _attention_isa(b: Builder, call: NativeCall, x: Sequence[Value]) -> Sequence[Value]:
    causal = str(call.arguments.get("kernel_name", "Causal")).startswith("Causal")
    return _attention(b, x, call.number("scale", 1.0), causal)


_DECOMPOSITIONS: Final[dict[str, Decomposition]] = {
    "cumsum": _cumsum,
    "flash_fwd": _flash_forward,
    "attention_isa_kernel": _attention_isa,
}
