"""Programs that XLA compiles from their files as they stand.

A module that is run is often not the one that was read: sizes are bound, parts for one device are
run by all, ops are cut off. A file stands for the program that was read alone, and is known again
by its ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from graphgen.analysis import called
from graphgen.analysis.fingerprint import function_fingerprint
from graphgen.ir import Function, Module
from graphgen.lowering.cpu.backend import has_channels
from graphgen.lowering.cpu.given_file import HLO, HLO_TEXT, STABLEHLO, GivenFile
from graphgen.lowering.hlo.annotations import OPCODE
from graphgen.lowering.hlo.module_annotations import SCHEDULED
from graphgen.lowering.hlo.partitioning import partitioning_of
from graphgen.lowering.open import Source, stablehlo_of

THE_FILE, WRITTEN_AGAIN = "the file", "written again by graphgen"
# Virtual devices of a child process.
_MOST_PARTITIONS: Final = 64
_OPTIMIZED: Final = ("fusion", "bitcast")
_Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file whose module was read, before anything was changed in it.

    Attributes:
        source: of its bytes.
        form: in which XLA takes it; empty where it takes it in none.
        why_not: the reason that XLA is not given the file, in words; empty where it is.
        partitions: among which XLA splits it.
        programs: names of its programs.
    """

    source: Source
    form: str
    why_not: str
    partitions: int
    programs: tuple[str, ...]

    def given(self) -> GivenFile:
        """The bytes that are compiled."""
        if self.form == STABLEHLO:
            return GivenFile(stablehlo_of(self.source) or b"", self.form, self.partitions)
        if self.form == HLO_TEXT:
            return GivenFile(self.source.data[:], self.form, self.partitions)
        from graphgen.lowering.hlo_proto.proto_module import open_hlo

        message = open_hlo(self.source.data).message
        return GivenFile(bytes(message.source[slice(*message.span)]), HLO, self.partitions)


def describe_source(source: Source, module: Module) -> ReadFile:
    """Describe a file.

    Args:
        source: the file.
        module: as it was read.
    """
    form, partitions = _form(source), 1
    why = "" if form else "only graphgen reads its form"
    if form:
        partitions, why = _partitions(module)
    if form and (SCHEDULED in module.meta or _has_fusions(module)):
        why = "XLA has optimized it"
    if not why and partitions == 1 and has_channels(module):
        # XLA gets the number of replicas alone, and ends the process.
        why = "XLA has split it over partitions"
    names = tuple([function.name for function in module.programs()])
    return ReadFile(source, form, why, partitions, names)


def _form(source: Source) -> str:
    from graphgen.lowering.hlo_proto.proto_module import looks_like_proto
    from graphgen.lowering.hlo_text.hlo_parser import looks_like_text

    if stablehlo_of(source) is not None:
        return STABLEHLO
    if looks_like_proto(source.head):
        return HLO
    return HLO_TEXT if looks_like_text(source.head) else ""


def _has_fusions(module: Module) -> bool:
    ops = [op for function in module.functions.values() for op in function.block]
    return any(op.annotations.get(OPCODE) in _OPTIMIZED for op in ops)


def _partitions(module: Module) -> tuple[int, str]:
    """The number of partitions that XLA makes, and why it is not given the file."""
    from graphgen.lowering.stablehlo.shardy import meshes_of_module

    stated = partitioning_of(module)
    if stated is None:
        return 1, ""
    sizes = [mesh.size for mesh in meshes_of_module(module).values()]
    count = max([stated.partitions, *sizes])
    if not stated.before:
        return 1, "XLA has split it over partitions" if count > 1 else ""
    if stated.replicas > 1 and count > 1:
        return count, "it has replicas and partitions"
    return count, f"it has {count} partitions" if count > _MOST_PARTITIONS else ""


@dataclass(slots=True)
class ProgramFiles:
    """The files that stand for programs, by their ops."""

    _files: dict[_Key, GivenFile] = field(default_factory=dict[_Key, GivenFile])
    _why_not: dict[_Key, str] = field(default_factory=dict[_Key, str])

    def add(self, file: ReadFile, module: Module, function: Function, *, changed: bool) -> None:
        """Have a file stand for what was read from it.

        Args:
            file: the file.
            module: what was read, ready to be run.
            function: its program.
            changed: sizes were bound, for one, so that it is not the file's program any more.
        """
        why = file.why_not
        if not why and changed:
            why = "its sizes are bound, or ops are in another form"
        if not why and len(file.programs) > 1 and function.name != "main":
            why = "it has several programs"
        key = _key(module, function)
        if why:
            self._why_not[key] = why
        else:
            self._files[key] = file.given()

    def find(self, module: Module, function: Function) -> GivenFile | None:
        """The file that stands for a program; ``None`` for one that was changed."""
        return self._files.get(_key(module, function)) if self._files else None

    def remove(self, module: Module, function: Function, why: str) -> None:
        """Have no file stand for a program."""
        key = _key(module, function)
        del self._files[key]
        self._why_not[key] = why

    def reason(self, module: Module, function: Function) -> str:
        """Why the file of a program is not compiled, in words; empty where none is known."""
        return self._why_not.get(_key(module, function), "")


def _key(module: Module, function: Function) -> _Key:
    """A key that programs with the same ops, arguments and outputs share."""
    mesh = ",".join(f"{axis}:{size}" for axis, size in module.mesh.items())
    functions: Sequence[Function] = (function, *called(module, function))
    return mesh, *[f"{item.name} {function_fingerprint(item)}" for item in functions]
