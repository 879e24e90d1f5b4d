"""``inference_demo``: the tutorial's command, every step of the flow, and each kind of refusal."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from graphgen.cli.demo_arguments import read_arguments
from graphgen.cli.demo_settings import check_arguments, make_config
from graphgen.models import known_shape
from graphgen.runtime import executable_cache
from graphgen.runtime.aws_config.expert_config import RouterConfig
from graphgen.runtime.aws_nxdi.model_classes import NeuronLlamaForCausalLM
from graphgen.runtime.progress import TerminalProgress
from tests.graphgen.cli.conftest import ROOT
from tests.graphgen.cli.demo_model import HEAD, Demo
from tests.oracles.lora_adapters import random_factors, save_adapter

# The flags of the 405B tutorial's first command, with sizes of the small model.
TUTORIAL = (
    f"{HEAD} --compiled-model-path compiled --torch-dtype bfloat16 --start_rank_id 0 "
    "--local_ranks_size 2 --tp-degree 2 --batch-size 1 --max-context-length 32 --seq-len 48 "
    "--on-device-sampling --top-k 1 --do-sample --fused-qkv --sequence-parallel-enabled "
    "--qkv-kernel-enabled --attn-kernel-enabled --mlp-kernel-enabled "
    "--cc-pipeline-tiling-factor 1 --pad-token-id 2 --logical-neuron-cores 2 --enable-bucketing "
    '--prompt "What is annapurna labs?"'
)
SMALL = (
    f"{HEAD} --on-cpu --torch-dtype float32 --batch-size 2 --max-context-length 32 --seq-len 48 "
    '--prompt "What is" --prompt "I am" --max-new-tokens 4'
)


def no_compilation(*_: object) -> None:
    raise AssertionError("a program was compiled")


def test_the_tutorials_first_command(demo: Demo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    first = demo(f"{TUTORIAL} --benchmark --benchmark-report-path report.json")
    assert first.status == 0, first.err
    # What does not exist on a CPU has no effect, and each flag says so once.
    for name in ("mlp_kernel_enabled", "qkv_kernel_enabled", "logical_nc_config"):
        assert first.err.count(f"NeuronConfig.{name} = ") == 1
    assert "--pad-token-id has no effect" in first.err
    answer = next(line for line in first.out.splitlines() if line.startswith("Output 0: "))
    assert answer.startswith("Output 0: What is annapurna labs?")
    assert len(answer) > len("Output 0: What is annapurna labs?")
    for name in ("e2e_model", "context_encoding_model", "token_generation_model", "ttft_s"):
        assert name in first.out
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["e2e_model"]["latency_ms_p50"] > 0
    assert (tmp_path / "compiled" / "neuron_config.json").is_file()

    monkeypatch.setattr(executable_cache, "compile_program", no_compilation)
    again = demo(f"{TUTORIAL} --skip-compile")
    assert again.status == 0, again.err
    assert answer in again.out
    assert "compiling" not in again.err
    assert "Compiled" not in again.out


def test_fused_speculation_of_the_whole_tutorial(demo: Demo):
    plain = demo(TUTORIAL)
    assert plain.status == 0, plain.err
    flags = "--speculation-length 4 --enable-fused-speculation"
    outcome = demo(f"{TUTORIAL} --draft-model-path MODEL {flags}")
    assert outcome.status == 0, outcome.err
    answer = plain.out[plain.out.index("Generated outputs") :]
    assert answer in outcome.out
    missing = demo(f"{TUTORIAL} {flags}")
    assert "needs --draft-model-path" in missing.err or "--draft-model-path" in missing.err
    folder = demo(f"{TUTORIAL} --draft-model-path MODEL --compiled-draft-model-path x {flags}")
    assert "with --enable-fused-speculation the draft is opened with the model" in folder.err


def test_compile_only_and_dry_run(demo: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sizes = "--torch-dtype float32 --batch-size 1 --seq-len 16 --compiled-model-path new"
    with monkeypatch.context() as patched:
        patched.setattr(executable_cache, "compile_program", no_compilation)
        dry = demo(f"{HEAD} {sizes} --compile-dry-run")
        assert dry.status == 0, dry.err
        assert "prefill.b1.s16" in dry.out
        assert not (tmp_path / "new").exists()
        missing = demo(f"{HEAD} {sizes} --skip-compile --prompt x")
        assert "error[GG0908]" in missing.err
    only = demo(f"{HEAD} {sizes} --compile-only")
    assert only.status == 0, only.err
    assert only.out == "Compiled into new\n"


def tutorial_of(shape: dict[str, Any], folder: Path, flags: str) -> str:
    """The tutorial's first command at its own lengths, for a folder with a configuration alone."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(shape))
    sizes = {
        "MODEL": str(folder),
        "--local_ranks_size 2": "--local_ranks_size 8",
        "--tp-degree 2": "--tp-degree 8",
        "--max-context-length 32 --seq-len 48": "--max-context-length 12288 --seq-len 12800",
    }
    line = TUTORIAL
    for old, new in sizes.items():
        line = line.replace(old, new)
    return f"{line} {flags}"


