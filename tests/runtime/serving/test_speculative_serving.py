"""Requests that come and go on an engine that speculates: each has the tokens of plain serving."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.generation import GenerationRequest, generate
from graphgen.runtime.sampling import GREEDY, Sampling
from graphgen.runtime.serving.block_rows import BlockRows
from graphgen.runtime.serving.scheduler import Scheduler
from graphgen.runtime.serving.serving_engine import ServingEngine
from graphgen.runtime.serving.serving_request import Finish, ServingRequest, TokenEvent
from graphgen.runtime.session.session import Session
from graphgen.runtime.speculation.draft_model import DraftModel
from graphgen.runtime.speculation.prompt_lookup import PromptLookup
from graphgen.runtime.speculation.proposal import Proposal, Proposer, SpeculativeRow
from graphgen.runtime.speculation.speculator import Speculator
from graphgen.runtime.tokenizer.text_stream import TextStream
from tests.oracles.families import ORACLES, save
from tests.oracles.llama import write_llama
from tests.oracles.sessions import open_session
from tests.runtime.serving.test_serving_model import (
    SERVED,
    alone,
    flips,
    random_requests,
    serve,
    session_of,
)

LENGTH = 4
SPECULATIVE = replace(SERVED, speculation_length=LENGTH)
# Four rows of up to 47 tokens in 26 blocks: answers grow beyond what there is.
PAGED = replace(SPECULATIVE, page_cache=4, cache_blocks=26)
VOCABULARY = 131
FIXED = Sampling(do_sample=True, temperature=1.5, deterministic=True)


class Prompted:
    """Proposes what follows a sequence in known texts; every ``wrong``-th token is another one.

    Attributes:
        texts: prompts with their answers.
        wrong: 1 for wrong ones alone, 0 for right ones alone.
    """

    def __init__(self, texts: Sequence[Sequence[int]], wrong: int) -> None:
        self.texts = [list(text) for text in texts]
        self.wrong = wrong
        self.started = 0

    def start(self) -> None:
        self.started += 1

    def propose(self, rows: Sequence[SpeculativeRow]) -> list[Proposal]:
        return [Proposal(self._tokens(row) if row.wanted else ()) for row in rows]

    def _tokens(self, row: SpeculativeRow) -> list[int]:
        size = len(row.sequence)
        known = next((t for t in self.texts if t[:size] == list(row.sequence)), [])
        right = known[size : size + row.wanted]
        # Some rows are proposed fewer tokens, and some none.
        return [
            (token + 1) % VOCABULARY if self.wrong and (size + n) % self.wrong == 0 else token
            for n, token in enumerate(right)
        ]


class Noise:
    """Proposes random tokens, of a random number."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)

    def start(self) -> None: ...

    def propose(self, rows: Sequence[SpeculativeRow]) -> list[Proposal]:
        counts = [int(self._rng.integers(0, row.wanted + 1)) for row in rows]
        return [Proposal(self._rng.integers(0, VOCABULARY, n).tolist()) for n in counts]


@cache
def draft_session(config: CompileConfig) -> Session:
    """Another model, with one layer and other weights."""
    with TemporaryDirectory() as folder:
        write_llama(Path(folder), num_hidden_layers=1, initializer_range=0.3)
        return open_session(Path(folder), config)


def draft_model(requests: Sequence[ServingRequest]) -> Proposer:
    return DraftModel(draft_session(SPECULATIVE), VOCABULARY)


def prompted(wrong: int) -> Callable[[Sequence[ServingRequest]], Proposer]:
    return lambda requests: Prompted([[*r.prompt, *alone(r)] for r in requests], wrong)


def requests_of(rng: np.random.Generator, count: int) -> list[ServingRequest]:
    """Greedy requests, and ones whose draws do not depend on how many were made."""
    made = random_requests(rng, count, VOCABULARY)
    return [r if r.sampling == GREEDY else replace(r, sampling=FIXED) for r in made]


PROPOSERS: dict[str, Callable[[Sequence[ServingRequest]], Proposer]] = {
    "right": prompted(0),
    "wrong": prompted(1),
    "mixed": prompted(3),
    "noise": lambda requests: Noise(),
    "lookup": lambda requests: PromptLookup(2),
    "draft": draft_model,
}


