"""Executes NEFF files by the Neuron runtime's C interface, ``libnrt.so``.

Source: ``nrt.h`` and ``nrt_experimental.h`` of the Neuron SDK's documentation. It has run with a
stand-in for that library only.
"""

from __future__ import annotations

import ctypes
import os
import re
import time
from collections.abc import Callable, Sequence
from ctypes import (
    POINTER,
    byref,
    c_char,
    c_char_p,
    c_int,
    c_int32,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path

from graphgen.runtime.kit_runner.execution_request import ExecutionRequest
from graphgen.runtime.kit_runner.numbers import NARROWED, element_bytes, numbers

_NUMBER = re.compile(r"(\d+)$")
_ALIAS = ".must_alias_input"


def paired(wanted: Sequence[str], found: Sequence[str]) -> list[str]:
    """The NEFF's name of each wanted tensor; empty for one that the compiler left out.

    Names are the program's own, those with the mark of an alias, or ``input0``, ``input1``, ... by
    their place in the program.

    Raises:
        ValueError: they do not fit together.
    """
    plain = {name[: -len(_ALIAS)] if name.endswith(_ALIAS) else name: name for name in found}
    if all(name in wanted for name in plain):
        return [plain.get(name, "") for name in wanted]
    stems = {_NUMBER.sub("", name) for name in found}
    numbers = {int(match[1]): name for name in found if (match := _NUMBER.search(name))}
    if len(stems) == 1 and len(numbers) == len(found) and max(numbers) < len(wanted):
        return [numbers.get(at, "") for at in range(len(wanted))]
    if len(wanted) == len(found) == 1:
        return list(found)
    raise ValueError(f"the NEFF names {', '.join(found)}, the program {', '.join(wanted)}")


# Where AWS's package of the runtime puts it.
_FOLDER = "/opt/aws/neuron/lib"
_NO_FRAMEWORK, _ON_DEVICE = 1, 0
_INPUT = 0


class _TensorInfo(ctypes.Structure):
    """``nrt_tensor_info_t``."""

    _fields_ = [
        ("name", c_char * 256),
        ("usage", c_int),
        ("size", c_size_t),
        ("dtype", c_int),
        ("shape", POINTER(c_uint32)),
        ("ndim", c_uint32),
    ]


class DeviceError(Exception):
    """The runtime refuses something, with its status."""


# By function: the types of its arguments. All but the last three return a status.
_FUNCTIONS: dict[str, Sequence[object]] = {
    "nrt_init": (c_int, c_char_p, c_char_p),
    "nrt_load": (c_void_p, c_size_t, c_int32, c_int32, POINTER(c_void_p)),
    "nrt_unload": (c_void_p,),
    "nrt_get_model_tensor_info": (c_void_p, POINTER(c_void_p)),
    "nrt_free_model_tensor_info": (c_void_p,),
    "nrt_allocate_tensor_set": (POINTER(c_void_p),),
    "nrt_tensor_allocate": (c_int, c_int, c_size_t, c_char_p, POINTER(c_void_p)),
    "nrt_tensor_write": (c_void_p, c_void_p, c_uint64, c_size_t),
    "nrt_tensor_read": (c_void_p, c_void_p, c_uint64, c_size_t),
    "nrt_add_tensor_to_tensor_set": (c_void_p, c_char_p, c_void_p),
    "nrt_execute": (c_void_p, c_void_p, c_void_p),
    "nrt_destroy_tensor_set": (POINTER(c_void_p),),
    "nrt_tensor_free": (POINTER(c_void_p),),
    "nrt_close": (),
}
_WITHOUT_STATUS = ("nrt_destroy_tensor_set", "nrt_tensor_free", "nrt_close")


def library_path() -> str:
    """The runtime's library; empty if there is none.

    ``GRAPHGEN_KIT_LIBNRT`` names it where it is in no usual place.
    """
    given = os.environ.get("GRAPHGEN_KIT_LIBNRT", "")
    folders = [*os.environ.get("LD_LIBRARY_PATH", "").split(":"), _FOLDER]
    found = [
        Path(folder) / name for folder in folders if folder for name in ("libnrt.so", "libnrt.so.1")
    ]
    paths = [Path(given)] if given else found
    return next((str(path) for path in paths if path.is_file()), "")


class NrtDevice:
    """The first core that the runtime gives this process (DeviceError, OSError)."""

    def __init__(self) -> None:
        library = ctypes.CDLL(library_path())
        self._functions: dict[str, Callable[..., int | None]] = {}
        for name, types in _FUNCTIONS.items():
            function = getattr(library, name)
            function.argtypes = list(types)
            function.restype = None if name in _WITHOUT_STATUS else c_int
            self._functions[name] = function
        self._call("nrt_init", _NO_FRAMEWORK, b"", b"")

    def _call(self, name: str, *arguments: object) -> None:
        status = self._functions[name](*arguments)
        if status:
            raise DeviceError(f"{name} gives status {status}")

    def run(self, request: ExecutionRequest) -> tuple[list[bytes], list[float]]:
        """The results of the first run in order, and the seconds of each run after it."""
        data = Path(request["neff"]).read_bytes()
        model = c_void_p()
        self._call("nrt_load", data, len(data), 0, 1, byref(model))
        try:
            return _Launch(self._call, model, request).run()
        finally:
            self._call("nrt_unload", model)

    def close(self) -> None:
        """Give the core back."""
        self._call("nrt_close")


class _Launch:
    """One loaded program with its tensors."""

    def __init__(
        self, call: Callable[..., None], model: c_void_p, request: ExecutionRequest
    ) -> None:
        self._call = call
        self._model = model
        self._request = request
        self._held: list[c_void_p] = []
        self._sets: list[c_void_p] = []

    def run(self) -> tuple[list[bytes], list[float]]:
        try:
            return self._run()
        finally:
            for given in self._sets:
                self._call("nrt_destroy_tensor_set", byref(given))
            for tensor in self._held:
                self._call("nrt_tensor_free", byref(tensor))

    def _run(self) -> tuple[list[bytes], list[float]]:
        ins, outs = self._sizes()
        request = self._request
        inputs, outputs = self._set(), self._set()
        by_argument: dict[str, c_void_p] = {}
        names = paired([item["name"] for item in request["inputs"]], list(ins))
        for item, name in zip(request["inputs"], names):  # noqa: B905 - Python 3.9
            if not name:
                # Nothing reads the argument; a result in its place would need it.
                continue
            content = _fitting(Path(item["path"]).read_bytes(), item["dtype"], ins[name])
            tensor = self._tensor(name, ins[name])
            self._call("nrt_tensor_write", tensor, content, 0, len(content))
            self._call("nrt_add_tensor_to_tensor_set", inputs, name.encode(), tensor)
            by_argument[item["name"]] = tensor
        made: list[tuple[c_void_p, int]] = []
        names = paired([item["name"] for item in request["outputs"]], list(outs))
        for item, name in zip(request["outputs"], names):  # noqa: B905 - Python 3.9
            if not name:
                raise DeviceError(f"the NEFF has no output {item['name']}")
            # A result in the place of an argument is that argument's tensor.
            alias = request["aliases"].get(item["name"], "")
            tensor = by_argument[alias] if alias else self._tensor(name, outs[name])
            self._call("nrt_add_tensor_to_tensor_set", outputs, name.encode(), tensor)
            made.append((tensor, outs[name]))
        self._call("nrt_execute", self._model, inputs, outputs)
        results = [self._read(tensor, size) for tensor, size in made]
        times: list[float] = []
        for _ in range(request["repeat"]):
            start = time.perf_counter()
            self._call("nrt_execute", self._model, inputs, outputs)
            times.append(time.perf_counter() - start)
        return results, times

    def _sizes(self) -> tuple[dict[str, int], dict[str, int]]:
        """Bytes of the NEFF's inputs and outputs, by name."""
        pointer = c_void_p()
        self._call("nrt_get_model_tensor_info", self._model, byref(pointer))
        try:
            count = c_uint64.from_address(pointer.value or 0).value
            start = (pointer.value or 0) + ctypes.sizeof(c_uint64)
            ins: dict[str, int] = {}
            outs: dict[str, int] = {}
            for index in range(count):
                info = _TensorInfo.from_address(start + index * ctypes.sizeof(_TensorInfo))
                side = ins if info.usage == _INPUT else outs
                side[info.name.decode()] = info.size
            return ins, outs
        finally:
            self._call("nrt_free_model_tensor_info", pointer)

    def _set(self) -> c_void_p:
        made = c_void_p()
        self._call("nrt_allocate_tensor_set", byref(made))
        self._sets.append(made)
        return made

    def _tensor(self, name: str, size: int) -> c_void_p:
        made = c_void_p()
        self._call("nrt_tensor_allocate", _ON_DEVICE, 0, size, name.encode(), byref(made))
        self._held.append(made)
        return made

    def _read(self, tensor: c_void_p, size: int) -> bytes:
        buffer = ctypes.create_string_buffer(max(size, 1))
        self._call("nrt_tensor_read", tensor, buffer, 0, size)
        return buffer.raw[:size]


def _fitting(content: bytes, kind: str, size: int) -> bytes:
    """An array as the NEFF takes it: 64-bit elements with 32 bits, where it holds them so."""
    if len(content) == size:
        return content
    if kind in NARROWED and len(content) == 2 * size:
        if kind == "f64":
            import struct

            return struct.pack(f"<{size // 4}f", *numbers(kind, content))
        width = element_bytes(kind)
        return b"".join(content[at : at + 4] for at in range(0, len(content), width))
    raise DeviceError(f"the NEFF takes {size} bytes, the program's argument has {len(content)}")
