"""Disturb the commands that write, again and again: what they leave is whole, or is made anew.

    make soak MINUTES=10
    python -m tests.soak --minutes 10 --seed 3
    python -m tests.soak --no-server --kind killed --count 200

First the server answers requests of all sorts (``benchmarks.serving_soak``). Then commands that
write an artifact, a checkpoint or a module, or start processes, are disturbed at a random moment:
killed, paused, stopped by files that may not grow (as of a full disk), left without file
descriptors, or given another time. After each disturbance no process is left, and the command runs
undisturbed and has to give what it gave at first.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
_PAUSE = 2.0
_BYTES, _FILES = 1 << 14, 12
_BY_RUN = ("manifest.json", "log-neuron-cc.txt")


@dataclass(frozen=True, slots=True)
class Writer:
    """A command that writes.

    Attributes:
        arguments: of graphgen; ``MODEL``, ``ADAPTER`` and ``OUT`` stand for the paths.
        prints: what it prints is the result, not only what it writes.
        compiler: a stand-in of the device's compiler is on the path.
    """

    arguments: tuple[str, ...]
    prints: bool = False
    compiler: bool = False


WRITERS: Final[Mapping[str, Writer]] = {
    "artifact": Writer(
        ("generate", "MODEL", "--prompt", "a", "--max-new-tokens", "4", "--artifact", "OUT"), True
    ),
    "quantize": Writer(("quantize", "MODEL", "-o", "OUT")),
    "build": Writer(("build", "MODEL", "-o", "OUT")),
    "merge-lora": Writer(("merge-lora", "MODEL", "ADAPTER", "-o", "OUT")),
    "shard-weights": Writer(("shard-weights", "MODEL", "-o", "OUT", "--tp", "2")),
    "compile": Writer(
        ("compile", "MODEL", "--target", "trn2", "--seq-len", "32", "-o", "OUT"), compiler=True
    ),
    "launch": Writer(
        (
            *("launch", "--nproc-per-node", "2", "--"),
            *("generate", "MODEL", "--tp", "2", "--prompt", "a", "--max-new-tokens", "2"),
        ),
        True,
    ),
}


def command(writer: Writer, model: Path, out: Path) -> list[str]:
    """The command line."""
    paths = {"MODEL": str(model), "OUT": str(out), "ADAPTER": str(model.with_name("adapter"))}
    own = [paths.get(argument, argument) for argument in writer.arguments]
    return [sys.executable, "-m", "graphgen", *own]


def environment(writer: Writer, folder: Path) -> dict[str, str]:
    """The environment of a command; a compiler has a cache in the folder of its results.

    Python would keep bytecode of cut files.
    """
    own = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    if not writer.compiler:
        return own
    from tests.fake_compiler.fake_neuron import FakeNeuron

    shutil.rmtree(folder / "fake", ignore_errors=True)
    made = FakeNeuron(folder / "fake").environment
    return {**own, **made, "NEURON_COMPILE_CACHE_URL": str(folder / "cache")}


def run(arguments: list[str], env: Mapping[str, str]) -> tuple[int, str]:
    """The status of an undisturbed command, and what it prints."""
    made = subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT, env=env, check=False)
    return made.returncode, made.stdout if made.returncode == 0 else made.stderr[-500:]


def kill(process: subprocess.Popen[bytes], moment: float) -> None:
    """End a process without a word to it."""
    time.sleep(moment)
    process.kill()
    process.wait()


def pause(process: subprocess.Popen[bytes], moment: float) -> None:
    """Let a process sleep, as a machine that is suspended does."""
    time.sleep(moment)
    if process.poll() is None:
        process.send_signal(signal.SIGSTOP)
        time.sleep(_PAUSE)
        process.send_signal(signal.SIGCONT)
    process.wait()


# A process that reads this file at its start gets another time from a moment on.
_CLOCK: Final = """import os, time
real, start, jump, moment = time.time, time.time(), *map(float, os.environ["CLOCK"].split())
time.time = lambda: (now := real()) + (jump if now - start > moment else 0)
"""


def clock(folder: Path, rng: random.Random) -> dict[str, str]:
    """The environment of a process whose clock jumps by an hour or a year, forth or back."""
    (folder / "clock").mkdir(exist_ok=True)
    (folder / "clock" / "sitecustomize.py").write_text(_CLOCK)
    jump = rng.choice((1, -1)) * rng.choice((3600, 365 * 86400))
    return {"PYTHONPATH": str(folder / "clock"), "CLOCK": f"{jump} {rng.uniform(0, 3)}"}


def left_processes(session: int, seconds: float = 60) -> int:
    """The processes that a killed command has left, after some time to end."""
    end = time.monotonic() + seconds
    while True:
        found = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = stat.read_text().rpartition(")")[2].split()
                found += int(fields[3]) == session and fields[0] != "Z"
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.2)


def wait(process: subprocess.Popen[bytes], moment: float) -> None:
    """Let a process that lacks something end."""
    process.wait()


def little_disk() -> None:
    """No file may have more bytes, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_BYTES, _BYTES))