@pytest.mark.parametrize(
    ("config", "count"),
    [
        pytest.param(SPECULATIVE, 16, id="rows"),
        pytest.param(PAGED, 40, id="paged"),
        pytest.param(replace(SPECULATIVE, tp=2), 16, id="tp2", marks=pytest.mark.slow),
        pytest.param(replace(PAGED, tp=2), 40, id="paged-tp2", marks=pytest.mark.slow),
        pytest.param(
            replace(SPECULATIVE, batch=(1, 2, 4), prefill_batch=(1, 2), chunk=(4, 8)),
            100,
            id="ladders",
            marks=pytest.mark.slow,
        ),
    ],
)
@pytest.mark.parametrize("kind", PROPOSERS)
@pytest.mark.one_in(4)
def test_each_answer_is_that_of_the_request_alone(config: CompileConfig, count: int, kind: str):
    rng = np.random.default_rng(count)
    session, requests = session_of(config), requests_of(rng, count)
    speculator = Speculator(PROPOSERS[kind](requests), LENGTH)
    with patch.object(Scheduler, "_preempt", autospec=True, side_effect=Scheduler._preempt) as lost:
        engine = ServingEngine(session, speculator=speculator)
        served = serve(engine, requests, rng)
    pool = engine.scheduler.pool
    assert pool.free == session.rows
    if isinstance(pool, BlockRows):
        assert pool.blocks.available == 26
        assert lost.call_count > 0
        assert pool.reused > 0
    finished = [request for request in requests if served[request.id][1] is not Finish.CANCELLED]
    assert count // 2 < len(finished)
    assert sum(flips(request, served[request.id][0]) for request in finished) <= 1
    for request in finished:
        tokens, end = served[request.id]
        assert (end is Finish.EOS) == (tokens[-1] in request.eos_ids)
    accepted = sum(speculator.counts.accepted)
    if kind in ("right", "mixed"):
        assert accepted > 0
    if kind == "wrong":
        assert sum(speculator.counts.proposed) > 0
        assert not accepted


@pytest.mark.parametrize("kind", ["right", "mixed", "noise"])
def test_caches_of_a_window_keep_what_refused_tokens_take(tmp_path: Path, kind: str):
    oracle = ORACLES["mistral"]
    save(oracle.model("a window", initializer_range=0.3, vocab_size=VOCABULARY), tmp_path)
    session = open_session(tmp_path, replace(SPECULATIVE, roll_window_cache=True, chunk=()))
    rng = np.random.default_rng(3)
    prompts = [tuple(rng.integers(1, 90, int(rng.integers(1, 8))).tolist()) for _ in range(9)]
    requests = [ServingRequest(str(n), p, 30 + n) for n, p in enumerate(prompts)]
    plain = serve(ServingEngine(session), requests, np.random.default_rng(50))
    texts = [[*r.prompt, *plain[r.id][0]] for r in requests]
    proposer = Noise() if kind == "noise" else Prompted(texts, 0 if kind == "right" else 3)
    engine = ServingEngine(session, speculator=Speculator(proposer, LENGTH))
    served = serve(engine, requests, np.random.default_rng(51))
    for name, (tokens, _) in served.items():
        size = min(len(tokens), len(plain[name][0]))
        assert tokens[:size] == plain[name][0][:size]
    assert sum(len(tokens) for tokens, _ in served.values()) > 150


def test_rows_of_other_lengths_end_at_the_last_slot():
    """Bucket ends at 16 and 64 slots, met in the middle of steps."""
    session = session_of(SPECULATIVE)
    requests = [
        ServingRequest(str(n), tuple(range(1, 1 + size)), 60 - 7 * n)
        for n, size in enumerate((9, 2, 13, 40))
    ]
    speculator = Speculator(prompted(5)(requests), LENGTH)
    engine = ServingEngine(session, speculator=speculator)
    served = serve(engine, requests, np.random.default_rng(1))
    assert {name: tokens for name, (tokens, _) in served.items()} == {
        request.id: alone(request) for request in requests
    }
    assert {end for _, end in served.values()} == {Finish.LENGTH}
    # The fourth is as long as the cache.
    assert len(served["3"][0]) == 64 - 40 + 1
    assert speculator.counts.tokens_per_step > 1.5


def test_drawn_tokens_are_those_of_the_request_alone_with_the_same_seed():
    how = Sampling(do_sample=True, temperature=1.2, top_k=30)
    requests = [
        ServingRequest(str(n), tuple(range(3 + n, 8 + 2 * n)), 14, sampling=replace(how, seed=n))
        for n in range(6)
    ]
    speculator = Speculator(draft_model(requests), LENGTH)
    engine = ServingEngine(session_of(SPECULATIVE), speculator=speculator)
    served = serve(engine, requests, np.random.default_rng(2))
    one = replace(SPECULATIVE, batch=(1,), rows=1, context=(64,), tokens=(64,), chunk=())
    for request in requests:
        by_itself = Speculator(DraftModel(draft_session(one), VOCABULARY), LENGTH)
        asked = GenerationRequest(14, sampling=request.sampling)
        (made,), _ = generate(session_of(one), [request.prompt], asked, decode=by_itself.decode)
        tokens, end = served[request.id]
        assert tokens == (made.tokens[: len(tokens)] if end is Finish.CANCELLED else made.tokens)
    assert 0 < sum(speculator.counts.accepted) < sum(speculator.counts.proposed)


