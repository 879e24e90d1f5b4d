"""Sampling: Hugging Face's meaning, rows that do not see each other, and the peers' mistakes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.runtime.engine import Engine, EngineOptions, open_engine
from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.progress import Silent
from graphgen.runtime.sampling import GREEDY, Sampling, choose_token
from graphgen.runtime.sampling.choose_token import draw, uniform
from graphgen.runtime.sampling.processors import probabilities, process
from tests.graphgen.cli.conftest import error
from tests.oracles.small_gguf import write_small_model
from tests.runtime.test_generation import SLOTS, TEXTS, engine, prompts

HISTORY = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 1, 4]
# One of everything, and mixtures; the numbers are such that every filter removes something.
SETTINGS = [
    Sampling(do_sample=True),
    Sampling(do_sample=True, temperature=0.5),
    Sampling(do_sample=True, temperature=2.5),
    Sampling(do_sample=True, top_k=1),
    Sampling(do_sample=True, top_k=5),
    Sampling(do_sample=True, top_k=1000),
    Sampling(do_sample=True, top_p=0.1),
    Sampling(do_sample=True, top_p=0.5),
    Sampling(do_sample=True, top_p=0.95),
    Sampling(do_sample=True, top_p=0.1, top_p_min_tokens=4),
    Sampling(do_sample=True, top_k=3, top_p=0.1, top_p_min_tokens=9),
    Sampling(do_sample=True, min_p=0.05),
    Sampling(do_sample=True, min_p=0.5),
    Sampling(do_sample=True, min_p=1.0),
    Sampling(do_sample=True, repetition_penalty=1.3),
    Sampling(do_sample=True, repetition_penalty=0.7),
    Sampling(do_sample=True, no_repeat_ngram_size=1),
    Sampling(do_sample=True, no_repeat_ngram_size=2),
    Sampling(do_sample=True, no_repeat_ngram_size=3),
    Sampling(do_sample=True, temperature=0.8, top_k=12, top_p=0.9),
    Sampling(do_sample=True, temperature=1.4, top_k=9, top_p=0.8, min_p=0.1),
    Sampling(
        do_sample=True,
        repetition_penalty=1.2,
        no_repeat_ngram_size=2,
        temperature=0.9,
        top_k=15,
        top_p=0.92,
        min_p=0.02,
    ),
]


def logits(seed: int, size: int = 24) -> np.ndarray:
    return (2 * np.random.default_rng(seed).standard_normal(size)).astype(np.float32)


def oracle(row: np.ndarray, tokens: list[int], how: Sampling) -> np.ndarray:
    """Scores by transformers' own processors, in the order in which `generate` takes them."""
    import torch
    from transformers import GenerationConfig, LogitsProcessorList
    from transformers.generation import logits_process as hf

    config = GenerationConfig(do_sample=True)
    assert config.do_sample
    chain = LogitsProcessorList()
    if how.repetition_penalty != 1:
        chain.append(hf.RepetitionPenaltyLogitsProcessor(how.repetition_penalty))
    if how.no_repeat_ngram_size:
        chain.append(hf.NoRepeatNGramLogitsProcessor(how.no_repeat_ngram_size))
    if how.temperature != 1:
        chain.append(hf.TemperatureLogitsWarper(how.temperature))
    if how.top_k:
        chain.append(hf.TopKLogitsWarper(how.top_k))
    if how.top_p < 1:
        chain.append(hf.TopPLogitsWarper(how.top_p, min_tokens_to_keep=how.top_p_min_tokens))
    if how.min_p:
        chain.append(hf.MinPLogitsWarper(how.min_p))
    ids = torch.tensor([tokens])
    scores = chain(ids, torch.tensor(row[None]).double())  # pyright: ignore[reportArgumentType]
    return scores[0].numpy()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("how", SETTINGS)
def test_scores_are_those_of_transformers(how: Sampling, seed: int):
    row = logits(seed)
    ours, theirs = process(row, HISTORY, how), oracle(row, HISTORY, how)
    np.testing.assert_array_equal(np.isinf(ours), np.isinf(theirs))
    kept = np.isfinite(theirs)
    np.testing.assert_allclose(ours[kept], theirs[kept], rtol=1e-12)


DRAWS = 4000


def drawn_as_often(how: Sampling, ours: np.ndarray) -> bool:
    """Whether tokens drawn by ``ours`` occur as often as transformers' scores say."""
    scores = oracle(logits(7), HISTORY, how)
    wanted = probabilities(scores) * DRAWS
    counts = Counter(draw(ours, uniform(11, 0, step)) for step in range(DRAWS))
    got = np.array([counts[token] for token in range(wanted.size)])
    if got[wanted == 0].any():
        return False
    # Classes too small to be counted are put together.
    order = np.argsort(wanted)
    small = np.cumsum(wanted[order]) < 10
    rare, common = order[small], order[~small]
    expected = np.append(wanted[common], max(wanted[rare].sum(), 1e-9))
    found = np.append(got[common], got[rare].sum())
    chi = float(((found - expected) ** 2 / np.maximum(expected, 1)).sum())
    degrees = max(common.size - 1, 1)
    # Wilson and Hilferty: a chance of one in a million.
    return chi <= degrees * (1 - 2 / (9 * degrees) + 4.75 * (2 / (9 * degrees)) ** 0.5) ** 3


