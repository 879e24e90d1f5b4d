"""The kinds of files in XLA's dump folders, by name and by content.

Names are ``module_0006.jit_step.cpu_after_optimizations-buffer-assignment.txt``: the program, and
what of it the file is. Passes are ``module_0006.jit_step.0012.PIPELINE.after_A.before_B.txt``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from graphgen.atomic_write import open_regular
from graphgen.errors import GraphgenError
from graphgen.lowering.hlo_proto.wire import Message

HEAD = 4096
# Kinds whose files hold a module.
BEFORE, AFTER = "before optimizations", "after optimizations"
PASS, TRACED = "pass", "traced program"
ALLOCATIONS, RANGES, REPORT = "buffer assignment", "live ranges", "memory usage report"
# Kinds whose files are about the memory of a module beside them.
ABOUT_MEMORY = (ALLOCATIONS, RANGES, REPORT)
VALUES, OPTIONS, DEBUG = "used values", "compile options", "debug options"
TOPOLOGY, SNAPSHOT, THUNKS = "topology", "snapshot with arguments", "thunk sequence"
OTHER = "unknown"
MODULES = (BEFORE, AFTER, PASS, TRACED)

# A platform before what follows: ``cpu_``, ``sm_8.0_gpu_``.
_PLATFORM = r"\.(?:sm_\d+\.\d+\w*[._])?[\w\-]*?"
# Endings of names after that of the program, and their kinds; the first that fits.
_ENDINGS: tuple[tuple[str, str], ...] = (
    (r"\.before_optimizations\.(?:txt|hlo|hlo\.pb|pb)", BEFORE),
    (_PLATFORM + r"after_optimizations-buffer-assignment-values\.txt", VALUES),
    (_PLATFORM + r"after_optimizations-buffer-assignment\.(?:txt|pb)", ALLOCATIONS),
    (_PLATFORM + r"after_optimizations-live-range\.txt", RANGES),
    (_PLATFORM + r"after_optimizations-memory-usage-report\.(?:txt|pb)", REPORT),
    (_PLATFORM + r"after_optimizations[\w.\-]*\.(?:txt|hlo|hlo\.pb|pb)", AFTER),
    (r"\.[\w\-]*neuron[\w\-]*\.(?:txt|hlo|hlo\.pb|pb)", AFTER),
    (
        r"(?:\.(?:cpu|gpu|tpu|sm_\d+\.\d+_gpu))?\.(?P<step>\d{4,9})\.(?P<pipeline>.+?)\.after_(?P<after>.+?)"
        r"(?:\.before_(?P<before>.+?))?\.(?:txt|hlo|hlo\.pb|pb)",
        PASS,
    ),
    (_PLATFORM + r"thunk_sequence[\w.\-]*", THUNKS),
    (r"\.debug_options", DEBUG),
    (r"/compile_options\.pb", OPTIONS),
    (r"/topology\.pb", TOPOLOGY),
    (r"/module\.mlir(?:bc)?", TRACED),
    (r"\.\w*snapshot[\w.\-]*", SNAPSHOT),
    (r"\..*ir-(?:no|with)-opt[\w.\-]*\.ll", "LLVM IR"),
    (r"\..*\.ll", "LLVM IR"),
    (r"\..*\.(?:o|so)", "object file"),
    (r"\..*\.ptx", "PTX"),
    (r"\..*\.(?:cubin|hsaco)", "device code"),
    (r"\..*\.(?:dot|html|svg)", "drawing"),
    (r"\..*autotune[\w.\-]*", "autotuning results"),
    (r"\..*\.(?:pbtxt|textproto|prototxt)", "protobuf text"),
)  # fmt: skip
_FILES = [(re.compile(rf"(?P<program>module_\d+\..+?){ending}"), kind) for ending, kind in _ENDINGS]
# Of files in the folder of a program.
_BARE = {"compile_options.pb": OPTIONS, "topology.pb": TOPOLOGY}
# By the first line of a text, of any name.
_HEADS: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (re.compile(rb"\s*BufferAssignment:"), ALLOCATIONS),
    (re.compile(rb"\s*HloLiveRange\b"), RANGES),
    (re.compile(rb"\s*Memory Space:"), REPORT),
    (re.compile(rb"\s*Total bytes used:"), VALUES),
    (re.compile(rb"\s*(?:#[^\n]*\n\s*)*xla_\w+: "), DEBUG),
    (re.compile(rb"\s*(?:ThunkSequence|\d+:? ?k[A-Z]\w+)\b"), THUNKS),
    (re.compile(rb"; ModuleID = |source_filename = "), "LLVM IR"),
    (re.compile(rb"\x7fELF"), "object file"),
)
# Kinds of texts, for a message about one of none.
KNOWN = (
    *("HLO text", "StableHLO", "IR text", "LLVM IR"),
    *(*ABOUT_MEMORY, VALUES, DEBUG, THUNKS),
)


@dataclass(frozen=True, slots=True)
class DumpFile:
    """One file of a dump.

    Attributes:
        path: of the file.
        program: ``module_0006.jit_step``; empty for a file of no program.
        kind: what it is.
        step: number of a pass; -1 for other kinds.
        pipeline: of the pass.
        after: the pass that has run.
        before: the pass that comes.
    """

    path: Path
    program: str
    kind: str
    step: int = -1
    pipeline: str = ""
    after: str = ""
    before: str = ""

    @property
    def is_proto(self) -> bool:
        """It is a protobuf, whose module needs no parser of text."""
        return self.path.suffix == ".pb"


def dump_file(path: Path, folder: Path | None = None) -> DumpFile:
    """The kind and the program of a file, by its name, else by its content.

    Args:
        path: of the file.
        folder: of the dump; files of programs may be in folders of it.
    """
    name = path.relative_to(folder).as_posix() if folder is not None else path.name
    for pattern, kind in _FILES:
        match = pattern.fullmatch(name)
        if match is not None:
            found = match.groupdict(default="")
            step = int(found["step"]) if found.get("step", "").isdecimal() else -1
            more = (found.get("pipeline", ""), found.get("after", ""), found.get("before", ""))
            return DumpFile(path, found["program"], kind, step, *more)
    return DumpFile(path, "", _BARE.get(path.name) or kind_of(path) or OTHER)


def file_without_module(path: Path) -> DumpFile | None:
    """A file of XLA that holds no module; ``None`` for a module or a file that is not XLA's."""
    from graphgen.lowering.hlo_text.hlo_parser import looks_like_text

    file = dump_file(path)
    if file.kind in (*MODULES, SNAPSHOT, OTHER):
        return None
    with open_regular(path) as opened:
        # The content may be a module, whatever the name says.
        return None if looks_like_text(opened.read(HEAD)) else file


