"""Cache of compiled programs: in memory, and optionally in a folder for the next run."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from graphgen.analysis.stage_chain import (
    divide_states,
    edge_name,
    stage_count,
    stage_modules,
    stage_name,
)
from graphgen.atomic_write import read_inside, require_place, write_inside
from graphgen.errors import GraphgenError
from graphgen.ir import Module, Role, TensorType
from graphgen.lowering.cpu import CpuProgram, compile_program, load_program
from graphgen.lowering.cpu.pjrt import moved, on_devices_from
from graphgen.lowering.cpu.processes import in_stages, local_ranks, meet
from graphgen.lowering.cpu.program import (
    DeviceValue,
    program_identity,
    program_key,
    serialize_program,
)
from graphgen.lowering.cpu.stage_links import StageLinks
from graphgen.lowering.cpu.staged_program import StagedProgram, StageParts
from graphgen.runtime.progress import Progress
from graphgen.runtime.signing import VARIABLE, has_signature, signature

# A file of a program: its digest, the signature of that, and the content.
_SHA256 = 32
_HEAD = 2 * _SHA256


@dataclass(frozen=True, slots=True)
class ExecutableReport:
    """The cost of one program.

    Attributes:
        name: the function's name.
        ops: ops in it.
        seconds: time to compile or to load it.
        loaded: loaded from the folder instead of compiled.
    """

    name: str
    ops: int
    seconds: float
    loaded: bool


@dataclass(slots=True)
class ExecutableCache:
    """The programs of a module.

    Attributes:
        module: at level ``target``.
        folder: the folder of compiled programs; ``None`` for memory only.
        progress: notified of compilations.
        texts: SHA-256 of each program's StableHLO without locations, where known in advance.
        reports: one for each program used so far, in order.
        warm_ups: seconds of each program's first launch.
        suffix: after the names of programs, where their compilation is reported.
        root: the folder that the user named, where ``folder`` is inside of it: no symbolic link
            below it is followed to write.
        signed: False for an artifact whose manifest this user has not signed; its programs are then
            apart from those of signed ones.
        trusted: load programs that this user has not signed, too.
        noted: folders about which a note was printed.
    """

    module: Module
    progress: Progress
    folder: Path | None = None
    texts: dict[str, str] = field(default_factory=dict[str, str])
    reports: list[ExecutableReport] = field(default_factory=list[ExecutableReport])
    warm_ups: dict[str, float] = field(default_factory=dict[str, float])
    suffix: str = ""
    root: Path | None = None
    signed: bool = True
    trusted: bool = False
    noted: set[Path] = field(default_factory=set[Path])
    _programs: dict[str, CpuProgram | StagedProgram] = field(
        default_factory=dict[str, CpuProgram | StagedProgram]
    )
    _stages: list[ExecutableCache] = field(default_factory=list["ExecutableCache"])
    _links: StageLinks | None = None

    def get(self, name: str) -> CpuProgram | StagedProgram:
        """The program ``name``, loaded or compiled the first time.

        Raises:
            GraphgenError: GG0703 for a program to compile whose place in the folder is a symbolic
                link, or is reached through one.
        """
        found = self._programs.get(name)
        if found is None:
            found = self._programs[name] = self._make(name)
        return found

    @property
    def is_open(self) -> bool:
        """True if further programs can be compiled here, as :meth:`beside` does."""
        return True

    def require_open(self, what: str) -> None:
        """Refuse ``what`` where its programs cannot be compiled (GG1005)."""

    def beside(self, module: Module) -> ExecutableCache:
        """The programs of another module, such as one that copies rows, kept in the same folder.

        Raises:
            GraphgenError: GG1005 where they cannot be compiled.
        """
        self.require_open(", ".join(function.name for function in module.programs()))
        if self.stages():
            divide_states(module, [set(stage.module.interface) for stage in self.stages()])
        return self._over(module, self.folder, self.root)

    def placed(self, weights: Mapping[str, DeviceValue]) -> Mapping[str, DeviceValue]:
        """Weights on the devices of the first stage that reads each, where there are stages.

        Over several processes each stage puts what it reads on its devices.
        """
        found = dict(weights)
        if in_stages():
            return found
        for number, stage in reversed(list(enumerate(self.stages()))):
            with on_devices_from(number * self.module.ranks):
                for name in stage.module.interface.keys() & weights.keys():
                    found[name] = moved(weights[name], self.module.ranks)
        return found

    def stages(self) -> list[ExecutableCache]:
        """The programs of each stage of a pipeline; empty for a module that is not divided."""
        if not self._stages and stage_count(self.module) > 1:
            folder = self.folder
            self._stages = [
                self._over(
                    part,
                    None if folder is None else folder / f"stage{number}",
                    self.root or folder,
                    f", stage {number}",
                )
                for number, part in enumerate(stage_modules(self.module))
            ]
        return self._stages

    def _over(
        self, module: Module, folder: Path | None, root: Path | None, suffix: str = ""
    ) -> ExecutableCache:
        """The programs of another module in a folder that is trusted as much as this one."""
        return ExecutableCache(
            module,
            self.progress,
            folder,
            suffix=suffix,
            root=root,
            signed=self.signed,
            trusted=self.trusted,
            noted=self.noted,
        )

    def compiled(self, name: str) -> bool:
        """True if :meth:`get` does not have to compile the program."""
        if name in self._programs:
            return True
        if self.stages():
            return all(stage.compiled(name) for stage in self.stages())
        path = self.path(name)
        return path is not None and path.is_file()

    def _staged(self, name: str) -> StagedProgram:
        """The chain of a program's stages, each compiled for its devices if they are here."""
        made: list[CpuProgram | None] = []
        for number, stage in enumerate(self.stages()):
            first = number * self.module.ranks
            if not local_ranks(self.module.ranks, first):
                made.append(None)
                continue
            with on_devices_from(first):
                found = stage.get(name)
            assert isinstance(found, CpuProgram)
            made.append(found)
            self.reports.append(stage.reports[-1])
        outputs = tuple([name for name, _ in self.module.function(name).outputs])
        ranks = self.module.ranks
        if not in_stages():
            return StagedProgram(name, made, outputs, ranks)
        meet()
        self._links = self._links or StageLinks(ranks, len(made))
        return StagedProgram(name, made, outputs, ranks, self._parts(name), self._links)

    def _parts(self, name: str) -> StageParts:
        """Tensors that the stages of a program hand on and give."""
        states = {row.name for row in self.module.entries(Role.STATE)}
        edges: list[tuple[str, TensorType] | None] = []
        outputs: dict[str, tuple[int, TensorType]] = {}
        for number in range(len(self.stages())):
            given, edge = self.module.function(stage_name(name, number)).outputs, edge_name(number)
            value = given.get(edge)
            edges.append(None if value is None else (edge, value.type))
            outputs |= {n: (number, v.type) for n, v in given if n != edge and n not in states}
        return StageParts(edges, outputs)

    def _make(self, name: str) -> CpuProgram | StagedProgram:
        if self.stages():
            return self._staged(name)
        function = self.module.function(name)
        start = time.perf_counter()
        path = self.path(name)
        program = self._loaded(name, path) if path else None
        loaded = program is not None
        if program is None:
            if path:
                require_place(self.root or path.parent, path)
            with self.progress.task(f"compiling {name}{self.suffix}"):
                program = compile_program(self.module, function)
            if path:
                # The folder only saves time: a read-only artifact still runs.
                with suppress(GraphgenError):
                    self._write(name, path, program)
        seconds = time.perf_counter() - start
        if not in_stages():
            meet()
        report = ExecutableReport(name, function.block.size, seconds, loaded)
        self.reports.append(report)
        return program

    def _loaded(self, name: str, path: Path) -> CpuProgram | None:
        """The program of a file; ``None`` for a missing, foreign or damaged one, or another."""
        try:
            blob = read_inside(self.root or path.parent, path)
        except OSError:
            return None
        digest, given, data = blob[:_SHA256], blob[_SHA256:_HEAD], blob[_HEAD:]
        if not has_signature(self._purpose, digest, given) and not self.trusted:
            self._note_unsigned()
            return None
        if _digest(self._identity(name), data) != digest:
            return None
        return load_program(self.module, self.module.function(name), data)

    @property
    def _purpose(self) -> str:
        return "program" if self.signed else "program beside an unsigned manifest"

    def _note_unsigned(self) -> None:
        """Tell once on standard error that programs of the folder are compiled again."""
        where = self.root or self.folder or Path()
        if where not in self.noted:
            self.noted.add(where)
            print(
                f"note: {where} has compiled programs that are not signed with your key: they are "
                f"compiled again from its module. {VARIABLE} gives another key, --trust-artifacts "
                "loads them as they are",
                file=sys.stderr,
            )

    def _identity(self, name: str) -> bytes:
        """The bytes that a program's file is bound to; stages share names and often texts."""
        return program_identity(f"{name}{self.suffix}", self.text_hash(name))

    def store(self, name: str, program: CpuProgram) -> None:
        """Write a program that was compiled elsewhere to the folder (GG0703, GG0704)."""
        path = self.path(name)
        assert path is not None, "the cache has no folder"
        self._write(name, path, program)

    def _write(self, name: str, path: Path, program: CpuProgram) -> None:
        data = serialize_program(program)
        digest = _digest(self._identity(name), data)
        given = signature(self._purpose, digest).ljust(_SHA256, b"\0")
        write_inside(self.root or path.parent, path, digest + given + data, parents=True)

    def path(self, name: str) -> Path | None:
        """The file of a compiled program; ``None`` without a folder."""
        if self.folder is None:
            return None
        return self.folder / f"{name}.{program_key(self.text_hash(name))}.xla"

    def text_hash(self, name: str) -> str:
        """SHA-256 of a program's StableHLO without locations."""
        if name not in self.texts:
            # Only here: the texts of an artifact's programs are known by their hashes.
            from graphgen.lowering.stablehlo import emit_stablehlo

            text = emit_stablehlo(
                self.module, self.module.function(name), locs=False, preserved=False
            )
            self.texts[name] = hashlib.sha256(text.encode()).hexdigest()
        return self.texts[name]

    @property
    def seconds(self) -> float:
        """Time spent compiling, loading and warming up so far."""
        return sum(report.seconds for report in self.reports) + sum(self.warm_ups.values())

    def charge(self, name: str, seconds: float) -> None:
        """Count the first launch of a program as part of its compilation."""
        self.warm_ups[name] = seconds


def _digest(identity: bytes, data: bytes) -> bytes:
    """SHA-256 of what a program is and of its content."""
    found = hashlib.sha256(identity + b"\0")
    found.update(data)
    return found.digest()
