"""Forms of a mixture of experts: each computes what the op means."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from graphgen.config.option_words import EXPERT_DISPATCH
from graphgen.eval import MEANING, Array, evaluate
from graphgen.ir import Module, Op, tensor
from graphgen.ir.clone import clone_module
from graphgen.ir.dtype import bf16, f32
from graphgen.ops import OPS
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from tests.passes.experts.mixtures import KINDS, Attributes, arrays, choices, mixture

MIXTURES: Mapping[str, Attributes] = {
    "glu": {},
    "swiglu": {
        "glu": "swiglu",
        "activation": "sigmoid",
        "activation_scale": 1.7,
        "up_offset": 1.0,
        "gate_upper": 1.5,
        "up_lower": -1.0,
        "up_upper": 1.0,
    },
    "early": {"modulate": "input"},
    "capacity": {"capacity": 2},
}
FORMS = EXPERT_DISPATCH[1:]
TARGETS = ("cpu", "trn2")
GATE, DOWN = tensor(f32, (5, 4, 6)), tensor(f32, (5, 6, 4))
LIMIT = 1e-9


def dispatched(module: Module, form: str, target: str = "cpu", block: int = 2) -> Module:
    copy = clone_module(module)
    options = f"form={form},block={block},target={target}"
    run_pipeline(copy, parse_pipeline(f"dispatch-experts{{{options}}}"))
    return copy


def result(module: Module, given: Mapping[str, Array]) -> Array:
    (function,) = module.programs()
    return evaluate(function, given, MEANING, module=module)["y"]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MIXTURES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tokens", [1, 13])
def test_a_form_means_what_the_op_means(form: str, target: str, name: str, kind: str, tokens: int):
    module = mixture(tokens, attrs=MIXTURES[name], biases=name != "glu")
    given = arrays(module, choices(kind, tokens, 2, 5, seed=tokens))
    made = dispatched(module, form, target)
    assert not [op for f in made.functions.values() for op in f.ops if OPS[op.name].composite]
    np.testing.assert_allclose(result(made, given), result(module, given), rtol=LIMIT, atol=LIMIT)


def test_the_kinds_of_choices_are_what_they_say():
    found = {kind: choices(kind, 13, 2, 5) for kind in KINDS}
    assert set(found["one absent"].ravel()) == {0, 1, 3, 4}
    assert (found["one"] == 1).any(axis=1).all()
    assert {-1, 5} < set(found["padding"].ravel())
    assert {index for index in found["elsewhere"].ravel() if 0 <= index < 5}
    assert found["elsewhere"].min() < -1
    assert found["elsewhere"].max() > 5
    assert all(
        (rows[:, 0] != rows[:, 1]).all() for kind, rows in found.items() if kind != "padding"
    )


@pytest.mark.parametrize("form", EXPERT_DISPATCH)
def test_a_form_in_bf16_is_within_its_budget(form: str):
    module = mixture(7, attrs=MIXTURES["swiglu"], element=bf16, biases=True, routed=True)
    passes = parse_pipeline(f"dispatch-experts{{form={form}}}")
    (verdict,) = validate(module, passes, make_workload(module))
    assert verdict.ok


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", ["selective", "blockwise"])
@pytest.mark.parametrize("scheme", ["dtype=int8", "dtype=f8e4m3"])
def test_quantized_matrices_are_widened_after_they_are_chosen(target: str, form: str, scheme: str):
    module = mixture(9, biases=True, routed=True)
    dispatch = f"dispatch-experts{{form={form},block=2,target={target}}}"
    passes = parse_pipeline(f"quantize-weights{{{scheme}}},{dispatch},dce")
    verdicts = validate(module, passes, make_workload(module))
    assert [verdict.pass_text for verdict in verdicts if not verdict.ok] == []
    run_pipeline(module, passes)
    assert any(op.name in ("convert", "dequantize") for op in ops(module))
    assert not [op for op in ops(module) if op.results[0].type in (GATE, DOWN)]


def ops(module: Module) -> list[Op]:
    """Those of all functions."""
    return [op for function in module.functions.values() for op in function.ops]
