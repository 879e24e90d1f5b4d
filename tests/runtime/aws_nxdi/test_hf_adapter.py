"""The adapter's ``generate`` beside that of transformers, on the same small random models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from transformers import (
    GenerationConfig,
    GenerationMixin,
    LogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    StoppingCriteria,
)
from transformers.generation.stopping_criteria import StoppingCriteriaList

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_nxdi.hf_adapter import HuggingFaceGenerationAdapter
from graphgen.runtime.aws_nxdi.model_classes import CAUSAL_LM
from tests.oracles.applications import BATCH, open_application, open_reference, write_checkpoint
from tests.oracles.family_oracle import ALL_AT_ONCE

PAD = 3
NEW = 8
# transformers counts padding as places of a chunk of attention: the logits of a padded row differ
# by 0.2 from those of its prompt alone, which ours have.
PADDING_COUNTS = ("llama4_text",)
Pair = tuple[Any, Any]


@pytest.fixture(scope="module")
def pair_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    """Adapter and transformers' model of a family, opened once."""
    opened: dict[str, Pair] = {}

    def pair(family: str) -> Pair:
        if family not in opened:
            folder = write_checkpoint(tmp_path_factory.mktemp(family), family, ALL_AT_ONCE)
            adapter = HuggingFaceGenerationAdapter(open_application(folder, family))
            opened[family] = adapter, open_reference(folder)
        return opened[family]

    return pair


@pytest.fixture
def llama(pair_of: Callable[[str], Pair]) -> Pair:
    """Adapter and transformers' model of the Llama family."""
    return pair_of("llama")


def prompts(side: str = "left", seed: int = 0) -> dict[str, torch.Tensor]:
    """Three prompts of 9, 4 and 1 tokens in one batch."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.full((BATCH, 9), PAD)
    mask = torch.zeros_like(ids)
    for row, size in enumerate((9, 4, 1)):
        start = 9 - size if side == "left" else 0
        ids[row, start : start + size] = torch.randint(4, 60, (size,), generator=generator)
        mask[row, start : start + size] = 1
    return {"input_ids": ids, "attention_mask": mask}


def compared_prompts(family: str) -> dict[str, torch.Tensor]:
    """Prompts whose rows transformers continues as it continues each alone."""
    given = prompts()
    return {k: v[:1] for k, v in given.items()} if family in PADDING_COUNTS else given


def both(pair: Pair, inputs: dict[str, Any], seed: int = 0, **options: Any) -> tuple[Any, Any]:
    """The results of both sides, given the same random numbers."""
    made: list[Any] = []
    for model in pair:
        torch.manual_seed(seed)
        made.append(model.generate(**inputs, **{"pad_token_id": PAD, **options}))
    return made[0], made[1]


class After(StoppingCriteria):
    """Stops each row after the first token that is even and a number of tokens."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.calls = 0

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        self.calls += 1
        even = input_ids[:, -1] % 2 == 0
        return even & (input_ids.shape[1] >= self.count)


class Recorder:
    """A streamer that keeps what it gets."""

    def __init__(self) -> None:
        self.put_values: list[torch.Tensor] = []
        self.ends = 0

    def put(self, value: torch.Tensor) -> None:
        assert self.ends == 0
        self.put_values.append(value.clone())

    def end(self) -> None:
        self.ends += 1


@pytest.mark.parametrize("family", CAUSAL_LM)
@pytest.mark.one_in(5)
def test_greedy_tokens_are_those_of_transformers(family: str, pair_of: Callable[[str], Pair]):
    ours, theirs = both(pair_of(family), compared_prompts(family), max_new_tokens=NEW)
    assert torch.equal(ours, theirs)
    assert ours.dtype == torch.long


@pytest.mark.parametrize("family", CAUSAL_LM)
@pytest.mark.one_in(5)
def test_right_padded_prompts_give_the_tokens_of_each_prompt_alone(
    family: str, pair_of: Callable[[str], Pair]
):
    adapter, reference = pair_of(family)
    inputs = prompts("right")
    ours = adapter.generate(**inputs, pad_token_id=PAD, max_new_tokens=NEW, eos_token_id=None)
    assert torch.equal(ours[:, :9], inputs["input_ids"])
    for row, size in enumerate((9, 4, 1)):
        alone = reference.generate(
            inputs["input_ids"][row : row + 1, :size],
            attention_mask=torch.ones(1, size, dtype=torch.long),
            max_new_tokens=NEW,
            eos_token_id=None,
        )
        assert torch.equal(ours[row, 9:], alone[0, size:])


