"""The programs of an XLA dump folder: each with its modules before and after, passes, reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from graphgen.atomic_write import open_regular
from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.limits import TEXT_BYTES
from graphgen.lowering.hlo.hlo_summary import HloSummary, summarize_hlo
from graphgen.lowering.hlo_proto.proto_module import looks_like_proto
from graphgen.lowering.hlo_proto.wire import Source
from graphgen.lowering.hlo_text.hlo_parser import looks_like_text, parse_hlo_text
from graphgen.lowering.xla_dump.dump_files import (
    ABOUT_MEMORY,
    AFTER,
    ALLOCATIONS,
    BEFORE,
    HEAD,
    PASS,
    RANGES,
    REPORT,
    DumpFile,
    dump_file,
)
from graphgen.lowering.xla_dump.memory_texts import (
    Allocation,
    XlaPeak,
    proto_allocations,
    read_allocations,
    read_live_ranges,
    report_bytes,
    total_bytes,
)
from graphgen.lowering.xla_dump.memory_use import MemoryUse, memory_of

# The most instructions that compute in a program that shares one row with others.
SMALL = 3
_SILENT = frozenset(("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "copy"))


@dataclass(slots=True)
class DumpProgram:
    """One program of a folder, ``module_0006.jit_step``."""

    name: str
    files: list[DumpFile] = field(default_factory=list[DumpFile])

    def one(self, kind: str) -> DumpFile | None:
        """A file of a kind, a protobuf before a text; ``None`` without one."""
        found = [file for file in self.files if file.kind == kind]
        return min(found, key=lambda file: (not file.is_proto, file.path.name), default=None)

    @property
    def passes(self) -> list[DumpFile]:
        """The module after each recorded pass, in their order; a protobuf before a text."""
        found: dict[int, DumpFile] = {}
        for file in self.files:
            known = found.get(file.step)
            if file.kind == PASS and (known is None or file.is_proto):
                found[file.step] = file
        return [found[step] for step in sorted(found)]

    @property
    def states(self) -> list[DumpFile]:
        """The module before optimizations, after each pass, and after all."""
        ends = self.one(BEFORE), self.one(AFTER)
        first, last = ([file] if file is not None else [] for file in ends)
        return [*first, *self.passes, *last]

    def to_json(self, folder: Path) -> dict[str, Json]:
        """Its facts."""
        before, after = (_counts(self.one(kind)) for kind in (BEFORE, AFTER))
        kinds: dict[str, Json] = {}
        for file in self.files:
            kinds[file.kind] = [*_listed(kinds.get(file.kind)), _relative(file.path, folder)]
        found = after or before
        return {
            "program": self.name,
            "module": found.name if found else "",
            "ops_before": _ops(before),
            "ops_after": _ops(after),
            "parameters": len(found.parameters) if found else None,
            "taken_over": sum(item.aliased for item in found.parameters) if found else None,
            "outputs": len(found.outputs) if found else None,
            "bytes": stated_bytes(self),
            "passes": len(self.passes),
            "small": is_small(before or after),
            "files": kinds,
        }


def _listed(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _relative(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _ops(found: HloSummary | None) -> int | None:
    return sum(found.opcodes.values()) if found else None


def is_small(found: HloSummary | None) -> bool:
    """A program of a few ops, such as one that converts or broadcasts an array for another."""
    if found is None:
        return False
    return sum(count for code, count in found.opcodes.items() if code not in _SILENT) <= SMALL


def _counts(file: DumpFile | None) -> HloSummary | None:
    if file is None:
        return None
    try:
        return summarize_hlo(hlo_source(file.path))
    except GraphgenError:
        return None


def hlo_source(path: Path) -> Source:
    """The protobuf of a file that holds one, or HLO text (GG0201, GG0705)."""
    data = _data(path)
    is_text = looks_like_text(data[:HEAD]) or (
        path.suffix != ".pb" and not looks_like_proto(data[:HEAD])
    )
    return parse_hlo_text(_decoded(data), str(path)) if is_text else data


def text_of(path: Path) -> str:
    """The text of a file of XLA; bytes that are not UTF-8 are replaced (GG0705)."""
    return _decoded(_data(path))


def _data(path: Path) -> bytes:
    with open_regular(path) as opened:
        data = opened.read(TEXT_BYTES.most + 1)
    if len(data) > TEXT_BYTES.most:
        what = f"cannot read '{path}': it has more bytes; {TEXT_BYTES} are read"
        raise GraphgenError("GG0705", what)
    return data


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace")


@dataclass(frozen=True)
class DumpFolder:
    """A folder of dumps.

    Attributes:
        path: of the folder.
        files: all of its files.
    """

    path: Path
    files: tuple[DumpFile, ...]

    @cached_property
    def programs(self) -> list[DumpProgram]:
        """The programs in the order of their names."""
        found: dict[str, DumpProgram] = {}
        for file in self.files:
            if file.program:
                found.setdefault(file.program, DumpProgram(file.program)).files.append(file)
        return [found[name] for name in sorted(found)]

    @property
    def others(self) -> list[DumpFile]:
        """Files of no program."""
        return [file for file in self.files if not file.program]

    def program(self, name: str | None) -> DumpProgram:
        """The program of a name or a part of it; without one, the only one that is not small.

        Raises:
            GraphgenError: GG0202 no such program, GG0705 several.
        """
        fit = [item for item in self.programs if name is None or name in item.name]
        exact = [item for item in fit if name in (item.name, item.name.partition(".")[2])]
        if name is None and len(fit) > 1:
            fit = [item for item in fit if not is_small(_counts(item.one(BEFORE)))] or fit
        found = exact if len(exact) == 1 else fit
        names = ", ".join([item.name for item in found or self.programs][:20])
        if not found:
            raise GraphgenError("GG0202", f"no program {name}", help=f"the folder has {names}")
        if len(found) > 1:
            what = f"the folder has {len(found)} programs: {names}"
            raise GraphgenError("GG0705", what, help=f"choose one: --program {found[0].name}")
        return found[0]


def read_folder(folder: Path) -> DumpFolder:
    """List the files of a folder and what each is; no module is read."""
    paths = sorted(item for item in folder.rglob("*") if item.is_file() and not item.is_symlink())
    return DumpFolder(folder, tuple([dump_file(path, folder) for path in paths]))


def is_dump_folder(folder: Path) -> bool:
    """True for a folder with modules named as XLA names them."""
    return any(_named(folder))


def _named(folder: Path) -> Iterator[bool]:
    for item in folder.glob("module_*"):
        yield item.is_file() and dump_file(item, folder).program != ""


def is_xla_file(path: Path) -> bool:
    """True for HLO, and for a file of XLA about the memory of a module beside it."""
    if dump_file(path).kind in ABOUT_MEMORY:
        return True
    head = _head(path)
    return looks_like_proto(head) or looks_like_text(head)


def is_scheduled(path: Path) -> bool:
    """True for HLO of XLA that states the order of its instructions."""
    from graphgen.lowering.xla_dump.schedule_values import states_schedule

    if not is_xla_file(path) or dump_file(path).kind in ABOUT_MEMORY:
        return False
    head = _head(path)
    if looks_like_text(head):
        return b"is_scheduled=true" in head
    return states_schedule(hlo_source(path))


def _head(path: Path) -> bytes:
    with open_regular(path) as opened:
        return opened.read(HEAD)


def stated_bytes(program: DumpProgram) -> int | None:
    """XLA's total of bytes; ``None`` where no file states it."""
    allocations, _, total = stated_memory(program.files)
    return total if total is not None else (_total(allocations) if allocations else None)


