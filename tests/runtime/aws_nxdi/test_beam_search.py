"""Beam search of the adapter beside that of transformers, on the same small random models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_nxdi.hf_adapter import HuggingFaceGenerationAdapter
from tests.oracles.applications import open_application, open_reference, write_checkpoint
from tests.oracles.family_oracle import ALL_AT_ONCE

PAD = 3
NEW = 8
FAMILIES = ["llama", "mistral", "gpt2"]


def prompts(side: str = "left") -> dict[str, torch.Tensor]:
    """Two prompts of 7 and 3 tokens."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.full((2, 7), PAD)
    mask = torch.zeros_like(ids)
    for row, size in enumerate((7, 3)):
        start = 7 - size if side == "left" else 0
        ids[row, start : start + size] = torch.randint(4, 60, (size,), generator=generator)
        mask[row, start : start + size] = 1
    return {"input_ids": ids, "attention_mask": mask}


def opened(folder: Path, family: str, **options: Any) -> Any:
    """An adapter for eight rows."""
    return HuggingFaceGenerationAdapter(open_application(folder, family, batch_size=8, **options))


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Adapter and transformers' model of a family."""
    family = request.param
    folder = write_checkpoint(tmp_path_factory.mktemp(family), family, ALL_AT_ONCE)
    return opened(folder, family), open_reference(folder)


def both(pair: Any, inputs: dict[str, Any], **options: Any) -> list[Any]:
    """The results of both sides, given the same random numbers."""
    made: list[Any] = []
    for model in pair:
        torch.manual_seed(0)
        made.append(
            model.generate(**inputs, **{"pad_token_id": PAD, "max_new_tokens": NEW, **options})
        )
    return made


@pytest.mark.parametrize("beams", [2, 4])
def test_the_sequences_and_scores_are_those_of_transformers(pair: Any, beams: int):
    options = {"return_dict_in_generate": True, "output_scores": True}
    got, wanted = both(pair, prompts(), num_beams=beams, do_sample=False, **options)
    assert torch.equal(got.sequences, wanted.sequences)
    torch.testing.assert_close(got.sequences_scores, wanted.sequences_scores, atol=1e-4, rtol=0)
    assert torch.equal(got.beam_indices, wanted.beam_indices)
    # Beams were reordered, so that rows of the cache were.
    places = torch.arange(len(got.sequences)) * beams
    assert not torch.equal(got.beam_indices, places[:, None].expand_as(got.beam_indices))


def test_settings_of_beams_and_drawn_beams_are_those_of_transformers(pair: Any):
    options: dict[str, Any] = {"num_beams": 4, "num_return_sequences": 3, "length_penalty": 0.5}
    got, wanted = both(pair, prompts(), do_sample=False, early_stopping=True, **options)
    assert torch.equal(got, wanted)
    got, wanted = both(pair, prompts(), do_sample=False, no_repeat_ngram_size=1, num_beams=3)
    assert torch.equal(got, wanted)
    got, wanted = both(pair, prompts(), do_sample=True, top_k=9, num_beams=2)
    assert torch.equal(got, wanted)
    end = int(both(pair, prompts(), num_beams=2, do_sample=False)[1][0, 9])
    got, wanted = both(pair, prompts(), num_beams=2, do_sample=False, eos_token_id=end)
    assert torch.equal(got, wanted)


def test_right_padding_gives_the_tokens_of_left_padding(pair: Any):
    adapter, _ = pair
    left, right = (
        adapter.generate(**prompts(side), num_beams=2, max_new_tokens=NEW, pad_token_id=PAD)
        for side in ("left", "right")
    )
    assert torch.equal(right[:, 7:], left[:, 7:])
    assert torch.equal(right[:, :7], prompts("right")["input_ids"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [{"tp_degree": 2}, {"is_block_kv_layout": True, "pa_block_size": 8, "pa_num_blocks": 128}],
)
def test_rows_of_other_caches_follow_the_beams(given: dict[str, Any], tmp_path: Path):
    folder = write_checkpoint(tmp_path / "mistral", "mistral", "a window")
    adapter, plain = opened(folder, "mistral", **given), open_reference(folder)
    for beams in (2, 4):
        got, wanted = both((adapter, plain), prompts(), num_beams=beams, do_sample=False)
        assert torch.equal(got, wanted)


def test_what_beams_do_not_build_is_refused(tmp_path: Path):
    folder = write_checkpoint(tmp_path / "llama")
    choosing = opened(folder, "llama", on_device_sampling_config={"do_sample": False})
    with pytest.raises(GraphgenError, match="num_beams needs logits on the host") as caught:
        choosing.generate(**prompts(), num_beams=2, max_new_tokens=2, pad_token_id=PAD)
    assert caught.value.code == "GG0903"
    adapter = opened(folder, "llama")
    with pytest.raises(GraphgenError, match=r"10 sequences \(2 prompts x 5\)"):
        adapter.generate(**prompts(), num_beams=5, max_new_tokens=2, pad_token_id=PAD)
