"""Models of transformers, exported by torch, say here what they say there, over ranks as well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from graphgen.eval import MEANING, NATIVE, Arithmetic
from graphgen.exec.session import Runner, Workload
from graphgen.ir import Module, Role
from graphgen.ir.clone import clone_module
from graphgen.lowering.aten.program import Exported, read_exported
from graphgen.lowering.cpu.backend import CpuBackend
from graphgen.ops import OPS
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import parse
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from tests.oracles import exported
from tests.oracles.exported import NINE, Case, case, raised

NORMS = {"embedding": 1, "rms_norm": 5, "attention": 2}
LLAMA = {**NORMS, "rope": 4, "silu": 2}
FOUND = {
    "llama": LLAMA,
    "mistral": LLAMA,
    "qwen2": LLAMA,
    "qwen3": {**LLAMA, "rms_norm": 9},
    "gemma3_text": {**NORMS, "rope": 4, "rms_norm": 13, "gelu": 2},
    "gpt2": {"embedding": 2, "layer_norm": 5, "attention": 2, "gelu": 2},
    # Partial rope, rope of neighbors, slopes.
    "gpt_neox": {"embedding": 1, "layer_norm": 5, "rope": 4, "attention": 2, "gelu": 2},
    "gptj": {"embedding": 1, "layer_norm": 3, "rope": 4, "attention": 2, "gelu": 2},
    "opt": {"embedding": 2, "layer_norm": 5, "attention": 2},
    "bloom": {"embedding": 1, "layer_norm": 6, "attention": 2, "gelu": 2},
}
# Where heads end, which no product tells: how the feed-forward layers lie.
GATED = "*.gate_proj.weight:{tp,-},*.up_proj.weight:{tp,-},*.down_proj.weight:{-,tp}"
PLAIN = "*.mlp.c_fc.weight:{-,tp},*.mlp.c_proj.weight:{tp,-}"
# The models that are split: of three families with heads that only three ranks divide.
SIZES: dict[str, dict[str, Any]] = {
    "llama": NINE,
    "llama tied": {**NINE, "tie_word_embeddings": True},
    "mistral": {},
    "qwen2": NINE,
    "qwen3": {**NINE, "head_dim": 8},
    "gemma3_text": {},
    "gpt2": {},
}
# What is told by the others too is tried when there is time.
SLOW = ("llama tied", "mistral", "qwen2")
CASES = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in SIZES]


def both(name: str, attention: str = "eager") -> tuple[Case, Exported]:
    """A model as torch runs it and as it was read, and with its ideas raised."""
    family, changes = name.split()[0], SIZES[name]
    return case(family, attention, **changes), raised(family, attention, **changes)


def composites(module: Module) -> Mapping[str, int]:
    ops = Counter(op.name for function in module.functions.values() for op in function.ops)
    return {name: count for name, count in ops.items() if OPS[name].composite}


def logits(read: Exported, found: Case) -> np.ndarray:
    return np.asarray(read.module.evaluate({**read.weights, "input_ids": found.ids})["logits"])


@pytest.mark.parametrize("attention", ["eager", pytest.param("sdpa", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(4)
def test_a_family_is_read_and_its_ideas_are_found(name: str, attention: str):
    found, read = both(name, attention)
    np.testing.assert_allclose(logits(found.read, found), found.logits, rtol=1e-4, atol=1e-4)
    assert composites(read.module) == FOUND[name.split()[0]]
    np.testing.assert_allclose(logits(read, found), found.logits, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_program_that_is_decomposed_already_is_raised_too(family: str):
    found, read = case(family, core=True), raised(family, core=True)
    assert composites(read.module) == FOUND[family]
    np.testing.assert_allclose(logits(read, found), found.logits, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gpt_neox", "gptj", "opt", "bloom"])
def test_families_before_llama_are_read_and_their_ideas_are_found(family: str):
    found, read = case(family), raised(family)
    assert composites(read.module) == FOUND[family]
    np.testing.assert_allclose(logits(read, found), found.logits, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_tied_weights_are_one():
    found, _ = both("llama tied")
    names = [row.name for row in found.read.module.entries(Role.WEIGHT)]
    assert "lm_head.weight" not in names
    assert "model.embed_tokens.weight" in names


# ---- what passes do with them --------------------------------------------------------------------


def script_of(read: Exported, given: Mapping[str, np.ndarray]) -> Workload:
    """One call with the model's own weights and these inputs."""
    script = make_workload(read.module, seed=0)
    assert script.weights.keys() == read.weights.keys()
    call = replace(script.calls[0], inputs={**script.calls[0].inputs, **given})
    return replace(script, weights=dict(read.weights), states=dict(read.states), calls=(call,))


def compiled(read: Exported, tp: int, quantize: bool) -> Module:
    module = clone_module(read.module)
    rules = PLAIN if "transformer.wte.weight" in module.interface else GATED
    split = f"heads{{tp={tp}}},shard{{tp={tp},rules=[{rules}]}},pad-to-mesh,partition,"
    run_pipeline(
        module,
        parse(
            ("quantize-weights{skip=[]}," if quantize else "")
            + (split if tp > 1 else "")
            + "cse,fuse-projections,lift-weights,legalize,cse,dce"
        ),
    )
    return module


def run(read: Exported, found: Case, tp: int, arithmetic: Arithmetic, quantize: bool) -> np.ndarray:
    script = script_of(read, {"input_ids": found.ids})
    module = compiled(read, tp, quantize)
    (outcome,) = Runner(module, script, arithmetic=arithmetic).outcomes()
    return outcome["logits"]


