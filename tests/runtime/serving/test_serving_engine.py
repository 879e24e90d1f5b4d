"""Any requests, in any order, with any faults: each gets the tokens that it would get alone."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from graphgen.errors import GraphgenError
from graphgen.runtime.server.server_metrics import ServerMetrics
from graphgen.runtime.serving.block_rows import BlockRows
from graphgen.runtime.serving.row_pool import RowPool
from graphgen.runtime.serving.scheduler import SchedulerOptions
from graphgen.runtime.serving.serving_engine import ServingEngine
from graphgen.runtime.serving.serving_request import Finish, ServingRequest
from tests.runtime.serving.fake_blocks import FakeBlockSession
from tests.runtime.serving.fake_session import (
    EOS,
    VOCABULARY,
    FakeSession,
    Letters,
    answer,
    as_session,
    cut,
    text_of,
)

LIMIT = 24
# Most begin alike.
prompts = st.lists(st.integers(1, 2), min_size=1, max_size=LIMIT).map(tuple)


class ServingMachine(RuleBasedStateMachine):
    """Requests come, are cancelled, time out, and launches fail."""

    @initialize(
        rows=st.integers(1, 4),
        chunk=st.integers(0, 5),
        prompts=st.integers(1, 3),
        patience=st.integers(1, 9),
        rings=st.booleans(),
        in_flight=st.booleans(),
        sharing=st.booleans(),
        groups=st.integers(1, 3),
    )
    def begin(
        self,
        rows: int,
        chunk: int,
        prompts: int,
        patience: int,
        rings: bool,
        in_flight: bool,
        sharing: bool,
        groups: int,
    ) -> None:
        session = FakeSession(rows, LIMIT, chunk, prompts, rings=rings, chooses=in_flight)
        options = SchedulerOptions(chunk, prompts, patience, groups)
        self.serve(session, options, in_flight=in_flight, sharing=sharing)

    def serve(
        self, session: FakeSession, options: SchedulerOptions, *, in_flight: bool, sharing: bool
    ) -> None:
        self.session = session
        self.now = 0.0
        self.engine = ServingEngine(
            as_session(self.session),
            options,
            lambda: self.now,
            tokenizer=Letters(),
            async_mode=in_flight,
            prefix_sharing=sharing,
        )
        self.asked: dict[str, ServingRequest] = {}
        self.tokens: dict[str, list[int]] = {}
        self.texts: dict[str, str] = {}
        self.ends: dict[str, Finish] = {}
        self.cancelled: set[str] = set()
        self.failures = 0

    @rule(
        prompt=prompts,
        most=st.integers(1, 30),
        priority=st.integers(-1, 2),
        lasts=st.none() | st.floats(0, 20),
        stop=st.lists(st.text("bcdek", min_size=1, max_size=3), max_size=2).map(tuple),
    )
    def submit(
        self,
        prompt: tuple[int, ...],
        most: int,
        priority: int,
        lasts: float | None,
        stop: tuple[str, ...],
    ):
        name = str(len(self.asked))
        deadline = None if lasts is None else self.now + lasts
        request = ServingRequest(
            name, prompt, most, frozenset({EOS}), priority=priority, deadline=deadline, stop=stop
        )
        if len(prompt) > self.session.limit:
            with pytest.raises(GraphgenError, match="GG0701"):
                self.engine.submit(request)
            return
        self.engine.submit(request)
        self.asked[name], self.tokens[name], self.texts[name] = request, [], ""

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.asked:
            name = data.draw(st.sampled_from(sorted(self.asked)))
            event = self.engine.cancel(name)
            assert (event is None) == (name in self.ends)
            if event is not None:
                assert (event.id, event.token, event.finish) == (name, None, Finish.CANCELLED)
                self.ends[name] = Finish.CANCELLED
                self.texts[name] += event.text

    @rule()
    def fail(self) -> None:
        self.session.fails = True

    def nothing_leaks(self) -> None:
        """At the end, of what a pool has beside rows."""

    @rule(steps=st.integers(1, 12))
    def advance(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        self.now += 1
        scheduler = self.engine.scheduler
        unfinished = [*scheduler.waiting, *scheduler.running]
        first = min(unfinished, key=lambda one: (one.turn, one.order), default=None)
        others = [one for one in scheduler.running if one is not first]
        for event in self.engine.step():
            assert event.id not in self.ends
            if event.token is not None:
                self.tokens[event.id].append(event.token)
            self.texts[event.id] += event.text
            if event.finish is not None:
                self.ends[event.id] = event.finish
            assert event.error == ("the device is gone" if event.finish is Finish.ERROR else "")
        if first is not None and first.row is None and first.request.id not in self.ends:
            # Whatever passes the first request, it waits for requests of its own turn alone.
            alike = [one for one in others if one.turn <= first.turn]
            assert any(self.ends.get(one.request.id) is not Finish.DEADLINE for one in alike)

    @invariant()
    def rows_are_those_of_their_requests(self) -> None:
        if not hasattr(self, "engine"):
            return
        scheduler = self.engine.scheduler
        rows = {progress.row: progress for progress in scheduler.running}
        assert len(rows) == len(scheduler.running)
        assert all(progress.row is None for progress in scheduler.waiting)
        held = self.held()
        assert sorted(row for row in rows if row is not None) == sorted(held)
        for row, progress in rows.items():
            assert row is not None
            assert held[row] == progress.text[: progress.processed]
            assert progress.remaining >= 1
        open_ids = {p.request.id for p in (*scheduler.running, *scheduler.waiting)}
        assert open_ids == self.asked.keys() - self.ends.keys()

    def held(self) -> dict[int, list[int]]:
        """What the rows that requests have hold, as the pool knows it."""
        pool = self.engine.scheduler.pool
        assert isinstance(pool, RowPool)
        for row, held in zip(pool.rows, self.session.held, strict=True):
            assert row.tokens == held[: len(row.tokens)]
        return {index: row.tokens for index, row in enumerate(pool.rows) if row.taken}

    @invariant()
    def tokens_are_those_of_the_request_alone(self) -> None:
        for name, request in getattr(self, "asked", {}).items():
            whole = answer(request.prompt, request.max_new_tokens, self.session.limit, request.stop)
            got = self.tokens[name]
            assert got == whole[: len(got)]
            text, stopped = cut(text_of(got), request.stop)
            end = self.ends.get(name)
            if end is None:
                assert text.startswith(self.texts[name])
                continue
            assert self.texts[name] == text
            if end in (Finish.EOS, Finish.LENGTH, Finish.STOP):
                assert got == whole
                assert (end is Finish.EOS) == (whole[-1] == EOS)
                assert (end is Finish.STOP) == stopped

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            for _ in range(2000):
                if not self.engine.busy:
                    break
                self.step()
            assert not self.engine.busy
            assert self.engine.scheduler.pool.free == self.session.rows
            self.nothing_leaks()
            self.tokens_are_those_of_the_request_alone()


ServingMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestServing = ServingMachine.TestCase


class PagedMachine(ServingMachine):
    """The same with a paged cache, which may have fewer blocks than the rows need."""

    @initialize(
        rows=st.integers(1, 4),
        chunk=st.integers(0, 5),
        prompts=st.integers(1, 3),
        patience=st.integers(1, 9),
        block=st.integers(1, 5),
        blocks=st.integers(1, 20),
        in_flight=st.booleans(),
        sharing=st.booleans(),
        groups=st.integers(1, 3),
    )
    def begin(
        self,
        rows: int,
        chunk: int,
        prompts: int,
        patience: int,
        block: int,
        blocks: int,
        in_flight: bool,
        sharing: bool,
        groups: int = 1,
    ) -> None:
        self.paged = FakeBlockSession(
            rows, LIMIT, chunk, prompts, block=block, blocks=blocks, chooses=in_flight
        )
        options = SchedulerOptions(chunk, prompts, patience, groups)
        self.serve(self.paged, options, in_flight=in_flight, sharing=sharing)

    def pool(self) -> BlockRows:
        pool = self.engine.scheduler.pool
        assert isinstance(pool, BlockRows)
        return pool

    def held(self) -> dict[int, list[int]]:
        pool = self.pool()
        taken = {index: row for index, row in enumerate(pool.rows) if row is not None}
        for index, row in taken.items():
            assert self.paged.read(index, len(row.tokens)) == row.tokens
        held = [number for row in taken.values() for number in row.blocks]
        assert pool.blocks.counts == [
            held.count(number) for number in range(self.paged.pages.blocks)
        ]
        return {index: row.tokens for index, row in taken.items()}

    def nothing_leaks(self) -> None:
        assert self.pool().blocks.available == self.paged.pages.blocks


PagedMachine.TestCase.settings = ServingMachine.TestCase.settings
TestPagedServing = PagedMachine.TestCase


def test_later_turns_pass_a_request_that_waits_for_one_of_its_own():
    machine = PagedMachine()
    machine.begin(2, 0, 1, 1, block=3, blocks=5, in_flight=False, sharing=False)
    for prompt, priority in (((1,) * 13, 0), ((1, 1), 1), ((1, 1), -1), ((1, 1), 0)):
        machine.submit(prompt, 1, priority, None, ())
    machine.teardown()
    assert [*machine.ends] == ["2", "3", "0", "1"]


def engine_of(session: FakeSession, **options: int) -> ServingEngine:
    return ServingEngine(as_session(session), SchedulerOptions(**options) if options else None)


def finished(engine: ServingEngine, steps: int = 200) -> dict[str, list[int]]:
    """The tokens of all requests at their end."""
    out: dict[str, list[int]] = {}
    for _ in range(steps):
        for event in engine.step():
            if event.token is not None:
                out.setdefault(event.id, []).append(event.token)
        if not engine.busy:
            return out
    raise AssertionError("requests do not end")


def test_prompts_go_in_chunks_between_the_tokens_of_others():
    session = FakeSession(2, 64, 4, 1)
    engine = engine_of(session)
    engine.submit(ServingRequest("short", (1,), 40))
    engine.step()
    engine.submit(ServingRequest("long", (1,) * 20, 1))
    seen = [[event.id for event in engine.step()] for _ in range(5)]
    assert seen[:4] == [["short"]] * 4
    assert "long" in seen[4]
    assert "short" in seen[4]


def test_prompts_of_one_launch_go_before_the_answers_that_they_outnumber():
    """A launch of one answer takes as long as one of four: rows are filled first."""
    session = FakeSession(4, 64, 4, 1)
    engine = engine_of(session)
    for first, name in enumerate("abcd", 1):
        engine.submit(ServingRequest(name, (first, 1, 2, 3), 2))
    seen = ["".join(event.id for event in engine.step()) for _ in range(4)]
    assert seen == ["a", "b", "c", "dabcd"]
    assert not engine.busy


def test_a_stream_goes_on_between_prompts_that_it_outnumbers():
    session = FakeSession(3, 64, 4, 1)
    engine = engine_of(session)
    for name in ("a", "b"):
        engine.submit(ServingRequest(name, (1, 2), 40))
    for _ in range(3):
        engine.step()
    engine.submit(ServingRequest("c", (2, 2, 1, 1), 2))
    assert [event.id for event in engine.step()] == ["c", "a", "b", "c"]


def test_as_many_prompts_as_there_are_rows_come_between_two_tokens():
    """However many requests end with their first token and are followed by others."""
    session = FakeSession(3, 64, 4, 1)
    engine = engine_of(session)
    engine.submit(ServingRequest("stream", (1, 2), 40))
    gaps, gap = [], 0
    for number in range(40):
        # Two prompts wait at any time, beside one stream.
        for place in range(2):
            id = f"{number}.{place}"
            engine.submit(ServingRequest(id, (1 + place, 2, number % 5, 1), 1))
        if "stream" in [event.id for event in engine.step()]:
            gaps.append(gap)
            gap = 0
        gap += 1
    assert len(gaps) > 8
    assert max(gaps) <= 3 + 1


def test_a_row_that_holds_the_beginning_is_taken_again():
    session = FakeSession(2, 64, 0, 1)
    engine = engine_of(session)
    engine.submit(ServingRequest("a", (1, 2, 3, 4), 1))
    engine.submit(ServingRequest("b", (2, 2), 1))
    finished(engine)
    row = session.held.index([1, 2, 3, 4])
    engine.submit(ServingRequest("c", (1, 2, 3, 5), 1))
    engine.step()
    assert session.held[row] == [1, 2, 3, 5]


def test_a_prompt_with_several_answers_is_processed_once():
    session = FakeSession(4, 64, 4, 1)
    engine = engine_of(session)
    prompt = (1, 2, 1, 1, 2, 1, 2, 2, 1, 2)
    for name in "abc":
        engine.submit(ServingRequest(name, prompt, 3))
    engine.submit(ServingRequest("other", (2,), 3))
    assert finished(engine) == {
        **{name: answer(prompt, 3, 64) for name in "abc"},
        "other": answer((2,), 3, 64),
    }
    assert session.processed == len(prompt) + 2 + 3 * 2 + 3
    assert len(session.copied) == 2


@pytest.mark.parametrize("paged", [False, True], ids=["rows", "blocks"])
def test_without_sharing_each_prompt_is_processed_whole(paged: bool):
    session = (
        FakeBlockSession(4, 64, 4, 1, block=4, blocks=64) if paged else FakeSession(4, 64, 4, 1)
    )
    engine = ServingEngine(as_session(session), prefix_sharing=False)
    prompt = (1, 2, 1, 1, 2, 1, 2, 2, 1, 2)
    for names in ("ab", "cd"):
        for name in names:
            engine.submit(ServingRequest(name, prompt, 3))
        assert finished(engine) == {name: answer(prompt, 3, 64) for name in names}
    assert session.processed == 4 * (len(prompt) + 2)
    assert (session.copied, engine.scheduler.pool.reused) == ([], 0)


def test_launches_start_before_the_last_ones_are_read():
    prompts = {"a": (1, 2, 1), "b": (2, 2)}
    most: dict[bool, int] = {}
    for mode in (False, True):
        session = FakeSession(2, 64, 0, 1, chooses=True)
        engine = ServingEngine(as_session(session), async_mode=mode)
        for name, prompt in prompts.items():
            engine.submit(ServingRequest(name, prompt, 9, frozenset({EOS})))
        assert finished(engine) == {name: answer(p, 9, 64) for name, p in prompts.items()}
        most[mode] = session.most_unread
    assert most[False] == 1
    assert most[True] >= 2


def test_a_long_beginning_is_copied_from_a_row_in_use():
    session = FakeSession(2, 128, 0, 1)
    engine = engine_of(session)
    engine.submit(ServingRequest("a", (1,) * 40, 40))
    engine.step()
    engine.submit(ServingRequest("b", (*(1,) * 38, 2, 2), 2))
    engine.step()
    assert session.copied == [(0, 1)]
    assert session.held[1][:40] == [*(1,) * 38, 2, 2]


def test_a_short_beginning_is_not_copied_for_a_launch_that_is_needed_anyway():
    session = FakeSession(2, 128, 0, 1)
    engine = engine_of(session)
    engine.submit(ServingRequest("a", (1, 1, 1, 1), 40))
    engine.step()
    engine.submit(ServingRequest("b", (1, 1, 2, 2), 2))
    engine.step()
    assert session.copied == []


def test_the_end_of_the_first_answer_does_not_hold_up_the_others():
    session = FakeSession(3, 64, 2, 1)
    engine = engine_of(session)
    prompt = (1, 2, 1, 1, 2, 1)
    for name in "ab":
        engine.submit(ServingRequest(name, prompt, 4))
    engine.step()
    engine.cancel("a")
    assert finished(engine) == {"b": answer(prompt, 4, 64)}


def test_a_request_of_low_priority_ends_although_others_keep_coming():
    session = FakeSession(1, 64, 2, 1)
    engine = engine_of(session, chunk=2, patience=5)
    engine.submit(ServingRequest("late", (1,) * 10, 3, priority=3))
    ended: set[str] = set()
    for number in range(120):
        engine.submit(ServingRequest(f"n{number}", (2, 1), 2))
        ended |= {event.id for event in engine.step() if event.finish}
        if "late" in ended:
            return
    raise AssertionError("it starves")


def test_the_more_urgent_takes_a_row_and_the_other_goes_on_later():
    session = FakeSession(1, 64, 0, 1)
    engine = engine_of(session)
    engine.submit(ServingRequest("slow", (1, 1), 8))
    first = [event.token for _ in range(3) for event in engine.step()]
    engine.submit(ServingRequest("urgent", (2,), 2, priority=-1))
    got = finished(engine)
    assert first + got["slow"] == answer((1, 1), 8, 64)
    assert got["urgent"] == answer((2,), 2, 64)


def crowded() -> ServingEngine:
    """Six blocks: one request has three of them, the next one in the queue needs four."""
    engine = engine_of(FakeBlockSession(4, 64, 0, 1, block=4, blocks=6))
    engine.submit(ServingRequest("first", (1,) * 9, 4))
    engine.step()
    engine.submit(ServingRequest("long", (2,) * 16, 4))
    return engine


def running(engine: ServingEngine) -> list[str]:
    return [progress.request.id for progress in engine.scheduler.running]


def test_a_short_request_passes_one_for_which_there_are_too_few_blocks():
    engine = crowded()
    engine.step()
    for name in ("short", "later"):
        engine.submit(ServingRequest(name, (1, 2), 30))
    rows: list[list[str]] = []
    for _ in range(2):
        engine.step()
        rows.append(running(engine))
    # They keep their rows while the long one does not fit, and lose what it needs once it does.
    assert rows == [["short", "later"], ["short", "long"]]


def test_a_long_request_is_answered_although_short_ones_keep_coming():
    engine = crowded()
    ended: list[str] = []
    for number in range(40):
        engine.submit(ServingRequest(f"n{number}", (1, 2), 3))
        ended += [event.id for event in engine.step() if event.finish]
    assert ended[0] == "first"
    assert ended.index("long") <= 4
    assert len(ended) > 20


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (ServingRequest("x", ()), "GG0702"),
        (ServingRequest("x", (1,) * 65), "GG0701"),
        (ServingRequest("x", (1, VOCABULARY)), "GG0706"),
        (ServingRequest("x", (-1, 1)), "GG0706"),
        (ServingRequest("x", (1,), 0), "GG0705"),
        (ServingRequest("there", (1,)), "GG0705"),
    ],
)
def test_what_cannot_be_answered_is_refused_at_once(request_: ServingRequest, code: str):
    engine = engine_of(FakeSession(1, 64, 0, 1))
    engine.submit(ServingRequest("there", (1,)))
    with pytest.raises(GraphgenError) as caught:
        engine.submit(request_)
    assert caught.value.code == code
    assert len(engine.scheduler.waiting) == 1


def test_metrics_count_the_blocks_of_a_paged_cache():
    session = FakeBlockSession(2, 16, 4, 1, block=4, blocks=8)
    engine = engine_of(session)
    metrics = ServerMetrics(engine)
    engine.submit(ServingRequest("a", (1, 2, 1, 2, 1, 2), 5))
    engine.step()
    engine.step()
    metrics.after_step((), 0.0)
    assert {"graphgen_blocks 8.0", "graphgen_blocks_taken 2.0"} <= lines_of(metrics)
    finished(engine)
    engine.submit(ServingRequest("b", (1, 2, 1, 2, 2, 2), 1))
    engine.step()
    metrics.after_step((), 0.0)
    assert "graphgen_prefix_cache_hits_total 4.0" in lines_of(metrics)
    finished(engine)
    assert {"graphgen_blocks_taken 0.0", "graphgen_blocks_cached 2.0"} <= lines_of(metrics)


def lines_of(metrics: ServerMetrics) -> set[str]:
    return set(metrics.text().decode().splitlines())
