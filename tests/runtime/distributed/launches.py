"""Launches of ``graphgen generate`` as users start them, and what is in their way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphgen.runtime.distributed.launch_plan import free_port


@dataclass(frozen=True, slots=True)
class Ended:
    """How one launch ended.

    Attributes:
        status: of the exit.
        out, err: what it wrote.
        seconds: from the moment of :func:`launch`'s ``disturb``, or from the start.
        logs: of the other processes, by index.
    """

    status: int
    out: str
    err: str
    seconds: float
    logs: dict[int, str]


def soon() -> float:
    """Seconds in which all end: 30 on cores of their own, longer with the work that shares them."""
    return 30.0 * (1.0 + os.getloadavg()[0] / (os.cpu_count() or 1))


GRAPHGEN = (sys.executable, "-m", "graphgen")
Disturb = Callable[[subprocess.Popen[str]], None]


def command(model: Path, tp: int, *words: str) -> list[str]:
    """The words after ``--``."""
    return ["generate", str(model), "--tp", str(tp), "--dtype", "f32", *words]


def answered(text: str) -> list[list[int]]:
    """The tokens of each answer of ``--json``."""
    return [row["tokens"] for row in json.loads(text)["outputs"]]


def begin(
    logs: Path, flags: list[str], words: list[str], where: Sequence[str] = ()
) -> subprocess.Popen[str]:
    """Start a launch in the background, by the command ``where`` that runs others."""
    line = [*where, *GRAPHGEN, "launch", *flags, "--log-dir", str(logs), "--"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("COV_")}
    return subprocess.Popen(
        [*line, *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def end(process: subprocess.Popen[str], logs: Path, start: float) -> Ended:
    """Wait for a launch; one that hangs fails the test."""
    out, err = process.communicate(timeout=240)
    files = {int(p.stem.removeprefix("rank-")): p.read_text() for p in logs.glob("rank-*.log")}
    return Ended(process.returncode, out, err, time.monotonic() - start, files)


def launch(
    logs: Path, processes: int, words: list[str], disturb: Disturb | None = None, *flags: str
) -> Ended:
    """Run a launch on one node to its end.

    Args:
        logs: folder of the logs.
        processes: number of processes.
        words: of :func:`command`.
        disturb: called after the start; what it does is what the end is timed from.
        flags: of the launch.
    """
    running = begin(logs, ["--nproc-per-node", str(processes), *flags], words)
    if disturb:
        disturb(running)
    return end(running, logs, time.monotonic())


def two_nodes(folder: Path, words: list[list[str]]) -> list[Ended]:
    """Run two launches of a process each that are two nodes of one, to their ends."""
    address = ["--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    address += ["--silent-after", "60"]
    logs = [folder / f"logs-{node}" for node in range(2)]
    start = time.monotonic()
    running = [
        begin(logs[node], [*address, "--node-rank", str(node)], words[node]) for node in range(2)
    ]
    return [end(process, log, start) for process, log in zip(running, logs, strict=True)]


def process_of(launcher: subprocess.Popen[str], rank: int) -> int:
    """The id of the process of a rank, once it is there."""
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children")
    for _ in range(2400):
        for child in children.read_text().split():
            environment = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
            if f"RANK={rank}".encode() in environment:
                return int(child)
        time.sleep(0.05)
    raise AssertionError(f"no process of rank {rank}")
