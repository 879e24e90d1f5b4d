"""``graphgen build``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphgen.ir import Module, Role
from graphgen.ir import dtype as element
from graphgen.models import build, known_shape
from graphgen.ops import verify
from graphgen.text import parse, print_module
from tests.graphgen.cli.conftest import done, error, facts
from tests.oracles.small_gguf import HIDDEN, LAYERS, write_small_model
from tests.runtime.checkpoint.test_quantized_checkpoints import write as write_quantized


def built(*arguments: object) -> Module:
    module = parse(done("build", *arguments).stdout)
    verify(module)
    return module


def config(**changes: object) -> dict[str, object]:
    return {**known_shape("smollm2-135m"), "num_hidden_layers": 1, "vocab_size": 77, **changes}


def test_a_known_shape_is_what_the_library_builds():
    text = done("build", "llama-3.1-8b", "--mini", "--dtype", "f16").stdout
    # The line in the user's code differs, everything else is the same.
    wanted = build(known_shape("llama-3.1-8b"), element("f16"), mini=True)
    assert print_module(parse(text), locs=False) == print_module(wanted, locs=False)


def test_smollm2_is_the_packaged_checkpoint():
    module = built("smollm2", "--phase", "decode")
    assert [function.name for function in module.functions.values()] == ["decode"]
    assert json.loads(module.meta["config"])["num_hidden_layers"] == 30
    assert module.meta["dtype"] == "bf16"


@pytest.mark.parametrize("bare", [False, True])
def test_a_folder_or_a_bare_config(tmp_path: Path, bare: bool):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config()))
    module = built(path if bare else tmp_path)
    assert module.interface["model.embed_tokens.weight"].logical.text == "bf16[77,576]"


def test_a_gguf_file(tmp_path: Path):
    path = tmp_path / "small.gguf"
    write_small_model(path)
    module = built(path, "--dtype", "f32")
    assert len(module.entries(Role.STATE)) == 2 * LAYERS
    assert module.interface["model.norm.weight"].logical.text == f"f32[{HIDDEN}]"


def test_a_path_comes_before_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("smollm2").mkdir()
    Path("smollm2/config.json").write_text(json.dumps(config()))
    assert json.loads(built("smollm2").meta["config"])["vocab_size"] == 77


@pytest.mark.parametrize("phases", [["prefill"], ["decode"], ["prefill", "decode"]])
def test_phases(phases: list[str]):
    options = ["--phase", phases[0]] if len(phases) == 1 else []
    module = built("llama-3.1-8b", "--mini", *options)
    assert [program.phase for program in module.programs()] == phases


def test_split_over_ranks():
    module = built("llama-3.1-8b", "--mini", "--tp", 2)
    assert (module.level, module.mesh) == ("sharded", {"tp": 2})
    row = module.interface["model.layers.0.self_attn.k_cache"]
    assert (row.logical.text, row.physical.text) == ("bf16[R,M,2,8]", "bf16[R,M,1,8]")
    names = {op.name for op in module.function("prefill").ops}
    assert "all_reduce" in names
    assert "dynamic_slice" not in names, "weights are cut in @weights.rank"
    assert any(op.name == "dynamic_slice" for op in module.function("weights.rank").ops)


@pytest.mark.parametrize(
    ("options", "physical"),
    [
        ((), "f8e4m3[R,M,2,8]"),
        (("--kv-cache-dtype", "int8"), "u8[R,M,2,12]"),
        (("--kv-cache-dtype", "f8e5m2", "--tp", 2), "f8e5m2[R,M,1,8]"),
    ],
)
def test_caches_in_8_bits(options: tuple[object, ...], physical: str):
    module = built("llama-3.1-8b", "--mini", "--kv-cache-quant", *options)
    row = module.interface["model.layers.1.self_attn.v_cache"]
    assert (row.logical.text, row.physical.text) == ("bf16[R,M,2,8]", physical)
    refused = error("build", "llama-3.1-8b", "--mini", "--kv-cache-scale", "per_key")
    assert "GG0705" in refused
    assert "--kv-cache-quant" in refused


def test_what_was_written(tmp_path: Path):
    path = tmp_path / "m.gg"
    said = facts("build", "llama-3.1-8b", "--mini", "-o", path)
    module = parse(path.read_text())
    assert said["file"] == str(path)
    assert (said["module"], said["level"], said["mesh"]) == ("llama", "logical", {})
    assert [(f["name"], f["ops"]) for f in said["functions"]] == [
        (function.name, function.block.size) for function in module.functions.values()
    ]
    result = done("build", "llama-3.1-8b", "--mini", "-o", path)
    assert result.stdout == ""
    assert result.stderr == (
        f"note: wrote {path}: @prefill, @decode, {module.op_count()} ops, level logical\n"
    )


def test_unknown_name():
    assert error("build", "llama-3.1-9b") == (
        "error[GG0504]: unknown model 'llama-3.1-9b'\n"
        "  help: did you mean llama-3.1-8b or llama-3.1-70b? (or smollm2, ORGANIZATION/NAME of the "
        "hub, or a path: a checkpoint folder, a config.json, a .gguf file)\n"
    )
    assert "graphgen models lists the known names" in error("build", "nothing-like-it")


@pytest.mark.parametrize(
    ("name", "code"),
    [("missing/folder", "GG0601"), ("missing.json", "GG0601"), ("missing.gguf", "GG0601")],
)
def test_missing_paths(name: str, code: str):
    assert error("build", name).startswith(f"error[{code}]: ")


def test_bad_configurations(tmp_path: Path):
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama",\n "hidden_size": }')
    assert f"--> {path}:2:17" in error("build", path)
    path.write_text(json.dumps(config(model_type="elephant")))
    assert error("build", tmp_path).startswith("error[GG0501]: ")
    path.write_text(json.dumps(config(hidden_act="prelu")))
    assert error("build", tmp_path).startswith("error[GG0502]: ")


def test_a_degree_that_divides_nothing_is_served(tmp_path: Path):
    # 9 and 3 heads, 1536 features, 49152 tokens.
    path = tmp_path / "m.gg"
    done("build", "smollm2-135m", "--tp", 5, "-o", path)
    module = parse(path.read_text())
    assert module.ranks == 5
    types = {row.name: row.physical.dims for row in module.entries(Role.PARAM)}
    assert types["model.embed_tokens.weight.prepared"] == (9831, 576)
    assert types["model.layers.0.mlp.down_proj.weight.prepared"] == (576, 308)


def test_the_output_is_checked_first(tmp_path: Path):
    text = error("build", "no-such-model", "-o", tmp_path)
    assert text == (
        f"error[GG0704]: cannot write '{tmp_path}': it is a folder\n"
        f"  --> --output {tmp_path}\n  help: name a file\n"
    )


def test_a_strategy_for_the_heads_of_keys_and_values():
    def caches(strategy: str) -> set[str]:
        module = built(*("llama-3.1-8b", "--mini", "--tp", 4, "--group-query-attention", strategy))
        return {row.physical.text for row in module.entries(Role.STATE)}

    assert caches("CONVERT_TO_MHA") == {"bf16[R,M,2,8]"}
    assert caches("REPLICATE_TO_TP_DEGREE") == {"bf16[R,M,1,8]"}
    module = built(
        *("llama-3.1-8b", "--mini", "--tp", 4, "--group-query-attention", "ALL_GATHER_HEADS")
    )
    assert sum(op.name == "all_gather" for op in module.function("decode").ops) > 1
    refused = error("build", "llama-3.1-8b", "--group-query-attention", "CONVERT_TO_MHA")
    assert "has no effect on one rank" in refused
    refused = error(
        *("build", "gpt2", "--mini", "--tp", 2, "--group-query-attention", "SHARD_OVER_BATCH")
    )
    assert "divides the rows of a call, which are the symbol B" in refused


def test_a_quantized_checkpoint_has_the_tensors_that_it_stores(tmp_path: Path):
    write_quantized(tmp_path, "gptq")
    module = built(tmp_path, "--phase", "decode", "--dtype", "f32")
    weights = {row.name: row.logical for row in module.entries(Role.WEIGHT)}
    down = "model.layers.0.mlp.down_proj"
    assert f"{down}.weight" not in weights
    assert {"qweight", "scales"} <= {name.removeprefix(f"{down}.") for name in weights}
    assert any(op.name == "dequantize" for op in module.function("decode").block)


@pytest.mark.parametrize("case", ["aws rows", "aws tensor"])
def test_a_checkpoint_of_aws_is_known_by_its_keys(case: str, tmp_path: Path):
    """Its config.json has no quantization_config."""
    write_quantized(tmp_path, case)
    module = built(tmp_path, "--phase", "decode", "--dtype", "f32")
    weights = {row.name: row.logical for row in module.entries(Role.WEIGHT)}
    down = "model.layers.0.mlp.down_proj"
    assert weights[f"{down}.weight"].dtype.bits == 8
    rows = 32 if case == "aws rows" else 1
    assert weights[f"{down}.scale"].text == f"f32[{rows},1]"
    assert weights["model.layers.1.mlp.up_proj.weight"].text == "f32[48,32]"


def test_an_index_is_enough_to_know_the_keys(tmp_path: Path):
    write_quantized(tmp_path, "gptq")
    (tmp_path / "model.safetensors").rename(tmp_path / "one.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"lm_head.weight": "two.safetensors"}}))
    config = json.loads((tmp_path / "config.json").read_text())
    del config["quantization_config"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    module = built(tmp_path, "--phase", "decode", "--dtype", "f32")
    assert "model.layers.0.mlp.down_proj.weight" in module.interface
    index.write_text(json.dumps({"weight_map": {"x.scale": "two.safetensors"}}))
    assert "two.safetensors" in error("build", tmp_path)