@pytest.mark.parametrize("how", SETTINGS)
@pytest.mark.one_in(4)
def test_tokens_are_drawn_as_often_as_they_are_probable(how: Sampling):
    assert drawn_as_often(how, process(logits(7), HISTORY, how))


@pytest.mark.parametrize("how", [how for how in SETTINGS if 0.1 < how.top_p < 1])
def test_a_wrong_end_of_top_p_is_seen(how: Sampling):
    right = process(logits(7), HISTORY, how)
    kept = np.flatnonzero(np.isfinite(right))
    fewer = right.copy()
    fewer[kept[right[kept].argmin()]] = -np.inf
    assert not drawn_as_often(how, fewer)
    more, every = right.copy(), process(logits(7), HISTORY, replace(how, top_p=1.0, min_p=0.0))
    removed = np.flatnonzero(np.isinf(right) & np.isfinite(every))
    more[removed[every[removed].argmax()]] = every[removed].max()
    assert not drawn_as_often(how, more)


@pytest.mark.parametrize("change", [{"temperature": 1.15}, {"temperature": 0.87}])
def test_scores_that_are_a_little_wrong_are_seen(change: dict[str, float]):
    how = Sampling(do_sample=True)
    wrong = replace(how, **change)  # pyright: ignore[reportArgumentType]
    assert not drawn_as_often(how, process(logits(7), HISTORY, wrong))


def test_random_numbers_belong_to_their_sequence_and_step():
    numbers = {(s, q, t): uniform(s, q, t) for s in range(3) for q in range(3) for t in range(50)}
    assert len(set(numbers.values())) == len(numbers)
    assert all(0 <= number < 1 for number in numbers.values())
    assert uniform(1, 2, 3) == numbers[1, 2, 3]
    assert abs(float(np.mean([uniform(0, 0, t) for t in range(2000)])) - 0.5) < 0.03


# ---- what the peers get wrong --------------------------------------------------------------------


def test_seeds_have_64_bits():
    # As numbers in a list, NumPy takes these for floats of equal value.
    numbers = {uniform(seed, 0, 0) for seed in (2**63, 2**63 + 1, 2**64 - 1, 2**64 - 2)}
    assert len(numbers) == 4
    bits = np.random.Philox(key=2**64 - 1, counter=0)
    assert uniform(2**64 - 1, 0, 0) == float(np.random.Generator(bits).random())


def test_the_token_that_reaches_top_p_stays():
    row = np.log([0.4, 0.3, 0.2, 0.1])
    kept = np.isfinite(process(row, [], Sampling(do_sample=True, top_p=0.85)))
    assert kept.tolist() == [True, True, True, False]


def test_top_k_of_none_is_all():
    row = logits(1)
    none, every = Sampling(do_sample=True), Sampling(do_sample=True, top_k=row.size)
    assert np.isfinite(process(row, [], none)).all()
    np.testing.assert_array_equal(process(row, [], none), process(row, [], every))


def test_what_is_removed_is_never_drawn():
    # A constant such as -3000 is not "removed" where scores are lower still.
    row = np.full(8, -1e5, np.float32)
    row[3] = -1e5 + 50
    scores = process(row, [], Sampling(do_sample=True, top_k=1))
    assert {draw(scores, number) for number in (0.0, 0.5, 1 - 2**-53)} == {3}


@pytest.mark.parametrize("number", [0.0, 0.25, 1 - 2**-53])
def test_the_ends_of_the_interval_are_tokens_that_are_left(number: float):
    scores = process(logits(2), HISTORY, Sampling(do_sample=True, top_k=3, no_repeat_ngram_size=1))
    assert np.isfinite(scores[draw(scores, number)])


def test_of_equal_scores_the_lowest_token_comes_first():
    row = np.zeros(5, np.float32)
    assert choose_token(row, [], GREEDY, 0, 0) == 0
    assert [draw(row.astype(np.float64), u) for u in (0.0, 0.19, 0.21, 0.99)] == [0, 0, 1, 4]


# ---- in a generation -----------------------------------------------------------------------------

WARM = Sampling(do_sample=True, temperature=1.5, top_k=40, seed=5)


def answers(texts: list[list[int]], how: Sampling) -> list[list[int]]:
    done = engine().generate(texts, GenerationRequest(12, sampling=how)).completions
    return [completion.tokens for completion in done]


def test_a_seed_gives_the_same_answers_again_and_another_seed_others():
    first = answers(prompts(), WARM)
    assert answers(prompts(), WARM) == first
    assert answers(prompts(), replace(WARM, seed=6)) != first


def test_a_row_is_sampled_alike_whatever_the_others_hold():
    one, other = prompts()
    alone = answers([one], WARM)[0]
    assert answers([one, other], WARM)[0] == alone
    assert answers([one, other[:1]], WARM)[0] == alone


def test_sequences_of_one_prompt_differ():
    one, _ = prompts()
    first, second, third = answers([one, one, one], WARM)
    assert first != second != third != first