@pytest.mark.slow
def test_a_dry_run_of_405b_needs_a_configuration_alone(
    demo: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(TerminalProgress, "LINE_SECONDS", 0.0)
    shape = {**known_shape("llama-3.1-405b"), "num_hidden_layers": 6}
    made = demo(tutorial_of(shape, tmp_path / "model", "--compile-dry-run"))
    assert made.status == 0, made.err
    lines = made.err.splitlines()
    (about,) = [line for line in lines if "nothing else" in line]
    assert "HERE/model" in about
    shown = [line for line in lines if line.startswith("building the graph: ")]
    done = [int(line.split()[-1].rstrip("%")) for line in shown]
    assert len(done) > 5
    assert done == sorted(done)
    assert done[-1] == 100
    assert lines.index(about) < lines.index(shown[0])
    assert "prefill.b1.s12288" in made.out
    assert "decode.b1.c12800" in made.out


@pytest.mark.slow
def test_a_dry_run_of_the_second_scenario_needs_configurations_alone(demo: Demo, tmp_path: Path):
    shape = {**known_shape("llama-3.1-405b"), "num_hidden_layers": 2}
    draft = tmp_path / "draft"
    draft.mkdir()
    (draft / "config.json").write_text(json.dumps(dict(known_shape("llama-3.2-1b"))))
    stated = {"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head", "self_attn"]}
    flags = (
        f"--draft-model-path {draft} --enable-fused-speculation --speculation-length 7 "
        "--no-trace-tokengen-model --quantized-mlp-kernel-enabled "
        "--quantization-type per_channel_symmetric --rmsnorm-quantize-kernel-enabled "
        "--token-generation-buckets 12800"
    )
    line = tutorial_of({**shape, "quantization_config": stated}, tmp_path / "model", flags)
    made = demo(f"{line} --compile-dry-run".replace("--do-sample ", ""))
    assert made.status == 0, made.err
    lines = [line for line in made.err.splitlines() if "nothing else" in line]
    assert ["HERE/model" in lines[0], "HERE/draft" in lines[1]] == [True, True]
    assert "speculate.b1.c12800.k7" in made.out
    # Without --compile-dry-run it ends before anything is built.
    shutil.rmtree(tmp_path / "model")
    made = demo(tutorial_of({**shape, "quantization_config": stated}, tmp_path / "model", flags))
    assert "error[GG0601]" in made.err
    assert "building the graph" not in made.err


