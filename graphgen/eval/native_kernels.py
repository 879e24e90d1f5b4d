"""NumPy rules of native kernels, the custom calls ``AwsNeuronCustomNativeKernel``, by name.

The configuration of such a call names its kernel. The layouts of operands and the defaults of
arguments are those of the kernels that Neuron's compiler publishes (``neuronxcc.nki.kernels``).
:mod:`graphgen.composites.native_kernels` registers more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval.arithmetic import Arithmetic, Array
from graphgen.eval.registry import MultiResultRule
from graphgen.ir import Attrs
from graphgen.ir.dtype import f32
from graphgen.ops.custom_calls import NativeCall, native_call

# (the call, operands in f32 or wider where they are floats) -> results.
NumpyRule = Callable[[NativeCall, Sequence[Array]], Sequence[Array]]


def native_rule(attrs: Attrs) -> MultiResultRule:
    """The rule of a native kernel (GG0403 for one that is not registered)."""
    call = native_call(attrs)
    found = NUMPY_RULES.get(call.kernel)
    if found is None:
        raise unknown_kernel(call.kernel)

    def rule(how: Arithmetic, attrs: Attrs, arrays: Sequence[Array]) -> Sequence[Array]:
        wide = [_widened(how, array) for array in arrays]
        results = found(call, wide)
        if [array.shape for array in results] != [type_.dims for type_ in call.types]:
            given = ", ".join(str(list(array.shape)) for array in results)
            stated = ", ".join(type_.text for type_ in call.types)
            what = f"native kernel '{call.kernel}' gives {given}, and {stated} is stated"
            raise GraphgenError("GG0403", what)
        return [how.round(a, type_.dtype) for a, type_ in zip(results, call.types, strict=True)]

    return rule


def unknown_kernel(name: str) -> GraphgenError:
    """Make the error for a kernel without a meaning."""
    known = ", ".join(NUMPY_RULES)
    return GraphgenError(
        "GG0403",
        f"native kernel '{name}' has no meaning here",
        note=f"known: {known}",
        help="graphgen.composites.native_kernels.register_native_kernel gives it one",
    )


def _widened(how: Arithmetic, array: Array) -> Array:
    return array if array.dtype.kind in "biu" else array.astype(how.dtype(f32))


def _cumsum(call: NativeCall, x: Sequence[Array]) -> Sequence[Array]:
    """Running sums along ``axis``, by default the last."""
    return [np.cumsum(x[0], axis=int(call.number("axis", -1)), dtype=x[0].dtype)]


def _attention(call: NativeCall, x: Sequence[Array], scale: float, causal: bool) -> Sequence[Array]:
    """Queries and keys are [..., d, s], values [..., s, d]; the mask has no later positions."""
    query, key, value = x[:3]
    if query.shape[-3] != key.shape[-3]:
        groups = query.shape[-3] // key.shape[-3]
        key, value = np.repeat(key, groups, axis=-3), np.repeat(value, groups, axis=-3)
    scores = np.swapaxes(query, -1, -2) @ key * scale
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return [(powers / powers.sum(axis=-1, keepdims=True)) @ value]


def _flash_forward(call: NativeCall, x: Sequence[Array]) -> Sequence[Array]:
    scale = call.number("softmax_scale", x[0].shape[-2] ** -0.5)
    return _attention(call, x, scale, bool(call.number("use_causal_mask", 1)))


def _attention_isa(call: NativeCall, x: Sequence[Array]) -> Sequence[Array]:
    causal = str(call.arguments.get("kernel_name", "Causal")).startswith("Causal")
    return _attention(call, x, call.number("scale", 1.0), causal)


NUMPY_RULES: dict[str, NumpyRule] = {
    "cumsum": _cumsum,
    "flash_fwd": _flash_forward,
    "attention_isa_kernel": _attention_isa,
}
