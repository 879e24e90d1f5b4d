"""Applications as folders: compile, load, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime import executable_cache
from graphgen.runtime.aws.application.model_classes import (
    NeuronLlamaForCausalLM,
    NeuronMistralForCausalLM,
)
from graphgen.runtime.aws.config.neuron_config import NeuronConfig
from tests.runtime.aws.application.conftest import Checkpoint

IDS = np.array([[5, 6, 7]])


def no_compilation(*_: object) -> None:
    raise AssertionError("a program was compiled")


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_the_folder_has_aws_s_files_and_an_artifact(compiled: Path):
    names = {str(path.relative_to(compiled)) for path in compiled.rglob("*") if path.is_file()}
    assert {
        "neuron_config.json",
        "weights/tp0_sharded_checkpoint.safetensors",
        "tokenizer.json",
        "manifest.json",
        "module.gg",
    } <= names
    assert json.loads((compiled / "neuron_config.json").read_text())["model_type"] == "llama"


def test_load_compiles_nothing(llama: Checkpoint, compiled: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(executable_cache, "compile_program", no_compilation)
    application = NeuronLlamaForCausalLM(compiled)
    assert not application.is_compiled
    application.load(compiled)
    assert application.is_compiled
    assert application.is_loaded_to_neuron
    logits = application.forward(input_ids=IDS).logits
    np.testing.assert_allclose(logits[0, 0], llama.logits([5, 6, 7]), atol=2e-5)


def test_a_second_compilation_uses_the_programs_of_the_first(
    llama: Checkpoint, compiled: Path, monkeypatch: pytest.MonkeyPatch
):
    (compiled / "notes.txt").write_text("of the user")
    before = snapshot(compiled)
    monkeypatch.setattr(executable_cache, "compile_program", no_compilation)
    NeuronLlamaForCausalLM(llama.path, llama.config()).compile(compiled)
    after = snapshot(compiled)
    assert after.keys() == before.keys()
    changed = {name for name in before if before[name] != after[name]}
    # Seconds of passes are in the manifest.
    assert changed <= {"manifest.json"}


def test_a_compilation_that_fails_leaves_the_folder_as_it_was(
    llama: Checkpoint, compiled: Path, monkeypatch: pytest.MonkeyPatch
):
    before = snapshot(compiled)
    monkeypatch.setattr(executable_cache, "compile_program", no_compilation)
    with pytest.raises(AssertionError, match="a program was compiled"):
        NeuronLlamaForCausalLM(llama.path, llama.config(batch_size=2)).compile(compiled)
    assert snapshot(compiled) == before
    assert [path.name for path in compiled.parent.iterdir()] == [compiled.name]


def test_a_folder_of_another_configuration_is_refused(llama: Checkpoint, compiled: Path):
    application = NeuronLlamaForCausalLM(llama.path, llama.config(batch_size=2))
    with pytest.raises(GraphgenError, match="was compiled for batch 3") as error:
        application.load(compiled)
    assert error.value.code == "GG0703"


def test_a_folder_without_programs_is_refused(llama: Checkpoint, tmp_path: Path):
    application = NeuronLlamaForCausalLM(llama.path, llama.config())
    with pytest.raises(GraphgenError, match="is no compiled model") as error:
        application.load(tmp_path)
    assert error.value.code == "GG0908"


def test_a_model_of_another_family_is_refused(llama: Checkpoint):
    with pytest.raises(GraphgenError, match="runs model_type 'mistral', this is 'llama'") as error:
        NeuronMistralForCausalLM(llama.path, llama.config())
    assert error.value.code == "GG0902"


def test_a_configuration_has_to_come_from_somewhere(llama: Checkpoint):
    with pytest.raises(GraphgenError, match="no configuration is given") as error:
        NeuronLlamaForCausalLM(llama.path)
    assert error.value.code == "GG0908"
    made = NeuronLlamaForCausalLM(llama.path, neuron_config=NeuronConfig(batch_size=2))
    assert made.config.hidden_size == 32
    assert made.neuron_config.value("batch_size") == 2


def test_models_are_the_sub_models_with_their_buckets(llama: Checkpoint):
    config = llama.config(seq_len=256, max_context_length=128, enable_bucketing=True)
    models = NeuronLlamaForCausalLM(llama.path, config).models
    assert [(model.tag, [*model.buckets]) for model in models] == [
        ("context_encoding_model", [128]),
        ("token_generation_model", [128, 256]),
    ]
    shapes = [[tuple(array.shape) for array in arrays] for arrays in models[1].input_generator()]
    assert shapes == [
        [(3, 1), (3, 128), (3, 1), (3,), (3, 3)],
        [(3, 1), (3, 256), (3, 1), (3,), (3, 3)],
    ]
    one = NeuronLlamaForCausalLM(llama.path, llama.config(seq_len=256)).models
    assert [[*model.buckets] for model in one] == [[256], [256]]


def test_notes_are_printed_once(llama: Checkpoint, capsys: pytest.CaptureFixture[str]):
    config = llama.config(mlp_kernel_enabled=True, torch_dtype="bfloat16")
    application = NeuronLlamaForCausalLM(llama.path, config)
    application.build()
    application.build()
    err = capsys.readouterr().err
    assert err.count("note: NeuronConfig.mlp_kernel_enabled = True has no effect") == 1
