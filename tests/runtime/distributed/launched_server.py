"""A server as a process, or as a launch of several, and its clients."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import httpx2

from tests.runtime.distributed.launches import GRAPHGEN, Ended, begin, end

# Bodies of requests that share some beginnings; greedy ones, and ones with a seed.
BODIES: list[dict[str, Any]] = [
    {"prompt": text, "max_tokens": 6 + place, "seed": place, **how}
    for place, (text, how) in enumerate(
        [
            ("the cat and a dog", {"temperature": 0}),
            ("the cat and a dog and one", {"temperature": 1.5, "top_p": 0.9}),
            ("one", {"temperature": 2, "n": 2}),
            ("the cat and a dog and two", {"temperature": 0, "logprobs": 2}),
            ("a dog", {"temperature": 1, "top_k": 20}),
        ]
    )
]


class Server:
    """A running server; :meth:`stop` ends it.

    Args:
        words: after ``graphgen serve``.
        processes: of a launch; 0 for a server without one.
        logs: folder of the launch's logs.
        flags: of the launch.
    """

    def __init__(self, words: list[str], processes: int, logs: Path, *flags: str) -> None:
        words = ["serve", *words, "--dtype", "float32", "--port", "0", "--json"]
        self.logs = logs
        if processes:
            self.process = begin(logs, ["--nproc-per-node", str(processes), *flags], words)
        else:
            self.process = subprocess.Popen(
                [*GRAPHGEN, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )

    def __enter__(self) -> Self:
        """Wait until its programs are compiled."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        facts = json.loads(line)
        self.url, self.name = facts["url"], facts["model"]
        deadline = time.monotonic() + 120
        while httpx2.get(f"{self.url}/ready").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing where a test has failed."""
        self.process.kill()
        self.process.communicate()

    def answers(self, bodies: list[dict[str, Any]]) -> list[Any]:
        """The choices that requests get which all come at once."""
        with ThreadPoolExecutor(len(bodies)) as clients:
            return list(clients.map(self.answer, bodies))

    def answer(self, body: Mapping[str, Any]) -> Any:
        """The texts and numbers of tokens that a request gets."""
        asked = {"model": self.name, "ignore_eos": True, **body}
        given = httpx2.post(f"{self.url}/v1/completions", json=asked, timeout=120)
        assert given.status_code == 200, given.text
        found = given.json()
        return [row["text"] for row in found["choices"]], found["usage"]["completion_tokens"]

    def leave_answer(self, tokens: int) -> None:
        """Read the first event of a long answer, and go away."""
        body = {"model": self.name, "prompt": "two", "max_tokens": tokens, "stream": True}
        asked = {**body, "ignore_eos": True}
        with httpx2.stream("POST", f"{self.url}/v1/completions", json=asked, timeout=60) as given:
            next(given.iter_lines())

    def stop(self, start: float) -> Ended:
        """Have it end, unless it has ended by itself; timed from ``start``."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return end(self.process, self.logs, start)
