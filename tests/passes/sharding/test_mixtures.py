"""Mixtures of experts over ranks: inner features or experts are split, and sums are taken once."""

from __future__ import annotations

import pytest

from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.pipelines import parse
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse as parse_text
from tests.passes.sharding.mixture_module import mixture_module

BY_EXPERTS = "shard{tp=TP,rules=[intermediate:-,experts:tp]},pad-to-mesh,partition"
BY_BOTH = "shard{mesh=[ep:2,tp:2],rules=[experts:ep]},pad-to-mesh,partition"


def differences(module: Module, text: str, seed: int = 1) -> list[str]:
    """What validation finds wrong, pass by pass."""
    verdicts = validate(module, parse(text), make_workload(module, seed))
    assert verdicts
    return [str(verdict) for verdict in verdicts if not verdict.ok]


def collectives(module: Module) -> list[str]:
    """Those of the program, with what they move."""
    (program,) = module.programs()
    return [
        f"{op.name} {op.result.type.text}" for op in program.ops if "replica_groups" in op.attrs
    ]


def layouts(module: Module) -> dict[str, str]:
    """Of the weights of the first mixture."""
    return {
        row.name.removeprefix("layers.0."): row.sharding.text
        for row in module.interface.values()
        if row.sharding and row.name.startswith("layers.0.")
    }


@pytest.mark.parametrize("stacked", [False, True])
def test_ranks_share_the_inner_features_of_every_expert(stacked: bool):
    module = mixture_module(biases=not stacked, stacked=stacked, layers=2)
    assert differences(module, "default{tp=2}") == []
    run_pipeline(module, parse("default{tp=2}"))
    # One sum a mixture; the router is whole.
    assert collectives(module) == ["all_reduce f32[6,8]"] * 2
    if not stacked:
        assert layouts(module) == {
            "gate": "{-,tp,-}",
            "up": "{-,tp,-}",
            "down": "{-,-,tp}",
            "gate_bias": "{-,tp}",
            "up_bias": "{-,tp}",
        }


@pytest.mark.parametrize("text", ["shard{tp=2}", "shard{tp=2,rules=[intermediate:-,experts:tp]}"])
def test_what_is_computed_of_weights_is_laid_out(text: str):
    module = mixture_module(stacked=True)
    run_pipeline(module, parse_pipeline(text))
    (program,) = module.programs()
    (mixture,) = [op for op in program.ops if op.name == "experts"]
    found = [str(value.sharding and value.sharding.text) for value in mixture.operands[3:]]
    by_experts = "experts" in text
    assert found == (["{tp,-,-}"] * 3 if by_experts else ["{-,tp,-}", "{-,tp,-}", "{-,-,tp}"])


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("tp", [2, 4])
def test_ranks_have_experts_of_their_own(tp: int, stacked: bool):
    module = mixture_module(biases=not stacked, stacked=stacked)
    text = BY_EXPERTS.replace("TP", str(tp))
    assert differences(module, text) == []
    run_pipeline(module, parse(text))
    assert collectives(module) == ["all_reduce f32[6,8]"]


@pytest.mark.parametrize("biases", [False, True])
def test_experts_over_one_axis_and_features_over_the_other(biases: bool):
    module = mixture_module(biases=biases)
    assert differences(module, BY_BOTH) == []
    run_pipeline(module, parse(BY_BOTH))
    assert collectives(module) == ["all_reduce f32[6,8]"]
    (program,) = module.programs()
    (mixture,) = [op for op in program.ops if op.name == "experts"]
    assert mixture.operands[3].type.text == "f32[2,6,8]"


# Two axes have many more plans to choose from than one.
SLOW = pytest.mark.slow
DEGREES = [
    *((2, 2), (3, 3), (4, 2), (4, 4)),
    *(pytest.param(6, 2, marks=SLOW), pytest.param(6, 3, marks=SLOW)),
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("tp", "ep"), DEGREES)
@pytest.mark.parametrize("form", ["all", pytest.param("selective", marks=SLOW)])
def test_degrees_of_a_compilation(tp: int, ep: int, form: str):
    # Six experts do not divide over four groups.
    module = mixture_module(6, 12, layers=2)
    text = f"default{{tp={tp},moe_ep_degree={ep},expert_dispatch={form}}}"
    assert differences(module, text) == []
    run_pipeline(module, parse(text))
    alone = ep == tp
    assert module.mesh == ({"tp": tp} if alone else {"ep": ep, "tp": tp // ep})
    assert collectives(module) == ["all_reduce f32[6,8]"] * 2
    assert layouts(module)["gate"] == ("{tp,-,-}" if alone else "{ep,tp,-}")


@pytest.mark.slow
def test_degrees_of_numbers_in_eight_bits():
    text = "quantize-weights,default{tp=4,moe_ep_degree=2}"
    assert differences(mixture_module(4, 12, biases=True, element="bf16"), text) == []


DENSE = """module @m level=canonical {
  input %x : f32[2,4]
  weight %w : f32[4,4]
  output %y : f32[2,4]
}

func @f phase=main {
  arg %x : f32[2,4]
  arg %w : f32[4,4]
  %y = dot_general(%x, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : f32[2,4]
  return y = %y
}
"""


@pytest.mark.parametrize(
    ("module", "options", "why"),
    [
        (mixture_module(), "tp=4,moe_ep_degree=3", "tp=4 ranks are not moe_ep_degree=3 groups"),
        (mixture_module(), "tp=1,moe_ep_degree=2", "tp=1 ranks are not moe_ep_degree=2 groups"),
        (mixture_module(), "moe_ep_degree=0", "moe_ep_degree is '0', expected an integer >= 1"),
        (parse_text(DENSE), "tp=2,moe_ep_degree=2", "no program has an op experts"),
    ],
)
def test_degrees_that_cannot_be(module: Module, options: str, why: str):
    with pytest.raises(GraphgenError, match=why) as caught:
        run_pipeline(module, parse(f"default{{{options}}}"))
    assert caught.value.code == "GG0302"


# An activation of zero that is not zero, biases, and a summand of up that padding has too.
HARD = {"activation": "sigmoid", "up_offset": 1.0, "gate_upper": 7.0}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("capacity", [0, 2])
@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("shard{tp=5},pad-to-mesh,partition", (5, 3)),
        (BY_EXPERTS.replace("TP", "3"), (2, 11)),
        ("shard{mesh=[ep:2,tp:3],rules=[experts:ep]},pad-to-mesh,partition", (3, 4)),
    ],
)
def test_what_does_not_divide_gets_zeros(
    text: str, parts: tuple[int, int], capacity: int, biases: bool
):
    module = mixture_module(5, 11, biases=biases, capacity=capacity, **HARD)
    assert differences(module, text, seed=capacity) == []
    run_pipeline(module, parse(text))
    (program,) = module.programs()
    (mixture,) = [op for op in program.ops if op.name == "experts"]
    assert mixture.operands[3].shape == (*parts, 8)
    assert collectives(module) == ["all_reduce f32[6,8]"]


def test_sums_of_mixtures_are_sent_in_a_narrower_type():
    module = mixture_module()
    run_pipeline(module, parse("default{tp=2,rpl_reduce_dtype=bf16}"))
    assert collectives(module) == ["all_reduce bf16[6,8]"]
