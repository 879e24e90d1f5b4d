"""Every sequence with settings of its own: on the host, in programs, and on the command line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.sampling import GREEDY, Sampling
from tests.graphgen.cli.conftest import error, facts
from tests.oracles.small_gguf import write_small_model
from tests.runtime.sampling.test_choose_token import DRAWING, device
from tests.runtime.test_generation import engine, prompts

MIXED = (
    Sampling(do_sample=True, top_k=3, seed=4),
    Sampling(do_sample=True, top_p=0.7, temperature=1.8, seed=4),
    GREEDY,
)
FIXED = "on-device-sampling{do_sample=true,global_topk=16,deterministic=true}"


def three() -> list[list[int]]:
    return [*prompts(), prompts()[0][:1]]


def rows_of(how: tuple[Sampling, ...], sampling: str = "") -> list[list[int]]:
    opened = device(sampling) if sampling else engine()
    done = opened.generate(three(), GenerationRequest(12, sampling=how)).completions
    return [completion.tokens for completion in done]


def test_each_row_is_chosen_by_its_own_settings():
    found = rows_of(MIXED)
    for row, how in enumerate(MIXED):
        assert rows_of((how,) * 3)[row] == found[row]
    assert len({tuple(rows_of((how,) * 3)[0]) for how in MIXED}) == 3


def test_programs_choose_each_row_as_the_host_does():
    assert rows_of(MIXED, DRAWING) == rows_of(MIXED)
    turned = (MIXED[2], MIXED[0], MIXED[1])
    assert rows_of(turned, DRAWING) == rows_of(turned)


KEEPING = "on-device-sampling{do_sample=true,global_topk=0,top_p_min_tokens=true}"


def test_programs_let_top_p_keep_as_many_as_the_host_does():
    how = (
        replace(MIXED[1], top_p=0.01, top_p_min_tokens=9),
        replace(MIXED[1], top_p=0.01),
        GREEDY,
    )
    found = rows_of(how, KEEPING)
    assert found == rows_of(how)
    # The second keeps one token, which is the best; the first does not.
    assert found[1] == rows_of((GREEDY,) * 3)[1]
    assert found[0] != rows_of((GREEDY,) * 3)[0]


def test_the_same_number_each_time():
    how = (*(replace(h, deterministic=True, top_k=h.top_k or 16) for h in MIXED[:2]), GREEDY)
    found = rows_of(how)
    assert rows_of(how, FIXED) == found
    # There is nothing random left for a seed to change.
    assert rows_of(tuple(replace(h, seed=99) for h in how)) == found
    assert rows_of(how)[0] != rows_of(MIXED)[0]


def test_a_prompt_of_one_token_is_read_at_that_token():
    # Others take the logits of a padding position where a prompt has one token.
    alone = engine().generate([three()[2]], GenerationRequest(6)).completions[0].tokens
    assert rows_of((GREEDY,) * 3)[2][:6] == alone
    logits = engine().session.prefill(three())
    engine().session.reset()
    single = engine().session.prefill([[], [], three()[2]], "left")
    np.testing.assert_allclose(logits[2], single[2], atol=1e-5)


@pytest.mark.parametrize(
    ("how", "sampling", "what"),
    [
        (MIXED[0], FIXED, "deterministic is False, but these programs always draw with 0.5"),
        (replace(MIXED[0], deterministic=True), DRAWING, "deterministic is True, but these"),
        (
            replace(MIXED[0], deterministic=True, top_k=17),
            FIXED,
            "top_k is 17, but these programs look at the 16 best tokens only",
        ),
        (
            replace(MIXED[0], deterministic=True, global_topk=8),
            FIXED,
            "global_topk is 8, but these programs look at the 16 best tokens",
        ),
        (
            replace(MIXED[1], top_p_min_tokens=2),
            DRAWING,
            "top_p_min_tokens is 2, but these programs have no such input",
        ),
    ],
)
def test_what_was_compiled_otherwise_is_refused(how: Sampling, sampling: str, what: str):
    with pytest.raises(GraphgenError, match=what) as caught:
        rows_of((how,) * 3, sampling)
    assert caught.value.code == "GG0705"


def test_settings_are_one_a_sequence():
    with pytest.raises(GraphgenError, match="2 settings of sampling for 3 sequences"):
        rows_of(MIXED[:2])


# ---- on the command line -------------------------------------------------------------------------

ASK = ("--prompt", "The llama said", "--prompt", "It's 2024", "--max-new-tokens", 8)
SETTINGS = ("--do-sample", "--top-k", "5,40", "--temperature", "0.7,2", "--seed", 3)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "small.gguf"
    write_small_model(path)
    return path


def tokens(model: Path, *arguments: object) -> list[list[int]]:
    return [row["tokens"] for row in facts("generate", model, *ASK, *arguments)["outputs"]]


def test_values_a_prompt(model: Path):
    found = tokens(model, *SETTINGS)
    first = tokens(model, "--do-sample", "--top-k", 5, "--temperature", 0.7, "--seed", 3)
    second = tokens(model, "--do-sample", "--top-k", 40, "--temperature", 2, "--seed", 3)
    assert found == [first[0], second[1]]
    assert tokens(model, *SETTINGS, "--on-device-sampling") == found
    assert tokens(model, *SETTINGS, "--on-device-sampling", "--global-topk", 64) == found


def test_zero_and_minus_one(model: Path):
    best = tokens(model)
    found = tokens(model, "--do-sample", "--top-k", "-1,5", "--temperature", "2,0", "--seed", 3)
    assert found[1] == best[1]
    assert (
        found[0] == tokens(model, "--do-sample", "--top-k", 0, "--temperature", 2, "--seed", 3)[0]
    )
    assert tokens(model, "--do-sample", "--temperature", 0, "--on-device-sampling") == best


def test_least_tokens_of_top_p(model: Path):
    least = ("--do-sample", "--top-p", 0.01, "--temperature", 2, "--top-p-min-tokens", "1,9")
    found = tokens(model, *least)
    best = tokens(model)
    assert found[0] == best[0]
    assert found[1] != best[1]
    assert tokens(model, *least, "--on-device-sampling") == found


def test_values_a_prompt_are_those_of_all_its_answers(model: Path):
    once = ("--do-sample", "--top-k", "1,40", "--num-return-sequences", 2)
    first, again, *others = tokens(model, *once)
    assert first == again
    assert others[0] != others[1]


def test_the_same_number_each_time_from_the_command_line(model: Path):
    fixed = ("--do-sample", "--top-k", 5, "--deterministic")
    assert tokens(model, *fixed) == tokens(model, *fixed, "--on-device-sampling")


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--top-k", "1,2,3"], "--top-k has 3 values for 2 prompts"),
        (["--top-k", "1,x"], "--top-k is 'x', expected an integer"),
        (["--top-k", "2.5"], "--top-k is '2.5', expected an integer"),
        (["--temperature", "1,"], "--temperature is '', expected a number"),
        (["--temperature", "1,-1"], "temperature is -1, expected a number >= 0"),
        (["--top-k", "-2"], "top_k is -2, expected -1 or an integer >= 0"),
        (["--top-p-min-tokens", "0"], "top_p_min_tokens is 0, expected an integer >= 1"),
        (["--deterministic", "--seed", "1"], "--seed has no effect with --deterministic"),
        (["--deterministic", "--num-return-sequences", "2"], "the same answer 2 times"),
        (["--global-topk", "5"], "--global-topk has no effect without --on-device-sampling"),
        (
            ["--on-device-sampling", "--global-topk", "5", "--top-k", "6,2"],
            "top_k is 6, but these programs look at the 5 best tokens only",
        ),
    ],
)
def test_options_that_do_not_fit(model: Path, arguments: list[str], what: str):
    assert what in error("generate", model, *ASK, "--do-sample", *arguments)
