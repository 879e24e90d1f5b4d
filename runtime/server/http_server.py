"""Run the server: listen, warm up, answer, and drain at the end."""

from __future__ import annotations

import asyncio
import math
import signal
import socket
import time
from collections.abc import Callable

import uvicorn

from graphgen.errors import GraphgenError
from graphgen.runtime.engine import Engine
from graphgen.runtime.lora.loaded_adapters import LoadedAdapters
from graphgen.runtime.server.answer_grammar import AnswerGrammars
from graphgen.runtime.server.answer_request import ServedModel
from graphgen.runtime.server.application import make_application
from graphgen.runtime.server.connections import (
    BACKLOG,
    AcceptFailures,
    allow_connections,
    bound_sockets,
    bounded_protocol,
)
from graphgen.runtime.server.engine_thread import EngineThread
from graphgen.runtime.server.request_log import LOG, start_log
from graphgen.runtime.server.routes import Service
from graphgen.runtime.server.server_metrics import ServerMetrics
from graphgen.runtime.server.server_options import ServerOptions
from graphgen.runtime.serving.serving_engine import ServingEngine
from graphgen.runtime.speculation.speculator import line_speculator

# Seconds for the whole header of a request, and between two requests.
IDLE_SECONDS = 30
# Seconds in which clients read the errors of answers that were ended.
_CLOSING_SECONDS = 2


def make_service(engine: Engine, options: ServerOptions) -> Service:
    """The thread, the model and the metrics for an opened model."""
    adapters = _adapters(engine, options)
    store = None if adapters is None else adapters.store
    serving = ServingEngine(
        engine.session,
        tokenizer=engine.tokenizer,
        async_mode=engine.async_mode,
        prefix_sharing=options.prefix_sharing,
        speculator=line_speculator(engine.speculator),
        adapters=store,
    )
    vocabulary = engine.session.token_ids or engine.tokenizer.vocab_size
    metrics = ServerMetrics(serving)
    # Made here, not while a request waits.
    _ = engine.tokenizer.bound
    if not options.special_in_messages and engine.tokenizer.chat_template is not None:
        _ = engine.tokenizer.message_markup
    model = ServedModel(
        options.name,
        engine.tokenizer,
        engine.session.limit,
        vocabulary,
        int(time.time()),
        AnswerGrammars(engine.tokenizer, vocabulary),
        options.max_prompt,
        None if store is None else lambda: store.names,
        options.special_in_messages,
        options.template_arguments,
    )
    thread = EngineThread(serving, serving.warm_up, metrics.after_step)
    return Service(thread, model, options, metrics, adapters=adapters)


def _adapters(engine: Engine, options: ServerOptions) -> LoadedAdapters | None:
    """The adapters that requests may name; ``None`` for programs without slots for them.

    Raises:
        GraphgenError: GG0705 for adapters of such programs, and for a name that the model has; as
            :meth:`LoadedAdapters.load` for files that do not fit.
    """
    if engine.session.adapters is None and not options.adapters:
        return None
    made = LoadedAdapters(engine.session, engine.model, options.host_adapters)
    for name, path in options.adapters.items():
        if name == options.name:
            raise GraphgenError("GG0705", f"the model and an adapter have the name '{name}'")
        made.load(name, path)
    return made


def run_server(
    engine: Engine,
    options: ServerOptions,
    listening: Callable[[str], None] = lambda _: None,
    ready: Callable[[str], None] = lambda _: None,
) -> bool:
    """Serve until SIGTERM or SIGINT, then finish what was accepted.

    Args:
        engine: the opened model.
        options: of the server.
        listening: called with the URL once the server accepts connections; programs may still be
            compiled.
        ready: called with it once the warm-up is done, and requests are answered at once.

    Returns:
        False if the engine's thread ended by an exception.

    Raises:
        GraphgenError: GG0705 for an address that it cannot listen on.
    """
    most = allow_connections()
    service = make_service(engine, options)
    start_log()

    def stop(*_: object) -> None:
        server.should_exit = True

    server = DrainingServer(
        service,
        uvicorn.Config(
            make_application(service, stop),
            host=options.host,
            port=options.port,
            backlog=BACKLOG,
            http=bounded_protocol(most),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=IDLE_SECONDS,
        ),
        listening,
        ready,
    )
    # uvicorn raises the signal again at its end, which is to be an ordinary one.
    signal.signal(signal.SIGTERM, stop)
    server.run(bound_sockets(options.host, options.port))
    return service.thread.failure is None


class DrainingServer(uvicorn.Server):
    """A server that reports its port, and cuts off long answers at shutdown.

    Args:
        service: what endpoints share; its options have the seconds that accepted requests have.
        config: of uvicorn, without a timeout.
        listening: called with the URL.
        ready: called with it after the warm-up.
    """

    def __init__(
        self,
        service: Service,
        config: uvicorn.Config,
        listening: Callable[[str], None] = lambda _: None,
        ready: Callable[[str], None] = lambda _: None,
    ) -> None:
        seconds = service.options.drain_timeout
        if seconds:
            # Clients left then send or read too slowly.
            config.timeout_graceful_shutdown = math.ceil(seconds) + _CLOSING_SECONDS
        super().__init__(config)
        self._service = service
        self._listening = listening
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        asyncio.get_running_loop().set_exception_handler(AcceptFailures())
        await super().startup(sockets)
        if self.started:
            port = self.servers[0].sockets[0].getsockname()[1]
            host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
            url = f"http://{host}:{port}"
            self._listening(url)
            self._service.thread.when_ready(lambda: self._ready(url))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish what was accepted, as far as the time allows."""
        seconds = self._service.options.drain_timeout
        loop = asyncio.get_running_loop()
        late = loop.call_later(seconds, self._end_answers) if seconds else None
        await super().shutdown(sockets)
        if late is not None:
            late.cancel()

    def _end_answers(self) -> None:
        facts = {"seconds": self._service.options.drain_timeout}
        facts["choices"] = self._service.open_choices
        LOG.warning("the drain timeout has passed: open answers end", extra={"facts": facts})
        self._service.thread.cancel_all()
