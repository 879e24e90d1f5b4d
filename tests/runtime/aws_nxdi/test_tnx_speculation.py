"""transformers-neuronx's SpeculativeGenerator against the target alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from graphgen.errors import GraphgenError
from graphgen.runtime.aws import tnx
from tests.oracles.applications import open_reference, write_checkpoint

LENGTH, NEW_LENGTH = 4, 30
WIDE: dict[str, Any] = {"initializer_range": 0.3, "max_position_embeddings": 64}


def opened(folder: Path, verifies: int = 0, **options: Any) -> Any:
    given = {"batch_size": 3, "n_positions": 32, "tp_degree": 1, **options}
    model = tnx.LlamaForSampling.from_pretrained(folder, **given)
    if verifies:
        model.enable_speculative_decoder(verifies)
    model.to_neuron()
    return model


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The checkpoints of a target, and of a draft with one layer."""
    target = write_checkpoint(tmp_path_factory.mktemp("target"), **WIDE)
    draft = write_checkpoint(tmp_path_factory.mktemp("draft"), num_hidden_layers=1, **WIDE)
    return target, draft


@pytest.fixture(scope="module")
def models(folders: tuple[Path, Path]) -> tuple[Any, Any]:
    """A draft and a target."""
    return opened(folders[1]), opened(folders[0], LENGTH)


def prompts(rows: int) -> torch.Tensor:
    return torch.randint(3, 60, (rows, 6), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("k", [2, LENGTH])
def test_the_best_tokens_are_those_of_transformers(
    models: tuple[Any, Any], folders: tuple[Path, Path], rows: int, k: int
):
    reference: Any = open_reference(folders[0])
    ids = prompts(rows)
    wanted = reference.generate(ids, max_length=NEW_LENGTH, eos_token_id=None, do_sample=False)
    generator = tnx.SpeculativeGenerator(*models, k)
    for _ in range(2):
        made = generator.sample(ids, NEW_LENGTH, top_k=1, eos_token_override=-1)
        assert torch.equal(made, wanted)


def test_padded_prompts_and_an_end_inside_a_step(models: tuple[Any, Any]):
    ids, starts = prompts(3), [0, 2, 5]
    generator = tnx.SpeculativeGenerator(*models, LENGTH)
    for place in range(7, 11):
        free = models[1].sample(ids, NEW_LENGTH, starts, top_k=1, eos_token_override=-1)
        end = int(free[0, place])
        wanted = models[1].sample(ids, NEW_LENGTH, starts, top_k=1, eos_token_override=end)
        made = generator.sample(ids, NEW_LENGTH, starts, top_k=1, eos_token_override=end)
        assert torch.equal(made, wanted)


def test_drawn_tokens_follow_torchs_seed(models: tuple[Any, Any]):
    generator = tnx.SpeculativeGenerator(*models, LENGTH)
    made: list[torch.Tensor] = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        made.append(generator.sample(prompts(3), NEW_LENGTH, eos_token_override=-1))
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])
    assert torch.equal(generator.sample(prompts(3), 6), prompts(3))


def refused(code: str, call: Callable[..., object], *arguments: Any, **options: Any) -> str:
    with pytest.raises(GraphgenError) as raised:
        call(*arguments, **options)
    assert raised.value.code == code, raised.value
    return f"{raised.value} {raised.value.help}"


def test_what_cannot_be_is_refused(models: tuple[Any, Any], folders: tuple[Path, Path]):
    draft, target = models
    build = tnx.SpeculativeGenerator
    assert "enable_speculative_decoder(5)" in refused("GG0903", build, draft, target, 5)
    assert "one model" in refused("GG0903", build, target, target, 4)
    assert "acceptor" in refused("GG0904", build, draft, target, 4, acceptor=object())
    assert "verifies 0 tokens" in refused("GG0903", build, target, draft, 2)
    fresh = tnx.LlamaForSampling.from_pretrained(folders[0], n_positions=32, tp_degree=1)
    assert "to_neuron" in refused("GG0908", build, fresh, target, 4)
    assert "2 to 32" in refused("GG0903", fresh.enable_speculative_decoder, 1)
    fresh.enable_speculative_decoder([2, 3])
    assert fresh.settings.speculation_length == 3
    generator = build(opened(folders[1], batch_size=1), target, 4)
    assert "compiled for 1" in refused("GG0705", generator.sample, prompts(3), 20)
    assert "streamer" in refused("GG0901", generator.sample, prompts(3), 20, streamer=None)
