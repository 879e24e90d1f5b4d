"""Opens a recording of a profiler in any known form: XLA's, Chrome's trace events, Neuron's."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Final

from graphgen.atomic_write import open_regular, read_regular, unreadable
from graphgen.errors import GraphgenError
from graphgen.limits import PROFILE_BYTES
from graphgen.lowering.neuron.device_profile import is_profile, read_profile
from graphgen.lowering.profiles.recording import OpEvent, ProfileRecording
from graphgen.lowering.profiles.trace_events import looks_like_trace, read_trace
from graphgen.lowering.profiles.xspace import looks_like_xspace, read_xspace
from graphgen.read_file import is_folder

# Where jax.profiler writes below its folder, and the form with the most facts first.
_PLACES: Final = ("*", "plugins/profile/*/*", "*/*")
_ENDINGS: Final = (".xplane.pb", ".xplane.pb.gz", ".trace.json.gz", ".trace.json")
_GZIP = b"\x1f\x8b"
_HEAD = 1 << 16
_NANO = 1000
_UNNAMED = "no HLO instruction"


def find_recording(path: Path) -> Path:
    """The newest recording in a folder that ``jax.profiler.trace`` wrote; a file is itself.

    Raises:
        GraphgenError: GG0705 for a folder without one.
    """
    if not is_folder(path):
        return path
    for ending in _ENDINGS:
        for place in _PLACES:
            found = [item for item in path.glob(f"{place}{ending}") if item.is_file()]
            if found:
                # Folders of jax.profiler are named by time.
                return max(found, key=lambda item: (item.parent.name, item.name))
    raise GraphgenError(
        "GG0705",
        f"no recording is in the folder {path}",
        help="jax.profiler.trace('FOLDER') writes plugins/profile/TIME/HOST.xplane.pb",
    )


def is_recording(path: Path) -> bool:
    """True for a file that :func:`read_recording` reads."""
    return has_thunks(path) or is_profile(path, _head(path))


def has_thunks(path: Path) -> bool:
    """True for a recording of XLA's profiler, ``xplane.pb`` or ``trace.json``, packed or not."""
    if path.name.endswith(_ENDINGS):
        return True
    head = _head(path)
    return looks_like_trace(head) or (head[:1] == b"\n" and looks_like_xspace(_data(path)))


def _head(path: Path) -> bytes:
    with open_regular(path) as opened:
        head = opened.read(_HEAD)
    if not head.startswith(_GZIP):
        return head
    try:
        return zlib.decompressobj(31).decompress(head, _HEAD)
    except zlib.error:
        return b""


def read_recording(path: Path) -> ProfileRecording:
    """Read a recording.

    Raises:
        GraphgenError: GG0801 for a damaged ``xplane.pb``, GG0705 for another file that is not
            read, for one beyond the limit, and for one that has no events of HLO instructions.
    """
    data = _data(path)
    if looks_like_trace(data[:_HEAD]):
        found = read_trace(data)
    elif path.suffix == ".json":
        return _neuron(path)
    else:
        found = read_xspace(data)
    if not found.events:
        raise GraphgenError(
            "GG0705",
            f"{path} has no events of HLO instructions",
            help="record a jitted call: jax.profiler.trace('FOLDER') around it, and wait for its "
            "result inside, with jax.block_until_ready",
        )
    return found


def _data(path: Path) -> bytes:
    try:
        data = read_regular(path, PROFILE_BYTES)
    except (OSError, ValueError) as error:
        raise unreadable(str(path), error) from error
    return _unpacked(path, data) if data.startswith(_GZIP) else data


def _unpacked(path: Path, data: bytes) -> bytes:
    reader = zlib.decompressobj(31)
    try:
        made = reader.decompress(data, PROFILE_BYTES.most + 1)
    except zlib.error as error:
        raise _damaged(path, f"its gzip stream is damaged: {error}") from error
    if len(made) > PROFILE_BYTES.most:
        raise _damaged(path, f"unpacked it has more bytes; {PROFILE_BYTES} are read")
    if not reader.eof:
        raise _damaged(path, "its gzip stream ends too early")
    return made


def _damaged(path: Path, what: str) -> GraphgenError:
    return GraphgenError("GG0705", f"cannot read '{path}': {what}", help="record it again")


def _neuron(path: Path) -> ProfileRecording:
    """The instructions of a profile of Neuron's tools, whose engines are its threads."""
    profile = read_profile(path)
    if not profile.instructions:
        what = f"{path} has metrics, and no instructions"
        raise GraphgenError("GG0705", what, help="graphgen inspect shows the metrics")
    engines: dict[str, int] = {}
    events: list[OpEvent] = []
    for item in profile.instructions:
        thread = engines.setdefault(item.engine, len(engines))
        start, end = _NANO * item.start, _NANO * item.end
        op = item.op or _UNNAMED
        events.append(OpEvent("", op, "0", "", thread, start, end, end))
    return ProfileRecording("profile of a Neuron device", events)
