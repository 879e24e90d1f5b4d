"""AWS's chain of a quantized checkpoint: each step by its name, and each overridden."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from graphgen.errors import GraphgenError
from graphgen.runtime.aws.nxdi import NeuronLlamaForCausalLM
from tests.runtime.aws_nxdi.conftest import Checkpoint

DOWN = "model.layers.0.mlp.down_proj"


def config(llama: Checkpoint, folder: Path | None, **given: Any) -> Any:
    path = None if folder is None else str(folder)
    settings: dict[str, Any] = {"quantized": folder is not None, **given}
    if path is not None:
        settings["quantized_checkpoints_path"] = path
    return llama.config(seq_len=32, **settings)


@pytest.mark.parametrize("scheme", ["per_tensor_symmetric", "per_channel_symmetric"])
def test_what_is_saved_is_what_is_generated(llama: Checkpoint, tmp_path: Path, scheme: str):
    settings = config(llama, tmp_path / "q", quantization_type=scheme)
    state: Any = NeuronLlamaForCausalLM.generate_quantized_state_dict(str(llama.path), settings)
    NeuronLlamaForCausalLM.save_quantized_state_dict(str(llama.path), settings)
    saved = load_file(tmp_path / "q" / "model.safetensors")
    assert saved.keys() == state.keys()
    for name, tensor in saved.items():
        np.testing.assert_array_equal(np.asarray(state[name]), tensor.numpy())
    values, scale = saved[f"{DOWN}.weight"], saved[f"{DOWN}.scale"]
    assert values.dtype == torch.int8
    assert scale.dtype == torch.float32
    several = scheme == "per_channel_symmetric"
    assert tuple(scale.shape) == ((len(values), 1) if several else (1,))
    assert (tmp_path / "q" / "config.json").exists()
    with pytest.raises(GraphgenError, match="is there already"):
        NeuronLlamaForCausalLM.save_quantized_state_dict(str(llama.path), settings)


def test_a_subclass_takes_part(llama: Checkpoint, tmp_path: Path):
    class Own(NeuronLlamaForCausalLM):
        @classmethod
        def prepare_quantized_state_dict(cls, hf_model_quant: object) -> dict[str, object]:
            state = super().prepare_quantized_state_dict(hf_model_quant)
            return {**state, "extra": np.arange(3, dtype=np.float32)}

    Own.save_quantized_state_dict(str(llama.path), config(llama, tmp_path / "q"))
    saved = load_file(tmp_path / "q" / "model.safetensors")
    assert saved["extra"].tolist() == [0, 1, 2]
    assert saved[f"{DOWN}.weight"].dtype == torch.int8


@pytest.fixture
def torch_warns_each_time() -> Iterator[None]:
    """By default torch warns once a process, and another test may have met the warning before."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


@pytest.mark.usefixtures("torch_warns_each_time")
def test_torchs_own_quantized_tensors_become_int8():
    class Model:
        def state_dict(self) -> dict[str, object]:
            with pytest.warns(UserWarning, match="deprecated"):
                made = torch.quantize_per_tensor(torch.tensor([[0.5, -1.0]]), 0.25, 0, torch.qint8)
            return {"a.weight": made, "norm.weight": torch.ones(2)}

    state: Any = NeuronLlamaForCausalLM.prepare_quantized_state_dict(Model())
    assert state["a.weight"].tolist() == [[2, -4]]
    assert state["a.weight"].dtype == torch.int8
    assert state["a.scale"].tolist() == [0.25]
    assert state["norm.weight"].tolist() == [1, 1]


def test_a_path_is_needed(llama: Checkpoint):
    with pytest.raises(GraphgenError, match="has no quantized_checkpoints_path") as caught:
        NeuronLlamaForCausalLM.save_quantized_state_dict(str(llama.path), config(llama, None))
    assert caught.value.code == "GG0908"


