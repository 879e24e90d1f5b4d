"""transformers' generate over transformers-neuronx's models, beside transformers' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch
from transformers import AutoConfig, GenerationMixin

from graphgen.errors import GraphgenError
from graphgen.runtime.aws import tnx
from graphgen.runtime.aws_tnx.tnx_model import TnxModel
from tests.oracles.families import ORACLES, save

PAD = 2
Pair = tuple[Any, Any, Path]


def loaded(folder: Path, **options: Any) -> TnxModel:
    model = tnx.GPT2ForSamplingWithContextBroadcasting.from_pretrained(
        folder, batch_size=3, n_positions=32, tp_degree=1, **options
    )
    model.to_neuron()
    return model


def opened(folder: Path, **options: Any) -> Any:
    return adapted(folder, loaded(folder, **options))


def adapted(folder: Path, model: TnxModel) -> Any:
    return tnx.HuggingFaceGenerationModelAdapter(AutoConfig.from_pretrained(folder), model)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """The adapter, transformers' model, and the checkpoint."""
    folder = tmp_path_factory.mktemp("gpt2")
    reference = ORACLES["gpt2"].model(eos_token_id=PAD)
    save(reference, folder)
    return opened(folder), reference, folder


def padded(side: str = "left") -> dict[str, torch.Tensor]:
    """Prompts of 7, 4 and 20 tokens."""
    generator = torch.Generator().manual_seed(0)
    ids, mask = torch.full((3, 20), PAD), torch.zeros(3, 20, dtype=torch.long)
    for row, size in enumerate((7, 4, 20)):
        start = 20 - size if side == "left" else 0
        ids[row, start : start + size] = torch.randint(3, 60, (size,), generator=generator)
        mask[row, start : start + size] = 1
    return {"input_ids": ids, "attention_mask": mask}


def test_the_adapter_is_a_model_of_transformers_that_generates(pair: Pair):
    assert isinstance(pair[0], GenerationMixin)


def test_greedy_tokens_of_padded_prompts(pair: Pair):
    # One prompt is longer than the largest bucket of prompts.
    adapter, reference, _ = pair
    adapter.reset_generation()
    options: dict[str, Any] = {"max_length": 28, "do_sample": False, "pad_token_id": PAD}
    got = adapter.generate(**padded(), **options)
    assert torch.equal(got, reference.generate(**padded(), **options))
    right = adapter.generate(**padded("right"), **options)
    assert torch.equal(right[:, 20:], got[:, 20:])


def test_drawn_tokens_with_the_same_random_numbers(pair: Pair):
    results: list[torch.Tensor] = []
    for model in pair[:2]:
        torch.manual_seed(7)
        results.append(
            model.generate(
                **padded(), do_sample=True, max_length=28, temperature=0.7, pad_token_id=PAD
            )
        )
    assert torch.equal(*results)


def test_several_sequences_of_one_prompt(pair: Pair):
    adapter, reference, _ = pair
    ids = padded()["input_ids"][2:, :6]
    options: dict[str, Any] = {"num_return_sequences": 3, "do_sample": True, "max_length": 16}
    results: list[torch.Tensor] = []
    for model in (adapter, reference):
        torch.manual_seed(7)
        results.append(model.generate(ids, **options, pad_token_id=PAD))
    assert torch.equal(*results)
    with pytest.raises(GraphgenError, match="4 sequences") as raised:
        adapter.generate(ids, **{**options, "num_return_sequences": 4})
    assert (raised.value.code, "batch_size=4" in raised.value.help) == ("GG0705", True)


def test_beams_of_transformers(pair: Pair):
    options: dict[str, Any] = {"num_beams": 3, "max_length": 28, "pad_token_id": PAD}
    ids = padded()["input_ids"][2:, :6]
    got, wanted = (model.generate(ids, **options) for model in pair[:2])
    assert torch.equal(got, wanted)


def test_other_objects_are_refused(pair: Pair):
    adapter, _, _ = pair
    with pytest.raises(GraphgenError, match="have no adapters") as raised:
        adapter.generate(padded()["input_ids"][:1], adapter_ids=[0], max_new_tokens=2)
    assert raised.value.code == "GG0904"
    with pytest.raises(GraphgenError, match="got a Linear"):
        tnx.HuggingFaceGenerationModelAdapter(adapter.config, cast(TnxModel, torch.nn.Linear(1, 1)))


@pytest.mark.parametrize("dynamic", [False, True])
def test_programs_that_choose_tokens(pair: Pair, dynamic: bool):
    _, reference, folder = pair
    generation = tnx.GenerationConfig(do_sample=dynamic, dynamic=dynamic, top_k=5)
    adapter = opened(folder, neuron_config=tnx.NeuronConfig(on_device_generation=generation))
    options: dict[str, Any] = {"max_length": 28, "pad_token_id": PAD}
    best = reference.generate(**padded(), **options, do_sample=False)
    assert torch.equal(adapter.generate(**padded(), **options, do_sample=False), best)
    if not dynamic:
        with pytest.raises(GraphgenError):
            adapter.generate(**padded(), **options, do_sample=True, top_k=5)
        return
    drawn = adapter.generate(**padded(), **options, do_sample=True, top_k=2)
    assert drawn.shape == best.shape
    assert not torch.equal(drawn, best)


def test_programs_keep_at_least_as_many_tokens_as_the_model_says(pair: Pair):
    _, reference, folder = pair
    generation = tnx.GenerationConfig(do_sample=True, dynamic=True, top_p_min_tokens=1)
    model = loaded(folder, neuron_config=tnx.NeuronConfig(on_device_generation=generation))
    adapter = adapted(folder, model)
    options: dict[str, Any] = {"max_length": 24, "pad_token_id": PAD}
    best = reference.generate(**padded(), **options, do_sample=False)
    options |= {"do_sample": True, "top_k": 5, "top_p": 1e-3, "temperature": 10.0}
    assert torch.equal(adapter.generate(**padded(), **options), best)
    generation.top_p_min_tokens = 3
    model.update_generation_config(generation)
    torch.manual_seed(7)
    assert not torch.equal(adapter.generate(**padded(), **options), best)
