"""Quantized weights of ``experts``: numbers and scales in every form, over ranks too."""

from __future__ import annotations

import pytest

from graphgen.ir import Module, Role
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.pipelines import parse
from graphgen.passes.quantization.quantize_weights import QuantizeWeights
from graphgen.passes.quantization.schemes import DTYPES, GROUP, SCHEMES
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from tests.passes.sharding.mixture_module import mixture_module

EVERY = [(kind, scheme, 0) for kind in DTYPES for scheme in SCHEMES] + [("int4", GROUP, 4)]
FORMS = ["all", "selective", "blockwise", "selective,target=trn2", "blockwise,target=trn2"]


def params(module: Module) -> dict[str, str]:
    """Types of what the weight program prepares, of the first mixture."""
    return {
        row.name.removeprefix("layers.0."): row.physical.text for row in module.entries(Role.PARAM)
    }


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("kind", "scheme", "size"), EVERY)
@pytest.mark.one_in(3)
def test_every_form_keeps_its_meaning(kind: str, scheme: str, size: int, form: str):
    module = mixture_module(biases=True, element="bf16")
    narrow = QuantizeWeights(kind, scheme, (), size)
    dispatch = parse_pipeline(f"dispatch-experts{{form={form}}},lift-weights")
    verdicts = validate(module, [narrow, *dispatch], make_workload(module, seed=1))
    assert [str(verdict) for verdict in verdicts if not verdict.ok] == []


@pytest.mark.parametrize("form", FORMS)
def test_products_read_numbers_and_are_scaled(form: str):
    module = mixture_module(biases=True)
    run_pipeline(module, parse(f"quantize-weights,dispatch-experts{{form={form}}},lift-weights"))
    (program,) = module.programs()
    assert not {"dequantize", "experts", "take"} & {op.name for op in program.ops}
    # A loop over blocks cuts scales as they are.
    assert params(module) == {
        "gate.quantized": "s8[4,12,8]",
        "gate.scale": "f32[4,12,1]",
        "up.quantized": "s8[4,12,8]",
        "up.scale": "f32[4,12,1]",
        "down.quantized": "s8[4,8,12]",
        "down.scale": "f32[4,8,1]",
    }
    assert {arg.name for arg in program.args if arg.type.dtype.is_float} == {
        "x",
        *[f"layers.0.{last}" for last in ("router", "gate_bias", "up_bias", "down_bias")],
        *[f"layers.0.{last}.scale" for last in ("gate", "up", "down")],
    }


def test_mixtral_int8_scales_the_outputs_of_down():
    """transformers-neuronx takes the wrong dimension of w2's scale: an invalid broadcast."""
    module = mixture_module(3, 10)
    run_pipeline(module, parse("quantize-weights,dispatch-experts{form=all},lift-weights"))
    (program,) = module.programs()
    scale = program.arg("layers.0.down.scale")
    assert scale is not None
    # [experts, outputs, 1], spread over [experts, tokens, outputs].
    (spread,) = scale.users
    assert (scale.type.text, spread.result.type.text) == ("f32[3,8,1]", "f32[3,6,8,1]")
    assert spread.attrs.integers("dimensions") == (0, 2, 3)


def test_a_tensor_is_that_of_one_expert():
    module = mixture_module()
    text = "quantize-weights{scheme=per_tensor_symmetric},dispatch-experts{form=all},lift-weights"
    run_pipeline(module, parse(text))
    assert {name: text for name, text in params(module).items() if "scale" in name} == {
        "gate.scale": "f32[4,1,1]",
        "up.scale": "f32[4,1,1]",
        "down.scale": "f32[4,1,1]",
    }


def test_groups_of_the_chosen_experts_alone_are_widened():
    module = mixture_module(stacked=True)
    text = "quantize-weights{dtype=int4,scheme=group,group_size=4},"
    text += "dispatch-experts{form=selective,target=trn2}"
    run_pipeline(module, parse(text))
    (program,) = module.programs()
    widened = [op for op in program.ops if op.name == "dequantize"]
    # Six tokens with two experts each, not the four experts.
    assert [op.result.type.text for op in widened] == [
        "f32[12,12,8]",
        "f32[12,12,8]",
        "f32[12,8,12]",
    ]


RANKS = [
    ("tp=2", "{-,tp,-}", "f32[4,6,1]", "f32[4,8,1]"),
    ("tp=3,rules=[intermediate:-,experts:tp]", "{tp,-,-}", "f32[2,12,1]", "f32[2,8,1]"),
    ("mesh=[ep:2,tp:2],rules=[experts:ep]", "{ep,tp,-}", "f32[2,6,1]", "f32[2,8,1]"),
]


@pytest.mark.parametrize(("kind", "scheme", "size"), EVERY)
@pytest.mark.parametrize("ranks", [row[0] for row in RANKS])
@pytest.mark.one_in(5)
def test_ranks_have_the_scales_of_their_weights(ranks: str, kind: str, scheme: str, size: int):
    module = mixture_module(4, 12, biases=True)
    narrow = QuantizeWeights(kind, scheme, (), size)
    text = f"shard{{{ranks}}},pad-to-mesh,partition,dispatch-experts,lift-weights"
    verdicts = validate(module, [narrow, *parse(text)], make_workload(module, seed=2))
    assert [str(verdict) for verdict in verdicts if not verdict.ok] == []


@pytest.mark.parametrize(("ranks", "layout", "gate", "down"), RANKS)
def test_scales_lie_as_their_weights_do(ranks: str, layout: str, gate: str, down: str):
    module = mixture_module(4, 12)
    run_pipeline(module, parse(f"quantize-weights,shard{{{ranks}}}"))
    (program,) = module.programs()
    numbers, scale = next(op.results for op in program.ops if op.name == "quantize")
    found = [value.sharding.text for value in (numbers, scale) if value.sharding]
    assert found == [layout, layout]
    run_pipeline(module, parse("pad-to-mesh,partition,dispatch-experts{form=all},lift-weights"))
    prepared = params(module)
    assert (prepared["gate.scale"], prepared["down.scale"]) == (gate, down)


def test_the_router_and_a_weight_that_is_read_elsewhere_stay_wide():
    journal = Journal()
    module = mixture_module()
    run_pipeline(module, [QuantizeWeights()], journal=journal)
    whys = {miss.why.reason for miss in journal.misses if miss.pass_name == "quantize-weights"}
    assert "it chooses experts, and keeps its type" in whys
    skipping = mixture_module()
    run_pipeline(skipping, [QuantizeWeights(skip=("down",))])
    (program,) = skipping.programs()
    (mixture,) = [op for op in program.ops if op.name == "experts"]
    made = [value.op.name if value.op else value.name for value in mixture.operands[3:6]]
    assert made == ["dequantize", "dequantize", "layers.0.down"]
