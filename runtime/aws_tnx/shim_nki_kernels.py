"""Native kernels under the names of ``neuronxcc.nki``: a call is recorded by name, not compiled."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from graphgen.errors import GraphgenError
from graphgen.eval.native_kernels import NUMPY_RULES


@dataclass(frozen=True, slots=True, eq=False)
class KernelTensor:
    """A tensor of a kernel, with shape and type only.

    Attributes:
        shape: sizes.
        dtype: the element type, as the framework's kernel class translates it.
    """

    shape: tuple[int, ...]
    dtype: object


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call of a published kernel.

    Attributes:
        name: the kernel's.
        tensors: what it reads, then what it writes.
        arguments: numbers, words and truth values.
    """

    name: str
    tensors: Sequence[KernelTensor]
    arguments: Mapping[str, object]


_calls: ContextVar[list[RecordedCall] | None] = ContextVar("_calls", default=None)


class PublishedKernel:
    """A kernel that Neuron's compiler brings: calling it records its name and its arguments.

    Args:
        name: the kernel's.
        parameters: names of its parameters, in order.
    """

    def __init__(self, name: str, *parameters: str) -> None:
        self.__name__ = name
        self.parameters = parameters

    def __getitem__(self, grid: object) -> PublishedKernel:
        return self

    def __call__(self, *args: Any, **named: Any) -> None:
        """Record the call (GG0705 outside of a framework's kernel, or for unknown arguments)."""
        recorded = _calls.get()
        if recorded is None:
            raise GraphgenError("GG0705", f"{self.__name__} is called outside of a program")
        unknown = [key for key in named if key not in self.parameters]
        if unknown or len(args) > len(self.parameters):
            what = f"{self.__name__} has no parameter {', '.join(unknown) or len(args)}"
            raise GraphgenError("GG0705", what)
        given = {**dict(zip(self.parameters, args, strict=False)), **named}
        if given.get("dropout_p"):
            raise GraphgenError("GG0904", f"{self.__name__}: dropout is not built here")
        tensors = [value for value in given.values() if isinstance(value, KernelTensor)]
        arguments = {
            key: value
            for key, value in given.items()
            if isinstance(value, bool | int | float | str)
        }
        recorded.append(RecordedCall(self.__name__, tensors, arguments))


class FrameworkKernel:
    """A kernel as a framework calls it; frameworks override the three translating methods.

    Args:
        func_name: the function's name.
        func: calls a published kernel on tensors, those that it writes last.
        grid: sizes of the launch grid.
        settings: of the compiler; without effect here.
    """

    def __init__(
        self,
        func_name: str,
        func: Callable[..., object],
        grid: Sequence[int] = (),
        **settings: object,
    ) -> None:
        self.func_name, self.func, self.grid = func_name, func, tuple(grid)
        self.settings = settings

    def translate_to_neuron_dtype(self, _dtype: Any) -> object:
        """The element type of a framework's tensor."""
        return _dtype

    def is_framework_tensor(self, t: Any) -> bool:
        """Test whether ``t`` is a tensor of the framework."""
        raise _not_overridden(self, "is_framework_tensor")

    def map_framework_tensor(self, t: Any) -> tuple[tuple[int, ...], object]:
        """Shape and element type of a framework's tensor."""
        raise _not_overridden(self, "map_framework_tensor")

    def dump_config(self, *given: Any) -> tuple[str, list[str], list[str]]:
        """The configuration of the custom call, which names the kernel, and names of tensors.

        Raises:
            GraphgenError: GG0904 for a function other than one call of a published kernel.
        """
        name, arguments = self.func_name.lstrip("_"), {}
        tensors = [self._tensor(item) for item in given]
        if name not in NUMPY_RULES:
            call = self._recorded(tensors)
            name, arguments = call.name, dict(call.arguments)
        config = {"func_name": name, "grid": list(self.grid), "arguments": arguments}
        text = json.dumps(config, sort_keys=True)
        names = [f"tensor{index}" for index in range(len(tensors))]
        return base64.b64encode(text.encode()).decode(), names, names

    def _tensor(self, item: Any) -> object:
        if not self.is_framework_tensor(item):
            return item
        shape, dtype = self.map_framework_tensor(item)
        return KernelTensor(tuple(shape), self.translate_to_neuron_dtype(dtype))

    def _recorded(self, tensors: Sequence[object]) -> RecordedCall:
        with _recording() as calls:
            self.func(*tensors)
        if len(calls) != 1 or [*map(id, calls[0].tensors)] != [*map(id, tensors)]:
            raise GraphgenError(
                "GG0904",
                f"kernel '{self.func_name}' is not one call of a published kernel on its tensors",
                help="graphgen.composites.native_kernels.register_native_kernel gives it a meaning",
            )
        return calls[0]


def _not_overridden(kernel: FrameworkKernel, method: str) -> GraphgenError:
    return GraphgenError("GG0705", f"{type(kernel).__name__} does not override {method}")


@contextmanager
def _recording() -> Generator[list[RecordedCall]]:
    calls: list[RecordedCall] = []
    token = _calls.set(calls)
    try:
        yield calls
    finally:
        _calls.reset(token)


def trace(*args: object, **named: object) -> object:
    """Refuse to trace a kernel of the user's own (GG0904)."""
    raise GraphgenError("GG0904", "neuronxcc.nki.trace needs Neuron's compiler")


PUBLISHED: Final = {
    kernel.__name__: kernel
    for kernel in (
        PublishedKernel("cumsum", "x", "y", "axis"),
        PublishedKernel(
            "flash_fwd",
            *("q", "k", "v", "seed", "o", "lse", "softmax_scale", "use_causal_mask"),
            *("mixed_precision", "dropout_p", "config"),
        ),
        PublishedKernel("attention_isa_kernel", "q", "k", "v", "scale", "out", "kernel_name"),
    )
}
