"""The adapter over programs that choose the tokens, and answers to texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.neuron_config import OnDeviceSamplingConfig
from graphgen.runtime.aws_nxdi.generate_outputs import get_generate_outputs
from graphgen.runtime.aws_nxdi.hf_adapter import HuggingFaceGenerationAdapter
from tests.oracles.applications import open_application, open_reference, write_checkpoint
from tests.oracles.families import save_tokenizer

IDS = torch.tensor([[3, 5, 6, 7], [9, 8, 7, 6]])
MASK = torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1]])
INPUTS: dict[str, Any] = {
    "attention_mask": MASK,
    "max_new_tokens": 6,
    "pad_token_id": 3,
    "eos_token_id": None,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint."""
    return write_checkpoint(tmp_path_factory.mktemp("llama"), vocab_size=300)


def opened(folder: Path, **sampling: Any) -> Any:
    """An adapter over programs that choose tokens; ``sampling`` of OnDeviceSamplingConfig."""
    device = OnDeviceSamplingConfig(**sampling)
    return HuggingFaceGenerationAdapter(
        open_application(folder, batch_size=2, on_device_sampling_config=device)
    )


@pytest.fixture(scope="module")
def greedy(folder: Path) -> Any:
    """Programs that take the best token."""
    return opened(folder)


@pytest.fixture(scope="module")
def dynamic(folder: Path) -> Any:
    """Programs that draw by settings of each call."""
    return opened(folder, do_sample=True, dynamic=True)


def test_tokens_of_programs_are_those_of_transformers(folder: Path, greedy: Any):
    assert greedy.on_device_sampling
    reference: Any = open_reference(folder)
    theirs = reference.generate(IDS, **INPUTS)
    assert torch.equal(greedy.generate(IDS, **INPUTS), theirs)
    end = int(theirs[0, 6])
    ended = greedy.generate(IDS, **{**INPUTS, "eos_token_id": end})
    assert (ended[0, 7:] == 3).all()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"repetition_penalty": 1.2}, "RepetitionPenaltyLogitsProcessor needs logits on the host"),
        ({"min_new_tokens": 3, "eos_token_id": 5}, "Min.*LengthLogitsProcessor"),
        ({"output_scores": True, "return_dict_in_generate": True}, "output_scores"),
        ({"output_logits": True, "return_dict_in_generate": True}, "output_logits"),
        ({"do_sample": True}, "take the best token, and this call wants to sample with top_k=50"),
    ],
)
def test_settings_that_programs_lack_are_refused(greedy: Any, options: dict[str, Any], says: str):
    with pytest.raises(GraphgenError, match=says) as caught:
        greedy.generate(IDS, **{**INPUTS, **options})
    assert caught.value.code == "GG0903"
    assert caught.value.help


def test_drawn_tokens_follow_torchs_seed_and_the_settings(dynamic: Any):
    made: list[torch.Tensor] = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        made.append(dynamic.generate(IDS, do_sample=True, temperature=3.0, **INPUTS))
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


def test_rows_have_their_own_settings(dynamic: Any, greedy: Any):
    best = greedy.generate(IDS, **INPUTS)
    assert torch.equal(dynamic.generate(IDS, **INPUTS), best)
    assert torch.equal(dynamic.generate(IDS, do_sample=True, top_k=1, **INPUTS), best)
    params = torch.tensor([[0.0, 1.0, 5.0], [1.0, 1.0, 1.0]])
    torch.manual_seed(0)
    mixed = dynamic.generate(IDS, sampling_params=params, **INPUTS)
    assert torch.equal(mixed[1], best[1])
    assert not torch.equal(mixed[0], best[0])
    same = dynamic.generate(IDS, sampling_params=params[1:], **INPUTS)
    assert torch.equal(same, best)


def test_fixed_settings_must_be_those_of_the_call(folder: Path):
    fixed = opened(folder, do_sample=True, top_k=5, top_p=0.9, temperature=0.7, deterministic=True)
    settings: dict[str, Any] = {"do_sample": True, "top_k": 5, "top_p": 0.9, "temperature": 0.7}
    ids = fixed.generate(IDS, **settings, **INPUTS)
    assert torch.equal(ids, fixed.generate(IDS, **settings, **INPUTS))
    says = "sample with top_k=5, top_p=0.9, temperature=0.7, and this call wants to sample with"
    with pytest.raises(GraphgenError, match=says) as caught:
        fixed.generate(IDS, **{**settings, "top_k": 6}, **INPUTS)
    assert "do_sample=True, top_k=5" in caught.value.help
    reference: Any = open_reference(folder)
    best = reference.generate(IDS, **INPUTS)
    # A call without do_sample takes the best token, whatever the programs draw otherwise.
    assert torch.equal(fixed.generate(IDS, **INPUTS), best)
    mixed = torch.tensor([[1.0, 1.0, 0.0], [5.0, 0.9, 0.7]])
    made = fixed.generate(IDS, **settings, sampling_params=mixed, **INPUTS)
    assert torch.equal(made[0], best[0])
    assert torch.equal(made[1], ids[1])


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.one_in(2)
def test_texts_are_answered_as_by_transformers(folder: Path, tmp_path: Path, side: str):
    from transformers import PreTrainedTokenizerFast

    save_tokenizer(tmp_path)
    tokenizer: Any = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    application = open_application(folder, batch_size=2, padding_side=side)
    prompts = ["the cat sat on", "that"]
    settings: dict[str, Any] = {"max_new_tokens": 5, "eos_token_id": None}
    outputs, texts = get_generate_outputs(application, prompts, tokenizer, **settings)
    _, wanted = get_generate_outputs(
        open_reference(folder), prompts, tokenizer, is_hf=True, pad_token_id=0, **settings
    )
    assert isinstance(outputs, torch.Tensor)
    pad = tokenizer.decode([0])
    assert [text.replace(pad, "") for text in texts] == [text.replace(pad, "") for text in wanted]
    assert tokenizer.pad_token_id is None
    with pytest.raises(GraphgenError, match="need programs that verify tokens"):
        get_generate_outputs(application, prompts, tokenizer, draft_model=application, **settings)


def test_logits_beside_the_tokens_that_programs_choose(folder: Path):
    adapter: Any = HuggingFaceGenerationAdapter(
        open_application(
            folder,
            batch_size=2,
            output_logits=True,
            on_device_sampling_config=OnDeviceSamplingConfig(),
        )
    )
    options: dict[str, Any] = {**INPUTS, "return_dict_in_generate": True, "output_logits": True}
    ours = adapter.generate(IDS, **options)
    reference: Any = open_reference(folder)
    theirs = reference.generate(IDS, **options)
    assert torch.equal(ours.sequences, theirs.sequences)
    assert len(ours.logits) == INPUTS["max_new_tokens"]
    for step, (mine, wanted) in enumerate(zip(ours.logits, theirs.logits, strict=True)):
        assert torch.equal(mine.argmax(-1), ours.sequences[:, IDS.shape[1] + step])
        torch.testing.assert_close(mine, wanted, atol=2e-5, rtol=0)


def test_programs_that_draw_by_settings_of_each_call_draw(dynamic: Any):
    device = dynamic.neuron_config.on_device_sampling_config
    assert (device.do_sample, device.dynamic) == (True, True)
