"""The logical module of a model computes what transformers computes, padded and step by step."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from graphgen.eval import MEANING, Array, evaluate
from graphgen.ir import Dim, Function, Module, Role
from graphgen.ir.clone import Cloner
from graphgen.ir.dtype import f32
from graphgen.models import build
from graphgen.models.registry import FAMILIES
from tests.oracles.families import CASES, ORACLES
from tests.oracles.stored_names import stored_tensors

ROWS, SLOTS = 3, 12
PROMPTS = [[3, 14, 15, 9, 26], [5, 35, 8], [9, 7, 9, 3, 2, 38, 46]]
NEXT = [[1, 50], [2, 51], [3, 52]]


def test_every_family_is_tried():
    assert set(ORACLES) == set(FAMILIES)


def ours(
    module: Module, phase: str, dims: dict[str, Dim], given: dict[str, Array]
) -> dict[str, Array]:
    bound = Function(phase)
    Cloner(symbols={**dims, "R": ROWS, "M": SLOTS}).function(module.function(phase), bound)
    return evaluate(bound, given, MEANING)


@pytest.mark.every_family
@pytest.mark.parametrize(("family", "variant"), CASES)
@pytest.mark.one_in(4)
def test_logits_are_those_of_transformers(family: str, variant: str):
    model = ORACLES[family].model(variant).double()
    module = build(json.loads(model.config.to_json_string(use_diff=False)), f32)
    tensors = stored_tensors(model)
    given = {row.name: tensors[row.name] for row in module.entries(Role.WEIGHT)}
    states = [row.name for row in module.entries(Role.STATE)]
    for row in module.entries(Role.STATE):
        given[row.name] = np.zeros(row.logical.bind({"R": ROWS, "M": SLOTS}).dims, np.float64)

    def expected(count: int) -> Array:
        """Logits of each row after its prompt and ``count`` more tokens, computed at one go."""
        with torch.no_grad():
            rows = [p + n[:count] for p, n in zip(PROMPTS, NEXT, strict=True)]
            return np.stack([model(torch.tensor([row])).logits[0, -1].numpy() for row in rows])

    # The first and the last prompt are padded behind, the second in front.
    tokens, positions = np.zeros((ROWS, 8), np.int32), np.full((ROWS, 8), -1, np.int32)
    for row, prompt in enumerate(PROMPTS):
        start = 8 - len(prompt) if row == 1 else 0
        tokens[row, start : start + len(prompt)] = prompt
        positions[row, start : start + len(prompt)] = range(len(prompt))
    lengths = np.array([len(prompt) for prompt in PROMPTS], np.int32)
    call = {"tokens": tokens, "positions": positions, "lengths": lengths}
    call["seq_ids"] = np.array([2, 0, 1], np.int32)
    out = ours(module, "prefill", {"B": ROWS, "S": 8, "C": 8}, {**given, **call})
    np.testing.assert_allclose(out["logits"], expected(0), rtol=1e-4, atol=1e-4)
    for step in range(2):
        given |= {state: out[state] for state in states}
        call |= {
            "tokens": np.array([[row[step]] for row in NEXT], np.int32),
            "positions": (lengths + step)[:, None],
            "lengths": lengths + step + 1,
        }
        out = ours(module, "decode", {"B": ROWS, "C": SLOTS}, {**given, **call})
        np.testing.assert_allclose(out["logits"], expected(step + 1), rtol=1e-4, atol=1e-4)
