"""Kernels of Neuron: what becomes a call of one, which limit keeps an op, and what it means."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Module, dtype
from graphgen.lowering.check.check import check
from graphgen.lowering.check.predicates import Request
from graphgen.lowering.hlo import emit_hlo
from graphgen.lowering.hlo_text.hlo_printer import print_hlo_text
from graphgen.lowering.stablehlo import emit_stablehlo
from graphgen.models import build, known_shape
from graphgen.ops.custom_calls import NKI
from graphgen.passes.core import run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.kernels.kernel_artifacts import read_artifacts
from graphgen.passes.kernels.neuron_attention import STRATEGY, attention_strategy
from graphgen.passes.kernels.select_kernels import SelectKernels
from graphgen.passes.pipelines import default
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import workload_for
from tests.passes.kernels.neuron_kernels import FUSED, manifest, of_attention, of_mini

LLAMA = known_shape("llama-3.1-8b")


def compiled(config: CompileConfig, journal: Journal | None = None) -> Module:
    item = build(LLAMA, dtype("bf16"), mini=True)
    run_pipeline(item, default(config), journal=journal)
    return item


def called(item: Module, program: str) -> Counter[str]:
    """The kernels and custom calls of a program."""
    ops = item.function(program).block
    names = [op.attrs.text("to_apply") for op in ops if op.name == "call"]
    names += [op.attrs.text("target") for op in ops if op.name == "custom_call"]
    return Counter(name.removeprefix("kernel.").partition(".")[0] for name in names)


def of_trn2(folder: Path, batch: int = 1, length: int = 256, **more: str) -> CompileConfig:
    entries = [*of_mini(folder, batch, length), *of_mini(folder, batch, 1)]
    path = manifest(folder, [*entries, of_attention(folder, batch, length)])
    sizes = {"batch": (batch,), "context": (length,), "tokens": (length,)}
    return CompileConfig(target="trn2", kernel_artifacts=path, **sizes, **more)  # pyright: ignore[reportArgumentType]


def test_a_program_calls_the_kernels_that_are_given(tmp_path: Path):
    item = compiled(of_trn2(tmp_path, kernels="on"))
    prefill, decode = (each.name for each in item.programs())
    assert called(item, prefill) == {"qkv": 2, "mlp": 2, "attention": 2, "AwsNeuronRmsNorm": 1}
    assert called(item, decode) == {"qkv": 2, "mlp": 2, "AwsNeuronRmsNorm": 1}
    for program in item.programs():
        hlo = print_hlo_text(emit_hlo(item, program))
        count = sum(op.name == "call" for op in program.block)
        assert hlo.count(f'custom_call_target="{NKI}"') == count
        text = emit_stablehlo(item, program, locs=False)
        assert text.count(f"custom_call @{NKI}") == count
        assert text.count("func.func") == 1
    assert [f for f in check(item, Request("trn2", 2)) if f.severity == "error"] == []


def test_without_artifacts_norms_and_activations_are_calls():
    config = CompileConfig(target="trn1", kernels="on", context=(8,), tokens=(8,))
    item = compiled(config)
    for program in item.programs():
        assert called(item, program.name) == {"AwsNeuronRmsNorm": 5, "AwsNeuronSilu": 2}


@pytest.mark.slow
def test_attention_means_what_it_replaces(tmp_path: Path):
    """Prompts of different lengths, from their first token on: rows of padding are free."""
    item, config = build(LLAMA, dtype("bf16"), mini=True), of_trn2(tmp_path, 2)
    passes = default(config)
    at = next(n for n, each in enumerate(passes) if isinstance(each, SelectKernels))
    run_pipeline(item, passes[:at])
    workload = workload_for(item, passes[at : at + 1], script="short")
    (verdict,) = validate(item, passes[at : at + 1], workload)
    assert verdict.ok, verdict


def test_projections_mean_what_they_replace(tmp_path: Path):
    item = build(LLAMA, dtype("bf16"), mini=True)
    path = manifest(tmp_path, [*of_mini(tmp_path, 3, 8), *of_mini(tmp_path, 3, 1)])
    sizes = CompileConfig(batch=(3,), context=(8,), tokens=(8,))
    config = CompileConfig(**{**vars(sizes), "target": "trn2", "kernel_artifacts": path})
    passes = default(config)
    verdicts = validate(item, passes, workload_for(item, passes, script="short"))
    assert [verdict.pass_text for verdict in verdicts if not verdict.ok] == []
    assert any("select-kernels" in verdict.pass_text for verdict in verdicts)


def reasons(config: CompileConfig, kernel: str, kind: str = "bf16", name: str = "") -> str:
    """Why ops did not become calls of a kernel, and at which of its conditions."""
    journal = Journal()
    item = build(known_shape(name) if name else LLAMA, dtype(kind), mini=True)
    run_pipeline(item, default(config), journal=journal)
    return "; ".join({miss.why.reason: None for miss in journal.misses if miss.rule == kernel})


def test_each_limit_says_why(tmp_path: Path):
    config = of_trn2(tmp_path)
    assert "the kernel multiplies bf16, not f32 and f32" in reasons(config, "mlp", "f32")
    assert "the kernel takes bf16, not f32 and f32" in reasons(config, "attention", "f32")
    assert "phase decode: the kernel is for prompts" in reasons(config, "attention")
    assert "its columns are not queries, keys and values" in reasons(config, "qkv")
    short = replace(config, context=(128,))
    assert "128 tokens on logical cores of 2: the rule is for" in reasons(short, "attention")
    assert "no artifact is of the types rmsnorm_qkv_isa_kernel(bf16[1,128,64]" in reasons(
        short, "qkv"
    )
    four = replace(config, tp=4)
    assert "a rank has 32 columns of the MLP, no multiple of 128" in reasons(four, "mlp")
    window = reasons(config, "attention", name="mistral-7b")
    assert "the mask is not the causal one alone" in window
    odd = replace(config, context=(255,))
    assert "255 tokens a row: above 64 the kernel takes an even number" in reasons(odd, "qkv")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"eps": 1e-06}, "was traced with eps=1e-06, not 1e-05"),
        ({"fused_rmsnorm": False}, "was traced with fused_rmsnorm=False, not True"),
        ({"eps": None}, "does not say what eps it was traced with: 1e-05 is needed"),
    ],
)
def test_an_artifact_of_other_arguments_is_not_called(
    tmp_path: Path, arguments: dict[str, object], why: str
):
    (entry, _) = of_mini(tmp_path, 1, 8)
    given = {**FUSED, "kernel_name": "QKV", **arguments}
    entry["arguments"] = {key: value for key, value in given.items() if value is not None}
    path = manifest(tmp_path, [entry])
    config = CompileConfig(target="trn2", context=(8,), tokens=(8,), kernel_artifacts=path)
    assert why in reasons(config, "qkv")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"kernel": 3}, 'entry 0 needs a "kernel"'),
        ({"speed": 3}, "entry 0 has an unknown 'speed'"),
        ({"operands": "bf16[1]"}, 'entry 0 needs "operands", a list of types'),
        ({"config": "no kernel"}, 'entry 0 needs a "config" that names a function'),
        ({"config": {"klir_binary": {"binary": "/none.klir"}}}, "which is not a file .NCC_EVRF059"),
        (
            {"config": {"func_name": "f", "klir_binary": {"input_names": ["a", "tmp.4"]}}},
            "has the inputs a, tmp.4, and 3 types are stated",
        ),
        ({"config": {"func_name": "f", "has_collectives": True}}, "has collectives inside"),
        (
            {"config": {"klir_binary": {"input_names": ["a.must_alias_input", "b", "c"]}}},
            "writes into an input",
        ),
    ],
)
def test_a_manifest_is_refused_by_entry(tmp_path: Path, change: dict[str, object], why: str):
    entry = {**of_mini(tmp_path, 1, 8)[0], **change}
    with pytest.raises(GraphgenError, match=why) as caught:
        read_artifacts(manifest(tmp_path, [entry]))
    assert caught.value.code == "GG0302"


def test_a_kernel_without_artifact_is_refused_by_name():
    config = CompileConfig(target="trn2", native_kernels=("qkv",))
    with pytest.raises(GraphgenError, match="'qkv' is rmsnorm_qkv_isa_kernel in NKI, and no art"):
        compiled(config)
    config = CompileConfig(native_kernels=("qkv",))
    with pytest.raises(GraphgenError, match="are Neuron's, and the target is cpu"):
        compiled(config)


def test_the_strategy_of_attention():
    """The cases of NxD Inference's own tests: length, cores, padding, asked for."""
    forms = {
        (256, 2, True, False): "sharded",
        (384, 2, True, False): "none",
        (1024, 2, True, False): "sharded",
        (1280, 2, True, False): "none",
        (100, 2, False, False): "sharded",
        (4096, 1, True, False): "unsharded",
        (2048, 1, True, False): "none",
        (512, 1, True, True): "unsharded",
        (256, 1, True, True): "none",
    }
    assert {case: attention_strategy(*case)[0] for case in forms} == forms
    assert len({row.text for row in STRATEGY}) == len(STRATEGY)
