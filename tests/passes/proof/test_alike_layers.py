"""Layers that are alike are proved once; another one is found."""

from __future__ import annotations

from functools import cache

import pytest

from graphgen.build import Builder
from graphgen.ir import Module
from graphgen.ir.clone import clone_module
from graphgen.ir.dtype import bf16
from graphgen.models import build
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import parse
from graphgen.passes.proof.refinement import prove_refinement
from graphgen.passes.proof.refinement_result import RefinementProof
from tests.matrix.axes import config_of


@cache
def deep(layers: int) -> tuple[Module, Module]:
    """A model of so many layers, and its decode step on two ranks."""
    config = {**config_of("llama"), "num_hidden_layers": layers}
    model = build(config, bf16, phases=("decode",))
    module = clone_module(model)
    run_pipeline(module, parse("small{tokens=[8],tp=2,target=trn2}"))
    return model, module


@cache
def mixture(layers: int, experts: int, ranks: int) -> RefinementProof:
    """The proof of a prefill of DeepSeek-V3: latent attention in tiles, tokens in blocks."""
    shape = config_of("deepseek_v3")
    config = {**shape, "num_hidden_layers": layers, "n_routed_experts": experts}
    model = build(config, bf16, phases=("prefill",))
    module = clone_module(model)
    run_pipeline(module, parse(f"default{{target=trn2,tp={ranks},context=[12288]}}"))
    names = {op.name for op in module.programs()[0].ops}
    assert {"hlo.opaque", "scatter"} <= names
    return prove_refinement(model, module)


def test_more_layers_experts_and_ranks_of_a_mixture_are_not_more_to_compare() -> None:
    few, many = mixture(5, 64, 16), mixture(9, 256, 64)
    assert not few.open
    assert not many.open
    assert len(many.claims) == len(few.claims) + 4
    assert many.compared <= few.compared
    # Twice the layers with experts have at most twice the ops.
    assert many.visited < 3 * few.visited


def with_other_epsilon(module: Module, layer: int) -> Module:
    """The module with another epsilon in a norm of one layer."""
    changed = clone_module(module)
    (function,) = changed.programs()
    scope = f"model.layers.{layer}.post_attention_layernorm"
    (op,) = [op for op in function.block if op.name == "add" and op.loc.scope == scope]
    with Builder(function, before=op, loc=op.loc) as b:
        epsilon = b.full(0.25, op.result.type)
    op.set_operands((op.operands[0], epsilon))
    return changed


def test_more_layers_that_are_alike_are_not_more_to_compare() -> None:
    few, many = (prove_refinement(*deep(layers)) for layers in (3, 9))
    assert not few.open
    assert not many.open
    assert len(many.claims) == len(few.claims) + 12
    assert many.compared == few.compared
    # Each layer has places of its own whose rounding differs.
    places = [
        sum("layers.2." in place for place in found.rounding_places()) for found in (few, many)
    ]
    assert places[0] == places[1] > 0
    assert any("layers.8." in place for place in many.rounding_places())


@pytest.mark.parametrize(
    ("layers", "wrong"), [(6, 4), pytest.param(126, 73, marks=pytest.mark.slow)]
)
def test_one_constant_of_one_layer_is_found(layers: int, wrong: int) -> None:
    model, module = deep(layers)
    found = prove_refinement(model, with_other_epsilon(module, wrong))
    assert {c.output for c in found.open} == {
        "logits",
        *[
            f"model.layers.{n}.self_attn.{kind}_cache"
            for n in range(wrong + 1, layers)
            for kind in "kv"
        ],
    }
    assert any(f"layers.{wrong}." in place for place in found.open[0].pair)
