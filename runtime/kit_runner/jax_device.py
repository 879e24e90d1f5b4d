"""Executes programs through JAX's interface to a device, which compiles the HLO once more.

Used where the runtime's own library is not there. It has run on a CPU only.
"""

from __future__ import annotations

import os
import shlex
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from graphgen.runtime.kit_runner.execution_request import ArrayFile, ExecutionRequest

# The words of a command line before its options: the command, the file, and where results go.
_OPTIONS_FROM = 6
_NUMPY = {
    "pred": "bool", "s8": "int8", "s16": "int16", "s32": "int32", "s64": "int64", "u8": "uint8",
    "u16": "uint16", "u32": "uint32", "u64": "uint64", "f16": "float16", "f32": "float32",
    "f64": "float64", "bf16": "bfloat16", "f8e4m3": "float8_e4m3", "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2", "c64": "complex64", "c128": "complex128",
}  # fmt: skip


def is_importable() -> bool:
    """True if JAX is there with AWS's plugin."""
    return find_spec("jax") is not None and find_spec("libneuronxla") is not None


class JaxDevice:
    """The first device of a platform.

    Args:
        platform: as JAX calls it.
    """

    def __init__(self, platform: str = "neuron") -> None:
        import jax

        self._jax = cast(Any, jax)
        self._jax.config.update("jax_enable_x64", True)
        self._device: Any = self._jax.devices(platform)[0]

    def run(self, request: ExecutionRequest) -> tuple[list[bytes], list[float]]:
        """The results of the first run in order, and the seconds of each run after it."""
        # The plugin reads its options here; input and output files are its own.
        os.environ["NEURON_CC_FLAGS"] = shlex.join(request["words"][_OPTIONS_FROM:])
        executable = self._loaded(Path(request["hlo"]).read_bytes())
        arguments = [self._array(item) for item in request["inputs"]]
        # The kit's arrays are not given away: results in their place are copies.
        first = executable.execute(arguments)
        results = [_bytes(item) for item in first]
        times: list[float] = []
        for _ in range(request["repeat"]):
            arguments = [self._array(item) for item in request["inputs"]]
            start = time.perf_counter()
            for item in executable.execute(arguments):
                item.block_until_ready()
            times.append(time.perf_counter() - start)
        return results, times

    def close(self) -> None:
        """Nothing is held beyond the process."""

    def _loaded(self, hlo: bytes) -> Any:
        """The program, compiled by the plugin."""
        internal = cast(Any, import_module("jax._src.lib"))
        options = internal.xla_client.CompileOptions()
        devices = internal.xla_client.DeviceList((self._device,))
        stablehlo = internal._jax.mlir.hlo_to_stablehlo(hlo)
        return self._device.client.compile_and_load(stablehlo, devices, options)

    def _array(self, item: ArrayFile) -> Any:
        import ml_dtypes
        import numpy as np

        name = _NUMPY[item["dtype"]]
        kind = np.dtype(getattr(ml_dtypes, name, None) or name)
        array = np.frombuffer(Path(item["path"]).read_bytes(), kind).reshape(item["dims"])
        return self._jax.device_put(array, self._device)


def _bytes(result: Any) -> bytes:
    import numpy as np

    return np.asarray(result).tobytes()
