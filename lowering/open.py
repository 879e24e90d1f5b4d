"""Opens a module in any known file format: the entry point of all readers.

A reader is an entry of :data:`FORMATS`, which recognizes its files by their first bytes.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from graphgen.analysis.calls import require_bounded_calls
from graphgen.atomic_write import open_regular
from graphgen.errors import GraphgenError, did_you_mean
from graphgen.gc_pause import paused_collector
from graphgen.ir import Function, Module, Role
from graphgen.json_value import Json
from graphgen.limits import TEXT_BYTES
from graphgen.numbers import BAD_NUMBER
from graphgen.read_file import is_file, is_folder, open_named

if TYPE_CHECKING:
    from graphgen.eval import Array
    from graphgen.lowering.hlo.hlo_summary import HloSummary

# Number of bytes by which formats recognize their files.
HEAD = 4096
# Most names of a folder that are compared with the name of a file that is not there.
_NAMES = 10_000
_HELP = "graphgen build MODEL -o FILE.gg writes one"


@dataclass(frozen=True, slots=True)
class Source:
    """A file to read.

    Attributes:
        name: as the user gave it, for error messages.
        data: its bytes; mapped, so that the head of a large file is read alone.
        path: of the file, ``None`` for standard input.
    """

    name: str
    data: bytes | mmap.mmap
    path: Path | None = None

    @property
    def head(self) -> bytes:
        """The first bytes."""
        return self.data[:HEAD]

    def text(self) -> str:
        """Decode the file as UTF-8 (GG0201)."""
        try:
            return self.data[:].decode("utf-8")
        except UnicodeDecodeError as error:
            raise GraphgenError(
                "GG0201",
                "this is not text",
                where=f"{self.name}, byte {error.start}",
                help=f"known: {', '.join(form.name for form in FORMATS)}",
            ) from error


@dataclass(frozen=True, slots=True)
class Format:
    """A file format of modules.

    Attributes:
        name: of the format.
        fits: recognizes a file by its first bytes.
        read: the module, not verified, and the values of its weights if the file has them.
    """

    name: str
    fits: Callable[[bytes], bool]
    read: Callable[[Source], Module | tuple[Module, Mapping[str, Array]]]


def _is_ir_text(head: bytes) -> bool:
    """Recognize IR text by its first line that is not a comment."""
    lines = (line for line in head.splitlines() if line.strip() and not line.startswith(b"#"))
    first = next(lines, b"")
    return first.startswith(b"module @") and b" level=" in first


def _is_stablehlo(head: bytes) -> bool:
    from graphgen.lowering.stablehlo import looks_like_stablehlo

    # Both texts begin with the same word.
    return looks_like_stablehlo(head) and not _is_ir_text(head)


def _read_stablehlo(source: Source) -> Module:
    from graphgen.lowering.stablehlo import read_stablehlo

    try:
        return read_stablehlo(source.data[:], source.name)
    except GraphgenError as error:
        if error.code != "GG0103":
            raise
        return _read_as_hlo(source, error)


def _read_as_hlo(source: Source, unread: GraphgenError) -> Module:
    """Read StableHLO with unknown ops as HLO, whose reader keeps them as opaque ops.

    Raises ``unread`` if jaxlib cannot convert it to HLO, or is not installed.
    """
    from graphgen.lowering.hlo import read_hlo
    from graphgen.lowering.mlir.generic_form import hlo_of

    try:
        proto = hlo_of(source.data[:])
    except (ModuleNotFoundError, RuntimeError, ValueError) as error:
        raise unread from error
    module = read_hlo(proto, source.name)
    give_stated_names(module, source)
    return module


def give_stated_names(module: Module, source: Source) -> None:
    """Give a module that jaxlib converted the argument names of its file (GG0203 for other types).

    jaxlib infers the types of some ops itself, whatever the file states.
    """
    from graphgen.lowering.stablehlo.read import stated_interface

    stated = stated_interface(source.data[:], source.name)
    (program,) = module.programs()
    sides = (
        ("argument", stated.arguments, [value.type for value in program.args]),
        ("result", stated.results, [value.type for _, value in program.outputs]),
    )
    for what, wanted, made in sides:
        for number, (type_, other) in enumerate(zip(wanted, made, strict=False)):
            if type_ is not other:
                said = f"{what} {number} is {type_.text}, but its ops give {other.text}"
                raise GraphgenError("GG0203", said, where=source.name)
        if len(wanted) != len(made):
            said = f"it states {len(wanted)} {what}s, and its ops have {len(made)}"
            raise GraphgenError("GG0203", said, where=source.name)
    _rename(module, program, stated.names)


def _rename(module: Module, program: Function, names: Sequence[str]) -> None:
    """Give the arguments of a program other names, with their rows of the interface."""
    new = {v.name or "": name for v, name in zip(program.args, names, strict=True)}
    program.block.rename_args(names)
    from graphgen.lowering.hlo.module_annotations import MAY_ALIAS

    for key in (MAY_ALIAS, "donated"):
        if key in module.meta:
            old = module.meta[key].split(", ")
            module.meta[key] = ", ".join([new.get(name, name) for name in old])
    program.outputs = [(new.get(name, name), value) for name, value in program.outputs]
    rows = [replace(row, name=new.get(name, name)) for name, row in module.interface.items()]
    module.interface.clear()
    module.interface.update({row.name: row for row in rows})


def _is_jax_export(head: bytes) -> bool:
    """Recognize a serialized ``jax.export.Exported``: FlatBuffers with bytecode inside."""
    from graphgen.lowering.stablehlo.read import BYTECODE

    root = int.from_bytes(head[:4], "little")
    return 0 < root < len(head) and head.find(BYTECODE) >= root


def _exported_module(source: Source) -> bytes:
    """The module in it, a vector of bytes with its size before them (GG0201)."""
    from graphgen.lowering.stablehlo.read import BYTECODE

    data = source.data[:]
    at = data.find(BYTECODE)
    size = int.from_bytes(data[at - 4 : at], "little")
    if at < 4 or size > len(data) - at:
        what = f"the exported program is damaged: its module of {size} bytes ends too early"
        raise GraphgenError("GG0201", what, where=source.name)
    return data[at : at + size]


def _read_jax_export(source: Source) -> Module:
    from graphgen.lowering.stablehlo import read_stablehlo

    return read_stablehlo(_exported_module(source), source.name)


def stablehlo_of(source: Source) -> bytes | None:
    """The StableHLO of a file, text or bytecode; ``None`` for a file of another form."""
    if _is_stablehlo(source.head):
        return source.data[:]
    if _is_jax_export(source.head) and not _is_hlo(source.head):
        return _exported_module(source)
    return None


def _read_ir_text(source: Source) -> Module:
    from graphgen.text import parse

    return parse(source.text(), source.name)


def _is_hlo(head: bytes) -> bool:
    from graphgen.lowering.hlo_proto.proto_module import looks_like_proto

    return looks_like_proto(head)


def _read_hlo(source: Source) -> tuple[Module, Mapping[str, Array]]:
    """Read an HLO protobuf, and the arguments that a snapshot has beside it."""
    from graphgen.lowering.hlo import read_hlo
    from graphgen.lowering.hlo.recorded_arguments import recorded_arguments

    module = read_hlo(source.data, source.name)
    return module, recorded_arguments(source.data, module)


def _is_hlo_text(head: bytes) -> bool:
    from graphgen.lowering.hlo_text.hlo_parser import looks_like_text

    return looks_like_text(head)


def _read_hlo_text(source: Source) -> Module:
    from graphgen.lowering.hlo import read_hlo
    from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text

    return read_hlo(parse_hlo_text(source.text(), source.name), source.name)


def _is_exported(head: bytes) -> bool:
    from graphgen.lowering.aten.archive import looks_like_archive

    return looks_like_archive(head)


def _read_exported(source: Source) -> tuple[Module, Mapping[str, Array]]:
    from graphgen.lowering.aten.archive import read_archive

    read = read_archive(source.data[:], source.name)
    return read.module, {**read.weights, **read.states}


_IR_TEXT = Format("IR text", _is_ir_text, _read_ir_text)
# In the order in which they are tried.
FORMATS: tuple[Format, ...] = (
    _IR_TEXT,
    Format("StableHLO", _is_stablehlo, _read_stablehlo),
    Format("JAX export", _is_jax_export, _read_jax_export),
    Format("HLO protobuf", _is_hlo, _read_hlo),
    Format("HLO text", _is_hlo_text, _read_hlo_text),
    Format("exported program", _is_exported, _read_exported),
)


def open_module(path: str | Path, name: str | None = None) -> Module:
    """Read a module from a file of any known format.

    Args:
        path: the file, or a work folder of Neuron's tools with one module in it.
        name: of the file in error messages; the path by default.

    Raises:
        GraphgenError: GG0705 the file cannot be read, GG0201 it is empty or damaged, and what its
            reader raises, naming the file.
    """
    return open_source(source_of(path, name))


def source_of(path: str | Path, name: str | None = None) -> Source:
    """A file to read; see :func:`open_module`."""
    file = _inside(Path(path))
    shown = name or str(file)
    try:
        with open_named(file) as opened:
            # Empty files and pipes, such as <(command), cannot be mapped.
            data = (
                mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
                if is_file(file) and os.fstat(opened.fileno()).st_size
                else opened.read(TEXT_BYTES.most + 1)
            )
    except (OSError, ValueError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        help = _near(file) if isinstance(error, FileNotFoundError) else _HELP
        raise GraphgenError("GG0705", f"cannot read '{shown}': {reason}", help=help) from error
    if isinstance(data, bytes) and len(data) > TEXT_BYTES.most:
        what = f"cannot read '{shown}': it has more bytes; {TEXT_BYTES} are read"
        raise GraphgenError("GG0705", what, help=_HELP)
    return Source(shown, data, file)


def _near(file: Path) -> str:
    """Names of files like one that is not there; how to write a module where there are none."""
    folder = file.parent
    if not is_folder(folder):
        return f"there is no folder '{folder}'"
    names = [entry.name for entry in islice(os.scandir(folder), _NAMES)]
    return did_you_mean(file.name, names) or _HELP


def _inside(path: Path) -> Path:
    """The only module of a cache or work folder of Neuron's tools (GG0802)."""
    if not is_folder(path):
        return path
    from graphgen.lowering.neuron import describe

    found = describe(path)
    files = [program.module for program in found.programs if program.module is not None]
    if len(files) != 1:
        names = "\n".join(str(file) for file in files[:20])
        what = f"this {found.kind} holds {len(files)} modules"
        raise GraphgenError("GG0802", what, where=str(path), note=names, help="name one of them")
    return files[0]


