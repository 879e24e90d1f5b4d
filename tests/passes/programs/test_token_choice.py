"""What others' on-device samplers get wrong, one test each, on the ops that choose here.

The defects were found by running NxD Inference's sampler and vLLM's layer above it: the token that
crosses top_p is dropped, that threshold is the least of the whole batch, removed tokens get -3000
instead of nothing, a top_k of 0 or -1 makes all tokens equally probable, a temperature of 0 divides
by zero, more candidates than tokens fail, and rows are given the settings of other requests.
"""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.config.compile_config import CompileConfig
from graphgen.eval import evaluate
from graphgen.ir import Function, Module, dtype
from graphgen.lowering.cpu import compile_program
from graphgen.models import build, known_shape
from graphgen.ops import verify
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.pipelines import parse as pipeline
from graphgen.passes.programs.token_choice import sample
from graphgen.runtime.sampling import GREEDY, Sampling
from graphgen.runtime.sampling.choose_token import draw
from graphgen.runtime.sampling.on_device_sampling import draw_of
from graphgen.runtime.sampling.processors import probabilities, process
from tests.runtime.sampling.test_choose_token import SETTINGS, logits

NUMBERS = np.linspace(0, 1, 200, endpoint=False, dtype=np.float32)


def program(rows: int, vocabulary: int, global_topk: int = 0) -> Module:
    module = Module("m")
    with Builder(module.add(Function("f", phase="decode")), module) as b:
        scores = b.input("logits", dtype("f32"), (rows, vocabulary))
        params = b.input("params", dtype("f32"), (rows, 3))
        random = b.input("random", dtype("f32"), (rows,))
        b.output("tokens", sample(b, scores, params, random, global_topk))
    verify(module)
    return module


def chosen(
    rows: np.ndarray, params: np.ndarray, random: np.ndarray, global_topk: int = 0
) -> np.ndarray:
    given = {"logits": rows, "params": params.astype(np.float32), "random": random}
    count, vocabulary = rows.shape
    return evaluate(program(count, vocabulary, global_topk).function("f"), given)["tokens"]


def seen(row: np.ndarray, params: tuple[float, float, float], global_topk: int = 0) -> np.ndarray:
    """How often each token is drawn over all numbers of [0, 1), as parts of one."""
    rows = np.tile(row.astype(np.float32), (NUMBERS.size, 1))
    found = chosen(rows, np.tile(params, (NUMBERS.size, 1)), NUMBERS, global_topk)
    return np.bincount(found, minlength=row.size) / NUMBERS.size


def test_the_token_that_crosses_top_p_is_kept():
    # NxD Inference keeps the first two.
    found = seen(np.log([0.4, 0.3, 0.2, 0.1]), (0, 0.85, 1))
    np.testing.assert_allclose(found, np.array([4, 3, 2, 0]) / 9, atol=0.01)


def test_the_threshold_of_top_p_is_a_rows_own():
    # One certain row would set the least sum of the batch to 1, so that the other keeps everything.
    unsure, certain = np.log([0.4, 0.3, 0.2, 0.1]), np.array([9.0, -9, -9, -9])
    last = np.full(2, 0.999, np.float32)
    for other in (unsure, certain):
        rows = np.stack([unsure, other]).astype(np.float32)
        assert chosen(rows, np.array([[0, 0.5, 1], [0, 0.5, 1]]), last)[0] == 1


def test_what_is_removed_has_no_probability_at_all():
    # Scores far below -3000: a removed token of -3000 would be the most probable.
    row = np.full(8, -1e5)
    row[3] = -1e5 + 50
    assert seen(row, (1, 1, 1)).nonzero()[0].tolist() == [3]
    assert seen(row, (1, 1, 50)).nonzero()[0].tolist() == [3]


@pytest.mark.parametrize("top_k", [0, -1])
def test_no_top_k_is_no_filter(top_k: int):
    # Others draw each of the candidates alike then.
    row = logits(3, 12)
    np.testing.assert_allclose(seen(row, (top_k, 1, 1)), probabilities(row), atol=0.01)


def test_a_temperature_of_zero_is_the_best_token():
    row = np.array([0.5, 2, 2, -1])
    assert seen(row, (0, 1, 0)).tolist() == [0, 1, 0, 0]
    assert seen(row, (3, 0.9, 0)).tolist() == [0, 1, 0, 0]


def test_more_candidates_than_tokens_are_all_tokens():
    row = logits(4, 7)
    for global_topk in (7, 8, 256):
        for top_k in (0, 7, 200):
            np.testing.assert_array_equal(
                seen(row, (top_k, 1, 1), global_topk), seen(row, (0, 1, 1))
            )


