"""``assistant_model`` and ``prompt_lookup_num_tokens`` of the adapter beside transformers' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GenerationConfig, LogitsProcessor
from transformers.generation.streamers import BaseStreamer

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_nxdi.generate_outputs import get_generate_outputs
from graphgen.runtime.aws_nxdi.hf_adapter import HuggingFaceGenerationAdapter
from tests.oracles.applications import BATCH, open_application, open_reference, write_checkpoint
from tests.oracles.drawn_pairs import MOST_CHI, chi_of_pairs
from tests.oracles.families import save, save_tokenizer

PAD, NEW, LENGTH = 3, 24, 4
# Weights far enough apart that the model repeats itself in other ways than its draft.
WIDE = {"vocab_size": 300, "initializer_range": 0.3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The target's checkpoint."""
    return write_checkpoint(tmp_path_factory.mktemp("target"), **WIDE)


@pytest.fixture(scope="module")
def reference(folder: Path) -> Any:
    """The target in transformers."""
    return open_reference(folder)


@pytest.fixture(scope="module")
def adapter(folder: Path) -> Any:
    """The target, which verifies four tokens."""
    return HuggingFaceGenerationAdapter(open_application(folder, speculation_length=LENGTH))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another model with one layer."""
    return write_checkpoint(tmp_path_factory.mktemp("draft"), num_hidden_layers=1, **WIDE)


@pytest.fixture(scope="module")
def drafts(folder: Path, small: Path) -> dict[str, Any]:
    """The target's own checkpoint as a draft, and another one, which has fewer slots."""
    return {
        "alike": HuggingFaceGenerationAdapter(open_application(folder)),
        "other": open_application(small, seq_len=24),
    }


def prompts(side: str = "left") -> dict[str, torch.Tensor]:
    """Three prompts of 9, 4 and 1 tokens in one batch."""
    generator = torch.Generator().manual_seed(0)
    ids, mask = torch.full((BATCH, 9), PAD), torch.zeros(BATCH, 9, dtype=torch.long)
    for row, size in enumerate((9, 4, 1)):
        start = 9 - size if side == "left" else 0
        ids[row, start : start + size] = torch.randint(4, 290, (size,), generator=generator)
        mask[row, start : start + size] = 1
    return {"input_ids": ids, "attention_mask": mask}


def row(number: int) -> dict[str, torch.Tensor]:
    """One prompt alone."""
    inputs = prompts()
    kept = inputs["attention_mask"][number] == 1
    return {name: value[number : number + 1, kept] for name, value in inputs.items()}


def settings(**changes: Any) -> dict[str, Any]:
    return {"max_new_tokens": NEW, "pad_token_id": PAD, "eos_token_id": None, **changes}


PROPOSERS = ("alike", "other", "lookup")


def proposing(drafts: dict[str, Any], name: str) -> dict[str, Any]:
    if name == "lookup":
        return {"prompt_lookup_num_tokens": LENGTH - 1}
    return {"assistant_model": drafts[name]}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", PROPOSERS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_greedy_tokens_of_a_batch_are_the_targets_own(
    adapter: Any, reference: Any, drafts: dict[str, Any], name: str, side: str
):
    theirs = reference.generate(**prompts(), **settings())
    for _ in range(2):
        ours = adapter.generate(**prompts(side), **settings(), **proposing(drafts, name))
        assert torch.equal(ours[:, 9:], theirs[:, 9:])
        assert torch.equal(ours[:, :9], prompts(side)["input_ids"])
        assert ours.dtype == theirs.dtype


@pytest.mark.one_in(2)
@pytest.mark.parametrize("number", range(BATCH))
@pytest.mark.parametrize("name", PROPOSERS)
def test_one_sequence_gives_the_tokens_of_transformers_own_assisted_loop(
    adapter: Any, reference: Any, small: Path, drafts: dict[str, Any], name: str, number: int
):
    own: dict[str, Any] = {"alike": reference, "other": open_reference(small)}
    with_theirs = proposing(own, name)
    theirs = reference.generate(**row(number), **settings(), **with_theirs)
    ours = adapter.generate(**row(number), **settings(), **proposing(drafts, name))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", PROPOSERS)
@pytest.mark.one_in(3)
def test_a_row_ends_inside_a_step(adapter: Any, reference: Any, drafts: dict[str, Any], name: str):
    free = reference.generate(**prompts(), **settings())
    for place in range(9, 15):
        ends = settings(eos_token_id=[int(free[0, place]), int(free[2, place + 3])])
        theirs = reference.generate(**prompts(), **ends)
        ours = adapter.generate(**prompts(), **ends, **proposing(drafts, name))
        assert torch.equal(ours, theirs)


