"""A child process that answers requests: after one that ended it, the next one is answered."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from typing import IO

import pytest

from graphgen.worker_process import WorkerProcess

# Says its number before each line, and ends at the line "end".
CHILD = """
import os, sys
for line in sys.stdin.buffer:
    if line == b"end\\n":
        sys.exit()
    sys.stdout.buffer.write(b"%d %s" % (os.getpid(), line))
    sys.stdout.buffer.flush()
"""


def answer(made: IO[bytes]) -> bytes:
    return made.readline()


@pytest.fixture
def worker() -> Iterator[WorkerProcess]:
    made = WorkerProcess(lambda: (sys.executable, "-c", CHILD))
    yield made
    made.close()


def test_one_process_answers_all(worker: WorkerProcess):
    first, second = (worker.ask(b"%d\n" % n, answer).split() for n in range(2))
    assert first[1:] + second[1:] == [b"0", b"1"]
    assert first[0] == second[0]


def test_a_request_that_ends_the_process_is_answered_by_nothing(worker: WorkerProcess):
    assert worker.ask(b"end\n", answer) == b""
    assert worker.ask(b"a\n", answer).endswith(b" a\n")


def test_a_process_that_was_killed_is_started_again(worker: WorkerProcess):
    number = int(worker.ask(b"a\n", answer).split()[0])
    os.kill(number, signal.SIGKILL)
    os.waitid(os.P_PID, number, os.WEXITED | os.WNOWAIT)
    assert worker.ask(b"b\n", answer).endswith(b" b\n")


# Answers one request, and reads no other.
DEAF = """
import os, signal
os.write(1, os.read(0, 99))
os.close(0)
os.write(1, b"closed\\n")
signal.pause()
"""


def test_a_request_that_cannot_be_written_is_answered_by_nothing():
    made = WorkerProcess(lambda: (sys.executable, "-c", DEAF))
    try:
        assert made.ask(b"a\n", lambda stream: answer(stream) + answer(stream)) == b"a\nclosed\n"
        # It is in the buffer of the pipe yet when the pipe is closed.
        assert made.ask(b"b\n", answer) == b""
        assert made.ask(b"c\n", answer) == b"c\n"
    finally:
        made.close()
