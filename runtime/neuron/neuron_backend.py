"""Run compiled programs on Neuron devices through JAX's plugin, as a backend.

Arrays are sent at every call, and results fetched: what compares programs wants that. An engine
keeps weights and caches on the devices (:mod:`~graphgen.runtime.neuron.device_artifact`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from graphgen.eval import Array
from graphgen.ir import Function, Module
from graphgen.lowering.cpu import CpuProgram, pjrt
from graphgen.lowering.cpu.backend import CpuBackend
from graphgen.runtime.neuron.device_folder import DeviceFolder
from graphgen.runtime.neuron.device_requirements import PLATFORM, require_cores, require_device
from graphgen.runtime.neuron.load_program import load_program


class NeuronBackend:
    """Runs the programs of a folder on the devices of this machine.

    Args:
        folder: of compiled programs, opened.
        environment: of this process; compared with the folder's ``env.sh``.

    Raises:
        GraphgenError: GG1005 for packages, variables or cores that are missing.
    """

    def __init__(self, folder: DeviceFolder, environment: Mapping[str, str] | None = None) -> None:
        require_device(folder, os.environ if environment is None else environment)
        self.folder = folder
        self._programs: dict[str, CpuProgram] = {}
        pjrt.use_platform(PLATFORM)

    def __call__(
        self, module: Module, function: Function, inputs: Sequence[Mapping[str, Array]]
    ) -> list[dict[str, Array]]:
        """Run a program on all ranks; as of :class:`graphgen.exec.backend.Backend`.

        Raises:
            GraphgenError: GG0703 for a program that the folder does not have, GG1005 for too few
                cores.
        """
        with pjrt.on_platform(PLATFORM):
            require_cores(len(inputs))
            program = self._programs.get(function.name)
            if program is None:
                program = self._programs[function.name] = load_program(
                    self.folder, module, function
                )
            return program.run_numpy(inputs)

    def noise(self, module: Module) -> float:
        """As of the CPU: a device rounds sums in orders of its own, too."""
        return CpuBackend().noise(module)