def test_one_candidate_is_the_greedy_one():
    assert answers(prompts(), Sampling(do_sample=True, top_k=1)) == answers(prompts(), GREEDY)


def test_a_run_of_tokens_does_not_come_twice():
    for tokens in answers(prompts(), Sampling(no_repeat_ngram_size=2)):
        pairs = list(pairwise(tokens))
        assert len(set(pairs)) == len(pairs)


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"temperature": -0.5}, "temperature is -0.5, expected a number >= 0"),
        ({"temperature": float("nan")}, "temperature is nan, expected a number >= 0"),
        ({"temperature": 1e-40}, r"temperature is 1e-40, not 0 or in \[1e-30, inf\)"),
        ({"temperature": float("inf")}, "temperature is inf, not 0 or in"),
        ({"top_k": -2}, "top_k is -2, expected -1 or an integer >= 0"),
        ({"top_k": 2.5}, "top_k is 2.5, expected -1 or an integer >= 0"),
        ({"top_k": float("inf")}, "top_k is inf, expected -1 or an integer >= 0"),
        ({"top_k": True}, "top_k is True, expected -1 or an integer >= 0"),
        ({"top_k": "3"}, "top_k is '3', expected -1 or an integer >= 0"),
        ({"global_topk": -1}, "global_topk is -1, expected an integer >= 0"),
        ({"top_p_min_tokens": 0}, "top_p_min_tokens is 0, expected an integer >= 1"),
        ({"top_p_min_tokens": 1.5}, "top_p_min_tokens is 1.5, expected an integer >= 1"),
        ({"top_p": 0.0}, r"top_p is 0, expected a number in \(0, 1\]"),
        ({"top_p": 1.5}, r"top_p is 1.5, expected a number in \(0, 1\]"),
        ({"min_p": -0.1}, r"min_p is -0.1, expected a number in \[0, 1\]"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0, expected a number > 0"),
        ({"no_repeat_ngram_size": -2}, "no_repeat_ngram_size is -2, expected an integer >= 0"),
        ({"seed": -1}, r"seed is -1, expected an integer in \[0, 2\^64 - 1\]"),
        ({"seed": 1 << 64}, "seed is 1.84467e\\+19, expected an integer in"),
    ],
)
def test_a_setting_without_meaning_is_refused(given: dict[str, float], what: str):
    with pytest.raises(GraphgenError, match=what) as caught:
        Sampling(do_sample=True, **given)  # pyright: ignore[reportArgumentType]
    assert caught.value.code == "GG0705"


def test_rules_that_leave_no_token_are_named():
    with pytest.raises(GraphgenError, match="no token is left for sequence 2 after 3 new tokens"):
        choose_token(np.zeros(2), [0, 1], Sampling(no_repeat_ngram_size=1), 1, 3)


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (["--top-k", "4"], "--top-k has no effect without --do-sample"),
        (["--seed", "4"], "--seed has no effect without --do-sample"),
        (["--num-return-sequences", "2"], "would give the same answer 2 times"),
        (["--do-sample", "--top-p", "0"], "top_p is 0"),
    ],
)
def test_flags_that_do_not_go_together(args: list[str], what: str):
    assert what in error("generate", "smollm2", "--prompt", "x", *args)


# ---- on the device -------------------------------------------------------------------------------


@cache
def device(sampling: str) -> Engine:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "small.gguf"
        write_small_model(path)
        options = EngineOptions(CompileConfig.of(sampling=sampling), batch=3, max_len=SLOTS)
        opened, _ = open_engine(
            str(path),
            options,
            lambda tokenizer: [tokenizer.encode(text) for text in TEXTS],
            8,
            Silent(),
        )
        return opened


def on_device(texts: list[list[int]], how: Sampling, sampling: str) -> list[list[int]]:
    done = device(sampling).generate(texts, GenerationRequest(12, sampling=how)).completions
    return [completion.tokens for completion in done]


DRAWING = "on-device-sampling{do_sample=true,global_topk=0}"


def test_programs_choose_the_tokens_the_host_does():
    assert on_device(prompts(), GREEDY, "on-device-sampling") == answers(prompts(), GREEDY)
    for how in (WARM, replace(WARM, top_k=0, top_p=0.8), replace(WARM, seed=9)):
        assert on_device(prompts(), how, DRAWING) == answers(prompts(), how)


@pytest.mark.parametrize(
    ("how", "sampling"),
    [
        (WARM, "on-device-sampling"),
        (replace(WARM, min_p=0.1), DRAWING),
        (Sampling(repetition_penalty=1.2), "on-device-sampling"),
    ],
)
def test_programs_that_choose_otherwise_are_refused(how: Sampling, sampling: str):
    with pytest.raises(GraphgenError, match="these programs choose tokens themselves"):
        on_device(prompts(), how, sampling)


def test_what_programs_cannot_do_is_refused_before_anything_is_opened():
    args = ["--on-device-sampling", "--repetition-penalty", "1.1"]
    text = error("generate", "smollm2", "--prompt", "x", *args)
    assert "--repetition-penalty and --on-device-sampling exclude each other" in text
