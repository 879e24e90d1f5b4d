"""Requests to a child process over pipes, for calls that may crash.

:class:`WorkerProcess` is the side of the parent. :func:`answer_requests` is the loop of a child
whose requests and answers each have their length in the first 8 bytes.
"""

from __future__ import annotations

import atexit
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO, Final, cast

# Seconds for a process to end after its output has.
_ENDING: Final = 5
_LENGTH: Final = 8


def with_length(data: bytes) -> bytes:
    """A request or an answer after its length."""
    return len(data).to_bytes(_LENGTH, "little") + data


def read_whole(stream: IO[bytes]) -> bytes:
    """One request or answer without its length; empty at the end of the stream."""
    size = int.from_bytes(stream.read(_LENGTH), "little")
    data = stream.read(size)
    return data if len(data) == size else b""


def answer_requests(
    answer: Callable[[bytes], bytes], seconds: Callable[[int], float] | None = None
) -> None:
    """Answer requests on standard input until it ends; what a child process does.

    Args:
        answer: gives the answer to a request.
        seconds: of processor time, by the bytes of a request, after which it ends the process;
            ``None`` for no limit.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Of the reader's terminal: the parent ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    given, made = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # Standard output belongs to answers alone.
    os.dup2(2, 1)
    while request := read_whole(given):
        # Time of this process alone: another load of the machine changes nothing.
        signal.setitimer(signal.ITIMER_PROF, seconds(len(request)) if seconds is not None else 0)
        answered = answer(request)
        signal.setitimer(signal.ITIMER_PROF, 0)
        made.write(with_length(answered))
        made.flush()


class WorkerProcess:
    """A child process, started at the first request and again after one that ended it.

    Requests of several threads are answered one after the other. The child limits its own memory,
    and its time where the request gives no seconds.

    Args:
        command: the words to start it with; asked at each start.
    """

    def __init__(self, command: Callable[[], Sequence[str]]) -> None:
        self._command = command
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        # The number of the signal that ended the last process; 0 for any other end.
        self.ended_by = 0
        # Whether the last process was ended for taking too long.
        self.took_too_long = False
        atexit.register(self.close)

    def ask(
        self, request: bytes, read: Callable[[IO[bytes]], bytes], seconds: float | None = None
    ) -> bytes:
        """The answer to a request; empty where the request ended the process.

        Args:
            request: the bytes to write to its standard input.
            read: reads one whole answer from its standard output; empty at the end of the stream.
            seconds: by the clock, after which the process is ended; ``None`` for no limit.
        """
        with self._lock:
            process = self._running()
            self.took_too_long = False
            clock = threading.Timer(seconds or 0, self._stop, [process])
            clock.daemon = True
            if seconds is not None:
                clock.start()
            given, made = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
            try:
                given.write(request)
                given.flush()
                answer = read(made)
                if not answer:
                    # Its output ends before it does; killed now, it would not say why.
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(_ENDING)
            except OSError:
                answer = b""
            finally:
                clock.cancel()
            if not answer:
                self._end()
            return answer

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        """End a process that takes too long, from the thread of a clock."""
        self.took_too_long = True
        process.kill()

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self._end()
        # A process that was forked from this one must not use its pipes.
        if self._process is None or self._owner != os.getpid():
            self._owner = os.getpid()
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        # One that has ended keeps the signal that ended it.
        self.ended_by = max(-process.wait(), 0)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                # Closing flushes the rest of a request, and the reader has ended.
                with suppress(OSError):
                    stream.close()
