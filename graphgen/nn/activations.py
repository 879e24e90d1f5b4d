"""Activation functions by transformers' name (its ``ACT2FN``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from graphgen.build import Builder
from graphgen.ir import Value


def activate(b: Builder, name: str, x: Value) -> Value:
    """Apply the activation ``name`` of :data:`ACTIVATIONS` to every element of x."""
    return ACTIVATIONS[name](b, x)


def _silu(b: Builder, x: Value) -> Value:
    return b.silu(x)


def _gelu_tanh(b: Builder, x: Value) -> Value:
    return b.gelu(x, "tanh")


def _quick_gelu(b: Builder, x: Value) -> Value:
    return b.gelu(x, "sigmoid")


def _gelu(b: Builder, x: Value) -> Value:
    return b.gelu(x, "none")


def _gelu_10(b: Builder, x: Value) -> Value:
    return _clipped(b, _gelu(b, x), -10.0, 10.0)


def _clipped(b: Builder, x: Value, low: float, high: float) -> Value:
    return b.binary("minimum", b.binary("maximum", x, low), high)


def _relu6(b: Builder, x: Value) -> Value:
    return _clipped(b, x, 0.0, 6.0)


def _leaky_relu(b: Builder, x: Value) -> Value:
    return b.binary("maximum", x, b.binary("multiply", x, 0.01))


def _hardswish(b: Builder, x: Value) -> Value:
    gate = _clipped(b, b.binary("add", x, 3.0), 0.0, 6.0)
    return b.binary("divide", b.binary("multiply", x, gate), 6.0)


def _tanh(b: Builder, x: Value) -> Value:
    return b.unary("tanh", x)


def _softplus(b: Builder, x: Value) -> Value:
    """``log(1 + exp(x))`` as ``relu(x) + log1p(exp(-|x|))``, which cannot overflow."""
    small = b.unary("log_plus_one", b.unary("exponential", b.unary("negate", b.abs(x))))
    return b.binary("add", _relu(b, x), small)


def _mish(b: Builder, x: Value) -> Value:
    return b.binary("multiply", x, _tanh(b, _softplus(b, x)))


def _sqrt_softplus(b: Builder, x: Value) -> Value:
    return b.unary("sqrt", _softplus(b, x))


def _laplace(b: Builder, x: Value) -> Value:
    """``(1 + erf((x - m) / (s sqrt(2)))) / 2`` with MEGA's m and s (arXiv 2209.10655)."""
    inner = b.binary("divide", b.binary("subtract", x, 0.707107), 0.282095 * math.sqrt(2.0))
    return b.binary("multiply", b.binary("add", b.unary("erf", inner), 1.0), 0.5)


def _relu(b: Builder, x: Value) -> Value:
    return b.binary("maximum", x, 0.0)


def _relu2(b: Builder, x: Value) -> Value:
    positive = _relu(b, x)
    return b.binary("multiply", positive, positive)


def _sigmoid(b: Builder, x: Value) -> Value:
    return b.unary("logistic", x)


def _linear(b: Builder, x: Value) -> Value:
    return x


ACTIVATIONS: Mapping[str, Callable[[Builder, Value], Value]] = MappingProxyType(
    {
        "gelu": _gelu,
        "gelu_python": _gelu,
        "gelu_10": _gelu_10,
        "gelu_new": _gelu_tanh,
        "gelu_fast": _gelu_tanh,
        "gelu_accurate": _gelu_tanh,
        "gelu_pytorch_tanh": _gelu_tanh,
        "gelu_python_tanh": _gelu_tanh,
        "quick_gelu": _quick_gelu,
        "relu": _relu,
        "relu2": _relu2,
        "relu6": _relu6,
        "leaky_relu": _leaky_relu,
        "hardswish": _hardswish,
        "mish": _mish,
        "laplace": _laplace,
        "sqrtsoftplus": _sqrt_softplus,
        "tanh": _tanh,
        "silu": _silu,
        "swish": _silu,
        "sigmoid": _sigmoid,
        "linear": _linear,
    }
)