def few_files() -> None:
    """No more files may be open at a time."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, _FILES))


Disturb = Callable[[subprocess.Popen[bytes], float], None]
DISTURBANCES: Final[Mapping[str, tuple[Disturb, Callable[[], None] | None]]] = {
    "killed": (kill, None),
    "paused": (pause, None),
    "full disk": (wait, little_disk),
    "no descriptors": (wait, few_files),
    "other time": (wait, None),
}


def content(path: Path) -> dict[str, str]:
    """The digest of each file of a result but those that differ by run."""
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if file.is_file() and file.suffix not in (".xla", ".lock") and file.name not in _BY_RUN
    }


def disturbed(writer: Writer, kind: str, model: Path, folder: Path, rng: random.Random) -> str:
    """What is wrong after a disturbance; empty where all is right.

    Args:
        writer: that is disturbed.
        kind: of the disturbance.
        model: that it reads.
        folder: for its result, and for the one of an undisturbed run.
        rng: draws the moment.
    """
    whole, out, env = folder / "whole", folder / "out", environment(writer, folder)
    if not (folder / "printed").exists():
        status, text = run(command(writer, model, whole), env)
        if status:
            return f"the undisturbed command fails: {text}"
        (folder / "printed").write_text(text)
    disturb, limit = DISTURBANCES[kind]
    with (folder / "errors").open("wb") as errors:
        process = subprocess.Popen(
            command(writer, model, out),
            stdout=subprocess.DEVNULL,
            stderr=errors,
            cwd=ROOT,
            preexec_fn=limit,
            start_new_session=True,
            env={**env, **(clock(folder, rng) if kind == "other time" else {})},
        )
        disturb(process, rng.uniform(0.1, 6))
    if left_processes(process.pid):
        os.killpg(process.pid, signal.SIGKILL)
        return "processes are left"
    if b"Traceback" in (folder / "errors").read_bytes():
        return "a traceback"
    # What is finished is not written again.
    text = ""
    if writer.prints or not out.exists() or content(out) != content(whole):
        status, text = run(command(writer, model, out), env)
        if status:
            return f"the command fails afterwards: {text}"
    if writer.prints and text != (folder / "printed").read_text():
        return "it prints something else afterwards"
    same = content(out) == content(whole)
    shutil.rmtree(out) if out.is_dir() else out.unlink(missing_ok=True)
    return "" if same else "it has written something else"


def soak_writers(minutes: float, seed: int, kind: str | None, count: int) -> Counter[str]:
    """Disturb writers until the time is over; counts by writer, disturbance and outcome.

    Args:
        minutes: how long, without a count.
        seed: of the random choices.
        kind: of the disturbances; of all by default.
        count: number of disturbances; 0 for as many as the minutes allow.
    """
    from tests.soak_models import write_adapter, write_model

    rng, found = random.Random(seed), Counter[str]()
    end = time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory() as base:
        model = Path(base) / "model"
        write_model(model)
        write_adapter(Path(base) / "adapter")
        while found.total() < count if count else time.monotonic() < end:
            name, chosen = rng.choice(list(WRITERS)), kind or rng.choice(list(DISTURBANCES))
            folder = Path(base) / name
            folder.mkdir(exist_ok=True)
            wrong = disturbed(WRITERS[name], chosen, model, folder, rng)
            found[f"{name}, {chosen}: {wrong or 'right'}"] += 1
    return found


def main(arguments: list[str]) -> int:
    """Soak; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-server", action="store_true", help="disturb writers alone")
    parser.add_argument("--kind", choices=DISTURBANCES, help="one sort of disturbances")
    parser.add_argument("--count", type=int, default=0, help="disturbances, in place of minutes")
    given = parser.parse_args(arguments)
    status = 0
    half = given.minutes / (1 if given.no_server else 2)
    if not given.no_server:
        server = [sys.executable, "-m", "benchmarks.serving_soak", "--minutes", str(half)]
        status = subprocess.run(server, cwd=ROOT, check=False).returncode
    found = soak_writers(half, given.seed, given.kind, given.count)
    for line, count in sorted(found.items()):
        print(f"{count:5} {line}")
    right = sum(count for line, count in found.items() if line.endswith(": right"))
    print(f"{right} of {found.total()} right")
    return int(status != 0 or right < found.total())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