def _total(allocations: Sequence[Allocation]) -> int:
    return sum([item.nbytes for item in allocations])


def stated_memory(
    files: Sequence[DumpFile],
) -> tuple[list[Allocation], XlaPeak | None, int | None]:
    """Read the memory that files of one program state: allocations, peak, and total.

    Raises:
        GraphgenError: GG0201 for a file that is not what its name says.
    """
    allocations: list[Allocation] = []
    peak: XlaPeak | None = None
    total: int | None = None
    for file in files:
        proto = file.path.suffix == ".pb"
        if file.kind == ALLOCATIONS and not proto:
            allocations = read_allocations(_decoded(_data(file.path)), str(file.path))
        elif file.kind == RANGES:
            peak = read_live_ranges(_decoded(_data(file.path)), str(file.path))
        elif file.kind == REPORT and total is None:
            data = _data(file.path)
            total = report_bytes(data) if proto else total_bytes(_decoded(data))
    after = [file for file in files if file.kind == AFTER and file.is_proto]
    if not allocations and after:
        allocations = proto_allocations(_data(after[0].path))
    return allocations, peak, total if total is not None else _total(allocations) or None


def siblings(path: Path) -> list[DumpFile]:
    """The files beside a module, a report or an assignment that are of the same program."""
    mine = dump_file(path)
    if not mine.program:
        return [mine]
    found = [dump_file(item) for item in sorted(path.parent.glob(f"{mine.program}.*"))]
    return [item for item in found if item.program == mine.program and item.path.is_file()]


def dumped_memory(path: Path) -> MemoryUse:
    """The memory of a program by its module and by XLA's files beside it.

    Args:
        path: of the module after optimizations, or of a file about it.

    Raises:
        GraphgenError: GG0802 without a module beside it, and those of reading the files.
    """
    files = siblings(path)
    mine = dump_file(path)
    after = DumpProgram(mine.program, files).one(AFTER)
    module = path if mine.kind in (AFTER, BEFORE, PASS) or not mine.program else None
    chosen = module or (after.path if after else None)
    if chosen is None or (not mine.program and mine.kind in (ALLOCATIONS, RANGES, REPORT)):
        what = "the module that this file is about is not beside it"
        raise GraphgenError("GG0802", what, where=str(path), help="name the module")
    found = memory_of(hlo_source(chosen))
    if mine.kind not in (BEFORE, PASS):
        found.assigned, found.xla_peak, found.stated = stated_memory(files)
        if not found.assigned:
            found.assigned = proto_allocations(hlo_source(chosen))
            found.stated = found.stated or _total(found.assigned) or None
    return found