@pytest.mark.parametrize("family", CAUSAL_LM)
@pytest.mark.one_in(5)
def test_sampled_tokens_are_those_of_transformers(family: str, pair_of: Callable[[str], Pair]):
    # Only from random numbers that leave no doubt about the token: sums differ in the last bits.
    settings = {"do_sample": True, "top_k": 13, "top_p": 0.9, "temperature": 1.5}
    given = compared_prompts(family)
    for seed in range(3):
        ours, theirs = both(pair_of(family), given, seed, max_new_tokens=NEW, **settings)
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("family", CAUSAL_LM)
@pytest.mark.one_in(5)
def test_criteria_and_streamers_take_part_at_every_token(
    family: str, pair_of: Callable[[str], Pair]
):
    made: list[Any] = []
    for model in pair_of(family):
        rule, streamer = After(11), Recorder()
        ids = model.generate(
            prompts()["input_ids"][:1],
            max_new_tokens=NEW,
            stopping_criteria=StoppingCriteriaList([rule]),
            streamer=streamer,
            pad_token_id=PAD,
        )
        assert streamer.ends == 1
        assert torch.equal(torch.cat([v.flatten() for v in streamer.put_values]), ids[0])
        assert [v.numel() for v in streamer.put_values] == [9, *[1] * rule.calls]
        made.append((ids, rule.calls))
    assert torch.equal(made[0][0], made[1][0])
    assert made[0][1] == made[1][1]


def test_it_is_a_generation_mixin(llama: Pair):
    adapter = llama[0]
    assert issubclass(type(adapter), GenerationMixin)
    assert adapter.config.model_type == "llama"
    assert adapter.generation_config.eos_token_id == llama[1].generation_config.eos_token_id
    assert adapter.padding_side == "right"


