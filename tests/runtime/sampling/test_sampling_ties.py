"""Host and program keep the same tokens and draw the same one, at ties too."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphgen.build import Builder
from graphgen.eval import evaluate
from graphgen.ir import Function, Module, dtype
from graphgen.lowering.cpu import compile_program
from graphgen.ops import verify
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.programs.token_choice import remaining, sample
from graphgen.runtime.sampling import GREEDY, Sampling
from graphgen.runtime.sampling.choose_token import draw
from graphgen.runtime.sampling.on_device_sampling import draw_of
from graphgen.runtime.sampling.processors import process

VOCABULARY, ROWS = 12, 8


@cache
def program(global_topk: int) -> Module:
    """Gives the token of each row, and the tokens that are left with their probabilities."""
    module = Module("m")
    with Builder(module.add(Function("f", phase="decode")), module) as b:
        logits = b.input("logits", dtype("f32"), (ROWS, VOCABULARY))
        params = b.input("params", dtype("f32"), (ROWS, 3))
        random = b.input("random", dtype("f32"), (ROWS,))
        kept = b.input("kept", dtype("s32"), (ROWS,))
        left, ids = remaining(b, logits, params, global_topk, kept)
        b.output("left", left)
        b.output("ids", ids)
        b.output("tokens", sample(b, logits, params, random, global_topk, kept))
    verify(module)
    return module


class Drawing:
    """As much of a session as inputs are laid out for."""

    rows, draws, keeps = ROWS, True, True


def inputs(logits: np.ndarray, how: list[Sampling], numbers: list[float]) -> dict[str, np.ndarray]:
    made = draw_of(Drawing(), how, range(ROWS))  # pyright: ignore[reportArgumentType]
    assert made is not None
    assert made.kept is not None
    random = np.array(numbers, np.float32)
    return {"logits": logits, "params": made.params, "random": random, "kept": made.kept}


def check(
    logits: np.ndarray, how: list[Sampling], numbers: list[float], found: dict[str, np.ndarray]
) -> None:
    for row, setting in enumerate(how):
        scores = process(logits[row], [], setting)
        if setting == GREEDY:
            scores = np.where(np.arange(VOCABULARY) == scores.argmax(), scores, -np.inf)
        left = {int(t) for t, p in zip(found["ids"][row], found["left"][row], strict=True) if p > 0}
        assert left == set(np.flatnonzero(np.isfinite(scores)).tolist()), (row, setting)
        near = {draw(scores, float(np.clip(numbers[row] + d, 0, 1))) for d in (-1e-5, 1e-5)}
        # Next to the end of a token's part of [0, 1) rounding chooses the neighbor.
        assert int(found["tokens"][row]) in near, (row, setting)


# A grid, so that equal scores are common; few values, so that sums reach top_p exactly.
GRID = st.lists(st.integers(-6, 6), min_size=VOCABULARY, max_size=VOCABULARY)
SETTING = st.builds(
    lambda top_k, top_p, kept, temperature: {
        "top_k": top_k,
        "top_p": top_p,
        "top_p_min_tokens": kept,
        "temperature": temperature,
    },
    st.sampled_from([-1, 0, 1, 2, 3, 5, 11, 12]),
    st.sampled_from([1e-7, 0.1, 0.25, 0.5, 0.75, 0.8, 0.95, 1.0]),
    st.sampled_from([1, 1, 2, 5, 40]),
    st.sampled_from([0.0, 0.5, 1.0, 2.0]),
)
NUMBER = st.floats(0, 1, exclude_max=True, width=32)


def rows_of(grid: list[list[int]]) -> np.ndarray:
    return np.array(grid, np.float32) / 4


def settings_of(given: list[dict[str, float]], global_topk: int) -> list[Sampling]:
    return [Sampling(do_sample=True, global_topk=global_topk, **row) for row in given]  # pyright: ignore[reportArgumentType]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(GRID, min_size=ROWS, max_size=ROWS),
    st.lists(SETTING, min_size=ROWS, max_size=ROWS),
    st.lists(NUMBER, min_size=ROWS, max_size=ROWS),
    st.sampled_from([0, 4, 12]),
)
def test_host_and_program_agree(
    grid: list[list[int]], rows: list[dict[str, float]], numbers: list[float], global_topk: int
):
    logits, how = rows_of(grid), settings_of(rows, global_topk)
    found = evaluate(program(global_topk).function("f"), inputs(logits, how, numbers))
    check(logits, how, numbers, found)


def test_host_and_compiled_program_agree():
    module = program.__wrapped__(0)
    run_pipeline(module, parse_pipeline("legalize"))
    compiled = compile_program(module, module.function("f"))
    random = np.random.default_rng(0)
    for _ in range(20):
        logits = rows_of(random.integers(-6, 7, (ROWS, VOCABULARY)).tolist())
        rows = [
            {
                "top_k": int(random.choice([-1, 1, 3, 5])),
                "top_p": float(random.choice([0.1, 0.5, 0.8, 1.0])),
                "top_p_min_tokens": int(random.choice([1, 2, 6])),
                "temperature": float(random.choice([0.0, 0.5, 2.0])),
            }
            for _ in range(ROWS)
        ]
        how, numbers = settings_of(rows, 0), random.random(ROWS).tolist()
        found = compiled.run_numpy([inputs(logits, how, numbers)])[0]
        check(logits, how, numbers, found)


@pytest.mark.parametrize("shift", [0.0, 0.1, 3.7, -9.3])
@pytest.mark.parametrize(
    ("parts", "top_p", "left"),
    [
        ([0.5, 0.3, 0.2], 0.8, 2),
        ([0.5, 0.3, 0.2], 0.5, 1),
        ([0.4, 0.3, 0.2, 0.1], 0.9, 3),
        ([0.25] * 4, 0.5, 2),
        ([0.1] * 10, 0.3, 3),
        ([0.1] * 10, 0.7, 7),
    ],
)
def test_sums_that_reach_top_p_nominally(parts: list[float], top_p: float, left: int, shift: float):
    row = np.full(VOCABULARY, -np.inf, np.float32)
    row[: len(parts)] = np.log(np.array(parts)) + shift
    how = Sampling(do_sample=True, top_p=top_p)
    kept = np.flatnonzero(np.isfinite(process(row, [], how)))
    # Of equal probabilities the lowest token ids stay.
    assert kept.tolist() == list(range(left))
    numbers = np.linspace(0, 0.999, ROWS).tolist()
    rows = np.tile(row, (ROWS, 1))
    found = evaluate(program(0).function("f"), inputs(rows, [how] * ROWS, numbers))
    check(rows, [how] * ROWS, numbers, found)


def test_equal_scores_beyond_the_candidates_go():
    # bf16 logits have many equal scores: the candidates are the first of them on both.
    logits = np.ones((ROWS, VOCABULARY), np.float32)
    how = [Sampling(do_sample=True, global_topk=4, top_k=k) for k in (0, 1, 2, 4, 4, 0, 1, 2)]
    for row in how:
        kept = np.flatnonzero(np.isfinite(process(logits[0], [], row)))
        assert kept.tolist() == [0, 1, 2, 3]
    numbers = np.linspace(0, 0.999, ROWS).tolist()
    check(logits, how, numbers, evaluate(program(4).function("f"), inputs(logits, how, numbers)))


@pytest.mark.parametrize("least", [1, 3])
@pytest.mark.parametrize("seed", range(8))
def test_top_p_is_transformers_own_where_no_scores_are_equal(seed: int, least: int):
    import torch
    from transformers.generation.logits_process import TopPLogitsWarper

    random = np.random.default_rng(seed)
    row = (2 * random.standard_normal(300)).astype(np.float32)
    top_p = float(random.uniform(0.02, 0.99))
    warper = TopPLogitsWarper(top_p, min_tokens_to_keep=least)
    wanted = warper(torch.tensor([[0]]), torch.tensor(row[None]).double())[0].numpy()  # pyright: ignore[reportArgumentType]
    found = process(row, [], Sampling(do_sample=True, top_p=top_p, top_p_min_tokens=least))
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted))


def test_settings_without_effect_are_dropped():
    assert Sampling(do_sample=True, temperature=0, top_k=5, top_p=0.3, seed=9) == GREEDY
    assert Sampling(top_k=50, top_p=0.9, deterministic=True) == GREEDY
    assert Sampling(do_sample=True, top_k=-1) == Sampling(do_sample=True)
    assert Sampling(do_sample=True, top_p_min_tokens=3) == Sampling(do_sample=True)
    strict = Sampling(do_sample=True, temperature=0, repetition_penalty=1.2)
    assert strict == Sampling(repetition_penalty=1.2)


def test_integers_may_be_written_as_floats_and_by_numpy():
    how = Sampling(do_sample=True, top_k=5.0, seed=np.int64(3), temperature=np.float32(0.5))  # pyright: ignore[reportArgumentType]
    assert how == Sampling(do_sample=True, top_k=5, seed=3, temperature=0.5)
    assert type(how.top_k) is int
    assert type(how.seed) is int
    assert type(how.temperature) is float
