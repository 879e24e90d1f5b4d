"""Sequence parallelism: the residual stream of a phase lies over ranks along its tokens."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module, dtype
from graphgen.ir.clone import clone_module
from graphgen.models import build, known_shape
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.pipelines import default
from graphgen.passes.validate.validate import validate
from graphgen.passes.workload.make_workload import workload_for
from graphgen.text import print_module
from tests.matrix.axes import AXES, config_of

RULES = ("prefill:sequence:tp",)
COLLECTIVES = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all", "collective_permute")


def compiled(name: str, tp: int, rules: tuple[str, ...] = RULES, tokens: int = 8) -> Module:
    module = build(known_shape(name), dtype("f32"), mini=True)
    sizes = CompileConfig(batch=(2,), context=(tokens,), tokens=(tokens,), tp=tp, rules=rules)
    run_pipeline(module, default(sizes))
    return module


def program(module: Module, phase: str) -> Function:
    return next(function for function in module.programs() if function.phase == phase)


def collectives(function: Function) -> Counter[str]:
    """How often each one is of values of a rank: ``all_gather 3``."""
    return Counter(
        f"{op.name} {op.operands[0].type.rank}" for op in function.ops if op.name in COLLECTIVES
    )


@pytest.mark.parametrize("tp", [2, 4])
@pytest.mark.parametrize("name", ["llama-3.1-8b", "mixtral-8x7b", "bloom-560m"])
def test_a_layer_scatters_sums_and_gathers_norms(name: str, tp: int):
    module = compiled(name, tp)
    # Of two layers: embedding and two sums; the norms that products read. The last token is summed
    # over the ranks, of which one has it, and the logits are gathered.
    assert collectives(program(module, "prefill")) == {
        "reduce_scatter 3": 5,
        "all_gather 3": 4,
        "all_reduce 2": 1,
        "all_gather 2": 1,
    }
    assert collectives(program(module, "decode")) == {"all_reduce 3": 5, "all_gather 2": 1}


@pytest.mark.parametrize("name", ["gpt-j-6b", "gpt-neox-20b", "falcon-40b", "stablelm-2-12b"])
def test_parallel_attention_and_mlp_are_summed_once(name: str):
    assert collectives(program(compiled(name, 2), "prefill"))["reduce_scatter 3"] == 3


def test_tokens_that_do_not_divide_stay_whole():
    module = compiled("llama-3.1-8b", 4, tokens=6)
    plain = compiled("llama-3.1-8b", 4, (), tokens=6)
    assert collectives(program(module, "prefill")) == collectives(program(plain, "prefill"))
    assert "reduce_scatter 3" not in collectives(program(plain, "prefill"))


@pytest.mark.one_in(51)
@pytest.mark.parametrize("tp", [2, 4])
@pytest.mark.parametrize("family", AXES["family"])
def test_ranks_compute_what_one_does(family: str, tp: int):
    module = build(config_of(family), dtype("f32"), mini=True)
    # Prompts of 8 fit over the ranks, those of 6 do not over four.
    config = CompileConfig(batch=(3,), context=(6, 8), tokens=(8, 16), tp=tp, rules=RULES)
    passes = default(config)
    verdicts = validate(module, passes, workload_for(module, passes, seed=tp))
    assert [verdict.pass_text for verdict in verdicts if not verdict.ok] == []
    run_pipeline(module, passes)
    assert collectives(module.function("prefill.b3.s8"))["reduce_scatter 3"] > 2


@pytest.mark.parametrize("tp", [4, 8])
def test_tokens_lie_over_both_axes_of_flash_decoding(tp: int):
    module = build(known_shape("llama-3.1-8b"), dtype("f32"), mini=True)
    config = CompileConfig(
        batch=(2,), context=(8,), tokens=(16,), tp=tp, rules=RULES, flash_decoding=True
    )
    passes = default(config)
    verdicts = validate(module, passes, workload_for(module, passes, seed=tp))
    assert [verdict.pass_text for verdict in verdicts if not verdict.ok] == []
    run_pipeline(module, passes)
    assert [*module.mesh] == ["kv", "slots"]
    assert collectives(program(module, "prefill"))["reduce_scatter 3"] > 2


def test_a_rule_over_all_ranks_has_both_axes_of_flash_decoding():
    module = build(known_shape("llama-3.1-8b"), dtype("f32"), mini=True)
    given = CompileConfig(batch=(2,), context=(8,), tokens=(16,), tp=4, flash_decoding=True)
    texts = [clone_module(module) for _ in range(2)]
    for text, rules in zip(texts, ((), ("intermediate:tp", "vocab:tp")), strict=True):
        run_pipeline(text, default(replace(given, rules=rules)))
    assert print_module(texts[0]) == print_module(texts[1])


@pytest.mark.parametrize(
    ("rule", "text", "help_text"),
    [
        ("prefill:rows:tp", "a rule of one phase splits sequence and axes", "write rows:tp"),
        ("verify:sequence:tp", "no program is of phase verify", "phases: prefill, decode"),
        ("prefill:sequence:dp", "{dp} speaks of mesh axis dp, and the mesh has tp", "mesh=[dp:2]"),
        ("sequence:tp", "@decode.b2.c8 has one token a row", "prefill:sequence:tp splits"),
    ],
)
def test_rules_that_cannot_be_are_refused(rule: str, text: str, help_text: str):
    module = build(known_shape("llama-3.1-8b"), dtype("f32"), mini=True)
    sizes = "specialize{batch=[2],context=[8],tokens=[8]}"
    with pytest.raises(GraphgenError, match=re.escape(text)) as caught:
        run_pipeline(module, parse_pipeline(f"{sizes},shard{{tp=2,rules=[{rule}]}}"))
    assert caught.value.code == "GG0304"
    assert help_text in caught.value.help


def of_prompts(least: int) -> dict[str, Counter[str]]:
    """Collectives of prefill programs whose tokens are more numbers than a layer's weights."""
    module = build(known_shape("llama-3.1-8b"), dtype("f32"), mini=True)
    sizes = "specialize{batch=[8],context=[256,512],tokens=[512],in_place=true},heads{tp=2}"
    shard = "shard{tp=2,rules=[prefill>=512:sequence:tp]},pad-to-mesh"
    partition = f"partition{{latency=0,gather_weights={least}}}"
    start = "canonicalize,unfuse-projections"
    # Apart, so that each weight is counted.
    merge = "merge-collectives{small=0}"
    run_pipeline(module, parse_pipeline(f"{start},{sizes},{shard},{partition},{merge}"))
    return {f.name: collectives(f) for f in module.programs() if f.phase == "prefill"}


def test_long_prompts_gather_weights_where_these_are_smaller():
    tokens, weights = of_prompts(0), of_prompts(512)
    assert tokens["prefill.b8.s256"] == weights["prefill.b8.s256"]
    assert tokens["prefill.b8.s512"]["reduce_scatter 3"] == 5
    found = weights["prefill.b8.s512"]
    assert (found["reduce_scatter 3"], found["all_reduce 3"]) == (0, 0)
    # Of each layer the seven weights, and the embedding; of the head logits are sent.
    assert found["all_gather 2"] >= 14


@pytest.mark.slow
def test_ranks_that_gather_weights_compute_what_one_does():
    module = build(known_shape("qwen2-7b"), dtype("f32"), mini=True)
    text = (
        "canonicalize,unfuse-projections,"
        "specialize{batch=[2],context=[64],tokens=[64],in_place=true},heads{tp=2},"
        "shard{tp=2,rules=[prefill>=64:sequence:tp]},pad-to-mesh,"
        "partition{latency=0,gather_weights=64,memory=0}"
    )
    passes = parse_pipeline(text)
    verdicts = validate(module, passes, workload_for(module, passes, seed=4))
    assert [verdict.pass_text for verdict in verdicts if not verdict.ok] == []
