"""The activations checkpoints ask for, under transformers' names (its ``ACT2FN``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from graphgen.build import Builder
from graphgen.ir import Value


def activate(b: Builder, name: str, x: Value) -> Value:
    """The activation ``name`` of :data:`ACTIVATIONS` at every element of x."""
    return ACTIVATIONS[name](b, x)


def _silu(b: Builder, x: Value) -> Value:
    return b.silu(x)


def _gelu_tanh(b: Builder, x: Value) -> Value:
    return b.gelu(x, "tanh")


def _quick_gelu(b: Builder, x: Value) -> Value:
    return b.gelu(x, "sigmoid")


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
        "gelu_new": _gelu_tanh,
        "gelu_fast": _gelu_tanh,
        "gelu_accurate": _gelu_tanh,
        "gelu_pytorch_tanh": _gelu_tanh,
        "gelu_python_tanh": _gelu_tanh,
        "quick_gelu": _quick_gelu,
        "relu": _relu,
        "relu2": _relu2,
        "silu": _silu,
        "swish": _silu,
        "sigmoid": _sigmoid,
        "linear": _linear,
    }
)
