"""Disturb the commands that write, again and again: what they leave is whole, or is made anew.

    make soak MINUTES=10
    python -m tests.soak --minutes 10 --seed 3

First the server answers requests of all sorts (``benchmarks.serving_soak``). Then commands that
write an artifact, a checkpoint or a module are disturbed at a random moment: killed, paused,
stopped by files that may not grow (as of a full disk), or left without file descriptors. After each
disturbance the command runs undisturbed, and has to give what it gave at first. A pause is also
what a jump of the clock looks like to a process.
"""

from __future__ import annotations

import argparse
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


@dataclass(frozen=True, slots=True)
class Writer:
    """A command that writes.

    Attributes:
        arguments: of graphgen; ``MODEL`` and ``OUT`` stand for the paths.
        prints: what it prints is the result, not only what it writes.
    """

    arguments: tuple[str, ...]
    prints: bool = False


WRITERS: Final[Mapping[str, Writer]] = {
    "artifact": Writer(
        ("generate", "MODEL", "--prompt", "a", "--max-new-tokens", "4", "--artifact", "OUT"), True
    ),
    "quantize": Writer(("quantize", "MODEL", "-o", "OUT")),
    "build": Writer(("build", "MODEL", "-o", "OUT")),
}


def command(writer: Writer, model: Path, out: Path) -> list[str]:
    """The command line."""
    paths = {"MODEL": str(model), "OUT": str(out)}
    own = [paths.get(argument, argument) for argument in writer.arguments]
    return [sys.executable, "-m", "graphgen", *own]


def run(arguments: list[str]) -> tuple[int, str]:
    """The status of an undisturbed command, and what it prints."""
    made = subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT, check=False)
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
}


def content(path: Path) -> dict[str, str]:
    """The digest of each file that a result consists of; compiled programs differ by run."""
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    return {
        str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if file.is_file() and file.suffix not in (".xla", ".lock") and file.name != "manifest.json"
    }


def disturbed(writer: Writer, kind: str, model: Path, folder: Path, moment: float) -> str:
    """What is wrong after a disturbance; empty where all is right.

    Args:
        writer: that is disturbed.
        kind: of the disturbance.
        model: that it reads.
        folder: for its result, and for the one of an undisturbed run.
        moment: seconds after its start.
    """
    whole, out = folder / "whole", folder / "out"
    if not whole.exists():
        status, text = run(command(writer, model, whole))
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
        )
        disturb(process, moment)
    if b"Traceback" in (folder / "errors").read_bytes():
        return "a traceback"
    status, text = run(command(writer, model, out))
    if status:
        return f"the command fails afterwards: {text}"
    if writer.prints and text != (folder / "printed").read_text():
        return "it prints something else afterwards"
    same = content(out) == content(whole)
    shutil.rmtree(out) if out.is_dir() else os.unlink(out)
    return "" if same else "it has written something else"


def soak_writers(minutes: float, seed: int) -> Counter[str]:
    """Disturb writers until the time is over; counts by writer, disturbance and outcome."""
    from tests.oracles.small_gguf import write_small_model

    rng, found = random.Random(seed), Counter[str]()
    end = time.monotonic() + 60 * minutes
    with tempfile.TemporaryDirectory() as base:
        model = Path(base) / "small.gguf"
        write_small_model(model)
        while time.monotonic() < end:
            name, kind = rng.choice(list(WRITERS)), rng.choice(list(DISTURBANCES))
            folder = Path(base) / name
            folder.mkdir(exist_ok=True)
            wrong = disturbed(WRITERS[name], kind, model, folder, rng.uniform(0.1, 6))
            found[f"{name}, {kind}: {wrong or 'right'}"] += 1
    return found


def main(arguments: list[str]) -> int:
    """Soak; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-server", action="store_true", help="disturb writers alone")
    given = parser.parse_args(arguments)
    status = 0
    half = given.minutes / (1 if given.no_server else 2)
    if not given.no_server:
        server = [sys.executable, "-m", "benchmarks.serving_soak", "--minutes", str(half)]
        status = subprocess.run(server, cwd=ROOT, check=False).returncode
    found = soak_writers(half, given.seed)
    for line, count in sorted(found.items()):
        print(f"{count:5} {line}")
    return int(status != 0 or not all(line.endswith(": right") for line in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
