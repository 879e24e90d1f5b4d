"""Calls of native kernels, as the configuration of ``AwsNeuronCustomNativeKernel`` states them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from graphgen.analysis.custom_calls import NKI, decode
from graphgen.errors import GraphgenError
from graphgen.ir import Attrs, TensorType

# Functions by which transformers-neuronx calls a kernel: the kernel, and what they pass to it.
_WRAPPERS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "wrapper_flash_attention_nki": ("flash_fwd", {"softmax_scale": 1.0}),
    "wrapper_flash_attention_bir": ("attention_isa_kernel", {}),
}


@dataclass(frozen=True, slots=True)
class NativeCall:
    """A call of a native kernel.

    Attributes:
        kernel: its name.
        arguments: what it is given beside its tensors.
        types: types of the results.
    """

    kernel: str
    arguments: Mapping[str, object]
    types: tuple[TensorType, ...]

    def number(self, key: str, default: float) -> float:
        """An argument that is a number; ``default`` where it is not given, or ``None``."""
        value = self.arguments.get(key)
        if value is None:
            return default
        if not isinstance(value, int | float):
            what = f"native kernel '{self.kernel}': {key} is {value!r}, not a number"
            raise GraphgenError("GG0403", what)
        return float(value)


def native_call(attrs: Attrs) -> NativeCall:
    """The call that a ``custom_call``'s configuration describes (GG0403 if it names no kernel)."""
    facts = decode(NKI, attrs.text("config"))
    name = facts.get("kernel", facts.get("config", ""))
    if not isinstance(name, str) or not name:
        raise GraphgenError("GG0403", "the configuration of a native kernel does not name it")
    name = name.rpartition(".")[2].lstrip("_")
    given = facts.get("arguments")
    arguments = cast(Mapping[str, object], given if isinstance(given, Mapping) else {})
    name, passed = _WRAPPERS.get(name, (name, {}))
    return NativeCall(name, {**passed, **arguments}, attrs.types("results"))
