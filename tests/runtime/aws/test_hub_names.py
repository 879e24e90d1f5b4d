"""Names of the hub in AWS's interfaces, with an organization and without."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.aws.nxdi import (
    LlamaInferenceConfig,
    NeuronConfig,
    NeuronLlamaForCausalLM,
    load_pretrained_config,
)
from graphgen.runtime.aws.tnx import GPT2ForSampling
from tests.oracles.families import ORACLES, save
from tests.oracles.hub import FakeHub

FILES = ["config.json", "generation_config.json", "model.safetensors"]


def hub_of(
    family: str, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[FakeHub, int]:
    """A hub with a small random model, and the model's width."""
    model = ORACLES[family].model()
    save(model, folder / "remote")
    (folder / "cache").mkdir()
    hub = FakeHub(folder / "remote", folder / "cache", name=name)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)  # pyright: ignore[reportArgumentType]
    monkeypatch.chdir(folder)
    return hub, int(model.config.hidden_size)


@pytest.mark.parametrize("name", ["tiny-llama", "acme/tiny-llama"])
def test_nxd_inference_downloads(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    hub, width = hub_of("llama", name, tmp_path, monkeypatch)
    config = LlamaInferenceConfig(NeuronConfig(), load_config=load_pretrained_config(name))
    assert config.hidden_size == width
    assert hub.fetched == FILES[:2]
    application = NeuronLlamaForCausalLM(name, config)
    assert "embed_tokens.weight" in application.get_state_dict(name, config)
    assert hub.fetched[2:] == FILES


def test_transformers_neuronx_downloads_a_name_that_is_a_shape_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    hub, width = hub_of("gpt2", "gpt2", tmp_path, monkeypatch)
    model = GPT2ForSampling.from_pretrained("gpt2")
    assert model.config["n_embd"] == width
    assert hub.fetched == FILES


def test_without_the_package_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for use in (
        lambda: GPT2ForSampling.from_pretrained("gpt2"),
        lambda: LlamaInferenceConfig(
            NeuronConfig(), load_config=load_pretrained_config("tiny-llama")
        ),
    ):
        with pytest.raises(GraphgenError, match="downloading it needs huggingface_hub") as error:
            use()
        assert error.value.code == "GG0601"
        assert "pip install huggingface_hub" in error.value.help
