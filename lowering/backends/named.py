"""Backends by name, as ``--on`` of the commands takes them.

``numpy`` evaluates op by op. ``cpu`` is XLA on this CPU after graphgen's legalization, which avoids
faults of XLA. ``xla`` compiles a program as it stands: the file that it was read from, where
XLA takes its form. ``iree`` is a compiler of its own.
``pjrt:PLATFORM`` is a plugin that JAX finds. All but ``numpy`` and ``cpu`` run in a child process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec

from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.exec.backend import Backend, NumpyBackend
from graphgen.ir import Function, Module
from graphgen.lowering.backends.backend_names import (
    CPU,
    IREE,
    NAMES,
    NUMPY,
    PJRT,
    is_backend_name,
)
from graphgen.lowering.backends.program_files import THE_FILE, WRITTEN_AGAIN, ProgramFiles
from graphgen.lowering.cpu.backend import (
    CpuBackend,
    IsolatedPrograms,
    alone_for_xla,
    compiled_noise,
)
from graphgen.lowering.cpu.given_file import UnfitFileError
from graphgen.lowering.cpu.isolated_run import ISOLATED, isolated_on
from graphgen.lowering.cpu.program import file_program


def check_backend(name: str) -> str:
    """The name of a backend (GG0705 for another text, and for one that is not installed)."""
    if name == IREE and not has_iree():
        raise GraphgenError(
            "GG0705",
            "the backend iree needs IREE, which is not installed",
            help="pip install 'graphgen-compiler[iree]'",
        )
    if is_backend_name(name):
        return name
    raise GraphgenError(
        "GG0705", f"'{name}' is not a backend", help=f"backends are {', '.join(NAMES)}"
    )


def has_iree() -> bool:
    """True where IREE's compiler and runtime are installed."""
    try:
        return all(find_spec(f"iree.{part}") is not None for part in ("compiler", "runtime"))
    except ModuleNotFoundError:
        return False


def backend_called(name: str, devices: int = 8, files: ProgramFiles | None = None) -> Backend:
    """The backend of a name (GG0705 for none).

    Args:
        name: one of those in :mod:`~graphgen.lowering.backends.backend_names`.
        devices: virtual devices of this process, for ``cpu``.
        files: which ``xla`` and plugins compile as they stand.
    """
    check_backend(name)
    if name == NUMPY:
        return NumpyBackend()
    if name == CPU:
        return CpuBackend(devices)
    if name == IREE:
        from graphgen.lowering.backends.iree_run import IreeBackend

        return IreeBackend()
    platform = name.removeprefix(PJRT) if name.startswith(PJRT) else ""
    return XlaBackend(platform, files or ProgramFiles())


@dataclass(slots=True)
class XlaBackend:
    """Programs as they stand, compiled in a child process by XLA or by a plugin.

    The program of a file is compiled from the bytes of the file, any other one as graphgen writes
    it, without what keeps XLA from faults of its own.

    Attributes:
        platform: of JAX; empty for XLA on this CPU.
        files: that stand for programs.
        compiled: what the last run compiled, and why that was not the file, both in words.
        file_runs: how many runs compiled a file.
    """

    platform: str = ""
    files: ProgramFiles = field(default_factory=ProgramFiles)
    compiled: tuple[str, str] = (WRITTEN_AGAIN, "")
    file_runs: int = 0
    _programs: IsolatedPrograms = field(init=False)

    def __post_init__(self) -> None:
        self._programs = IsolatedPrograms(isolated_on(self.platform) if self.platform else ISOLATED)

    def __call__(
        self, module: Module, function: Function, inputs: Sequence[Mapping[str, Array]]
    ) -> list[dict[str, Array]]:
        """Run on all ranks.

        Raises:
            GraphgenError: GG0401 where the compiler refuses the program, ends its process or takes
                too long, GG1005 where JAX has no such platform.
        """
        file = self.files.find(module, function)
        if file is not None:
            self.compiled = THE_FILE, ""
            try:
                made = self._programs.runs.run(file_program(module, function, file), inputs)
                self.file_runs += 1
                return made
            except UnfitFileError as error:
                self.files.remove(module, function, error.what)
        self.compiled = WRITTEN_AGAIN, self.files.reason(module, function)
        return self._programs.run(*alone_for_xla(module, function, as_is=True), inputs)

    def noise(self, module: Module) -> float:
        """See :func:`~graphgen.lowering.cpu.backend.compiled_noise`."""
        return compiled_noise(module)
