"""The number of proposals follows acceptance and times; the tokens stay those of plain decoding."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.runtime.generation import GenerationRequest, generate
from graphgen.runtime.serving.serving_engine import ServingEngine
from graphgen.runtime.serving.serving_request import ServingRequest
from graphgen.runtime.session.session import Session
from graphgen.runtime.speculation.adaptive_length import AdaptiveLength, RowAcceptance
from graphgen.runtime.speculation.draft_model import DraftModel
from graphgen.runtime.speculation.proposal import Proposer
from graphgen.runtime.speculation.speculator import Speculator
from tests.oracles.llama import write_llama
from tests.oracles.sessions import open_session
from tests.runtime.serving.test_serving_model import serve
from tests.runtime.serving.test_speculative_serving import Noise, Prompted

LENGTH = 6
# Tokens of a launch and its seconds: one of four costs little more than one of one.
SECONDS = {1: 1.0, 2: 1.1, 4: 1.3, 6: 3.0}


def simulated(
    shares: list[float], draft: float, steps: int, chooser: AdaptiveLength, seed: int = 0
) -> list[int]:
    """The chosen numbers over steps of rows that accept with these probabilities."""
    rng = np.random.default_rng(seed)
    chosen: list[int] = []
    for _ in range(steps):
        most = chooser.choose(dict.fromkeys(range(len(shares)), LENGTH - 1))
        chosen.append(most)
        chooser.note_proposals(most, most * draft)
        width = next(width for width in SECONDS if width > most)
        chooser.note_launch(most + 1, SECONDS[width])
        for key, share in enumerate(shares):
            refused = np.flatnonzero(rng.random(most) >= share)
            chooser.note(key, most, int(refused[0]) if len(refused) else most)
    return chosen


def rates(shares: list[float], draft: float) -> list[float]:
    """Tokens a second of each number, from the probability of each outcome of a step."""

    def tokens(share: float, count: int) -> float:
        expected = 0.0
        for outcome in product((True, False), repeat=count):
            weight = float(np.prod([share if one else 1 - share for one in outcome]))
            expected += weight * (1 + (*outcome, False).index(False))
        return expected

    def rate(count: int) -> float:
        width = next(width for width in SECONDS if width > count)
        return sum(tokens(share, count) for share in shares) / (count * draft + SECONDS[width])

    return [rate(count) for count in range(LENGTH)]


@pytest.mark.parametrize("draft", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("shares", [[0.0], [0.3], [0.99], [0.9, 0.05], [0.5, 0.6, 0.2]])
def test_the_number_is_mostly_the_best_one(shares: list[float], draft: float):
    chooser = AdaptiveLength([2, 4, 6], LENGTH)
    chosen = simulated(shares, draft, 300, chooser)
    # Every number of tokens is tried once first.
    assert chosen[:4] == [5, 3, 1, 0]
    found = rates(shares, draft)
    # Estimates from a few steps waver between numbers that are nearly as good.
    made = np.mean([found[number] for number in chosen[50:]])
    assert made > 0.9 * max(found), (found, chosen)


def test_a_row_that_begins_to_accept_is_noticed():
    chooser = AdaptiveLength([2, 4, 6], LENGTH)
    assert np.mean(simulated([0.0], 0.3, 120, chooser)[20:]) < 0.7
    assert np.mean(simulated([1.0], 0.3, 120, chooser)[30:]) > 2.5


def test_what_follows_a_refused_token_was_not_tried():
    row = RowAcceptance()
    row.note(5, 2)
    assert (row.accepted, row.tried) == (2, 3)
    row = RowAcceptance()
    row.note(3, 3)
    assert (row.accepted, row.tried) == (3, 3)
    assert row.tokens(0) == 1
    assert row.tokens(2) == pytest.approx(1 + row.share + row.share**2)


def test_rows_with_little_room_want_no_long_launch():
    chooser = AdaptiveLength([2, 4, 6], LENGTH)
    simulated([1.0], 0.0, 20, chooser)
    assert chooser.choose({0: 5}) == 3
    assert chooser.choose({0: 1}) == 1
    assert chooser.choose({0: 0}) == 0
    # Rows that leave are forgotten.
    assert chooser.choose({7: 5}) == 3
    assert list(chooser.rows) == [7]


PLAIN = CompileConfig(
    batch=(1, 3),
    rows=3,
    context=(8,),
    tokens=(12, 16, 64),
    speculation_length=LENGTH,
    verify_lengths=(2, 4),
)


@cache
def session_of(config: CompileConfig) -> Session:
    with TemporaryDirectory() as folder:
        write_llama(Path(folder))
        return open_session(Path(folder), config)


class Programs:
    """The programs that a session launches."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def before_launch(self, session: Session, program: str, inputs: object) -> None:
        self.names.add(program.rpartition(".c")[0])

    def after_launch(self, session: Session, program: str) -> None: ...


PROMPTS = [[5, 9, 3, 7, 2], [4], [6, 1, 8]]


@pytest.mark.parametrize("kind", ["right", "mixed", "noise", "draft"])
@pytest.mark.one_in(2)
def test_answers_are_those_of_plain_decoding(kind: str):
    session, request = session_of(PLAIN), GenerationRequest(55)
    plain, _ = generate(session, PROMPTS, request)
    texts = [[*prompt, *done.tokens] for prompt, done in zip(PROMPTS, plain, strict=True)]
    proposers: dict[str, Proposer] = {
        "right": Prompted(texts, 0),
        "mixed": Prompted(texts, 3),
        "noise": Noise(),
        "draft": DraftModel(session_of(replace(PLAIN, rows=4, batch=(4,))), 131),
    }
    speculator = Speculator(proposers[kind], LENGTH, adaptive=True)
    programs = Programs()
    session.observers.append(programs)
    done, _ = generate(session, PROMPTS, request, decode=speculator.decode)
    session.observers.clear()
    assert done == plain
    widths = {name for name in programs.names if name.startswith("verify")}
    assert kind == "noise" or widths == {"verify.b3.s2", "verify.b3.s4", "verify.b3.s6"}
    # Other rows, with what was measured so far; they come and go.
    proposer = Prompted(texts, 2 if kind == "mixed" else 0)
    speculator.proposer = proposer
    served = serve(
        ServingEngine(session, speculator=speculator),
        [ServingRequest(str(n), tuple(prompt), 40) for n, prompt in enumerate(PROMPTS)],
        np.random.default_rng(11),
    )
    for number, answer in enumerate(plain):
        tokens, _ = served[str(number)]
        assert tokens == answer.tokens[: len(tokens)]