def test_programs_that_choose_tokens_are_followed_by_the_host():
    """Greedy tokens are the same; drawn ones come from the candidates of the programs."""
    config = replace(SPECULATIVE, sampling="on-device-sampling{do_sample=true,global_topk=5}")
    best = [ServingRequest(str(n), tuple(range(1, 4 + n)), 14) for n in range(3)]
    how = Sampling(do_sample=True, temperature=40.0)
    drawn = [
        replace(best[0], id=f"drawn {seed}", sampling=replace(how, seed=seed)) for seed in range(4)
    ]
    speculator = Speculator(prompted(3)(best), LENGTH)
    engine = ServingEngine(session_of(config), speculator=speculator)
    made = {request.id: list[int]() for request in [*best, *drawn]}
    for request in [*best, *drawn]:
        engine.submit(request)
    while engine.busy:
        for event in engine.step():
            assert event.token is not None, event
            made[event.id].append(event.token)
    assert [made[request.id] for request in best] == [alone(request) for request in best]
    reference = session_of(CompileConfig(context=(64,), tokens=(64,)))
    for request in drawn:
        for place, token in enumerate(made[request.id]):
            (logits,) = reference.prefill([[*request.prompt, *made[request.id][:place]]])
            assert (logits > logits[token]).sum() < 5


class Numbers:
    """A tokenizer whose tokens are their numbers."""

    def stream(
        self,
        after: Sequence[int] = (),
        *,
        skip_special: bool = True,
        kept: Collection[str] = (),
    ) -> TextStream:
        return cast("TextStream", NumberStream())


class NumberStream:
    def push(self, token_id: int) -> str:
        return f"{token_id} "

    def flush(self) -> str:
        return ""


def events_of(
    requests: Sequence[ServingRequest], speculator: Speculator | None
) -> dict[str, list[TokenEvent]]:
    """The events of requests that are answered together."""
    engine = ServingEngine(session_of(SPECULATIVE), tokenizer=Numbers(), speculator=speculator)
    found: dict[str, list[TokenEvent]] = {request.id: [] for request in requests}
    for request in requests:
        engine.submit(request)
    while engine.busy:
        for event in engine.step():
            found[event.id].append(event)
    return found


def text_of(events: Sequence[TokenEvent]) -> str:
    return "".join(event.text for event in events)


def check_events(requests: Sequence[ServingRequest], wrong: int) -> None:
    """Tokens, ends, texts and log probabilities are those of plain serving."""
    plain = events_of(requests, None)
    texts = [[*r.prompt, *[e.token for e in plain[r.id] if e.token is not None]] for r in requests]
    speculator = Speculator(Prompted(texts, wrong), LENGTH)
    made = events_of(requests, speculator)
    assert sum(speculator.counts.accepted) > 0
    for request in requests:
        one, other = plain[request.id], made[request.id]
        assert [e.token for e in other] == [e.token for e in one]
        assert [e.finish for e in other] == [e.finish for e in one]
        assert text_of(other) == text_of(one)
        for a, b in zip(one, other, strict=True):
            if a.logprobs is None or b.logprobs is None:
                assert a.logprobs is b.logprobs
                continue
            assert b.logprobs.chosen == pytest.approx(a.logprobs.chosen, abs=1e-4)
            assert [t for t, _ in b.logprobs.top] == [t for t, _ in a.logprobs.top]
        accepted, proposed = sum(e.accepted for e in other), sum(e.proposed for e in other)
        assert accepted <= proposed
        assert not any(e.accepted or e.proposed for e in one)
    counts = speculator.counts
    assert sum(e.accepted for es in made.values() for e in es) == sum(counts.accepted)
    assert sum(e.proposed for es in made.values() for e in es) == sum(counts.proposed)


