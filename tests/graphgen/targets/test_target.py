"""Targets: data of the shipped ones, and one of a user's file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir.dtype import f32
from graphgen.lowering.check.check import check
from graphgen.lowering.check.predicates import Request
from graphgen.models import build, known_shape
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.legalize.legalization_rules import EVERYWHERE, rules_of
from graphgen.passes.pipelines import default, phases
from graphgen.targets import Target, accelerator, find_target, register_target, target_names
from graphgen.targets import target as registry
from graphgen.targets.target import read_target
from graphgen.text import print_module

SMALL = CompileConfig(batch=(1,), context=(8,), tokens=(8,))


@pytest.fixture
def lab_chip() -> Iterator[Target]:
    yield register_target(replace(find_target("trn2"), name="lab-chip", legality="trn2"))
    registry._REGISTERED.pop("lab-chip")


@pytest.mark.parametrize("name", target_names())
def test_every_name_in_the_data_exists(name: str):
    target = find_target(name)
    rules = rules_of(target, 8)
    found = (*rules.first, *rules.sorts, *rules.inlined)
    assert len(found) + len(rules.composites) == len(EVERYWHERE) + len(target.rules)
    quantized = replace(SMALL, target=name, quantization="quantize-weights")
    wanted = {*target.passes.values(), *target.quantized_passes.values()}
    assert {p.name for text in wanted for p in parse_pipeline(text)} <= {
        p.name for p in default(quantized)
    }


def test_a_copy_of_a_target_is_compiled_for_like_it(lab_chip: Target):
    texts: list[str] = []
    for name in ("trn2", lab_chip.name):
        module = build(known_shape("llama-3.1-8b"), f32, mini=True)
        run_pipeline(module, default(replace(SMALL, target=name)))
        texts.append(print_module(module, locs=False))
        found = check(module, Request(name, 2))
        texts.append(repr([(item.rule, item.what) for item in found]))
    assert texts[:2] == texts[2:]
    assert accelerator(lab_chip.name).hbm_bytes == accelerator("trn2").hbm_bytes
    assert "lab-chip" in target_names()


def test_a_rule_that_does_not_exist(lab_chip: Target):
    with pytest.raises(GraphgenError, match="unknown rule 'wide-shfit'") as caught:
        rules_of(replace(lab_chip, rules=("wide-shfit",)), 8)
    assert (caught.value.help or "").startswith("did you mean wide-shift")


def test_a_phase_that_does_not_exist(lab_chip: Target):
    register_target(replace(lab_chip, passes={"shards": "cse"}))
    with pytest.raises(GraphgenError, match="unknown phase 'shards'"):
        phases(replace(SMALL, target="lab-chip"))


def test_a_key_that_does_not_exist():
    with pytest.raises(GraphgenError, match="a target has no 'pases'"):
        read_target({"name": "x", "pases": {}})
    with pytest.raises(GraphgenError, match="a target without a name"):
        read_target({})
