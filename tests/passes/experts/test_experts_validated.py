"""Mixtures through the whole default pipeline, and a planted bug that validation finds."""

from __future__ import annotations

from collections.abc import Sequence
from unittest import mock

import pytest

from graphgen.config.option_words import EXPERT_DISPATCH
from graphgen.passes.experts import token_blocks
from graphgen.passes.pipelines import parse
from graphgen.passes.validate import Verdict, validate
from graphgen.passes.workload.make_workload import make_workload
from tests.passes.experts.mixtures import Attributes, mixture
from tests.passes.sharding.mixture_module import mixture_module


def faults(verdicts: Sequence[Verdict]) -> list[str]:
    return [str(verdict) for verdict in verdicts if not verdict.ok]


@pytest.mark.parametrize("form", EXPERT_DISPATCH)
@pytest.mark.parametrize("target", ["cpu", "trn2"])
def test_the_default_pipeline_keeps_the_meaning(form: str, target: str):
    module = mixture(13, routed=True, biases=True)
    options = f"expert_dispatch={form},expert_block_size=2,target={target}"
    passes = parse(f"default{{{options}}}")
    verdicts = validate(module, passes, make_workload(module))
    assert faults(verdicts) == []
    assert verdicts[-1].complete


@pytest.mark.parametrize("form", EXPERT_DISPATCH)
@pytest.mark.parametrize("ranks", ["tp=2", "tp=2,rules=[experts:tp,moe_intermediate:-]"])
def test_ranks_with_parts_of_experts_dispatch_their_own(form: str, ranks: str):
    module = mixture_module(4, 12, biases=True)
    text = f"shard{{{ranks}}},pad-to-mesh,partition,dispatch-experts{{form={form}}},lift-weights"
    verdicts = validate(module, parse(f"{text},legalize"), make_workload(module, seed=2))
    assert faults(verdicts) == []


@pytest.mark.parametrize(
    ("form", "attrs"),
    [("blockwise", {}), ("blockwise", {"capacity": 2}), ("capacity", {"capacity": 2})],
)
def test_a_place_that_is_one_too_late_is_found(form: str, attrs: Attributes):
    module = mixture(13, routed=True, attrs=attrs)
    passes = parse(f"dispatch-experts{{form={form},block=2}}")
    real = token_blocks.earlier_tokens
    with mock.patch.object(token_blocks, "earlier_tokens", lambda b, call: real(b, call) + 1):
        (verdict,) = validate(module, passes, make_workload(module))
    assert verdict.state == "WRONG"
    assert verdict.guilty is not None
    assert verdict.guilty.rule == form
