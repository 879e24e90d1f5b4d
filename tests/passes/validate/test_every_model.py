"""Every pass of this repository on the mini twin of every model: nothing changes its meaning."""

from __future__ import annotations

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Module, dtype
from graphgen.models import build, known_shape
from graphgen.passes.validate import validate
from graphgen.passes.validate.verdict import coverage_stages
from graphgen.passes.workload.make_workload import make_workload
from tests.oracles.minis import MINI_RANKS, MINIS
from tests.oracles.pipeline_stages import ELSEWHERE, every_pass, our_passes

BUCKETS = CompileConfig(batch=(3,), context=(8,), tokens=(8, 16))


def mini(name: str) -> Module:
    return build(known_shape(name), dtype("f32"), mini=True)


def windowed(module: Module) -> bool:
    masks = [op for f in module.programs() for op in f.block if op.name == "attention_mask"]
    return any(op.attrs.integer(name) for op in masks for name in ("window", "chunk"))


@pytest.mark.parametrize(("name", "tp"), MINI_RANKS)
@pytest.mark.one_in(49)
def test_no_pass_changes_what_the_model_means(name: str, tp: int):
    module = mini(name)
    passes = every_pass(BUCKETS, tp=tp)
    if windowed(module):
        # Its caches are rings there, which have no blocks.
        passes = [item for item in passes if item.name != "page-cache"]
    verdicts = validate(module, passes, make_workload(module, seed=MINIS.index(name)))
    assert [verdict.pass_text for verdict in verdicts if not verdict.ok] == []
    assert len(verdicts) == len(passes)
    assert [text for text, found in coverage_stages(verdicts) if not found.complete] == []


@pytest.mark.parametrize("name", MINIS)
@pytest.mark.one_in(34)
def test_no_pass_of_the_quantized_model_does(name: str):
    # quantize-weights itself changes the numbers, within the budget it declares.
    module = mini(name)
    passes = every_pass(BUCKETS, quantized=True)
    verdicts = validate(module, passes, make_workload(module, seed=MINIS.index(name)))
    assert [verdict.pass_text for verdict in verdicts if not verdict.ok] == []


def test_these_are_all_the_passes():
    ran = {item.name for tp in (1, 2) for item in every_pass(BUCKETS, tp=tp)}
    ran |= {item.name for item in every_pass(BUCKETS, quantized=True)}
    assert set(our_passes()) - ran == set(ELSEWHERE)
