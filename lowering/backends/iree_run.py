"""IREE as a backend: StableHLO compiled for this CPU and run in a child process."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.ir import Function, Module
from graphgen.lowering.cpu.backend import alone_for_xla, compiled_noise
from graphgen.lowering.cpu.isolated_run import ask_for_arrays, packed
from graphgen.lowering.cpu.program import written_text
from graphgen.worker_process import WorkerProcess, with_length

_WORKER: Final = "graphgen.lowering.backends.iree_worker"
_CHILD: Final = WorkerProcess(lambda: (sys.executable, "-P", "-m", _WORKER))


@dataclass(frozen=True, slots=True)
class IreeBackend:
    """Programs as they stand, compiled by IREE in a child process."""

    def __call__(
        self, module: Module, function: Function, inputs: Sequence[Mapping[str, Array]]
    ) -> list[dict[str, Array]]:
        """Run on one rank.

        Raises:
            GraphgenError: GG0401 for several ranks, for a program that has no StableHLO form, and
                where IREE refuses it, ends its process or takes too long.
        """
        if len(inputs) != 1:
            raise GraphgenError(
                "GG0401",
                f"IREE runs one rank here, @{function.name} has {len(inputs)}",
                help="numpy, cpu and xla run several",
            )
        interface, program = written_text(*alone_for_xla(module, function, as_is=True))
        if program.is_hlo:
            raise GraphgenError(
                "GG0401",
                f"@{function.name} has instructions that only HLO can say; IREE takes StableHLO",
                help="graphgen minify leaves out what is not at fault; xla takes HLO",
            )
        columns = interface.argument_arrays(inputs)
        text = np.frombuffer(str(program.data).encode(), np.uint8)
        request = packed({}, [text, *[array for column in columns for array in column]])
        made = ask_for_arrays(_CHILD, with_length(request), function.name, "IREE")
        return [dict(zip(interface.outputs, made, strict=True))]

    def noise(self, module: Module) -> float:
        """See :func:`~graphgen.lowering.cpu.backend.compiled_noise`."""
        return compiled_noise(module)
