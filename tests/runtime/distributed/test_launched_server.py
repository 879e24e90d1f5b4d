"""Servers over several processes answer as one process does, drain, and end with a lost process."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.oracles.families import ORACLES, save, save_tokenizer
from tests.runtime.distributed.launched_server import BODIES, Server
from tests.runtime.distributed.launches import process_of, soon

pytestmark = pytest.mark.slow

# Other work may keep a process from its core for long.
PATIENT = ("--silent-after", "60")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Llama, whose tokens vary."""
    folder = tmp_path_factory.mktemp("model")
    save(ORACLES["llama"].model(vocab_size=301, initializer_range=0.2, num_hidden_layers=4), folder)
    save_tokenizer(folder)
    return folder


def words(model: Path, *more: str) -> list[str]:
    return [str(model), "--max-num-seqs", "3", "--max-model-len", "64", *more]


@pytest.fixture(scope="module")
def wanted(model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """What a server of one process answers."""
    with Server(words(model), 0, tmp_path_factory.mktemp("alone")) as server:
        return server.answers(BODIES)


def test_ranks_in_two_processes(model: Path, wanted: list[object], tmp_path: Path):
    with Server(words(model, "-tp", "2"), 2, tmp_path, *PATIENT) as server:
        assert server.answers(BODIES) == wanted
        server.leave_answer(50)
        # Rows that the last requests held, and the one of the client that has gone, are used again.
        assert server.answers(BODIES[::-1]) == wanted[::-1]
        ended = server.stop(time.monotonic())
    assert ended.status == 0, ended.err
    assert not ended.logs[1].count("error")


def test_stages_in_two_processes_that_end_with_one_of_them(
    model: Path, wanted: list[object], tmp_path: Path
):
    with Server(words(model, "--pp-degree", "2"), 2, tmp_path, *PATIENT) as server:
        pids = [process_of(server.process, rank) for rank in (0, 1)]
        assert server.answers(BODIES) == wanted
        # No request is open, so that no process waits for a step of another one.
        start = time.monotonic()
        os.kill(pids[1], signal.SIGKILL)
        while server.process.poll() is None and time.monotonic() - start < soon():
            time.sleep(0.05)
        ended = server.stop(start)
    assert ended.status == 1
    assert ended.seconds < soon()
    assert "error[GG0708]" in ended.err
    assert "process 1 of 2" in ended.err
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
