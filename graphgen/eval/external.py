"""NumPy rules of the custom calls that Neuron's compiler documents.

Operands and configurations are those of AWS's own emitters: a norm or a softmax names its
dimension, a top-k its count, as a number in text. Calls that move or mark values return them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval.arithmetic import Arithmetic, Array
from graphgen.eval.elementwise import erf, logistic
from graphgen.eval.native_kernels import native_rule
from graphgen.eval.registry import MultiResultRule
from graphgen.eval.sorting import places_in_order
from graphgen.ir import Attrs
from graphgen.ir.dtype import f32
from graphgen.ops.admitted_calls import NEURON_MARKERS, SHARDING_MARKERS
from graphgen.ops.custom_calls import NKI, is_number


def _number(attrs: Attrs) -> int:
    config = attrs.text("config")
    if not is_number(config):
        what = f"custom_call {attrs.text('target')}: its configuration is '{config}', not a number"
        raise GraphgenError("GG0403", what)
    return int(config)


def _as_stated(how: Arithmetic, attrs: Attrs, *arrays: Array) -> Sequence[Array]:
    types = attrs.types("results")
    return [how.round(array, type_.dtype) for array, type_ in zip(arrays, types, strict=True)]


def _rms_norm(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    """Operands hidden, weight, epsilon; any of them may be of another float type."""
    dim = _number(attrs)
    wide, weight, epsilon = (array.astype(how.dtype(f32)) for array in x[:3])
    mean = np.mean(wide * wide, axis=dim, keepdims=True)
    shape = [1] * wide.ndim
    shape[dim] = wide.shape[dim]
    return _as_stated(how, attrs, wide / np.sqrt(mean + epsilon) * weight.reshape(shape))


def _softmax(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    dim, wide = _number(attrs), x[0].astype(how.dtype(f32))
    powers = np.exp(wide - wide.max(axis=dim, keepdims=True))
    return _as_stated(how, attrs, powers / powers.sum(axis=dim, keepdims=True))


def _softmax_backward(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    dim = _number(attrs)
    grad, out = (array.astype(how.dtype(f32)) for array in x)
    return _as_stated(how, attrs, (grad - (grad * out).sum(axis=dim, keepdims=True)) * out)


def _top_k(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    """Along the last dimension, largest first, of equal ones the first."""
    order = places_in_order(x[0], -1, descending=True)[..., : _number(attrs)]
    return _as_stated(how, attrs, np.take_along_axis(x[0], order, axis=-1), order)


def _extreme(find: Callable[..., Array]) -> MultiResultRule:
    def rule(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
        return _as_stated(how, attrs, find(x[0].astype(np.float64), axis=_number(attrs)))

    return rule


def _each(function: Callable[[Array], Array]) -> MultiResultRule:
    def rule(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
        return _as_stated(how, attrs, function(x[0].astype(how.dtype(f32))))

    return rule


# As a program in f32 has them.
_HALF_ROOT = float(np.float32(math.sqrt(0.5)))
_CUBIC = float(np.float32(0.044715))
_STEEP = float(np.float32(math.sqrt(8 / math.pi))) / 2


def _gelu(x: Array) -> Array:
    return x * (1 + erf(x * _HALF_ROOT)) / 2


def _gelu_tanh(x: Array) -> Array:
    return x * (1 + np.tanh(_STEEP * (x + _CUBIC * x**3))) / 2


def _same(how: Arithmetic, attrs: Attrs, x: Sequence[Array]) -> Sequence[Array]:
    return list(x)


_BY_TARGET: dict[str, MultiResultRule] = {
    "AwsNeuronRmsNorm": _rms_norm,
    "AwsNeuronSoftmax": _softmax,
    "AwsNeuronSoftmaxBackward": _softmax_backward,
    "AwsNeuronTopK": _top_k,
    "AwsNeuronArgMax": _extreme(np.argmax),
    "AwsNeuronArgMin": _extreme(np.argmin),
    "AwsNeuronGelu": _each(_gelu),
    "AwsNeuronGeluApprxTanh": _each(_gelu_tanh),
    "AwsNeuronSilu": _each(lambda x: x * logistic(x)),
    "AwsNeuronErf": _each(erf),
    **dict.fromkeys((*NEURON_MARKERS, *SHARDING_MARKERS), _same),
}


def kernel(attrs: Attrs) -> MultiResultRule | None:
    """The rule of a custom call; ``None`` for an unknown target."""
    if attrs.text("target") == NKI:
        return native_rule(attrs)
    return _BY_TARGET.get(attrs.text("target"))