def open_source(source: Source) -> Module:
    """Read and verify the module of a source; see :func:`open_module`."""
    return open_with_values(source)[0]


def open_with_values(source: Source) -> tuple[Module, Mapping[str, Array]]:
    """Read and verify a source: the module, and its weights and first states by name."""
    from graphgen.ops import verify

    if not source.head.strip():
        raise GraphgenError("GG0201", "the file is empty", where=source.name, help=_HELP)
    # An unknown format is read as IR text, whose reader has the error for it.
    form = next((form for form in FORMATS if form.fits(source.head)), _IR_TEXT)
    try:
        with paused_collector():
            read = _read(form, source)
    except GraphgenError as error:
        if form is _IR_TEXT and not _is_ir_text(source.head):
            error.help = _known_kinds()
        raise
    values: Mapping[str, Array] = {}
    module, values = read if isinstance(read, tuple) else (read, values)
    if "format" in module.meta:
        from graphgen.lowering.contradictions import note_contradictions

        note_contradictions(module)
    try:
        verify(module)
        require_bounded_calls(module)
    except GraphgenError as error:
        error.where = f"{source.name}: {error.where}" if error.where else source.name
        raise
    return module, values


def _known_kinds() -> str:
    from graphgen.lowering.xla_dump.dump_files import KNOWN

    names = dict.fromkeys((*[form.name for form in FORMATS], *KNOWN))
    return f"known: {', '.join(names)}"