def kind_of(path: Path) -> str:
    """The kind of a file of XLA by its content; empty for one that is none of them."""
    with open_regular(path) as opened:
        head = opened.read(HEAD)
    for pattern, kind in _HEADS:
        if pattern.match(head):
            return kind
    return _proto_kind(head)


def _proto_kind(head: bytes) -> str:
    """The kind of a protobuf that holds no module, by its first fields."""
    try:
        message = Message(head)
        if _is_report(message):
            return REPORT
        build = message.message(_BUILD_OPTIONS) if _BUILD_OPTIONS in message.fields else None
        debug = build.message(_BUILD_OPTIONS) if build and _BUILD_OPTIONS in build.fields else None
        if debug is not None and len(debug.fields) >= _SURELY_OPTIONS:
            return OPTIONS
    except (GraphgenError, IndexError):
        pass
    if b"type.googleapis.com/xla." in head and b"TopologyProto" in head:
        return TOPOLOGY
    return ""


# The field of the build options in the compile options, and of the debug options in those.
_BUILD_OPTIONS = 3
# Fields of debug options that no other message has as many of.
_SURELY_OPTIONS = 24


def _is_report(message: Message) -> bool:
    spaces = message.messages(1) if 1 in message.fields else []
    first = spaces[0] if spaces else None
    return first is not None and 3 in first.fields and b"cumulative_size" in first.data(3)
