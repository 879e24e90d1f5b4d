"""A small model and servers of it, in this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn

from graphgen.config.compile_config import CompileConfig
from graphgen.runtime.engine import Engine, EngineOptions, open_engine
from graphgen.runtime.progress import Silent
from graphgen.runtime.server.application import make_application
from graphgen.runtime.server.connections import bounded_protocol
from graphgen.runtime.server.http_server import DrainingServer, make_service
from graphgen.runtime.server.routes import Service
from graphgen.runtime.server.server_options import ServerOptions
from graphgen.runtime.session.session import LaunchObserver
from graphgen.runtime.speculation.speculator import Speculator
from tests.oracles.small_gguf import write_small_model

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}{{ hint }}"
)
ROWS, LENGTH, CHUNK = 4, 128, 16
NAME = "small"
# Of clients without a port.
URL = "http://localhost"
SHAPE = {"llama.context_length": LENGTH, "tokenizer.chat_template": TEMPLATE}


# Of the launches of all servers.
OBSERVERS: list[LaunchObserver] = []


def small_engine() -> Engine:
    """The model, with a session that no server has."""
    return engine_of()


@cache
def engine_of(
    *, tp: int = 1, sampling: str = "", async_mode: bool = False, verifies: int = 0
) -> Engine:
    """The model compiled with these settings, with a session that no server has."""
    requested = {
        "prefill_batch": (1,),
        "tp": tp,
        "sampling": sampling,
        "speculation_length": verifies,
    }
    with TemporaryDirectory() as folder:
        path = Path(folder) / "small.gguf"
        write_small_model(path, SHAPE)
        options = EngineOptions(
            CompileConfig.of(**requested),
            batch=ROWS,
            max_len=LENGTH,
            max_context=CHUNK,
            chunk=(CHUNK,),
            async_mode=async_mode,
        )
        engine, _ = open_engine(str(path), options, lambda _: [[0]], 1, Silent())
    engine.session.warm_up()
    return engine


def service_of(
    first: Engine | None = None, speculator: Speculator | None = None, **options: Any
) -> Service:
    """What the endpoints of a server share; each has rows of its own."""
    first = first or small_engine()
    weights = first.session.weights
    engine = Engine(
        first.model,
        first.tokenizer,
        first.programs,
        weights,
        0.0,
        False,
        async_mode=first.async_mode,
    )
    engine.session.observers = OBSERVERS
    engine.speculator = speculator
    return make_service(engine, ServerOptions(NAME, **options))


@dataclass(slots=True)
class Live:
    """A server on a port.

    Attributes:
        url: without a path.
        port: on 127.0.0.1.
        service: of the server.
        server: of uvicorn.
    """

    url: str
    port: int
    service: Service
    server: uvicorn.Server

    def settle(self, seconds: float = 60.0) -> None:
        """Wait until no request has a row or waits for one."""
        end = time.monotonic() + seconds
        scheduler = self.service.thread.engine.scheduler
        while scheduler.running or scheduler.waiting or self.service.open_choices:
            assert time.monotonic() < end, "requests do not end"
            time.sleep(0.01)


@contextmanager
def live(
    idle_seconds: int = 30,
    connections: int = 4096,
    engine: Engine | None = None,
    **options: Any,
) -> Generator[Live]:
    """A server on a free port, in a thread of its own."""
    service = service_of(engine, **options)
    config = uvicorn.Config(
        make_application(service),
        port=0,
        http=bounded_protocol(connections),
        ws="none",
        log_config=None,
        timeout_keep_alive=idle_seconds,
        timeout_graceful_shutdown=5,
    )
    server = DrainingServer(service, config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not (server.started and service.thread.ready):
            assert thread.is_alive(), "the server has ended"
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Live(f"http://127.0.0.1:{port}", port, service, server)
    finally:
        server.should_exit = True
        thread.join()
