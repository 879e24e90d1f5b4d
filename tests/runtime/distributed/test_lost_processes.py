"""Processes that die, stop or disagree end all the others, with an error and in time."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.oracles.small_gguf import write_small_model
from tests.runtime.distributed.launches import command, launch, process_of, soon, two_nodes

pytestmark = pytest.mark.slow

TEXT = ("--prompt", "abc")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("model"))


def written(folder: Path, freq_base: float = 10000.0) -> Path:
    path = folder / "small.gguf"
    metadata = {"llama.context_length": 512, "llama.rope.freq_base": freq_base}
    write_small_model(path, metadata, tied=False)
    return path


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_dies_or_stops(how: signal.Signals, rank: int, model: Path, tmp_path: Path):
    pids: list[int] = []

    def disturb(launcher: subprocess.Popen[str]) -> None:
        pids.extend(process_of(launcher, each) for each in (0, 1))
        assert launcher.stdout is not None
        # Tokens of the answer are streamed: the steps have begun.
        launcher.stdout.read(1)
        os.kill(pids[rank], how)

    words = command(model, 2, *TEXT, "--max-new-tokens", "450", "--ignore-eos")
    ended = launch(tmp_path, 2, words, disturb)
    assert ended.status == 1
    assert ended.seconds < soon()
    assert "error[GG0708]" in ended.err
    assert f"process {rank} of 2" in ended.err
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_children_end_with_their_launch(model: Path, tmp_path: Path):
    pids: list[int] = []

    def disturb(launcher: subprocess.Popen[str]) -> None:
        pids.extend(process_of(launcher, each) for each in (0, 1))
        assert launcher.stdout is not None
        launcher.stdout.read(1)
        launcher.kill()

    launch(
        tmp_path, 2, command(model, 2, *TEXT, "--max-new-tokens", "450", "--ignore-eos"), disturb
    )
    deadline = time.monotonic() + soon()
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("what", ["weights", "config", "option"])
def test_what_differs_is_named_in_every_process(what: str, model: Path, tmp_path: Path):
    other = written(tmp_path, 20000.0 if what == "config" else 10000.0)
    words = [command(model, 2, *TEXT), command(other, 2)]
    named = {"weights": "hash of the weights", "config": "rope_theta", "option": "option"}[what]
    if what == "weights":
        # Of the last tensor.
        changed = bytearray(other.read_bytes())
        changed[-4] ^= 1
        other.write_bytes(changed)
    elif what == "option":
        words[1] += ["--dtype", "bf16"]
    first, second = two_nodes(tmp_path, words)
    for ended in (first, second):
        assert ended.status == 1
        assert "error[GG0709]: the processes do not run the same program" in ended.err
        assert named in ended.err
    assert not first.out


def test_two_nodes_answer_the_prompt_of_the_first(model: Path, tmp_path: Path):
    words = [command(model, 2, *TEXT, "--max-new-tokens", "5"), command(model, 2)]
    first, second = two_nodes(tmp_path, words)
    assert (first.status, second.status) == (0, 0), first.err + second.err
    assert first.out
    assert not second.out


def test_ranks_with_a_remainder_are_reported_once(model: Path, tmp_path: Path):
    ended = launch(tmp_path, 2, command(model, 3, *TEXT))
    assert ended.status == 1
    assert ended.err.count("error[") == 1
    assert "error[GG0705]: 2 processes cannot share 3 ranks equally" in ended.err


def test_a_process_that_fails_by_itself(model: Path, tmp_path: Path):
    words = [command(model, 2, *TEXT), command(tmp_path / "missing", 2)]
    first, second = two_nodes(tmp_path, words)
    assert (first.status, second.status) == (1, 1)
    assert "process 1 of 2 is lost: it ended with GG06" in first.err
    assert "error[GG06" in second.err
