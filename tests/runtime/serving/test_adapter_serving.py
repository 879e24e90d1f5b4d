"""Adapters come, go, fail and are asked for in any order: each request gets its own tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from graphgen.errors import GraphgenError
from graphgen.runtime.lora.adapter_store import AdapterStore
from graphgen.runtime.serving.scheduler import SchedulerOptions
from graphgen.runtime.serving.serving_engine import ServingEngine
from graphgen.runtime.serving.serving_request import Finish, ServingRequest
from tests.runtime.serving.fake_adapters import AdapterSession, HeldLoads, next_with
from tests.runtime.serving.fake_session import EOS, answer, as_session

LIMIT = 24
NAMES = "abcde"
# Most begin alike.
prompts = st.lists(st.integers(1, 2), min_size=1, max_size=12).map(tuple)


class AdapterMachine(RuleBasedStateMachine):
    """Loads, unloads and requests against a dictionary of names and what their files hold."""

    @initialize(
        rows=st.integers(1, 4),
        chunk=st.integers(0, 5),
        slots=st.integers(1, 3),
        host=st.integers(1, 3),
        in_flight=st.booleans(),
    )
    def begin(self, rows: int, chunk: int, slots: int, host: int, in_flight: bool) -> None:
        self.session = AdapterSession(rows, LIMIT, chunk, 2, slots=slots, chooses=in_flight)
        self.loads, self.host = HeldLoads(), host
        self.store: AdapterStore[int] = AdapterStore(self.session, host, self.loads)
        self.engine = ServingEngine(
            as_session(self.session),
            SchedulerOptions(chunk, 2, 3),
            async_mode=in_flight,
            adapters=self.store,  # pyright: ignore[reportArgumentType]
        )
        # Names that requests may give, and the number in the file of each.
        self.files: dict[str, int] = {}
        self.made = 0
        self.broken: set[int] = set()
        self.asked: dict[str, tuple[ServingRequest, int]] = {}
        self.tokens: dict[str, list[int]] = {}
        self.ends: dict[str, Finish] = {}
        self.errors: dict[str, str] = {}

    @rule(name=st.sampled_from(NAMES))
    def load(self, name: str) -> None:
        self.made += 1
        number = self.made % 200 + 1

        def read() -> int:
            if number in self.broken:
                raise OSError("the file is gone")
            return number

        if name in self.files:
            with pytest.raises(GraphgenError, match="already"):
                self.store.register(name, Path(name), read)
            return
        self.store.register(name, Path(name), read)
        self.files[name] = number
        assert self.store.names.keys() == self.files.keys()

    @rule(name=st.sampled_from(NAMES))
    def unload(self, name: str) -> None:
        if name not in self.files:
            with pytest.raises(GraphgenError, match="no adapter"):
                self.store.remove(name)
            return
        self.store.remove(name)
        del self.files[name]

    @rule(data=st.data(), repaired=st.booleans())
    def break_a_file(self, data: st.DataObject, repaired: bool) -> None:
        if repaired:
            self.broken.clear()
        elif self.files:
            self.broken.add(self.files[data.draw(st.sampled_from(sorted(self.files)))])

    @rule(fails=st.sampled_from(["launch", "write"]))
    def fail(self, fails: str) -> None:
        if fails == "launch":
            self.session.fails = True
        else:
            self.session.refuses_writes = True

    @rule(name=st.none() | st.sampled_from(NAMES), prompt=prompts, priority=st.integers(-1, 1))
    def submit(self, name: str | None, prompt: tuple[int, ...], priority: int) -> None:
        id = str(len(self.asked))
        request = ServingRequest(
            id, prompt, 9, frozenset({EOS}), priority=priority, adapter=name or ""
        )
        if name is not None and name not in self.files:
            with pytest.raises(GraphgenError, match="no adapter"):
                self.engine.submit(request)
            return
        self.engine.submit(request)
        self.asked[id] = request, self.files[name] if name is not None else 0
        self.tokens[id] = []

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.asked:
            id = data.draw(st.sampled_from(sorted(self.asked)))
            if self.engine.cancel(id) is not None:
                self.ends[id] = Finish.CANCELLED

    @rule()
    def finish_a_load(self) -> None:
        if self.loads.waiting:
            self.loads.run()

    @rule(steps=st.integers(1, 8))
    def advance(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        for event in self.engine.step():
            assert event.id not in self.ends
            if event.token is not None:
                self.tokens[event.id].append(event.token)
            if event.finish is not None:
                self.ends[event.id] = event.finish
            if event.error:
                self.errors[event.id] = event.error

    @invariant()
    def slots_hold_what_their_names_say(self) -> None:
        if not hasattr(self, "engine"):
            return
        scheduler, store = self.engine.scheduler, self.store
        assert len(store.kept) <= self.host
        assert len(store.in_slots) == self.session.slots
        for progress in scheduler.running:
            _, number = self.asked[progress.request.id]
            slot = self.session.of_rows[progress.row or 0]
            assert (slot >= 0) == (number > 0)
            assert number == 0 or self.session.written[slot] == number
            if progress.adapter is not None:
                pins = [one for one in scheduler.running if one.adapter is progress.adapter]
                assert progress.adapter.pins == len(pins)
        for progress in scheduler.waiting:
            if progress.adapter is not None:
                wants = [one for one in scheduler.waiting if one.adapter is progress.adapter]
                assert progress.adapter.wanted == len(wants)

    @invariant()
    def tokens_are_those_of_the_request_alone(self) -> None:
        for id, (request, number) in getattr(self, "asked", {}).items():
            whole = answer(request.prompt, 9, LIMIT, follows=next_with(number))
            got, end = self.tokens[id], self.ends.get(id)
            assert got == whole[: len(got)]
            if end in (Finish.EOS, Finish.LENGTH):
                assert got == whole
            if end is Finish.ERROR:
                known = ("the device is gone", "the file is gone", "the slot was not written")
                assert self.errors[id].endswith(known)

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        for _ in range(2000):
            if not self.engine.busy:
                break
            self.finish_a_load()
            self.step()
        assert not self.engine.busy
        self.tokens_are_those_of_the_request_alone()
        for name in [*self.files]:
            self.unload(name)
        while self.loads.waiting:
            self.loads.run()
        self.store.poll()
        self.store.poll()
        assert (list(self.store.kept), set(self.store.in_slots)) == ([], {None})


AdapterMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestAdapters = AdapterMachine.TestCase


class LongAdapterMachine(AdapterMachine):
    """The same over 200 loads, unloads and requests at a time."""


LongAdapterMachine.TestCase.settings = settings(
    max_examples=10, stateful_step_count=200, deadline=None
)
TestManyAdapters = pytest.mark.slow(LongAdapterMachine.TestCase)


def engine_of(slots: int, host: int = 4, rows: int = 2) -> tuple[ServingEngine, HeldLoads]:
    session, loads = AdapterSession(rows, LIMIT, 0, 2, slots=slots), HeldLoads()
    store: AdapterStore[int] = AdapterStore(session, host, loads)
    engine = ServingEngine(
        as_session(session), adapters=store,  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
    for number, name in enumerate(NAMES, 1):
        store.register(name, Path(name), lambda number=number: number)
    return engine, loads


def ask(engine: ServingEngine, *names: str) -> None:
    for number, name in enumerate(names):
        engine.submit(ServingRequest(f"{number}{name}", (1, 2, 1), 40, adapter=name))


def ids(engine: ServingEngine) -> list[str]:
    return [event.id for event in engine.step()]


def test_a_request_waits_for_its_adapter_and_others_go_on():
    engine, loads = engine_of(2)
    ask(engine, "a", "")
    assert {id for _ in range(3) for id in ids(engine)} == {"1"}
    assert len(loads.waiting) == 1
    loads.run()
    assert {id for _ in range(2) for id in ids(engine)} == {"0a", "1"}


def test_the_least_recently_used_adapter_leaves():
    engine, loads = engine_of(2, rows=1)
    store = engine.scheduler.adapters
    assert store is not None
    for name in "abacb":
        ask(engine, name)
        while engine.busy:
            engine.step()
            while loads.waiting:
                loads.run()
    # c took the slot of b, as a was used after it; then b that of a.
    assert store.in_slots == ["b", "c"]
    assert (store.reads, store.writes) == (3, 4)


def test_a_small_host_reads_files_again():
    engine, loads = engine_of(1, host=1, rows=1)
    store = engine.scheduler.adapters
    assert store is not None
    for name in "aba":
        ask(engine, name)
        while engine.busy:
            engine.step()
            while loads.waiting:
                loads.run()
    assert (store.reads, store.writes, list(store.kept)) == (3, 3, ["a"])


def test_rows_of_other_adapters_are_not_taken_over():
    """The same prompt with another adapter is processed from its first token."""
    engine, loads = engine_of(2, rows=2)
    for name, processed in (("", 3), ("a", 3), ("a", 1), ("", 1)):
        before = engine._session.processed  # type: ignore[attr-defined]
        engine.submit(ServingRequest(f"x{name}", (1, 2, 1), 1, adapter=name))
        while engine.busy:
            engine.step()
            while loads.waiting:
                loads.run()
        assert engine._session.processed - before == processed  # type: ignore[attr-defined]


def test_an_engine_without_adapters_refuses_names():
    engine = ServingEngine(as_session(AdapterSession(1, LIMIT, 0, 1, slots=1)))
    with pytest.raises(GraphgenError, match="the programs have none"):
        engine.submit(ServingRequest("x", (1,), adapter="a"))
