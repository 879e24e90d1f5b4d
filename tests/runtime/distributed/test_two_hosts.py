"""Launches on two hosts answer as one process does; a cut cable or a lost process ends both."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from tests.oracles.small_gguf import write_small_model
from tests.runtime.distributed.launches import (
    GRAPHGEN,
    Ended,
    answered,
    begin,
    command,
    end,
    process_of,
    soon,
)
from tests.runtime.distributed.network_hosts import ADDRESS, TwoHosts, two_hosts

pytestmark = pytest.mark.slow

TEXT = ("--prompt", "abc", "--max-len", "128", "--ignore-eos")
LONG = (*TEXT[:2], "--max-new-tokens", "450", "--ignore-eos")
Running = list[subprocess.Popen[str]]


@pytest.fixture(scope="module")
def hosts() -> Generator[TwoHosts]:
    with two_hosts() as made:
        yield made


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("model"))


def written(folder: Path) -> Path:
    path = folder / "small.gguf"
    write_small_model(path, {"llama.context_length": 512}, tied=False)
    return path


def launched(
    hosts: TwoHosts,
    folder: Path,
    words: list[list[str]],
    disturb: Callable[[Running], None] | None = None,
) -> list[Ended]:
    """Run a process on each host to its end, timed from what ``disturb`` does."""
    # The ports of a namespace are its own.
    flags = ["--nnodes", "2", "--master-addr", ADDRESS, "--master-port", "29500"]
    if disturb is None:
        flags += ["--silent-after", "60"]
    logs = [folder / f"logs-{host}" for host in range(2)]
    running = [
        begin(logs[h], [*flags, "--node-rank", str(h)], words[h], hosts.words(h)) for h in range(2)
    ]
    if disturb is not None:
        assert running[0].stdout is not None
        # Tokens of the answer are streamed: the steps have begun.
        running[0].stdout.read(1)
        disturb(running)
    start = time.monotonic()
    return [end(process, log, start) for process, log in zip(running, logs, strict=True)]


@pytest.mark.parametrize(
    "degrees",
    [("--tp", "2"), ("--tp", "4"), ("--tp", "1", "--pp-degree", "2")],
)
def test_two_hosts_give_the_tokens_of_one_process(
    degrees: tuple[str, ...], hosts: TwoHosts, model: Path, tmp_path: Path
):
    asked = ["generate", str(model), "--dtype", "f32", *TEXT, "--max-new-tokens", "12", "--json"]
    alone = subprocess.run(
        [*GRAPHGEN, *asked], capture_output=True, text=True, timeout=240, check=True
    )
    first, second = launched(hosts, tmp_path, [[*asked, *degrees]] * 2)
    assert (first.status, second.status) == (0, 0), first.err + second.err
    assert answered(first.out) == answered(alone.stdout)
    assert not second.out
    # Only with several ranks on each host.
    assert ("collectives over 2 machines" in first.err) == ("4" in degrees)


@pytest.mark.parametrize("stages", ["1", "2"])
def test_a_cut_cable_ends_both(stages: str, hosts: TwoHosts, model: Path, tmp_path: Path):
    tp = 2 // int(stages)
    words = command(model, tp, *LONG, "--pp-degree", stages)
    try:
        ended = launched(hosts, tmp_path, [words, words], lambda _: hosts.set_cable("down"))
    finally:
        hosts.set_cable("up")
    for one in ended:
        assert one.status == 1
        assert one.seconds < soon()
        assert "error[GG0708]" in one.err


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_process_of_the_other_host_ends_both(
    how: signal.Signals, hosts: TwoHosts, model: Path, tmp_path: Path
):
    words = command(model, 1, *LONG, "--pp-degree", "2")
    ended = launched(
        hosts, tmp_path, [words, words], lambda running: os.kill(process_of(running[1], 1), how)
    )
    for one in ended:
        assert one.status == 1
        assert one.seconds < soon()
        assert "error[GG0708]" in one.err
        assert "process 1 of 2" in one.err


def test_other_weights_on_a_host_are_named(hosts: TwoHosts, model: Path, tmp_path: Path):
    other = written(tmp_path)
    changed = bytearray(other.read_bytes())
    # Of the last tensor.
    changed[-4] ^= 1
    other.write_bytes(changed)
    words = [command(path, 1, *TEXT, "--pp-degree", "2") for path in (model, other)]
    for one in launched(hosts, tmp_path, words):
        assert one.status == 1
        assert "error[GG0709]" in one.err
        assert "hash of the weights" in one.err
