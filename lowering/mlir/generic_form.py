"""MLIR through jaxlib: bytecode and every assembly form, printed in the generic form.

jaxlib reads in a process of its own: a file of others can end it, as by types that are nested
deeper than its stack, or by names that are not UTF-8.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from contextlib import suppress
from importlib.util import find_spec
from typing import IO, Final, cast

from graphgen.errors import GraphgenError

# The first byte of an answer: the module, MLIR's message, or XLA's.
MADE, UNREAD, UNCONVERTED = b"+", b"-", b"!"
TEXT, HLO = "text", "hlo"
_ENDED: Final = b"its process ended: it is nested too deeply, damaged, or takes too long"
_WORKER: Final = "graphgen.lowering.mlir.jaxlib_worker"


def generic_text(data: str | bytes, filename: str) -> str:
    """Print the module in MLIR's generic form, with locations.

    Raises:
        GraphgenError: GG0201 with MLIR's message.
        ModuleNotFoundError: jaxlib is not installed.
    """
    kind, answer = _asked(TEXT, data)
    if kind == MADE:
        return answer.decode("utf-8", "surrogatepass")
    message = " ".join(answer.decode("utf-8", "replace").split()).replace('"-":', "")
    what = f"MLIR cannot read it: {message}"
    quantized = '"quant"' in message or "quant.uniform" in message
    help = (
        "jaxlib does not have quantized types: write text, by stablehlo-translate "
        "--deserialize, or by stablehlo-opt --mlir-print-op-generic"
        if quantized
        else ""
    )
    raise GraphgenError("GG0201", what, where=filename, help=help)


def hlo_of(data: bytes) -> bytes:
    """Convert StableHLO text or bytecode to an HloModuleProto with jaxlib.

    Raises:
        RuntimeError: XLA cannot convert it.
        ValueError: MLIR cannot read it.
        ModuleNotFoundError: jaxlib is not installed.
    """
    kind, answer = _asked(HLO, data)
    if kind == MADE:
        return answer
    raise (ValueError if kind == UNREAD else RuntimeError)(answer.decode("utf-8", "replace"))


def _asked(wanted: str, data: str | bytes) -> tuple[bytes, bytes]:
    """The kind of jaxlib's answer, and the answer; the end of its process is one, too."""
    if find_spec("jaxlib") is None:
        raise ModuleNotFoundError("jaxlib is not installed", name="jaxlib")
    given = b"b" + data if isinstance(data, bytes) else b"s" + data.encode("utf-8", "surrogatepass")
    made = _JAXLIB.answer(wanted[:1].encode() + given)
    return (made[:1], made[1:]) if made else (UNREAD, _ENDED)


class _Jaxlib:
    """The process of :mod:`graphgen.lowering.mlir.jaxlib_worker`, started when needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def answer(self, request: bytes) -> bytes:
        """Ask; empty where the request has ended the process, which is started again then."""
        with self._lock:
            # A process that was forked from this one must not use its pipes.
            if self._process is None or self._owner != os.getpid():
                self._process, self._owner = self._start(), os.getpid()
            given = cast("IO[bytes]", self._process.stdin)
            made = cast("IO[bytes]", self._process.stdout)
            try:
                given.write(len(request).to_bytes(8, "little") + request)
                given.flush()
                size = int.from_bytes(made.read(8), "little")
                answer = made.read(size)
            except OSError:
                size, answer = 1, b""
            if len(answer) < max(size, 1):
                self._end()
                return b""
            return answer

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", _WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()


_JAXLIB: Final = _Jaxlib()
atexit.register(_JAXLIB.close)