def test_penalties_are_those_of_transformers(adapter: Any, reference: Any, drafts: dict[str, Any]):
    how = settings(repetition_penalty=1.4, no_repeat_ngram_size=2)
    theirs = reference.generate(**prompts(), **how)
    for name in PROPOSERS:
        ours = adapter.generate(**prompts(), **how, **proposing(drafts, name))
        assert torch.equal(ours, theirs)


def test_a_draft_that_is_the_same_model_is_accepted_always(adapter: Any, drafts: dict[str, Any]):
    session = adapter.neuron_model.running().session

    def launches(**options: Any) -> int:
        before = session.changes
        adapter.generate(**prompts(), **settings(**options), assistant_model=drafts["alike"])
        return session.changes - before

    # Beside each launch its refused tokens are taken back; four tokens a launch or two.
    assert launches() < launches(num_assistant_tokens=1) * 0.6


@pytest.fixture(scope="module")
def flatter(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The target with scores a third as far apart: the same best tokens, other probabilities."""
    model: Any = open_reference(folder)
    with torch.no_grad():
        model.lm_head.weight *= 0.3
    made = tmp_path_factory.mktemp("flatter")
    save(model, made)
    return open_application(made)


@pytest.fixture(scope="module")
def drawing(folder: Path) -> Any:
    """The target with programs that draw."""
    device = {"do_sample": True, "dynamic": True}
    made = open_application(folder, speculation_length=LENGTH, on_device_sampling_config=device)
    return HuggingFaceGenerationAdapter(made)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["adapter", "drawing"])
@pytest.mark.parametrize("how", ["draft", "lookup"])
def test_drawn_tokens_have_the_targets_distribution(
    where: str, how: str, reference: Any, flatter: Any, request: pytest.FixtureRequest
):
    options = {"assistant_model": flatter} if how == "draft" else {"prompt_lookup_num_tokens": 3}
    given = (request.getfixturevalue(where), reference, row(1)["input_ids"])
    assert chi_of_pairs(*given, BATCH, 600, **options) < MOST_CHI


def test_programs_that_draw_take_the_settings_of_each_row(
    drawing: Any, drafts: dict[str, Any], reference: Any
):
    params = torch.tensor([[1.0, 1.0, 1.0], [5.0, 0.9, 1.3], [0.0, 1.0, 2.0]])
    how = settings(do_sample=True, sampling_params=params, assistant_model=drafts["other"])
    made: list[torch.Tensor] = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        made.append(drawing.generate(**prompts(), **how))
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])
    best = reference.generate(**prompts(), **settings())
    assert torch.equal(made[2][0], best[0])


def test_drawn_tokens_follow_torchs_seed_and_the_settings_of_each_row(
    adapter: Any, drafts: dict[str, Any]
):
    params = torch.tensor([[1.0, 1.0, 1.0], [5.0, 0.9, 1.3], [0.0, 1.0, 2.0]])
    how = settings(do_sample=True, sampling_params=params, assistant_model=drafts["other"])
    made: list[torch.Tensor] = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        made.append(adapter.generate(**prompts(), **how))
    assert torch.equal(made[0], made[1])
    greedy = adapter.generate(**prompts(), **settings())
    assert torch.equal(made[0][0], greedy[0])
    assert not torch.equal(made[0][2], made[2][2])


def test_the_number_of_proposals_may_be_a_setting(adapter: Any, drafts: dict[str, Any]):
    plain = adapter.generate(**prompts(), **settings())
    config = GenerationConfig(**settings(num_assistant_tokens=2))
    with_config = adapter.generate(
        **prompts(), generation_config=config, assistant_model=drafts["other"]
    )
    assert torch.equal(plain, with_config)
    with pytest.raises(GraphgenError, match="num_assistant_tokens=4, and programs of") as caught:
        adapter.generate(
            **prompts(), **settings(num_assistant_tokens=4), assistant_model=drafts["other"]
        )
    assert "num_assistant_tokens=3" in caught.value.help
    assert "speculation_length=5" in caught.value.help
    with pytest.raises(GraphgenError, match="prompt_lookup_num_tokens=9"):
        adapter.generate(**prompts(), **settings(prompt_lookup_num_tokens=9))


def test_several_answers_to_a_prompt(adapter: Any, drafts: dict[str, Any]):
    made = adapter.generate(
        **row(0),
        **settings(do_sample=True, num_return_sequences=3, return_dict_in_generate=True),
        assistant_model=drafts["other"],
    )
    assert made.sequences.shape == (3, 9 + NEW)


def test_prompts_up_to_the_last_slot(adapter: Any, reference: Any, drafts: dict[str, Any]):
    long = torch.arange(4, 104)[None]
    how = settings(max_new_tokens=29)
    theirs = reference.generate(long, attention_mask=torch.ones_like(long), **how)
    for name in ("alike", "lookup"):
        ours = adapter.generate(long, **how, **proposing(drafts, name))
        assert torch.equal(ours, theirs)


class Nothing(LogitsProcessor):
    """A processor of the caller."""

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        return scores


class Silent(BaseStreamer):
    """A streamer."""

    def put(self, value: Any) -> None: ...

    def end(self) -> None: ...


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"streamer": Silent()}, "streamer with"),
        ({"logits_processor": [Nothing()]}, "Nothing with"),
        ({"bad_words_ids": [[5]]}, "NoBadWordsLogitsProcessor with"),
        ({"max_time": 1.0}, "MaxTimeCriteria with"),
        ({"return_dict_in_generate": True, "output_scores": True}, "output_scores with"),
        ({"input_capture_hook": print}, "input_capture_hook with"),
        ({"num_assistant_tokens_schedule": "heuristic"}, "num_assistant_tokens_schedule='heur"),
        ({"assistant_confidence_threshold": 0.4}, "assistant_confidence_threshold with"),
        ({"assistant_tokenizer": object()}, "assistant_tokenizer with"),
    ],
)
def test_what_cannot_be_combined_is_refused_by_name(
    adapter: Any, drafts: dict[str, Any], options: dict[str, Any], says: str
):
    with pytest.raises(GraphgenError, match=says) as caught:
        adapter.generate(**prompts(), **{**settings(), **options}, assistant_model=drafts["other"])
    assert caught.value.code == "GG0904"
    assert caught.value.help


def test_models_that_cannot_propose_are_refused(
    adapter: Any, reference: Any, drafts: dict[str, Any], small: Path
):
    def refused(model: Any, code: str, says: str, **options: Any) -> None:
        with pytest.raises(GraphgenError, match=says) as caught:
            adapter.generate(**prompts(), **settings(**options), assistant_model=model)
        assert caught.value.code == code
        assert caught.value.help

    refused(reference, "GG0902", "assistant_model is a LlamaForCausalLM, not an application")
    refused(adapter, "GG0903", "the model itself")
    refused(drafts["other"], "GG0903", "both propose tokens", prompt_lookup_num_tokens=2)
    refused(open_application(small, batch_size=2), "GG0705", "compiled for 2")
    chooses = open_application(small, on_device_sampling_config={"do_sample": False})
    refused(chooses, "GG0904", "whose programs choose tokens")
    with pytest.raises(GraphgenError, match="need programs that verify tokens") as caught:
        drafts["alike"].generate(**prompts(), **settings(prompt_lookup_num_tokens=3))
    assert "speculation_length=4" in caught.value.help


def test_programs_that_choose_tokens_verify_greedy_ones(
    drawing: Any, reference: Any, drafts: dict[str, Any]
):
    theirs = reference.generate(**prompts(), **settings())
    ours = drawing.generate(**prompts(), **settings(), assistant_model=drafts["other"])
    assert torch.equal(ours, theirs)


def test_paged_caches_and_ranks(folder: Path, small: Path, reference: Any):
    blocks = {"is_block_kv_layout": True, "pa_block_size": 8, "pa_num_blocks": 48}
    target: Any = HuggingFaceGenerationAdapter(
        open_application(folder, speculation_length=LENGTH, tp_degree=2, **blocks)
    )
    draft = open_application(small, **blocks)
    theirs = reference.generate(**prompts(), **settings())
    ours = target.generate(**prompts(), **settings(), assistant_model=draft)
    assert torch.equal(ours, theirs)


def test_get_generate_outputs_takes_a_draft(
    adapter: Any, folder: Path, drafts: dict[str, Any], small: Path
):
    from transformers import AutoTokenizer

    save_tokenizer(folder)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    texts, how = ["the cat", "a"], GenerationConfig(max_new_tokens=8, eos_token_id=None)
    application = adapter.neuron_model
    plain = get_generate_outputs(application, texts, tokenizer, generation_config=how)
    made = get_generate_outputs(
        application, texts, tokenizer, draft_model=drafts["other"], generation_config=how
    )
    assert made[1] == plain[1]
    assert torch.equal(torch.as_tensor(made[0]), torch.as_tensor(plain[0]))
    own: Any = open_reference(folder)
    theirs = get_generate_outputs(
        own, texts[:1], tokenizer, is_hf=True, draft_model=own, generation_config=how
    )
    assert theirs[1][0] == plain[1][0]
