"""Heads of Medusa in a model's programs, against NumPy from the paper."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import graphgen.passes.pipelines  # noqa: F401
from graphgen.config.compile_config import CompileConfig
from graphgen.eval import evaluate
from graphgen.exec.inputs import RandomInputs
from graphgen.ir import VERIFY_TREE, Function, Module, Role, dtype
from graphgen.models import PHASES, build, known_shape
from graphgen.models.medusa import MEDUSA_LOGITS, MEDUSA_TOKENS, MedusaShape
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.pipelines import default
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import workload_for
from tests.matrix.axes import config_of
from tests.oracles.medusa import head_logits, random_heads

SHAPES = [MedusaShape(3), MedusaShape(2, 2), MedusaShape(2, 1, own=False)]


def model(shape: MedusaShape, family: str = "", features: tuple[int, ...] = ()) -> Module:
    config = config_of(family) if family else known_shape("llama-3.1-8b")
    phases = (*PHASES, VERIFY_TREE)
    wide = dtype("f32")
    return build(config, wide, phases=phases, mini=True, feature_layers=features, medusa=shape)


def tree_program(module: Module) -> Function:
    return next(f for f in module.programs() if f.phase == VERIFY_TREE)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_heads_compute_what_the_paper_says(shape: MedusaShape):
    # The features are the hidden states after the last norm.
    module = model(replace(shape, best=0), features=(-1,))
    sizes = "specialize{batch=[2],tokens=[8],context=[8],tree_nodes=4}"
    run_pipeline(module, parse_pipeline(sizes))
    function = tree_program(module)
    draw = RandomInputs(module, function, 3)
    rows = {row.name: row for row in module.interface.values()}
    given = {v.name or "": draw.make(rows[v.name or ""], v.type) for v in function.args}
    size = given["lm_head.weight"].shape
    heads = random_heads(size[1], size[0], shape.heads, shape.blocks, shape.own)
    given |= {f"medusa_head.{name}": array for name, array in heads.items()}
    made = evaluate(function, given)
    assert made[MEDUSA_LOGITS].shape == (2, 4, shape.heads, size[0])
    for head in range(shape.heads):
        wanted = head_logits(heads, head, np.asarray(made["features"]), given["lm_head.weight"])
        np.testing.assert_allclose(made[MEDUSA_LOGITS][:, :, head], wanted, rtol=1e-4, atol=1e-5)


def test_programs_give_the_best_tokens_in_order():
    module = model(MedusaShape(2, best=4))
    assert module.interface[MEDUSA_TOKENS].logical.text == "s32[B,S,2,4]"
    others = [f for f in module.programs() if f.phase != VERIFY_TREE]
    assert not any(name == MEDUSA_TOKENS for f in others for name, _ in f.outputs)
    weights = [row.name for row in module.entries(Role.WEIGHT) if "medusa" in row.name]
    assert weights == [
        f"medusa_head.{head}.{name}"
        for head in range(2)
        for name in ("0.linear.weight", "0.linear.bias", "1.weight")
    ]


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("shape", "family", "changes"),
    [
        (SHAPES[0], "llama", {}),
        (SHAPES[0], "llama", {"tp": 2}),
        (SHAPES[1], "mistral", {"tp": 3, "roll_window_cache": True}),
        (SHAPES[2], "bloom", {"tp": 2}),
        (SHAPES[2], "gemma3_text", {"page_cache": 4}),
    ],
    ids=str,
)
def test_every_pass_keeps_what_they_compute(
    shape: MedusaShape, family: str, changes: dict[str, object]
):
    item = model(shape, family)
    sizes = CompileConfig(batch=(3,), context=(8,), tokens=(8, 16), tree_nodes=5)
    passes = default(sizes.updated(changes))
    verdicts = validate(item, passes, workload_for(item, passes, seed=2))
    assert [verdict.pass_text for verdict in verdicts if not verdict.ok] == []
