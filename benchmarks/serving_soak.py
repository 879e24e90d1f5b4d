"""Does `graphgen serve` keep its memory, rows and blocks over half an hour of all requests?

    python -m benchmarks.serving_soak                    # 30 minutes
    python -m benchmarks.serving_soak --minutes 3 --json soak.json

Clients send short and long prompts with shared beginnings, several answers a prompt, streams that
they leave in the middle, and bodies that are wrong. The server has fewer blocks than its rows could
fill. It fails where an answer has status 500 or above other than 503, where memory or open files
grow, and where a row or a block is taken at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from benchmarks.serving_throughput import NAME, RunningServer, Server, running
from graphgen.atomic_write import write_whole
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.progress import TerminalProgress

ROWS, LENGTH, CLIENTS = 4, 128, 6
# Seconds between two samples of the server's process.
PERIOD = 2.0
# Growth from the second to the last third of the time that is none: the allocator's own.
MEMORY_SLACK, FILE_SLACK = 12 << 20, 8
TEXT = "the of and to in is that for it as was with on by at from one had not but what all"
WORDS = TEXT.split()


@dataclass(slots=True)
class Soak:
    """What was seen so far.

    Attributes:
        until: time at which clients stop.
        statuses: number of answers by status; ``left`` for streams that the client left.
        memory, files: of the server's process, a sample each.
    """

    until: float
    statuses: Counter[str] = field(default_factory=Counter[str])
    memory: list[int] = field(default_factory=list[int])
    files: list[int] = field(default_factory=list[int])


def server_of(checkpoint: Path) -> Server:
    """The server: blocks for about half of what the rows could hold."""
    command = [
        *(sys.executable, "-m", "graphgen", "serve", str(checkpoint), "--port", "{port}"),
        *("--served-model-name", NAME, "--dtype", "bf16", "--max-num-seqs", str(ROWS)),
        *("--max-model-len", str(LENGTH), "--block-size", "16"),
        *("--num-gpu-blocks-override", str(ROWS * LENGTH // 32 + LENGTH // 16)),
    ]
    return Server("graphgen", command, "/ready")


def body_of(draw: random.Random) -> dict[str, object]:
    """A request; one of twelve is wrong."""
    start = " ".join(WORDS[: draw.choice((0, 8, 20))])
    prompt = f"{start} {' '.join(draw.choices(WORDS, k=draw.randint(1, 50)))}"
    body: dict[str, object] = {
        "model": NAME,
        "prompt": prompt,
        "max_tokens": draw.randint(1, 24),
        "temperature": draw.choice((0, 1)),
        "stream": draw.random() < 0.4,
    }
    if draw.random() < 0.2:
        body["n"] = 2
    if draw.random() < 1 / 12:
        body |= draw.choice(({"max_tokens": -1}, {"prompt": 7.5}, {"n": 0}, {"logprobs": "x"}))
    return body


async def send(client: httpx2.AsyncClient, soak: Soak, draw: random.Random) -> None:
    """Send one request; of the streams a third is left after a few events."""
    body = body_of(draw)
    if not body["stream"]:
        answer = await client.post("/v1/completions", json=body)
        soak.statuses[str(answer.status_code)] += 1
        return
    leave = draw.randint(0, 3) if draw.random() < 1 / 3 else None
    async with client.stream("POST", "/v1/completions", json=body) as answer:
        events = 0
        async for _ in answer.aiter_lines():
            events += 1
            if leave is not None and events > leave:
                soak.statuses["left"] += 1
                return
        soak.statuses[str(answer.status_code)] += 1


async def keep_sending(root: str, soak: Soak, seed: int) -> None:
    """One client: a request after the other."""
    draw = random.Random(seed)
    while time.monotonic() < soak.until:
        # A client stays for some requests.
        async with httpx2.AsyncClient(base_url=root, timeout=120) as client:
            for _ in range(draw.randint(1, 20)):
                await send(client, soak, draw)


async def watch(pid: int, soak: Soak, minutes: float) -> None:
    """Sample the server's process, and report the progress."""
    process, said = Path(f"/proc/{pid}"), time.monotonic()
    while time.monotonic() < soak.until:
        soak.memory.append(int((process / "statm").read_text().split()[1]) * 4096)
        soak.files.append(len(list((process / "fd").iterdir())))
        if time.monotonic() - said >= 60:
            said = time.monotonic()
            left = (soak.until - said) / 60
            count, memory = sum(soak.statuses.values()), soak.memory[-1] >> 20
            line = f"{minutes - left:.0f} of {minutes:g} minutes: {count} requests, {memory} MiB"
            print(line, file=sys.stderr, flush=True)
        await asyncio.sleep(PERIOD)


async def run(ready: RunningServer, soak: Soak, minutes: float) -> str:
    """Let the clients send until the time is over; returns the server's metrics afterwards."""
    clients = [keep_sending(ready.root, soak, seed) for seed in range(CLIENTS)]
    await asyncio.gather(watch(ready.pid, soak, minutes), *clients)
    async with httpx2.AsyncClient(base_url=ready.root, timeout=30) as client:
        # What clients left is given up at the next step.
        await asyncio.sleep(2)
        return (await client.get("/metrics")).text


def growth(samples: list[int]) -> float:
    """The median of the last third less that of the second."""
    third = len(samples) // 3
    return statistics.median(samples[2 * third :]) - statistics.median(samples[third : 2 * third])


def gauge(metrics: str, name: str) -> float:
    """The value of a metric without labels."""
    return float(next(x.split()[1] for x in metrics.splitlines() if x.startswith(f"{name} ")))


def findings(soak: Soak, metrics: str) -> list[str]:
    """What is wrong, a line each."""
    bad = {s: n for s, n in soak.statuses.items() if s not in ("200", "400", "429", "503", "left")}
    wrong = [f"{count} answers with status {status}" for status, count in bad.items()]
    if growth(soak.memory) > MEMORY_SLACK:
        wrong.append(f"memory grows by {growth(soak.memory) / 2**20:.1f} MiB in a third")
    if growth(soak.files) > FILE_SLACK:
        wrong.append(f"{growth(soak.files):.0f} more files are open")
    names = ("graphgen_rows_taken", "graphgen_blocks_taken")
    taken = {name: gauge(metrics, name) for name in names}
    return [*wrong, *[f"{name} is {count:g} at the end" for name, count in taken.items() if count]]


def main() -> int:
    """Print the counts; the exit code is 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--json", type=Path, help="write the counts to this file")
    given = parser.parse_args()
    checkpoint = locate(NAME, TerminalProgress())
    assert checkpoint is not None
    with running(server_of(checkpoint)) as ready:
        soak = Soak(time.monotonic() + 60 * given.minutes)
        metrics = asyncio.run(run(ready, soak, given.minutes))
    wrong = findings(soak, metrics)
    found = {
        "minutes": given.minutes,
        "answers": dict(sorted(soak.statuses.items())),
        "memory_mib": [
            round(value / 2**20, 1) for value in soak.memory[:: max(1, len(soak.memory) // 30)]
        ],
        "memory_growth_mib": round(growth(soak.memory) / 2**20, 2),
        "files_growth": growth(soak.files),
        "wrong": wrong,
    }
    text = json.dumps(found, indent=1)
    print(text)
    if given.json:
        write_whole(given.json, f"{text}\n".encode())
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