@pytest.mark.parametrize("tp", [2, 3, 4])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(9)
def test_over_ranks_it_says_what_torch_says(name: str, tp: int):
    found, read = both(name)
    module = compiled(read, tp, quantize=False)
    ops = Counter(op.name for op in module.function("main").ops)
    # Two a layer, and the embedding's; the logits are put together. Projections are fused.
    assert {op: ops[op] for op in ops if OPS[op].collective} == {"all_reduce": 5, "all_gather": 1}
    script = script_of(read, {"input_ids": found.ids})
    (outcome,) = Runner(module, script).outcomes()
    np.testing.assert_allclose(outcome["logits"], found.logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(13)
def test_int8_weights_say_the_same_over_ranks_and_near_to_torch(name: str):
    found, read = both(name)
    one = run(read, found, 1, NATIVE, quantize=True)
    np.testing.assert_allclose(run(read, found, 3, NATIVE, quantize=True), one, atol=1e-4)
    # Quantization is not nothing, and not much.
    gap = np.abs(one - found.logits).max() / np.abs(found.logits).max()
    assert 1e-4 < gap < 0.1
    exact = run(read, found, 2, MEANING, quantize=True)
    np.testing.assert_allclose(exact, found.logits, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_every_pass_keeps_the_meaning():
    found, read = both("llama", "sdpa")
    script = script_of(read, {"input_ids": found.ids})
    checked = validate(clone_module(found.read.module), parse("imported"), script)
    split = f"heads{{tp=4}},shard{{tp=4,rules=[{GATED}]}},pad-to-mesh,partition,cse,"
    rest = parse(split + "fuse-projections,lift-weights,legalize,cse,dce")
    checked += validate(clone_module(read.module), rest, script)
    assert [verdict.pass_text for verdict in checked if not verdict.ok] == []


def test_xla_says_what_torch_says():
    found, read = both("llama")
    script = script_of(read, {"input_ids": found.ids})
    module = compiled(read, 2, quantize=False)
    runner = Runner(module, script, CpuBackend(), arithmetic=NATIVE)
    (outcome,) = runner.outcomes()
    np.testing.assert_allclose(outcome["logits"], found.logits, rtol=1e-4, atol=1e-4)


# ---- sizes left open, and caches -----------------------------------------------------------------


def test_sizes_left_open_are_symbols_that_specialize_binds():
    made = exported.model("llama", "sdpa")
    rows, tokens = torch.export.Dim("rows", min=2, max=64), torch.export.Dim("tokens", max=64)
    ids = torch.zeros(2, 8, dtype=torch.long)
    program = exported.export(made, ids, dynamic_shapes={"input_ids": {0: rows, 1: tokens}})
    read = read_exported(program)
    run_pipeline(read.module, parse("imported"))
    assert read.module.interface["input_ids"].logical.text == "s64[B,S]"
    assert composites(read.module) == LLAMA
    run_pipeline(read.module, parse("specialize{batch=[3],context=[5]}"))
    (program,) = read.module.programs()
    ids = torch.randint(0, exported.VOCABULARY, (3, 5))
    got = read.module.evaluate({**read.weights, "input_ids": ids.numpy()}, program=program.name)
    with torch.no_grad():
        wanted = made(ids).logits.numpy()
    np.testing.assert_allclose(np.asarray(got["logits"]), wanted, rtol=1e-4, atol=1e-4)


def static_cache(slots: int) -> tuple[Any, torch.export.ExportedProgram]:
    """transformers' own decoder with buffers for a cache, for a token a call."""
    import transformers
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    made = exported.model("llama", "sdpa")
    made.config.use_cache = True
    made.generation_config = transformers.GenerationConfig(
        use_cache=True,
        cache_implementation="static",
        max_length=slots,
        cache_config={"batch_size": 1, "max_cache_len": slots},
    )
    whole = TorchExportableModuleWithStaticCache(made, batch_size=1, max_cache_len=slots)
    given = {"input_ids": torch.zeros(1, 1, dtype=torch.long), "cache_position": torch.tensor([0])}
    return made, exported.export(whole, kwargs=given, strict=True)


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.one_in(2)
def test_transformers_static_cache_is_a_state(tp: int):
    made, program = static_cache(16)
    read = read_exported(program)
    states = [row.name for row in read.module.entries(Role.STATE)]
    assert {"key_cache_0", "value_cache_0", "key_cache_1", "value_cache_1"} <= set(states)
    run_pipeline(read.module, parse("imported"))
    assert composites(read.module) == {**LLAMA, "kv_update": 4}
    module = compiled(read, tp, quantize=False)
    # Each rank keeps its own heads of the cache.
    assert module.interface["key_cache_0"].physical.dims == (1, 2 // tp, 16, 8)
    ids = torch.randint(0, exported.VOCABULARY, (1, 6))
    script = script_of(read, {})
    steps = [
        replace(
            script.calls[0],
            inputs={"input_ids": ids[:, at : at + 1].numpy(), "cache_position": np.array([at])},
        )
        for at in range(ids.shape[1])
    ]
    outcomes = Runner(module, replace(script, calls=tuple(steps))).outcomes()
    with torch.no_grad():
        wanted = made(ids, use_cache=False).logits.numpy()
    found = np.stack([outcome["result"][:, -1] for outcome in outcomes], 1)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
