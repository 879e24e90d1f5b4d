"""Replicas of vLLM's server on two hosts, as processes of vLLM and as actors of Ray."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.distributed.network_hosts import ADDRESS, OTHER, TwoHosts, two_hosts
from tests.runtime.vllm_plugin.test_vllm import ENGINE, GREEDY, LENGTH, NEW, prompts, wanted
from tests.runtime.vllm_plugin.test_vllm import folder as folder
from tests.runtime.vllm_plugin.vllm_environment import (
    environment,
    needs_ray,
    needs_vllm,
    python,
    run_program,
)

pytestmark = [pytest.mark.slow, needs_vllm]
REPLICAS = ("--data-parallel-size", "2", "--data-parallel-size-local", "1")
ENGINES = (*REPLICAS, "--data-parallel-address", ADDRESS)
# Seconds until two replicas are there, on a machine that has other work.
PATIENCE = 900
# Seconds until the loss of a replica has ended everything, there too.
LOSS = 30
RAY = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}


@pytest.fixture(scope="module")
def hosts() -> Generator[TwoHosts]:
    with two_hosts() as made:
        yield made


@dataclass(frozen=True, slots=True)
class Machines:
    """Two hosts with a model, and a folder for logs and sockets.

    Attributes:
        hosts: the hosts.
        model: the folder of the model.
        home: the folder for what is made.
    """

    hosts: TwoHosts
    model: Path
    home: Path

    @contextmanager
    def running(
        self, host: int, words: Sequence[str], variables: Mapping[str, str]
    ) -> Generator[tuple[subprocess.Popen[bytes], Path]]:
        """A program of vLLM's environment on a host, and its log."""
        name, *more = words
        log = self.home / f"{name}-{host}.log"
        command = [*self.hosts.words(host), str(Path(python()).with_name(name)), *more]
        with log.open("w") as file:
            started = subprocess.Popen(
                command,
                env={**environment(self.home), **RAY, **variables},
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        try:
            yield started, log
        finally:
            started.terminate()
            try:
                started.wait(60)
            except subprocess.TimeoutExpired:
                started.kill()

    def server(self, host: int, *flags: str, **variables: str) -> Any:
        """``vllm serve`` on a host."""
        words = ["vllm", "serve", str(self.model), "--dtype", "float32", "--served-model-name"]
        words += ["mini", "--max-model-len", str(LENGTH), "--max-num-seqs", "8", *flags]
        return self.running(host, words, variables)

    @property
    def api(self) -> Path:
        """The socket of the API: files are those of both hosts, ports are not."""
        return self.home / "api"


@pytest.fixture
def machines(hosts: TwoHosts, folder: Path) -> Generator[Machines]:
    # Paths of sockets have few letters.
    home = Path(tempfile.mkdtemp(prefix="gg-"))
    yield Machines(hosts, folder, home)
    shutil.rmtree(home)


def answered(
    machines: Machines, started: Sequence[tuple[subprocess.Popen[bytes], Path]]
) -> tuple[list[list[int]], Mapping[str, float]]:
    """Tokens of 16 concurrent requests, and how many each replica has given.

    Args:
        machines: the hosts.
        started: processes that have to stay, with their logs.
    """
    import httpx2 as httpx

    end = time.monotonic() + PATIENCE
    while not listens(machines.api):
        for process, log in started:
            assert process.poll() is None, log.read_text()[-6000:]
        assert time.monotonic() < end, started[-1][1].read_text()[-6000:]
        time.sleep(1)
    way = httpx.HTTPTransport(uds=str(machines.api))
    with httpx.Client(transport=way, timeout=120) as client:
        assert client.get("http://host/health").status_code == 200
        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(lambda text: asked_of(client, text), prompts(16)))
        metrics = client.get("http://host/metrics").text
    given = re.findall(r'^vllm:generation_tokens_total{engine="(\d)".*} (.*)$', metrics, re.M)
    return found, {number: float(count) for number, count in given}


def listens(path: Path) -> bool:
    """A server listens at a socket; it does when its replicas are there."""
    with socket.socket(socket.AF_UNIX) as found:
        return found.connect_ex(str(path)) == 0


def asked_of(client: Any, text: list[int]) -> list[int]:
    """The answer of the server to a prompt."""
    import openai

    api = openai.OpenAI(
        base_url="http://host/v1", api_key="none", max_retries=0, http_client=client
    )
    extra = {"ignore_eos": True, "return_token_ids": True}
    made = api.completions.create(
        model="mini", prompt=text, max_tokens=NEW, temperature=0, extra_body=extra
    )
    return made.choices[0].model_dump()["token_ids"]


def check(found: list[list[int]], given: Mapping[str, float], folder: Path) -> None:
    """Compare tokens with those of our engine; both replicas have given some of them."""
    assert found == wanted(folder, prompts(16))
    assert given.keys() == {"0", "1"}
    assert min(given.values()) >= NEW
    assert sum(given.values()) == 16 * NEW


def running_on(hosts: TwoHosts, host: int) -> str:
    """The processes of a host, with their commands."""
    name = (hosts.first, hosts.second)[host]
    pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout
    words = ["ps", "-o", "pid=,args=", "-p", ",".join(pids.split())]
    return subprocess.run(words, capture_output=True, text=True).stdout


def test_replicas_on_two_hosts(machines: Machines):
    """Requests to the first host's server are answered by both, each with its own programs."""
    api = ("--uds", str(machines.api), "--api-server-count", "1")
    with ExitStack() as stack:
        both = [
            stack.enter_context(machines.server(0, *ENGINES, *api)),
            stack.enter_context(
                machines.server(1, *ENGINES, "--headless", "--data-parallel-start-rank", "1")
            ),
        ]
        found, given = answered(machines, both)
        assert "VLLM::EngineCore_DP1" in running_on(machines.hosts, 1)
    check(found, given, machines.model)