def test_ties_with_the_last_candidate_stay():
    row = np.array([1.0, 1, 1, 0])
    np.testing.assert_allclose(seen(row, (2, 1, 1)), [1 / 3, 1 / 3, 1 / 3, 0], atol=0.01)


def test_the_last_number_is_a_token_that_is_left():
    # Sums of f32 end a little below or above 1; the end of the interval is a token all the same.
    row = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    random = np.array([0, 1 - 2**-24], np.float32)
    found = chosen(np.stack([row, row]), np.array([[7, 1, 1], [7, 1, 1]]), random)
    best = np.argsort(-row)[:7]
    assert found.tolist() == [best[0], best[-1]]


@pytest.mark.parametrize("size", [255, 256, 257, 1000])
def test_sums_over_many_blocks_are_those_of_the_host(size: int):
    row = (3 * np.random.default_rng(size).standard_normal(size)).astype(np.float32)
    how = Sampling(do_sample=True, top_p=0.97)
    rows = np.tile(row, (NUMBERS.size, 1))
    found = chosen(rows, np.tile([0, 0.97, 1], (NUMBERS.size, 1)), NUMBERS)
    wanted = [draw(process(row, [], how), float(number)) for number in NUMBERS]
    assert np.mean(found == wanted) > 0.98


def test_nothing_grows_with_the_square_of_the_vocabulary():
    (function,) = program(2, 50_000).programs()
    largest = max(int(str(result.type.size)) for op in function.block for result in op.results)
    assert largest <= 4 * 50_000


def test_ranks_send_candidates_only():
    """Of each rank's part of the logits the candidates are gathered, not the vocabulary."""
    module = build(known_shape("llama-3.1-8b"), dtype("f32"), phases=("decode",), mini=True)
    run_pipeline(module, pipeline("canonicalize,on-device-sampling{do_sample=true,global_topk=8}"))
    run_pipeline(
        module, pipeline("default{tp=2}", CompileConfig(batch=(3,), context=(8,), tokens=(8,)))
    )
    (function,) = module.programs()
    widths = [op.result.type.dims[-1] for op in function.ops if op.name == "all_gather"]
    assert widths == [16, 16]


# ---- the same numbers, the same tokens: every setting that programs know -------------------------

KNOWN = [
    how
    for how in SETTINGS
    if not (how.min_p or how.no_repeat_ngram_size or how.repetition_penalty != 1)
    and how.top_p_min_tokens == 1
]


def test_most_settings_are_compared():
    assert len(KNOWN) >= 10


def test_every_setting_in_one_batch_on_xla():
    """All settings as rows of one call: each gets its own tokens, whoever its neighbors are."""
    rows = np.stack([logits(9, 600)] * len(KNOWN))
    params = np.array([[how.top_k, how.top_p, how.temperature] for how in KNOWN], np.float32)
    module = program(len(KNOWN), 600)
    run_pipeline(module, parse_pipeline("legalize"))
    compiled = compile_program(module, module.function("f"))
    right = 0
    for number in NUMBERS[::5]:
        random = np.full(len(KNOWN), number, np.float32)
        given = {"logits": rows, "params": params, "random": random}
        found = compiled.run_numpy([given])[0]["tokens"]
        back = {name: value[::-1].copy() for name, value in given.items()}
        turned = compiled.run_numpy([back])[0]["tokens"][::-1]
        np.testing.assert_array_equal(found, turned)
        wanted = [draw(process(rows[0], [], how), float(number)) for how in KNOWN]
        right += int((found == wanted).sum())
    # What is left are numbers between two tokens, which rounding gives to the neighbor.
    assert right >= 0.985 * len(KNOWN) * NUMBERS[::5].size


class Rows:
    """As much of a session as settings are laid out for."""

    rows, draws, keeps = 4, True, False


def test_a_row_is_given_its_own_settings():
    # vLLM's layer reads them of all live requests in order of arrival, and cuts to the batch.
    how = [Sampling(do_sample=True, top_k=k, top_p=p) for k, p in ((5, 0.5), (50, 1.0))]
    given = draw_of(Rows(), [how[0], GREEDY, how[1]], [0, 3, 7])  # pyright: ignore[reportArgumentType]
    assert given is not None
    # A top_p of 1 is never reached; one of 0.5 is, by sums that rounding made a little less.
    wanted = np.array([[5, 0.5 - 1e-6, 1], [1, 1, 0], [50, 2, 1], [1, 1, 0]], np.float32)
    np.testing.assert_array_equal(given.params, wanted)
    assert given.random[0] > 0 < given.random[2]
    assert given.random[1] == given.random[3] == 0