PROCESSORS: dict[str, dict[str, Any]] = {
    "repetition": {"repetition_penalty": 1.4},
    "n-grams": {"no_repeat_ngram_size": 2},
    "least length": {"min_new_tokens": 6, "eos_token_id": list(range(20))},
    "bad words": {"bad_words_ids": [[5], [6, 7], [8]]},
    "bias": {"sequence_bias": {(9,): 40.0}},
    "suppressed": {"suppress_tokens": list(range(30)), "begin_suppress_tokens": [31, 32]},
    "forced end": {"forced_eos_token_id": 2},
    "longer is less likely": {"exponential_decay_length_penalty": (2, 1.5)},
    "several ends": {"eos_token_id": list(range(0, 60, 2))},
    "renormalized": {"renormalize_logits": True, "remove_invalid_values": True},
    "allowed": {"prefix_allowed_tokens_fn": lambda _, ids: [int(ids[-1]) % 7 + 4, 11]},
    "min-p": {"do_sample": True, "min_p": 0.1},
    "typical": {"do_sample": True, "typical_p": 0.8, "top_k": 0},
    "cutoffs": {"do_sample": True, "epsilon_cutoff": 0.01, "eta_cutoff": 0.02},
    "prompt repetition": {"encoder_repetition_penalty": 1.3, "encoder_no_repeat_ngram_size": 2},
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_processors_are_those_of_transformers(name: str, llama: Pair):
    options = {"max_new_tokens": NEW, **PROCESSORS[name]}
    ours, theirs = both(llama, prompts(), **options)
    assert torch.equal(ours, theirs)


def test_a_processor_of_the_caller_runs_at_every_token(llama: Pair):
    class Counting(LogitsProcessor):
        calls = 0

        def __call__(self, input_ids: Any, scores: Any) -> Any:
            Counting.calls += 1
            scores[:, 7] = 1e4 if Counting.calls % 2 else -1e4
            return scores

    for model in llama:
        Counting.calls = 0
        ids = model.generate(
            **prompts(),
            logits_processor=[Counting()],
            max_new_tokens=4,
            output_logits=True,
            return_dict_in_generate=True,
            pad_token_id=PAD,
        )
        assert Counting.calls == 4
        assert (ids.sequences[:, 9] == 7).all()
        assert (ids.sequences[:, 10] != 7).all()


def test_scores_and_logits_are_those_of_transformers(llama: Pair):
    wanted = {"output_scores": True, "output_logits": True, "return_dict_in_generate": True}
    options = {"do_sample": True, "top_k": 5, "max_new_tokens": NEW, **wanted}
    ours, theirs = both(llama, prompts(), **options)
    assert torch.equal(ours.sequences, theirs.sequences)
    for mine, other in ((ours.scores, theirs.scores), (ours.logits, theirs.logits)):
        assert len(mine) == len(other)
        for step, reference in zip(mine, other, strict=True):
            torch.testing.assert_close(step, reference, rtol=0, atol=1e-4)
    assert ours.past_key_values is None


def test_rows_that_are_done_are_padded(llama: Pair):
    ids = both(llama, prompts(), max_new_tokens=NEW, eos_token_id=None)[1]
    end = int(ids[1, 11])
    ours, theirs = both(llama, prompts(), max_new_tokens=NEW, eos_token_id=end)
    assert torch.equal(ours, theirs)
    assert (ours[1, 12:] == PAD).all()


def test_lengths_count_as_in_transformers(llama: Pair):
    for limit in ({"max_length": 14}, {"max_new_tokens": 5}, {"max_length": 99, "max_time": 0.0}):
        ours, theirs = both(llama, prompts(), eos_token_id=None, **limit)
        assert torch.equal(ours, theirs)


def test_fewer_prompts_than_rows_and_calls_one_after_the_other(llama: Pair):
    first = prompts()
    single = {name: value[:1] for name, value in first.items()}
    for inputs in (single, first, single):
        ours, theirs = both(llama, inputs, max_new_tokens=NEW)
        assert torch.equal(ours, theirs)


def test_a_mask_is_inferred_from_padding_and_may_have_holes(llama: Pair):
    inputs = prompts()
    ours, theirs = both(llama, {"input_ids": inputs["input_ids"]}, max_new_tokens=NEW)
    assert torch.equal(ours, theirs)
    inputs["attention_mask"][0, 3] = 0
    ours, theirs = both(llama, inputs, max_new_tokens=NEW)
    assert torch.equal(ours, theirs)


def test_several_answers_to_a_prompt_fill_the_compiled_batch(llama: Pair):
    single = {name: value[:1] for name, value in prompts().items()}
    options = {"do_sample": True, "num_return_sequences": BATCH, "max_new_tokens": NEW}
    ours, theirs = both(llama, single, **options)
    assert torch.equal(ours, theirs)
    assert ours.shape[0] == BATCH
    double = {name: value[:2] for name, value in prompts().items()}
    with pytest.raises(GraphgenError, match=r"6 sequences \(2 prompts x 3\), .* for 3") as caught:
        llama[0].generate(**double, pad_token_id=PAD, **options)
    assert "batch_size=6" in caught.value.help


def test_right_padding_gives_no_warning(llama: Pair, caplog: pytest.LogCaptureFixture):
    llama[0].generate(**prompts("right"), pad_token_id=PAD, max_new_tokens=1)
    assert "right-padding" not in caplog.text


def test_processors_see_right_padded_rows_as_left_padded_ones(llama: Pair):
    options = {"max_new_tokens": NEW, "repetition_penalty": 1.5, "no_repeat_ngram_size": 2}
    options["pad_token_id"] = PAD
    left = llama[0].generate(**prompts("left"), **options)
    right = llama[0].generate(**prompts("right"), **options)
    assert torch.equal(left[:, 9:], right[:, 9:])


def test_a_penalty_does_not_see_padding_on_either_side(llama: Pair):
    adapter = llama[0]
    options = {"max_new_tokens": NEW, "eos_token_id": None, "repetition_penalty": 1.8}
    for row in (1, 2):
        inputs = prompts("right")
        # The token that the row would begin with, if it were not taken for one of its own.
        pad = int(adapter.generate(**prompts(), **options, pad_token_id=PAD)[row, 9])
        inputs["input_ids"][inputs["attention_mask"] == 0] = pad
        made = adapter.generate(**inputs, **options, pad_token_id=pad)
        wanted = adapter.generate(**prompts(), **options, pad_token_id=PAD)
        assert torch.equal(made[row, 9:], wanted[row, 9:])


def test_parameters_of_each_row_replace_those_of_the_configuration(llama: Pair):
    adapter = llama[0]
    options = {"max_new_tokens": NEW, "pad_token_id": PAD, "eos_token_id": None}
    params = torch.tensor([[1.0, 1.0, 1.0], [5.0, 0.8, 0.7], [0.0, 1.0, 1.3]])
    torch.manual_seed(1)
    mixed = adapter.generate(**prompts(), do_sample=True, sampling_params=params, **options)
    greedy = adapter.generate(**prompts(), **options)
    assert torch.equal(mixed[0], greedy[0])
    for row, settings in ((1, (5, 0.8, 0.7)), (2, (0, 1.0, 1.3))):
        top_k, top_p, temperature = settings
        torch.manual_seed(1)
        alike = adapter.generate(
            **prompts(), do_sample=True, top_k=top_k, top_p=top_p, temperature=temperature,
            **options,
        )  # fmt: skip
        assert torch.equal(mixed[row], alike[row])


def test_the_checkpoints_generation_config_is_the_default(tmp_path: Any):
    folder = write_checkpoint(tmp_path)
    GenerationConfig(max_new_tokens=3, do_sample=True, top_k=4, pad_token_id=PAD).save_pretrained(
        folder
    )
    pair: Pair = HuggingFaceGenerationAdapter(open_application(folder)), open_reference(folder)
    torch.manual_seed(0)
    ours = pair[0].generate(**prompts())
    torch.manual_seed(0)
    assert torch.equal(ours, pair[1].generate(**prompts()))
    assert ours.shape == (BATCH, 12)


def test_prompts_that_are_too_long_are_cut_where_that_is_allowed(
    llama: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    _, reference = llama
    reference.save_pretrained(tmp_path)
    limits: dict[str, Any] = {"max_context_length": 6, "seq_len": 32}
    made = open_application(tmp_path, **limits, allow_input_truncation=True)
    ids = prompts()["input_ids"][:2]
    ids = torch.where(ids == PAD, 7, ids)
    options: dict[str, Any] = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": PAD}
    got = HuggingFaceGenerationAdapter(made).generate(
        ids, attention_mask=torch.ones_like(ids), **options
    )
    short = ids[:, :6]
    wanted = reference.generate(short, attention_mask=torch.ones_like(short), **options)
    assert torch.equal(got[:, :9], ids)
    assert torch.equal(got[:, 9:], wanted[:, 6:])
    assert "2 prompts are cut to the first 6 tokens" in capsys.readouterr().err
    logits = [made.forward(part).logits for part in (ids, short)]
    assert torch.equal(*logits)
    assert "a prompt is cut" not in capsys.readouterr().err
    with pytest.raises(GraphgenError, match="GG0701"):
        open_application(tmp_path, **limits).forward(ids)


class PenaltyOfWholePrompts(LogitsProcessor):
    """The penalty of repetitions, of prompts as they were before they were cut."""

    def __init__(self, prompts: torch.Tensor, kept: int, penalty: float):
        self.prompts, self.kept = prompts, kept
        self.penalty = RepetitionPenaltyLogitsProcessor(penalty)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> Any:
        whole = torch.cat([self.prompts, input_ids[:, self.kept :]], 1)
        return self.penalty(cast(Any, whole), cast(Any, scores))


def test_penalties_count_all_tokens_of_prompts_that_are_cut(llama: Pair, tmp_path: Path):
    _, reference = llama
    reference.save_pretrained(tmp_path)
    made = open_application(tmp_path, max_context_length=4, seq_len=32, allow_input_truncation=True)
    # transformers tells penalties of padding where a row of the batch has some.
    given = {name: part[:2] for name, part in prompts().items()}
    ids = given["input_ids"]
    options: dict[str, Any] = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": PAD}
    adapter = HuggingFaceGenerationAdapter(made)
    plain = adapter.generate(**given, **options)
    # The token that follows is the first one that is cut.
    ids[0, 4] = plain[0, 9]
    got = adapter.generate(**given, repetition_penalty=9.0, **options)
    wanted = reference.generate(
        ids[:1, :4],
        logits_processor=[PenaltyOfWholePrompts(ids[:1], 4, 9.0)],
        attention_mask=torch.ones((1, 4), dtype=torch.long),
        **options,
    )
    assert torch.equal(got[0, 9:], wanted[0, 4:])