def test_a_folder_without_weights_is_refused_before_anything_is_built(
    demo: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def built(*_: object) -> None:
        raise AssertionError("the graph was built")

    monkeypatch.setattr(NeuronLlamaForCausalLM, "build", built)
    made = demo(tutorial_of(dict(known_shape("llama-3.1-405b")), tmp_path / "model", ""))
    assert made.status != 0
    assert "error[GG0601]" in made.err


def test_an_answer_in_memory_with_a_captured_step(demo: Demo, tmp_path: Path):
    plain = demo(SMALL)
    assert plain.status == 0, plain.err
    assert plain.out.count("Output") == 2
    captured = demo(f"{SMALL} --capture-indices 0 2 --input-capture-save-dir files")
    assert captured.out == plain.out
    assert len([*(tmp_path / "files").glob("*.npz")]) == 2
    best = demo(f"{SMALL} --do-sample --top-k 1 --temperature 2.5")
    assert best.out == plain.out
    drawn = demo(f"{SMALL} --do-sample --top-k -1 --temperature 9")
    assert drawn.out != plain.out


@pytest.mark.parametrize("mode", ["token-matching", "logit-matching"])
def test_an_accuracy_check_against_transformers(demo: Demo, mode: str):
    outcome = demo(f"{SMALL} --check-accuracy-mode {mode} --num-tokens-to-check 3")
    assert outcome.status == 0, outcome.err
    assert f"The accuracy check passed: {mode} of 3 tokens" in outcome.out


def test_an_accuracy_check_that_fails(demo: Demo, tmp_path: Path):
    expected = {
        "format": "graphgen-expected-outputs-1",
        "prompts": [[5, 6], [7]],
        "tokens": [[1, 1], [1, 1]],
    }
    (tmp_path / "expected.json").write_text(json.dumps(expected))
    outcome = demo(
        f"{SMALL} --check-accuracy-mode token-matching --expected-outputs-path expected.json"
    )
    assert outcome.status == 1
    assert "error[GG0907]: tokens differ at row" in outcome.err
    assert "Output" not in outcome.out


def test_a_failure_names_step_token_and_layer_and_keeps_the_inputs(demo: Demo, tmp_path: Path):
    # No error is accepted, so that rounding is one.
    outcome = demo(
        f"{SMALL} --check-accuracy-mode logit-matching --num-tokens-to-check 2 "
        "--tol-map '{None: (0, 0)}' --capture-indices auto --input-capture-save-dir files"
    )
    assert outcome.status == 1
    assert "error[GG0907]: logits differ at row 0, step 0, token " in outcome.err
    assert "the first wrong place is" in outcome.err
    assert [file.name for file in (tmp_path / "files").glob("*.npz")] == [
        "prefill.b2.s32.call0.npz"
    ]


def test_a_file_of_modules(demo: Demo, tmp_path: Path):
    (tmp_path / "skip.json").write_text(json.dumps({"model": {"modules_to_not_convert": 3}}))
    outcome = demo(f"{SMALL} --quantized --modules-to-not-convert-file skip.json")
    assert "NeuronConfig.modules_to_not_convert = 3" in outcome.err
    assert "--> --modules-to-not-convert-file skip.json" in outcome.err


def test_8_bit_weights_are_made_while_loading(demo: Demo, tmp_path: Path):
    flags = f"{SMALL} --quantized --quantization-type per_channel_symmetric"
    made = demo(f"{flags} --quantized-checkpoints-path new")
    assert made.status == 0, made.err
    assert not (tmp_path / "new").exists()
    (tmp_path / "new").mkdir()
    refused = demo(f"{flags} --quantized-checkpoints-path new")
    assert (refused.status, refused.out) == (1, "")
    assert "error[GG0601]" in refused.err
    missing = demo(flags)
    assert "quantized needs quantized_checkpoints_path" in missing.err


WRONG = (
    "",
    "--model-type llama --task-type causal-lm --model-path MODEL",
    f"{HEAD} run --prompt x",
    "--task-type causal-lm run --prompt x",
    "--model-type llama run --model-type llama",
    "--model-path x --model-type llama run",
    "--model-type llama --task-type causal-lm run --prompt x",
    f"{HEAD} --compiled-model-path c",
    f"{HEAD} --on-cpu --prompt x --batchsize 2",
    f"{HEAD} --on-cpu --prompt x --start-rank-id 0",
    f"{HEAD} --on-cpu --prompt x --gigaflops",
    f"{HEAD} --on-cpu --prompt x --no-fused-qkv",
    f"{HEAD} --on-cpu --prompt x --fused-qkv=yes",
    f"{HEAD} --on-cpu --prompt x --tp-degree",
    f"{HEAD} --on-cpu --prompt x --tp-degree two",
    f"{HEAD} --on-cpu --prompt x --tp-degree 0",
    f"{HEAD} --on-cpu --prompt x --tp-degree 2.5",
    f"{HEAD} --on-cpu --prompt x --tp-degree 1 --tp-degree 2",
    f"{HEAD} --on-cpu --prompt x --torch-dtype float8",
    f"{HEAD} --on-cpu --prompt x --quantization-type per_planet",
    f"{HEAD} --on-cpu --prompt x --context-encoding-buckets 16 x",
    f"{HEAD} --on-cpu --prompt x --seq-len 32 --context-encoding-buckets 16 64",
    f"{HEAD} --on-cpu --prompt x --seq-len 32 --max-context-length 64",
    f"{HEAD} --on-cpu --prompt x --prompt y",
    f"{HEAD} --on-cpu -\u2014prompt x",
    f"{HEAD} --on-cpu \u2013\u2013prompt x",
    f"{HEAD} --on-cpu --prompt x more",
    f"{HEAD} --on-cpu --skip-compile --prompt x --compiled-model-path c",
    f"{HEAD} --on-cpu --prompt x --benchmark-report-path r.json",
    f"{HEAD} --on-cpu --prompt x --dynamic",
    f"{HEAD} --on-cpu --prompt x --num-tokens-to-check 4",
    f"{HEAD} --on-cpu --prompt x --check-accuracy-mode token-matching --tol-map {{}}",
    f"{HEAD} --on-cpu --prompt x --check-accuracy-mode eyes",
    f"{HEAD} --on-cpu --prompt x --check-accuracy-mode draft-logit-matching",
    f"{HEAD} --on-cpu --prompt x --capture-indices auto",
    f"{HEAD} --on-cpu --prompt x --capture-indices -1",
    f"{HEAD} --on-cpu --prompt x --input-capture-save-dir d",
    f"{HEAD} --on-cpu --prompt x --modules-to-not-convert-file nowhere.json",
    f"{HEAD} --on-cpu --prompt x --speculation-length 7",
    f"{HEAD} --on-cpu --prompt x --draft-model-path d",
    f"{HEAD} --on-cpu --prompt x --draft-model-tp-degree 2",
    f"{HEAD} --on-cpu --prompt x --compiled-draft-model-path d",
    f"{HEAD} --compiled-model-path c --prompt x --draft-model-path d --speculation-length 7",
    f"{HEAD} --on-cpu --prompt x --is-medusa",
    f"{HEAD} --on-cpu --prompt x --enable-lora --lora-ckpt-path a:nowhere --seq-len 32",
    f"{HEAD} --on-cpu --prompt x --enable-lora --adapter-id a --adapter-id b",
    f"{HEAD} --on-cpu --prompt x --max-loras 2",
    f"{HEAD} --on-cpu --prompt x --adapter-id a",
    f"{HEAD} --on-cpu --prompt x --capacity-factor 2",
    f"{HEAD} --on-cpu --prompt x --router-act-fn sigmoid",
    f"{HEAD} --on-cpu --prompt x --no-kv-direct-cast",
    f"{HEAD} --on-cpu --prompt x --enable-chunked-prefill",
    f"{HEAD} --on-cpu --prompt x --max-num-seqs 8",
    f"{HEAD} --on-cpu --prompt x --cp-degree 2",
    f"{HEAD} --on-cpu --prompt x --start_rank_id 8",
    f"{HEAD} --on-cpu --prompt x --enable-torch-dist",
    f"{HEAD} --on-cpu --prompt x --input-start-offsets 3",
    f"{HEAD} --on-cpu --prompt x --seq-len 32 --on-device-sampling --top-k 300",
    f"{HEAD} --on-cpu --prompt x --seq-len 32 --top-k 2.5 --do-sample",
    "--model-type dbrx --task-type causal-lm run --model-path MODEL --on-cpu --prompt x",
    "--model-type bert --task-type causal-lm run --model-path MODEL --on-cpu --prompt x",
    "--model-type llama --task-type speech run --model-path MODEL --on-cpu --prompt x",
    "--model-type mistral --task-type causal-lm run --model-path MODEL --on-cpu --prompt x",
)


def test_wrong_flags(demo: Demo, golden: object, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(executable_cache, "compile_program", no_compilation)
    texts: list[str] = []
    for line in WRONG[1:]:
        outcome = demo(line)
        assert (outcome.status, outcome.out) == (1, ""), line
        texts.append(f"--- {line.replace(HEAD, '...')}\n{outcome.err}")
    golden("cli/inference_demo.txt", "\n".join(texts))  # pyright: ignore[reportCallIssue]


def test_flags_of_experts_are_options_of_the_configuration(tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps(dict(known_shape("mixtral-8x7b"))))
    line = (
        f"--model-type mixtral --task-type causal-lm run --model-path {tmp_path} --on-cpu "
        "--prompt x --tp-degree 4 --moe-ep-degree 2 --capacity-factor 1.5 --router-act-fn softmax"
    )
    given = read_arguments(line.split())
    check_arguments(given)
    config = make_config(given).neuron_config
    assert (config.value("capacity_factor"), config.value("moe_ep_degree")) == (1.5, 2)
    assert config.value("router_config") == RouterConfig(act_fn="softmax")


def test_help_lists_every_flag_quickly():
    command = [sys.executable, "-X", "importtime", "-m", "graphgen.cli.inference_demo", "-h"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    from graphgen.runtime.aws_config.demo_flags import DEMO_FLAGS

    assert [flag for flag in DEMO_FLAGS if f"  {flag}" not in done.stdout] == []
    for module in ("numpy", "jax", "torch", "transformers"):
        assert f"| {module}\n" not in done.stderr


def test_the_console_script_is_declared(demo: Demo):
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["inference_demo"] == "graphgen.cli.inference_demo:main"
    assert demo("").out.startswith("Compile a model")
    assert demo("--version").out.startswith("inference_demo of graphgen ")


@pytest.mark.slow
def test_prompts_are_answered_with_their_adapters(
    demo: Demo, demo_checkpoint: Path, tmp_path: Path
):
    """One prompt with an adapter, the other with none: that of the base demo_checkpoint."""
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(demo_checkpoint)
    factors = random_factors(base, ["q_proj", "down_proj"], size=1.0)
    save_adapter(tmp_path / "mine", base, factors)
    lora = f"--enable-lora --lora-ckpt-path 'mine : {tmp_path / 'mine'}' --max-lora-rank 4"
    plain = demo(SMALL)
    made = demo(f"{SMALL} {lora} --adapter-id mine --adapter-id none")
    assert (plain.status, made.status) == (0, 0), plain.err + made.err
    (first, second), (own, same) = (
        [line for line in run.out.splitlines() if line.startswith("Output ")]
        for run in (plain, made)
    )
    assert own != first
    assert same == second
    small = f"--draft-model-path {demo_checkpoint} --speculation-length 4"
    for proposes in (small, f"{small} --enable-fused-speculation --on-device-sampling"):
        told = demo(f"{SMALL} {lora} --adapter-id mine --adapter-id none {proposes}")
        assert told.status == 0, told.err
        assert [line for line in told.out.splitlines() if line.startswith("Output ")] == [own, same]
