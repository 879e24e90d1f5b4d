"""Tokens in buffers of experts: each has as many before it as no other of its expert."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product

import numpy as np
import pytest

from graphgen.ir import Dim, Module, Op, attrs_of, tensor
from graphgen.ir.clone import clone_module
from graphgen.ir.dims import symbol
from graphgen.ir.dtype import f32, s32
from graphgen.models import build
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import parse
from graphgen.passes.proof.block_places import some_value, written_in_buffer
from graphgen.passes.proof.indexing_rules import written
from graphgen.passes.proof.integers import at_most_zero, both, choose, div, is_zero
from graphgen.passes.proof.pass_proof import Status
from graphgen.passes.proof.refinement import prove_refinement
from graphgen.passes.proof.sums import summed, truth_of_sum
from graphgen.passes.proof.terms import Node, Term, Terms
from graphgen.passes.proof.whole_numbers import whole_sum
from tests.matrix.axes import config_of
from tests.passes.proof.rule_checks import TermValues

TOKENS, CHOSEN, EXPERTS = 3, 2, 3
PROVED = (Status.PROVED, Status.REAL)


class Choices:
    """Choices c [3,2] among three experts, two of a token, which may be one."""

    def __init__(self) -> None:
        self.terms = Terms()
        self.type = tensor(s32, (TOKENS, CHOSEN))
        self.token = self.terms.variable("t", TOKENS)
        self.choice = self.terms.variable("k", CHOSEN)
        self.update = self.terms.variable("v", TOKENS * CHOSEN)
        self.row = div(self.terms, self.update, CHOSEN)

    def of(self, token: Dim, choice: Dim) -> Dim:
        """An expert that a token chooses."""
        return self.terms.atom(self.terms.node("at", "c", self.type, token, choice), 0, EXPERTS - 1)

    def chooses(self, token: Dim, expert: Dim) -> bool | Node:
        """Whether some choice of a token is an expert."""
        j = self.terms.variable("j", CHOSEN)
        some = summed(
            self.terms,
            "or",
            None,
            [("j", CHOSEN)],
            is_zero(self.terms, self.of(token, j) + expert * -1),
        )
        found = truth_of_sum(self.terms, some)
        assert isinstance(found, bool | Node)
        return found

    def count(self, expert: Dim, end: Dim | None = None) -> Dim:
        """The number of tokens, or of those below an end, that choose an expert."""
        s = self.terms.variable("s", TOKENS)
        which = self.chooses(s, expert)
        if end is not None:
            which = both(self.terms, at_most_zero(self.terms, s + end * -1 + 1), which)
        body = choose(self.terms, which, 1, 0)
        assert not isinstance(body, bool | Node)
        return whole_sum(self.terms, [("s", TOKENS)], body)

    def updates(self) -> tuple[Dim, Dim]:
        """The expert of an update, and the number of tokens before its own that choose it."""
        expert = self.of(self.row, self.update + self.row * -CHOSEN)
        return expert, self.count(expert, self.row)

    def here(self, expert: Dim, count: Dim) -> bool | Node:
        """Whether an update is of an expert, with so many tokens before it."""
        own, before = self.updates()
        same = is_zero(self.terms, own + expert * -1)
        return both(self.terms, same, is_zero(self.terms, before + count * -1))


def each_choice() -> list[np.ndarray]:
    values = product(range(EXPERTS), repeat=TOKENS * CHOSEN)
    return [np.array(x).reshape(TOKENS, CHOSEN) for x in values]


def test_the_token_of_a_place_in_a_buffer_is_found() -> None:
    c = Choices()
    expert = c.of(c.token, c.choice)
    here = c.here(expert, c.count(expert, c.token))
    found = written_in_buffer(c.terms, [("v", TOKENS * CHOSEN)], here, c.row)
    assert found == (True, c.token)
    # As it is written: by the last update whose place it is.
    plain = c.terms.node("write", 1, symbol("v"), TOKENS * CHOSEN, here, c.row, -1)
    for choices in each_choice():
        values = TermValues(c.terms, {"c": choices})
        for token, choice in product(range(TOKENS), range(CHOSEN)):
            assert values.of(plain, {"t": token, "k": choice}) == token


@pytest.mark.parametrize(
    ("expert", "count", "new"),
    [
        # Not the token: the update itself, or the next token.
        (lambda c: c.of(c.token, c.choice), lambda c, e: c.count(e, c.token), lambda c: c.update),
        (lambda c: c.of(c.token, c.choice), lambda c, e: c.count(e, c.token), lambda c: c.row + 1),
        # Tokens up to this one, tokens of another expert, and all of them.
        (
            lambda c: c.of(c.token, c.choice),
            lambda c, e: c.count(e, c.token + 1),
            lambda c: c.row,
        ),
        (
            lambda c: c.of(c.token, c.choice),
            lambda c, e: c.count(c.of(c.token, 0), c.token),
            lambda c: c.row,
        ),
        (lambda c: c.of(c.token, c.choice), lambda c, e: c.count(e), lambda c: c.row),
        # An expert that the token may not choose.
        (lambda c: c.terms.variable("e", 3), lambda c, e: c.count(e, c.token), lambda c: c.row),
    ],
)
def test_nothing_is_said_of_other_places(
    expert: Callable[[Choices], Dim],
    count: Callable[[Choices, Dim], Dim],
    new: Callable[[Choices], Term],
) -> None:
    c = Choices()
    number = expert(c)
    here = c.here(number, count(c, number))
    assert written_in_buffer(c.terms, [("v", TOKENS * CHOSEN)], here, new(c)) is None


def test_a_condition_beside_it_is_kept() -> None:
    """Updates of the experts of a group are written alone."""
    c = Choices()
    expert = c.of(c.token, c.choice)
    own, _ = c.updates()
    first = at_most_zero(c.terms, own + -1)
    here = both(c.terms, first, c.here(expert, c.count(expert, c.token)))
    made = written(c.terms, [("v", TOKENS * CHOSEN)], here, c.row, -1)
    for choices in each_choice():
        values = TermValues(c.terms, {"c": choices})
        for token, choice in product(range(TOKENS), range(CHOSEN)):
            wanted = token if choices[token, choice] <= 1 else -1
            assert values.of(made, {"t": token, "k": choice}) == wanted


def test_counts_are_at_least_one_of_what_is_chosen_and_below_their_end() -> None:
    c = Choices()
    expert = c.of(c.token, c.choice)
    assert c.terms.lowest(c.count(expert)) == 1
    assert c.terms.highest(c.count(expert, c.token)) == TOKENS - 1
    # Of tokens before it, and of an expert that may not be chosen, there may be none.
    assert c.terms.lowest(c.count(expert, c.token)) == 0
    assert c.terms.lowest(c.count(c.terms.variable("e", 3))) == 0
    assert c.terms.highest(c.count(expert, c.token + 1)) == TOKENS


def test_a_value_that_meets_a_condition_is_in_the_range() -> None:
    c = Choices()
    s = c.terms.variable("s", TOKENS)
    which = c.chooses(s, c.of(c.token, c.choice))
    assert isinstance(which, Node)
    assert some_value(c.terms, which, ("s", TOKENS)) == c.token
    # The token may be the last one, which is beyond a shorter range.
    assert some_value(c.terms, which, ("s", TOKENS - 1)) is None


# ---- whole compilations --------------------------------------------------------------------------


@cache
def model() -> Module:
    return build(config_of("mixtral"), f32, mini=True)


@cache
def compiled(options: str) -> Module:
    module = clone_module(model())
    run_pipeline(module, parse(f"small{{context=[8],tokens=[4],batch=[2],target=cpu,{options}}}"))
    return module


@pytest.mark.parametrize(
    "options", ["tp=1,expert_dispatch=capacity", "tp=2,expert_dispatch=capacity"]
)
def test_buffers_of_experts_are_proved(options: str) -> None:
    found = prove_refinement(model(), compiled(options))
    assert not found.open, found.open


def prefix(op: Op) -> bool:
    """The comparison of a token with those before it."""
    return op.name == "compare" and op.attrs["direction"] == "LT" and op.operands[0].shape == (2, 2)


def including(op: Op) -> None:
    op.attrs = attrs_of({**op.attrs, "direction": "LE"})


def first_place(op: Op) -> bool:
    """The first place of an expert: its number times the places of a buffer."""
    return op.name == "multiply" and op.result.dtype is s32 and op.result.shape == (2, 2)


def squared(op: Op) -> None:
    op.set_operands((op.operands[0], op.operands[0]))


def chosen(op: Op) -> bool:
    """The comparison of the choices of tokens with all experts."""
    return op.name == "compare" and op.attrs["direction"] == "EQ"


def others(op: Op) -> None:
    op.attrs = attrs_of({**op.attrs, "direction": "GE"})


@pytest.mark.parametrize(
    ("which", "change"), [(prefix, including), (first_place, squared), (chosen, others)]
)
def test_wrong_buffers_are_not_proved(
    which: Callable[[Op], bool], change: Callable[[Op], None]
) -> None:
    module = clone_module(compiled("tp=2,expert_dispatch=capacity"))
    for function in module.programs():
        if function.phase != "decode":
            del module.functions[function.name]
            continue
        ops = [op for op in function.block if which(op)]
        assert ops
        for op in ops:
            change(op)
    found = prove_refinement(model(), module)
    assert not any(claim.output == "logits" for claim in found.having(*PROVED))
