"""The thread of the engine: when it is ready, and what it calls then."""

from __future__ import annotations

import asyncio
import threading

from graphgen.runtime.server.engine_thread import EngineThread
from tests.runtime.server.served import service_of


def test_calls_wait_for_the_warm_up_and_later_ones_come_at_once():
    warm, called = threading.Event(), list[str]()

    def prepare() -> None:
        assert warm.wait(60)

    async def run() -> None:
        thread = EngineThread(service_of().thread.engine, prepare)
        thread.start(lambda: None)
        thread.when_ready(lambda: called.append("first"))
        await asyncio.sleep(0.05)
        assert (called, thread.ready) == ([], False)
        warm.set()
        while not called:
            await asyncio.sleep(0.01)
        assert thread.ready
        thread.when_ready(lambda: called.append("second"))
        assert called == ["first", "second"]
        thread.stop()

    asyncio.run(run())


def test_a_loop_that_has_ended_is_not_called():
    warm = threading.Event()
    thread = EngineThread(service_of().thread.engine, lambda: [warm.wait(60), None][1])

    async def run() -> None:
        thread.start(lambda: None)

    asyncio.run(run())
    warm.set()
    thread.stop()
    assert thread.failure is None
