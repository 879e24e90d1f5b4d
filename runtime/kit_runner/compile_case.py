"""One program through the compiler, in a folder of its own and within a time."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from graphgen.runtime.kit_runner.kit_types import KitCase, KitCompilation
from graphgen.runtime.kit_runner.log_text import codes_of, tail_of

HLO, NEFF, LOG = "graph.hlo", "graph.neff", "log-neuron-cc.txt"
_NO_SPACE = "No space left on device"
_USAGE = re.compile(r"unrecognized arguments|invalid choice|usage: neuronx-cc|expected .*argument")
_NEFF_HEADER = 1024


class Stopped(Exception):  # noqa: N818 - it is the end of a run, not a failure
    """The kit is being stopped; no compiler is started any more."""


class Compilers:
    """Compilers that run beside each other and end together.

    Args:
        path: of the compiler.
        timeout: seconds of each; 0 for no limit.
    """

    def __init__(self, path: str, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._stopped = False

    def compile(self, case: KitCase, hlo: Path, folder: Path) -> KitCompilation:
        """Compile a case; the NEFF is in ``folder`` where there is one (Stopped, OSError)."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        shutil.copyfile(hlo, folder / HLO)
        start = time.monotonic()
        status, timed_out = self._run([self._path, *case["words"]], folder)
        seconds = time.monotonic() - start
        text = _texts(folder)
        return _ended(folder, status, timed_out, seconds, text)

    def _run(self, words: Sequence[str], folder: Path) -> tuple[int, bool]:
        environment = {k: v for k, v in os.environ.items() if k != "NEURON_CC_FLAGS"}
        with (folder / "output.txt").open("wb") as output, self._lock:
            if self._stopped:
                raise Stopped
            process = subprocess.Popen(
                words,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
            self._running.add(process.pid)
        try:
            return process.wait(self._timeout or None), False
        except subprocess.TimeoutExpired:
            _kill(process.pid)
            return process.wait(), True
        finally:
            # Processes left by a compiler must not go on.
            _kill(process.pid)
            with self._lock:
                self._running.discard(process.pid)
                stopped = self._stopped
            if stopped:
                raise Stopped

    def stop(self) -> None:
        """End all of them; no other one is started."""
        with self._lock:
            self._stopped = True
            for group in self._running:
                _kill(group)


def _kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _texts(folder: Path) -> str:
    """The log, and the lines of the output that are not in it."""
    found: list[str] = []
    for name in (LOG, "output.txt"):
        if (folder / name).is_file():
            found += (folder / name).read_text("utf-8", "replace").splitlines()
    return "\n".join(dict.fromkeys(found))


def _ended(folder: Path, status: int, timed_out: bool, seconds: float, text: str) -> KitCompilation:
    neff = folder / NEFF
    data = neff.read_bytes() if neff.is_file() else b""
    codes, folders = codes_of(text), [str(folder), str(folder.resolve())]
    end = "time-out" if timed_out else _end(status, codes, text, data)
    return {
        "end": end,
        "status": status,
        "seconds": round(seconds, 3),
        "codes": codes,
        "log_tail": tail_of(text, folders, 5) if end == "compiled" else tail_of(text, folders),
        "neff_bytes": len(data),
        "neff_sha256": hashlib.sha256(data).hexdigest() if data else "",
    }


def _end(status: int, codes: Sequence[str], text: str, neff: bytes) -> str:
    if status == 0:
        return "compiled" if len(neff) > _NEFF_HEADER else "no output"
    if status in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return "killed"
    if _NO_SPACE in text:
        return "disk full"
    # Codes that begin with I are internal errors: they say nothing about what is legal.
    if any(not code.startswith("NCC_I") for code in codes):
        return "refused"
    if codes:
        return "internal error"
    return "bad option" if status == 2 and _USAGE.search(text) else "crash"