@pytest.mark.parametrize("loss", ["killed", "paused", "cable"])
def test_a_lost_replica_ends_every_request(machines: Machines, loss: str):
    """The server fails its requests and ends; after a cut cable the replica ends, too."""
    import httpx2 as httpx

    api = ("--uds", str(machines.api), "--api-server-count", "1")
    with ExitStack() as stack:
        both = [
            stack.enter_context(machines.server(0, *ENGINES, *api)),
            stack.enter_context(
                machines.server(1, *ENGINES, "--headless", "--data-parallel-start-rank", "1")
            ),
        ]
        found, given = answered(machines, both)
        check(found, given, machines.model)
        stack.callback(machines.hosts.set_cable, "up")
        if loss == "cable":
            machines.hosts.set_cable("down")
        else:
            sent = signal.SIGKILL if loss == "killed" else signal.SIGSTOP
            os.kill(replica_on(machines.hosts, 1), sent)
        begin = time.monotonic()
        body = {"model": "mini", "prompt": [5, 6], "max_tokens": NEW, "ignore_eos": True}

        def ask(_: int) -> int:
            way = httpx.HTTPTransport(uds=str(machines.api))
            with httpx.Client(transport=way, timeout=LOSS) as client:
                try:
                    return client.post("http://host/v1/completions", json=body).status_code
                except (httpx.ConnectError, httpx.RemoteProtocolError):
                    return 0

        with ThreadPoolExecutor(8) as pool:
            codes = list(pool.map(ask, range(8)))
        print(f"requests ended after {time.monotonic() - begin:.1f} s")
        # Some were sent to the replica that is there, and answered.
        assert set(codes) <= {200, 500, 0}
        assert set(codes) != {200}
        # The process that is paused stays.
        for process, _ in both if loss != "paused" else both[:1]:
            process.wait(max(1, LOSS - (time.monotonic() - begin)))
    assert "A replica on another machine is lost" in both[0][1].read_text()
    if loss == "cable":
        assert "The server of this replica is lost" in both[1][1].read_text()


def replica_on(hosts: TwoHosts, host: int) -> int:
    """The process of a replica on a host."""
    lines = running_on(hosts, host).splitlines()
    (found,) = [line for line in lines if "VLLM::EngineCore_DP" in line]
    return int(found.split()[0])


@needs_ray
def test_a_worker_is_an_actor_of_ray(folder: Path, tmp_path: Path):
    """Without a cluster, one is begun on this machine; the actor holds both ranks."""
    texts = prompts(8)
    asked = [{"prompt": text, "sampling": GREEDY} for text in texts]
    engine = {**ENGINE, "tensor_parallel_size": 2, "distributed_executor_backend": "ray"}
    task = {"engine": {"model": str(folder), **engine}, "requests": asked}
    path = tmp_path / "answers.json"
    # Paths of sockets have few letters.
    with tempfile.TemporaryDirectory(prefix="gg-") as home:
        variables = {**RAY, "RAY_TMPDIR": home}
        said = run_program(tmp_path, "offline_program.py", [str(path)], json.dumps(task), variables)
    found = json.loads(path.read_text(encoding="utf-8"))["answers"]
    assert [one["tokens"] for one in found] == wanted(folder, texts)
    assert "RayWorkerProc" in said


@needs_ray
def test_replicas_are_actors_of_ray_on_two_nodes(machines: Machines):
    """A cluster of Ray has a node on each host; vLLM puts a replica and its worker on each."""
    node = ["ray", "start", "--block", "--num-cpus", "2", "--object-store-memory", "83886080"]
    node += ["--disable-usage-stats", "--resources", '{"neuron_cores": 1}', "--node-ip-address"]
    head = ["--head", "--port", "6379", "--include-dashboard", "false"]
    head += ["--temp-dir", str(machines.home / "ray")]
    cluster = f"{ADDRESS}:6379"
    flags = ("--data-parallel-backend", "ray", "--uds", str(machines.api))
    artifact = machines.home / "compiled"
    variables = {"RAY_ADDRESS": cluster, "VLLM_HOST_IP": ADDRESS}
    variables["NEURON_COMPILED_ARTIFACTS"] = str(artifact)
    with ExitStack() as stack:
        started = [
            node_of_ray(machines, stack, 0, [*node, ADDRESS, *head]),
            node_of_ray(machines, stack, 1, [*node, OTHER, "--address", cluster]),
        ]
        server = machines.server(0, *ENGINES, *flags, "--api-server-count", "1", **variables)
        started.append(stack.enter_context(server))
        found, given = answered(machines, started)
        for host in range(2):
            commands = running_on(machines.hosts, host)
            assert "ray::EngineCoreActor" in commands
            assert "ray::RayWorkerProc" in commands
        # Its path reaches the actors.
        assert (artifact / "manifest.json").exists()
    check(found, given, machines.model)


def node_of_ray(
    machines: Machines, stack: ExitStack, host: int, words: Sequence[str]
) -> tuple[subprocess.Popen[bytes], Path]:
    """A node of a cluster that is there. Ray waits 30 seconds for its own processes: try again."""
    end = time.monotonic() + PATIENCE
    process, log = stack.enter_context(machines.running(host, words, {}))
    while "Ray runtime started" not in (text := log.read_text()):
        if process.poll() is not None and "timed out during startup" in text:
            process, log = stack.enter_context(machines.running(host, words, {}))
        assert process.poll() is None, text[-6000:]
        assert time.monotonic() < end, text[-6000:]
        time.sleep(0.5)
    return process, log