@pytest.mark.parametrize(
    ("dtype", "scheme"),
    [("int8", "per_channel_symmetric"), ("f8e4m3", "per_tensor_symmetric")],
)
def test_what_was_saved_is_compiled_and_loaded(
    llama: Checkpoint, tmp_path: Path, dtype: str, scheme: str
):
    """The library's example: save, compile, load; the numbers are those quantized while loading."""
    kinds: dict[str, Any] = {"quantization_dtype": dtype, "quantization_type": scheme}
    kinds["save_sharded_checkpoint"] = True
    tokens = np.array([[1, 5, 9], [2, 6, 7], [3, 4, 8]])
    answers: list[Any] = []
    for saves in (False, True):
        settings = config(llama, tmp_path / "q", output_logits=True, **kinds)
        if saves:
            NeuronLlamaForCausalLM.save_quantized_state_dict(str(llama.path), settings)
        folder = tmp_path / f"compiled{saves}"
        NeuronLlamaForCausalLM(llama.path, settings).compile(folder)
        # A compiled folder is whole without the checkpoint that it was made from.
        shutil.rmtree(tmp_path / "q", ignore_errors=True)
        application: Any = NeuronLlamaForCausalLM(folder)
        application.load(folder)
        answers.append(np.asarray(application.forward(tokens).logits))
    np.testing.assert_allclose(answers[1], answers[0], atol=2e-4 * np.abs(answers[0]).max())


def test_another_form_than_the_configurations_is_refused(llama: Checkpoint, tmp_path: Path):
    NeuronLlamaForCausalLM.save_quantized_state_dict(str(llama.path), config(llama, tmp_path / "q"))
    other = config(llama, tmp_path / "q", quantization_dtype="f8e4m3")
    with pytest.raises(GraphgenError, match="at quantized_checkpoints_path has int8") as caught:
        NeuronLlamaForCausalLM(llama.path, other).compile_config()
    assert caught.value.code == "GG0903"
    dense = config(llama, llama.path)
    with pytest.raises(GraphgenError, match="the checkpoint there is not quantized"):
        NeuronLlamaForCausalLM(llama.path, dense).compile_config()


@pytest.mark.parametrize("file", ["folder", "x.pt", "x.bin", "weights", "x.safetensors"])
@pytest.mark.parametrize(
    "scheme", [{}, {"quantization_type": "per_channel_symmetric", "quantization_dtype": "f8e4m3"}]
)
def test_a_quantized_checkpoint_needs_no_configuration(
    llama: Checkpoint, tmp_path: Path, file: str, scheme: dict[str, str]
):
    """NxD Inference writes model.safetensors alone, or one pickle of any name."""
    whole = config(llama, tmp_path / "whole", **scheme)
    NeuronLlamaForCausalLM.save_quantized_state_dict(str(llama.path), whole)
    state = load_file(tmp_path / "whole" / "model.safetensors")
    path = tmp_path / file
    if file == "folder":
        path.mkdir()
        shutil.copy(tmp_path / "whole" / "model.safetensors", path)
    elif file == "x.safetensors":
        shutil.copy(tmp_path / "whole" / "model.safetensors", path)
    else:
        plain = file == "x.bin"
        torch.save({k.removeprefix("model.") if plain else k: v for k, v in state.items()}, path)
    models = [
        NeuronLlamaForCausalLM(str(llama.path), config(llama, place, **scheme))
        for place in (tmp_path / "whole", path)
    ]
    wanted, found = (model.checkpoint(model.build().module) for model in models)
    assert found.tensors().keys() == wanted.tensors().keys()
    for name in wanted.tensors():
        np.testing.assert_array_equal(
            np.asarray(found.read(name)).view(np.uint8),
            np.asarray(wanted.read(name)).view(np.uint8),
        )


def test_a_folder_compiled_of_a_bare_checkpoint_has_the_models_tokenizer(
    llama: Checkpoint, tmp_path: Path
):
    whole = config(llama, tmp_path / "whole")
    NeuronLlamaForCausalLM.save_quantized_state_dict(str(llama.path), whole)
    (tmp_path / "bare").mkdir()
    shutil.copy(tmp_path / "whole" / "model.safetensors", tmp_path / "bare")
    made = NeuronLlamaForCausalLM(str(llama.path), config(llama, tmp_path / "bare"))
    made.compile(tmp_path / "compiled")
    assert (tmp_path / "compiled" / "tokenizer.json").is_file()