@pytest.mark.parametrize("wrong", [0, 3])
def test_ends_stop_strings_and_log_probabilities_inside_a_block(wrong: int):
    base = ServingRequest("", (5, 9, 3, 7, 2), 16)
    answer = alone(base)
    requests = [
        replace(base, id="length", logprobs=3, max_new_tokens=15),
        # Both end within a block of four, at each of its places.
        *(replace(base, id=f"eos{n}", eos_ids=frozenset({answer[n]})) for n in range(2, 6)),
        *(replace(base, id=f"stop{n}", stop=(f"{answer[n]} ",), logprobs=0) for n in range(2, 6)),
        replace(base, id="long stop", stop=(f"{answer[6]} {answer[7]} {answer[8]}",)),
    ]
    check_events(requests, wrong)


def rising(answer: Sequence[int]) -> npt.NDArray[np.bool_]:
    """A grammar of numbers that rise; it is asked about answers that keep to it alone."""
    assert list(answer) == sorted(answer)
    assert 90 not in answer
    allowed = np.zeros(VOCABULARY, np.bool_)
    allowed[(answer[-1] + 1) if answer else 0 :] = True
    allowed[90:] = False
    allowed[90] = True
    return allowed


@pytest.mark.parametrize("wrong", [0, 2])
def test_biases_penalties_and_grammars_see_the_tokens_before_them(wrong: int):
    base = ServingRequest("", (5, 9, 3, 7, 2), 14)
    requests = [
        replace(base, id="bias", logit_bias={7: 3.0, 8: -2.0}),
        replace(base, id="penalties", frequency_penalty=1.5, presence_penalty=0.5),
        replace(base, id="repetition", sampling=Sampling(repetition_penalty=1.8)),
        replace(base, id="grammar", mask=rising, eos_ids=frozenset({90})),
    ]
    check_events(requests, wrong)


def test_a_choice_without_a_token_ends_its_request_alone():
    def empty(answer: Sequence[int]) -> npt.NDArray[np.bool_] | None:
        return np.zeros(VOCABULARY, np.bool_) if len(answer) == 6 else None

    base = ServingRequest("good", (5, 9, 3, 7, 2), 12)
    requests = [base, replace(base, id="bad", mask=empty)]
    made = events_of(requests, Speculator(prompted(0)([base]), LENGTH))
    assert [event.token for event in made["good"]] == alone(base)
    assert [event.token for event in made["bad"]] == [*alone(base)[:6], None]
    assert made["bad"][-1].finish is Finish.ERROR
    assert "the mask allows no token" in made["bad"][-1].error


def test_a_launch_that_fails_lets_the_proposer_begin_again():
    requests = [ServingRequest(str(n), (5, 9, 3, 7, 2 + n), 9) for n in range(3)]
    proposer = Prompted([[*r.prompt, *alone(r)] for r in requests], 0)
    engine = ServingEngine(session_of(SPECULATIVE), speculator=Speculator(proposer, LENGTH))
    for request in requests[:2]:
        engine.submit(request)
    engine.step()
    started = proposer.started
    with patch.object(Session, "step", side_effect=RuntimeError("the device is gone")):
        events = [event for _ in range(3) for event in engine.step()]
    failed = [event for event in events if event.finish is Finish.ERROR]
    assert {event.error for event in failed} == {"the device is gone"}
    assert proposer.started == started + 1
    engine.submit(requests[2])
    served = serve(engine, [], np.random.default_rng(0))
    assert served["2"][0] == alone(requests[2])


def test_nothing_is_compiled_after_the_warm_up(tmp_path: Path):
    write_llama(tmp_path)
    small = CompileConfig(
        batch=(2,), prefill_batch=(1,), rows=2, context=(16,), tokens=(16,), speculation_length=2
    )
    proposer = DraftModel(open_session(tmp_path, small), VOCABULARY)
    engine = ServingEngine(open_session(tmp_path, small), speculator=Speculator(proposer, 2))
    engine.warm_up()
    for name in "ab":
        engine.submit(ServingRequest(name, tuple(range(1, 8)), 5))
    compiled = AssertionError("a program is compiled while a request waits")
    with patch.object(ExecutableCache, "_make", side_effect=compiled):
        served = serve(engine, [], np.random.default_rng(0))
    assert {end for _, end in served.values()} == {Finish.LENGTH}


def test_what_cannot_be_is_refused():
    with pytest.raises(GraphgenError, match="verify 4 tokens a row, not 5"):
        ServingEngine(session_of(SPECULATIVE), speculator=Speculator(PromptLookup(), LENGTH + 1))
    speculator = Speculator(PromptLookup(), LENGTH)
    with pytest.raises(GraphgenError, match="speculation and async_mode exclude each other"):
        ServingEngine(session_of(SPECULATIVE), async_mode=True, speculator=speculator)
