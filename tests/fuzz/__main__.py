"""Read damaged inputs until the time is over, and keep those that a reader does not refuse well.

    make fuzz MINUTES=10
    python -m tests.fuzz --minutes 10 --start 100000
    python -m tests.fuzz --target ir --start 4711 --count 1     # one input again

A process reads some inputs of a target, with a limit of memory and one of seconds for each. An
exception that is not an error of the house, a signal, and a limit that is passed are defects: their
inputs are kept in ``.cache/fuzz``. The exit status is 1 if there is one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

from tests.fuzz.mutations import mutated
from tests.fuzz.target import ROOT
from tests.fuzz.targets import TARGETS, seeds_of

# Inputs of a process, seconds of an input, and bytes of memory.
BATCH, SECONDS, MEMORY = 200, 10, 4 << 30
KEPT = ROOT.parent / ".cache" / "fuzz"


class SlowError(BaseException):
    """An input takes too long; no reader may take it for an error of its own."""


def _slow(*_: object) -> NoReturn:
    raise SlowError


def defect(name: str, folder: Path, data: bytes) -> str:
    """What is wrong with how a target reads an input; empty where it is read or refused."""
    from graphgen.errors import GraphgenError
    from graphgen.runtime.server.api_error import ApiError

    path = folder / TARGETS[name].file
    path.write_bytes(data)
    try:
        TARGETS[name].read(path)
    except (GraphgenError, ApiError) as error:
        return "" if str(error) else "an error without a text"
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of a foreign library is no Exception
        return f"{type(error).__name__}: {str(error)[:200]}"
    return ""


def read_some(name: str, start: int, count: int) -> None:
    """Read inputs in this process; a line for each number that begins, and for each defect."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, _slow)
    seeds = seeds_of(name)
    with tempfile.TemporaryDirectory() as folder:
        for place in range(start, start + count):
            print(json.dumps([place, ""]), flush=True)
            data = mutated(seeds, name, place)
            signal.alarm(SECONDS)
            found = defect(name, Path(folder), data)
            signal.alarm(0)
            if found:
                print(json.dumps([place, found]), flush=True)


def defects(name: str, start: int, count: int) -> dict[int, str]:
    """The defects of some inputs, by number; those that end the process included."""
    found: dict[int, str] = {}
    end = start + count
    while start < end:
        command = [sys.executable, "-m", "tests.fuzz", "--child", "--target", name]
        command += ["--start", str(start), "--count", str(end - start)]
        limit = SECONDS * 3 + 60 + count
        with tempfile.TemporaryFile("w+") as out:
            status: int | str = "hangs"
            with contextlib.suppress(subprocess.TimeoutExpired):
                made = subprocess.run(
                    command, stdout=out, stderr=subprocess.DEVNULL, cwd=ROOT.parent, timeout=limit
                )
                status = made.returncode
            out.seek(0)
            lines = [json.loads(line) for line in out if line.endswith("\n")]
        found |= {place: what for place, what in lines if what}
        if status == 0:
            return found
        last = lines[-1][0] if lines else start
        found[last] = f"the process ended: {status}"
        start = last + 1
    return found


def main(arguments: list[str]) -> int:
    """Fuzz; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--target", choices=TARGETS)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--count", type=int)
    parser.add_argument("--child", action="store_true")
    given = parser.parse_args(arguments)
    if given.child:
        read_some(given.target, given.start, given.count)
        return 0
    names = [given.target] if given.target else list(TARGETS)
    end, start = time.monotonic() + 60 * given.minutes, given.start
    bad = 0
    while True:
        for name in names:
            for place, what in defects(name, start, given.count or BATCH).items():
                bad += 1
                kept = KEPT / f"{name}-{place}-{TARGETS[name].file}"
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_bytes(mutated(seeds_of(name), name, place))
                print(f"{name} {place}: {what!r}, kept as {kept}", flush=True)
        start += given.count or BATCH
        if given.count or time.monotonic() >= end:
            break
    print(f"{(start - given.start) * len(names)} inputs, {bad} defects")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
