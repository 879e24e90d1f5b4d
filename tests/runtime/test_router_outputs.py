"""Programs return what routers gave, and a session counts the choices that experts dropped."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphgen.config.compile_config import CompileConfig
from tests.oracles.families import ORACLES, save
from tests.oracles.sessions import open_session

TOKENS = 8
CONFIG = CompileConfig(dtype="f32", batch=(2,), context=(TOKENS,), tokens=(2 * TOKENS,))
ROUTERS = {"mixtral": ".gate", "gpt_oss": ".router", "deepseek_v3": ".gate"}


def routed(family: str, model: Any, rows: list[list[int]]) -> list[torch.Tensor]:
    """What each router's product gives, f32 [B,S,E], of the hidden states that it is given."""
    found: list[torch.Tensor] = []

    def product(module: Any, given: tuple[torch.Tensor, ...]) -> None:
        states = given[0].reshape(len(rows), TOKENS, -1)
        bias = getattr(module, "bias", None)
        found.append(torch.nn.functional.linear(states, module.weight, bias))

    for name, module in model.named_modules():
        if name.endswith(ROUTERS[family]):
            module.register_forward_pre_hook(product)
    with torch.no_grad():
        model(torch.tensor(rows))
    return found


@pytest.mark.parametrize(
    ("family", "ranks"), [("mixtral", (2, 2)), ("gpt_oss", (1, 1)), ("deepseek_v3", (1, 1))]
)
def test_router_values_are_those_of_transformers(
    family: str, ranks: tuple[int, int], tmp_path: Path
):
    model = ORACLES[family].model(initializer_range=0.1)
    save(model, tmp_path)
    tp, ep = ranks
    more = {"tp": tp, "moe_ep_degree": ep, "return_router_logits": True}
    session = open_session(tmp_path, CONFIG.updated({**more, "return_expert_index": True}))
    rows = np.random.default_rng(1).integers(0, 61, (2, TOKENS))
    result = session.step(rows, np.tile(np.arange(TOKENS), (2, 1)))
    theirs = routed(family, model, rows.tolist())
    assert len(result.router_logits) == len(result.expert_index) == len(theirs) > 0
    for logits, index, wanted in zip(
        result.router_logits, result.expert_index, theirs, strict=True
    ):
        np.testing.assert_allclose(logits, wanted.numpy(), rtol=0, atol=1e-5)
        if family != "deepseek_v3":
            # No groups and no correction: the best logits are chosen.
            best = torch.topk(wanted, index.shape[-1]).indices.numpy()
            np.testing.assert_array_equal(index, best)


def test_dropped_choices_are_counted(tmp_path: Path):
    save(ORACLES["mixtral"].model(initializer_range=0.1), tmp_path)
    limited = {"capacity_factor": 0.5, "return_expert_index": True}
    session = open_session(tmp_path, CONFIG.updated(limited))
    rows = np.random.default_rng(1).integers(0, 61, (2, TOKENS))
    result = session.step(rows, np.tile(np.arange(TOKENS), (2, 1)))
    # Both prompts fill the bucket, so that all choices are those of tokens.
    places, experts = 2 * TOKENS, ORACLES["mixtral"].sizes.get("num_local_experts", 8)
    dropped = 0
    for index in result.expert_index:
        capacity = ceil(places * index.shape[-1] * 0.5 / experts)
        counts = np.bincount(index.ravel(), minlength=experts)
        dropped += int(np.maximum(counts - capacity, 0).sum())
    choices = session.outputs.choices
    assert choices is not None
    assert (choices.dropped, choices.made) == (dropped, sum(i.size for i in result.expert_index))
    assert dropped > 0
    assert open_session(tmp_path, CONFIG).outputs.choices is None
