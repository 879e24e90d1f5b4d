"""``graphgen config``: a file of AWS's, its attributes, their origin and effect, and the passes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.graphgen.cli.conftest import done, error, facts, graphgen


def written(folder: Path, **values: object) -> Path:
    """A file as compile writes it."""
    path = folder / "neuron_config.json"
    path.write_text(json.dumps({"model_type": "llama", "neuron_config": values}), encoding="utf-8")
    return path


def test_each_attribute_with_its_origin_and_effect(tmp_path: Path):
    path = written(tmp_path, seq_len=256, tp_degree=2, on_device_sampling_config={"top_k": 5})
    shown = facts("config", path)
    by_name = {row["name"]: row for row in shown["attributes"]}
    assert set(by_name) >= {"batch_size", "seq_len", "on_device_sampling_config.top_k"}
    assert by_name["seq_len"] == {
        "name": "seq_len",
        "value": 256,
        "from": "file",
        "effect": "compile setting slots",
    }
    assert by_name["max_length"]["from"] == "derived: seq_len"
    assert by_name["batch_size"]["from"] == "default"
    assert by_name["on_device_sampling_config.do_sample"]["value"] is True
    assert by_name["quantize_clamp_bound"]["value"] == "inf"
    assert by_name["lora_config"]["effect"].startswith("at run time: ")
    assert by_name["tensor_capture_config"]["effect"] == "off"
    assert (shown["class"], shown["target"], shown["errors"]) == ("NeuronConfig", "cpu", [])
    passes = [row["pass"] for row in shown["pipeline"]]
    assert passes[0] == "on-device-sampling{do_sample=true}"
    assert any(name.startswith("partition{") for name in passes)


def test_a_folder_of_a_compiled_model_is_read(tmp_path: Path):
    written(tmp_path, tp_degree=4)
    text = done("config", tmp_path).stdout
    assert "tp_degree" in text
    assert "specialize{" in text


def test_the_effect_is_that_of_the_target(tmp_path: Path):
    path = written(tmp_path, cc_pipeline_tiling_factor=4, logical_nc_config=2)
    cpu = {row["name"]: row["effect"] for row in facts("config", path)["attributes"]}
    shown = facts("config", path, "--target", "trn2")
    trn2 = {row["name"]: row["effect"] for row in shown["attributes"]}
    assert cpu["logical_nc_config"] == "no effect: the CPU has no logical cores"
    assert trn2["logical_nc_config"] == "neuronx-cc --lnc"
    assert "--lnc=2" in shown["compiler_arguments"]["token_generation_model"]


def test_errors_are_shown_after_all_that_could_be_read(tmp_path: Path):
    path = written(tmp_path, seq_len=64, sequence_paralel=True, padded_hidden_size=64)
    result = graphgen("config", path)
    assert result.exit_code == 1
    assert "seq_len" in result.stdout
    assert "did you mean sequence_parallel_enabled" in result.stderr
    assert "a padded hidden size is not built yet" in result.stderr
    assert "specialize" not in result.stdout


def test_a_quantized_checkpoint_that_cannot_be_read_is_refused(tmp_path: Path):
    path = written(tmp_path, quantized=True, quantized_checkpoints_path=str(tmp_path / "new"))
    assert facts("config", path)["notes"] == []
    path = written(tmp_path, quantized=True, quantized_checkpoints_path=str(tmp_path))
    refused = graphgen("config", path)
    assert refused.exit_code == 1
    assert "error[GG0601]" in refused.stderr


def test_a_refusal_of_a_target_is_an_error_for_it_alone(tmp_path: Path):
    path = written(tmp_path, kv_cache_tiling=True)
    result = done("config", path)
    assert "note: NeuronConfig.kv_cache_tiling = True has no effect" in result.stderr
    result = graphgen("config", path, "--target", "trn2")
    assert result.exit_code == 1
    assert "tiled caches is not built yet for trn2" in result.stderr


def test_a_kernel_without_an_artifact_is_noted_for_a_target(tmp_path: Path):
    path = written(tmp_path, attn_kernel_enabled=True)
    result = done("config", path, "--target", "trn2")
    assert "attention_isa_kernel exists in NKI alone, and no artifact of" in result.stderr


def test_attributes_without_the_rest_of_the_file_are_read_too(tmp_path: Path):
    path = tmp_path / "override.json"
    path.write_text('{"enable-bucketing": true}', encoding="utf-8")
    rows = {row["name"]: row["value"] for row in facts("config", path)["attributes"]}
    assert rows["enable_bucketing"] is True


def test_names_of_experts_choose_their_class(tmp_path: Path):
    path = written(tmp_path, moe_tp_degree=1)
    assert facts("config", path)["class"] == "MoENeuronConfig"


def test_the_variable_is_the_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "1")
    path = written(tmp_path, logical_nc_config=2)
    shown = facts("config", path)
    row = next(row for row in shown["attributes"] if row["name"] == "logical_nc_config")
    assert (row["value"], row["from"]) == (1, "NEURON_LOGICAL_NC_CONFIG")
    assert any("replaces NeuronConfig.logical_nc_config = 2" in text for text in shown["notes"])


def test_the_list_has_every_attribute():
    rows = facts("config", "--list")
    assert {row["class"] for row in rows} >= {"NeuronConfig", "OnDeviceSamplingConfig"}
    names = {row["attribute"] for row in rows if row["class"] == "NeuronConfig"}
    assert len(names) > 120
    text = done("config", "--list", "--class", "OnDeviceSamplingConfig").stdout
    assert "OnDeviceSamplingConfig.global_topk" in text
    assert "NeuronConfig.tp_degree" not in text


@pytest.mark.parametrize(
    ("content", "what"),
    [("{", "not valid JSON"), ("3", "not a JSON object"), ('{"neuron_config": 3}', "is int")],
)
def test_other_files_are_refused(tmp_path: Path, content: str, what: str):
    path = tmp_path / "a.json"
    path.write_text(content, encoding="utf-8")
    assert what in error("config", path)


def test_mistakes_of_the_command_line(tmp_path: Path):
    assert "cannot read the configuration" in error("config", tmp_path / "none.json")
    path = written(tmp_path)
    assert "unknown target" in error("config", path, "--target", "tpu")
    assert "--class Nothing is unknown" in error("config", "--list", "--class", "Nothing")
    assert graphgen("config").exit_code == 2
    assert graphgen("config", path, "--list").exit_code == 2