def _read(form: Format, source: Source) -> Module | tuple[Module, Mapping[str, Array]]:
    """Let a reader read; what it raises for numbers that do not fit names the file."""
    try:
        return form.read(source)
    except RecursionError as error:
        raise GraphgenError("GG1101", "the file is nested too deeply", where=source.name) from error
    except BAD_NUMBER as error:
        what = f"the {form.name} is damaged: {error}"
        raise GraphgenError("GG0201", what, where=source.name) from error


def summarize_file(path: Path) -> HloSummary:
    """Summarize an HLO protobuf of any size, or HLO text (GG0801, GG0201 if it is damaged).

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is empty.
    """
    from graphgen.lowering.hlo.hlo_summary import summarize_hlo
    from graphgen.lowering.hlo_text.hlo_parser import looks_like_text, parse_hlo_text

    with open_regular(path) as opened:
        data = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    if looks_like_text(data[:HEAD]):
        with paused_collector():
            return summarize_hlo(parse_hlo_text(data[:].decode("utf-8"), str(path)))
    return summarize_hlo(data)


def list_dumps(folder: Path) -> list[dict[str, Json]]:
    """List the modules below a folder: file, form, bytes, and for HLO protobufs the counts.

    Keys of an HLO protobuf: ``module``, ``instructions``, ``parameters``, ``taken_over``,
    ``outputs``; of a damaged one ``module`` only.
    """
    return [*_dumps(folder)]


