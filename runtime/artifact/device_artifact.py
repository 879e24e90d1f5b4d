"""A folder of programs for a device, opened to generate: weights and caches stay on the devices.

Each program of the folder is loaded as its NEFF, at its first use. Nothing is compiled here, so
that what needs programs of its own (copies of rows, drafts, tokens fed from step to step) is
refused. The one that writes adapters into slots is in the folder of programs that have slots.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from graphgen.atomic_write import read_inside
from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.lowering.cpu import CpuProgram, pjrt
from graphgen.runtime.artifact.artifact_folder import Artifact
from graphgen.runtime.artifact.device_folder import (
    CONFIG,
    MODULE,
    DeviceFolder,
    open_device_folder,
    require_trust,
)
from graphgen.runtime.artifact.device_requirements import PLATFORM, require_cores, require_device
from graphgen.runtime.artifact.load_program import load_program
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.executable_cache import ExecutableCache, ExecutableReport
from graphgen.runtime.folders import read_json
from graphgen.runtime.model import BuiltModel, config_of
from graphgen.runtime.progress import Progress
from graphgen.runtime.signing import is_signed
from graphgen.runtime.weights.presharded import source_of
from graphgen.text import parse
from graphgen.version import __version__


@dataclass(slots=True)
class LoadedPrograms(ExecutableCache):
    """The programs of a device folder, loaded at their first use.

    Attributes:
        compiled_for: the folder.
    """

    compiled_for: DeviceFolder = field(default_factory=lambda: DeviceFolder(Path()))

    @property
    def is_open(self) -> bool:
        """False: nothing is compiled here."""
        return False

    def require_open(self, what: str) -> None:
        """Refuse ``what`` (GG1005)."""
        raise GraphgenError(
            "GG1005",
            f"{what} was not compiled for the device, and nothing is compiled here",
            help="leave out what needs it: drafts, trees of tokens, asynchronous steps",
        )

    def beside(self, module: Module) -> ExecutableCache:
        """The programs of another module that the folder has; others are refused (GG1005)."""
        names = [function.name for function in module.programs()]
        if not all(map(self.compiled, names)):
            self.require_open(", ".join(names))
        return LoadedPrograms(module, self.progress, compiled_for=self.compiled_for)

    def compiled(self, name: str) -> bool:
        """True for each program of the folder."""
        return name in self.compiled_for.neffs

    def _make(self, name: str) -> CpuProgram:
        function, start = self.module.function(name), time.perf_counter()
        with self.progress.task(f"loading {name}"):
            program = load_program(self.compiled_for, self.module, function)
        seconds = time.perf_counter() - start
        self.reports.append(ExecutableReport(name, function.block.size, seconds, True))
        return program


@dataclass(frozen=True, slots=True)
class DeviceArtifact(Artifact):
    """A device folder as an artifact.

    Attributes:
        folder: that was opened.
    """

    folder: DeviceFolder = field(default_factory=lambda: DeviceFolder(Path()))

    def programs(self, progress: Progress) -> ExecutableCache:
        """The programs, on the devices of this machine.

        Raises:
            GraphgenError: GG0703 without a signature of this user, GG1005 for packages,
                variables or cores that are missing.
        """
        self._start()
        return LoadedPrograms(self.model.module, progress, compiled_for=self.folder)

    @contextmanager
    def start_weights(
        self, checkpoint: Checkpoint | None = None
    ) -> Generator[Callable[[Progress], dict[str, object]]]:
        """As of any artifact; the weights go to the devices (GG1005)."""
        self._start()
        with Artifact.start_weights(self, checkpoint) as finish:
            yield finish

    def _start(self) -> None:
        """Have this process run on the devices from now on."""
        require_trust(self.folder, trust=self.trusted)
        require_device(self.folder, os.environ)
        pjrt.run_on_platform(PLATFORM)
        require_cores(self.model.module.ranks)


def open_device_artifact(path: Path, *, trust: bool = False) -> DeviceArtifact:
    """Open a device folder that has weights.

    Tensors are compared with their checksums when they are read.

    Args:
        path: the folder.
        trust: load its programs without a signature of this user, too.

    Raises:
        GraphgenError: GG0703 for a folder without weights, of another version of graphgen, or
            damaged.
    """
    folder = open_device_folder(path, weights=False)
    manifest = folder.manifest
    if manifest["graphgen"] != __version__:
        what = f"{path} was made by graphgen {manifest['graphgen']}, this is {__version__}"
        raise GraphgenError("GG0703", what, help="compile the model again")
    if MODULE not in cast("Mapping[str, str]", manifest["files"]):
        raise GraphgenError(
            "GG0703",
            f"{path} has programs alone, and no weights to generate with",
            help=f"graphgen compile CHECKPOINT --weights -o {path}; finished programs are kept",
        )
    settings = config_of(cast("Mapping[str, object]", manifest["settings"]))
    module = parse(read_inside(path, path / MODULE).decode(), str(path / MODULE))
    model = BuiltModel(read_json(path / CONFIG), settings, module)
    signed = is_signed(manifest)
    source = source_of(path)
    return DeviceArtifact(path, model, source, {}, signed=signed, trusted=trust, folder=folder)
