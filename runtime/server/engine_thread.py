"""The thread of the serving engine, and the bridge between it and the event loop.

The engine is called by this thread only. Handlers on the event loop submit groups of requests and
read their events; a group that is cancelled frees its rows before the next step.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.runtime.serving.serving_engine import ServingEngine
from graphgen.runtime.serving.serving_request import Finish, ServingRequest, TokenEvent

LOG = logging.getLogger("graphgen.server")


class EngineEndedError(Exception):
    """The thread has ended by an exception outside of a launch."""


@dataclass(slots=True, eq=False)
class RequestGroup:
    """Requests that one HTTP request made, and their events.

    Attributes:
        requests: by index.
        arrived: time of the submission, of ``time.monotonic``.
    """

    requests: Sequence[ServingRequest]
    arrived: float
    _loop: asyncio.AbstractEventLoop
    _places: dict[str, int] = field(default_factory=dict[str, int])
    _events: asyncio.Queue[tuple[int, TokenEvent]] = field(
        default_factory=asyncio.Queue[tuple[int, TokenEvent]]
    )
    _accepted: asyncio.Future[None] = field(init=False)

    def __post_init__(self) -> None:
        """Number the requests."""
        self._places = {request.id: place for place, request in enumerate(self.requests)}
        self._accepted = self._loop.create_future()

    async def accepted(self) -> None:
        """Wait until the engine has the requests.

        Raises:
            GraphgenError: the engine refuses one of them; none is submitted.
            EngineEndedError: the engine has ended.
        """
        await self._accepted

    async def events(self) -> AsyncGenerator[tuple[int, TokenEvent]]:
        """Index and event, until every request is finished."""
        open_ = len(self.requests)
        while open_:
            place, event = await self._events.get()
            yield place, event
            open_ -= event.finish is not None

    def settle(self, error: Exception | None) -> None:
        """Answer :meth:`accepted`; on the event loop."""
        if self._accepted.done():
            return
        if error is None:
            self._accepted.set_result(None)
        else:
            self._accepted.set_exception(error)

    def put(self, event: TokenEvent) -> None:
        """Add an event; on the event loop."""
        self._events.put_nowait((self._places[event.id], event))


@dataclass(frozen=True, slots=True)
class _Command:
    """Work of the thread before its next step."""

    kind: str
    group: RequestGroup


# Called by the thread after each step with its events and the seconds that it took.
Watch = Callable[[Sequence[TokenEvent], float], None]


class EngineThread:
    """Runs an engine on a thread of its own.

    Args:
        engine: no other thread calls it from :meth:`start` on.
        prepare: called once by the thread before the first step, to warm programs up.
        watch: called after each step.

    Attributes:
        engine: the engine.
        ready: True once ``prepare`` is done.
        failure: the exception that ended the thread.
    """

    def __init__(
        self, engine: ServingEngine, prepare: Callable[[], None], watch: Watch | None = None
    ) -> None:
        self.engine: Final = engine
        self._prepare: Final = prepare
        self._watch: Final = watch
        self._commands: deque[_Command] = deque()
        self._wake: Final = threading.Condition()
        self._stopping = False
        self._ending = False
        self._groups: dict[str, RequestGroup] = {}
        self._thread: Final = threading.Thread(target=self._main, name="engine", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_failure: Callable[[], None] = lambda: None
        self._on_ready: list[Callable[[], None]] = []
        self._has_told = False
        self.ready = False
        self.failure: BaseException | None = None

    def start(self, on_failure: Callable[[], None]) -> None:
        """Start the thread; called on the event loop, as is ``on_failure``."""
        self._loop = asyncio.get_running_loop()
        self._on_failure = on_failure
        self._thread.start()

    def when_ready(self, call: Callable[[], None]) -> None:
        """Call on the event loop once ``prepare`` is done, or now; on the event loop."""
        if self._has_told:
            call()
        else:
            self._on_ready.append(call)

    def stop(self) -> None:
        """End the thread after its current step, and wait for it; what is open is cancelled."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def submit(self, requests: Sequence[ServingRequest]) -> RequestGroup:
        """Hand requests over; all of them are accepted, or none.

        Raises:
            EngineEndedError: the engine has ended.
        """
        group = RequestGroup(requests, time.monotonic(), self._loop_of())
        self._send(_Command("submit", group))
        return group

    def cancel(self, group: RequestGroup) -> None:
        """End what is not finished of a group, before the next step."""
        # A thread that ends cancels everything by itself.
        with suppress(EngineEndedError):
            self._send(_Command("cancel", group))

    def cancel_all(self) -> None:
        """End what is not finished of all groups, after the current step."""
        self._ending = True

    def _send(self, command: _Command) -> None:
        with self._wake:
            if self.failure is not None or self._stopping:
                raise EngineEndedError("the engine has ended")
            self._commands.append(command)
            self._wake.notify()

    def _main(self) -> None:
        try:
            self._prepare()
            self.ready = True
            # The loop may have ended meanwhile.
            with suppress(RuntimeError):
                self._loop_of().call_soon_threadsafe(self._tell_ready)
            while self._wait():
                self._obey()
                self._step()
        except BaseException as error:
            LOG.exception("the engine has failed")
            self._end(error)
        else:
            self._end(None)

    def _loop_of(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None, "start first"
        return self._loop

    def _tell_ready(self) -> None:
        self._has_told = True
        for call in self._on_ready:
            call()
        self._on_ready.clear()

    def _wait(self) -> bool:
        """Wait for work; False at the end."""
        with self._wake:
            while not (self._commands or self._stopping or self.engine.busy):
                self._wake.wait()
            return not self._stopping

    def _obey(self) -> None:
        """Do what has arrived since the last step."""
        while (command := self._next_command()) is not None:
            if command.kind == "submit":
                self._submit(command.group)
            else:
                self._cancel(command.group)
        if self._ending:
            for group in set(self._groups.values()):
                self._cancel(group)

    def _next_command(self) -> _Command | None:
        with self._wake:
            return self._commands.popleft() if self._commands else None

    def _submit(self, group: RequestGroup) -> None:
        error: GraphgenError | None = None
        done: list[ServingRequest] = []
        for request in group.requests:
            try:
                self.engine.submit(request)
            except GraphgenError as refused:
                error = refused
                break
            done.append(request)
        for request in done:
            if error is None:
                self._groups[request.id] = group
            else:
                self.engine.cancel(request.id)
        self._call(group.settle, error)

    def _cancel(self, group: RequestGroup) -> None:
        events = [self.engine.cancel(request.id) for request in group.requests]
        self._deliver([event for event in events if event is not None], 0.0)

    def _step(self) -> None:
        if self.engine.busy:
            start = time.monotonic()
            events = self.engine.step()
            self._deliver(events, time.monotonic() - start)

    def _deliver(self, events: Sequence[TokenEvent], seconds: float) -> None:
        """Give events to their groups, with one call of the event loop."""
        if self._watch is not None:
            self._watch(events, seconds)
        pairs = [(self._groups[event.id], event) for event in events if event.id in self._groups]
        for event in events:
            if event.finish is not None:
                self._groups.pop(event.id, None)
        if pairs:
            self._call(_put_all, pairs)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        """Call a function on the event loop, unless that has ended."""
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)

    def _end(self, error: BaseException | None) -> None:
        """End everything that is open, with an error."""
        what = EngineEndedError("the engine has ended")
        with self._wake:
            self.failure = error
            self._stopping = True
            waiting = [command.group for command in self._commands if command.kind == "submit"]
            self._commands.clear()
        ends = [
            (group, TokenEvent(id, None, Finish.ERROR, str(what)))
            for id, group in self._groups.items()
        ]
        self._groups.clear()
        self._call(_put_all, ends)
        for group in waiting:
            self._call(group.settle, what)
        if error is not None:
            self._call(self._on_failure)


def _put_all(pairs: Sequence[tuple[RequestGroup, TokenEvent]]) -> None:
    for group, event in pairs:
        group.put(event)