def _dumps(folder: Path) -> Iterator[dict[str, Json]]:
    from graphgen.lowering.xla_dump.dump_files import OTHER, dump_file

    for file in sorted(item for item in folder.rglob("*") if item.is_file()):
        with open_regular(file) as opened:
            head = opened.read(HEAD)
        form = next((form.name for form in FORMATS if head.strip() and form.fits(head)), None)
        if form is None:
            continue
        row: dict[str, Json] = {"file": str(file.relative_to(folder)), "form": form}
        row["bytes"] = file.stat().st_size
        kind = dump_file(file).kind
        if form == "HLO protobuf" and not _holds_module(file):
            yield {**row, "form": "protobuf" if kind == OTHER else kind}
        else:
            yield {**row, **_counts(file, form)}


def _holds_module(file: Path) -> bool:
    """A protobuf holds a module, or is damaged: of any other its wire format is right."""
    from graphgen.lowering.hlo_proto.proto_module import open_hlo

    try:
        with open_regular(file) as opened:
            open_hlo(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
    except GraphgenError as error:
        return "no HLO computation" not in error.what
    return True


def _counts(file: Path, form: str) -> dict[str, Json]:
    try:
        if form == "StableHLO":
            return _mlir_counts(file)
        if form not in ("HLO protobuf", "HLO text"):
            return {}
        found = summarize_file(file)
    except GraphgenError as error:
        return {"module": f"damaged: {error.what}"}
    return {
        "module": found.name,
        "instructions": sum(found.opcodes.values()),
        "parameters": len(found.parameters),
        "taken_over": sum(item.aliased for item in found.parameters),
        "outputs": len(found.outputs),
    }


def _mlir_counts(file: Path) -> dict[str, Json]:
    module = open_module(file)
    programs = module.programs()
    return {
        "module": module.name,
        "instructions": module.op_count(),
        "parameters": sum(len(program.args) for program in programs),
        "taken_over": len(module.entries(Role.STATE)),
        "outputs": sum(len(program.outputs) for program in programs),
    }
