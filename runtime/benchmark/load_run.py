"""One load on a server: requests that arrive by a process, until all are answered or time is over.

* **Closed loop**: a number of users, each sends the next request when the last is answered.
* **Poisson**: requests arrive at a mean rate, whether or not others have been answered; the gaps
  between them are exponential.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from graphgen.runtime.benchmark.load_prompts import LoadPrompt
from graphgen.runtime.benchmark.openai_client import RequestOutcome

Send = Callable[[LoadPrompt], Awaitable[RequestOutcome]]
Sending = Callable[[LoadPrompt], Coroutine[None, None, None]]


@dataclass(frozen=True, slots=True)
class Load:
    """The arrival process of requests.

    Attributes:
        users: of a closed loop.
        rate: requests a second of a Poisson process, which is taken where it is above 0.
        seed: of the gaps.
    """

    users: int = 1
    rate: float = 0.0
    seed: int = 0

    def __str__(self) -> str:
        if self.rate:
            return f"{self.rate:g} requests/s"
        return f"{self.users} at a time"


@dataclass(slots=True)
class LoadResult:
    """The measurements of one load.

    Attributes:
        load: the arrival process.
        outcomes: of the requests that ended, in the order of their ends.
        wall: seconds from the first request to the end of the last, or of the load.
        unfinished: requests that were sent and had not ended.
        interrupted: whether the load was stopped by the user.
    """

    load: Load
    outcomes: list[RequestOutcome] = field(default_factory=list[RequestOutcome])
    wall: float = 0.0
    unfinished: int = 0
    interrupted: bool = False


async def run_load(
    send: Send,
    prompts: Sequence[LoadPrompt],
    load: Load,
    timeout: float,
    stop: asyncio.Event,
    progress: Callable[[int], None],
) -> LoadResult:
    """Send the prompts, and return when they are answered, the time is over, or ``stop`` is set.

    Args:
        send: sends one request; errors of requests are outcomes.
        prompts: each is sent once.
        load: when to send.
        timeout: seconds of the whole load. Requests that have not ended are dropped then.
        stop: set to end now.
        progress: gets the number of requests that have ended, after each of them.
    """
    result = LoadResult(load)
    begin = time.perf_counter()

    async def one(prompt: LoadPrompt) -> None:
        result.unfinished += 1
        result.outcomes.append(await send(prompt))
        result.unfinished -= 1
        result.wall = time.perf_counter() - begin
        progress(len(result.outcomes))

    sending = _poisson(one, prompts, load) if load.rate else _closed_loop(one, prompts, load.users)
    driver = asyncio.ensure_future(sending)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({driver, stopping}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        result.interrupted = stop.is_set() and not driver.done()
        if not driver.done():
            result.wall = time.perf_counter() - begin
    finally:
        stopping.cancel()
        driver.cancel()
        with suppress(asyncio.CancelledError):
            await driver
    return result


async def _closed_loop(one: Sending, prompts: Sequence[LoadPrompt], users: int) -> None:
    waiting = iter(prompts)

    async def user() -> None:
        for prompt in waiting:
            await one(prompt)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(users, len(prompts))):
            group.create_task(user())


async def _poisson(one: Sending, prompts: Sequence[LoadPrompt], load: Load) -> None:
    """Send each prompt at its time; a late one does not delay those after it."""
    source = random.Random(load.seed)
    due = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for prompt in prompts:
            await asyncio.sleep(max(due - time.perf_counter(), 0.0))
            group.create_task(one(prompt))
            due += source.expovariate(load.rate)
