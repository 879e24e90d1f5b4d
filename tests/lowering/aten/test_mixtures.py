"""Mixtures of transformers, exported by torch in the forms ``batched_mm`` and ``grouped_mm``.

The loop over the experts that were hit, transformers' eager form, depends on data, and
``torch.export`` refuses it; Llama 4's eager form is a product.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphgen.ir import Module
from graphgen.ir.clone import clone_module
from graphgen.lowering.aten.program import Exported, read_exported
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import parse
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from tests.oracles import exported


def read(
    family: str, experts: str = "batched_mm", layers: int = 2
) -> tuple[Exported, np.ndarray, np.ndarray]:
    """A mini model as it was read, with tokens and what torch says of them."""
    made = exported.model(family, "eager", num_hidden_layers=layers)
    made.set_experts_implementation(experts)
    torch.manual_seed(3)
    ids = torch.randint(0, exported.VOCABULARY, (exported.ROWS, exported.TOKENS))
    with torch.no_grad():
        logits = made(ids).logits.numpy()
    return read_exported(exported.export(made, ids), family), ids.numpy(), logits


def count(module: Module, name: str) -> int:
    return sum(op.name == name for op in module.function("main").ops)


def logits_of(found: Exported, ids: np.ndarray) -> np.ndarray:
    return np.asarray(found.module.evaluate({**found.weights, "input_ids": ids})["logits"])


def test_experts_of_transformers_are_found():
    found, ids, logits = read("qwen3_moe", layers=1)
    run_pipeline(found.module, parse("imported"))
    assert count(found.module, "experts") == count(found.module, "top_k") == 1
    np.testing.assert_allclose(logits_of(found, ids), logits, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "form"),
    [
        *[(family, "batched_mm") for family in ("mixtral", "qwen3_moe", "qwen2_moe", "gpt_oss")],
        *[(family, "grouped_mm") for family in ("mixtral", "gpt_oss", "granitemoe")],
        ("llama4_text", "eager"),
    ],
)
def test_they_are_divided_and_dispatched_as_those_of_families(family: str, form: str):
    found, ids, logits = read(family, form)
    np.testing.assert_allclose(logits_of(found, ids), logits, rtol=1e-4, atol=1e-4)
    run_pipeline(found.module, parse("imported"))
    assert count(found.module, "experts") == count(found.module, "top_k") == 2
    np.testing.assert_allclose(logits_of(found, ids), logits, rtol=1e-4, atol=1e-4)
    script = make_workload(found.module, seed=0)
    checked = validate(clone_module(found.module), parse("default{tp=2,moe_ep_degree=2}"), script)
    assert [verdict.pass_text for verdict in checked if not verdict.ok] == []
