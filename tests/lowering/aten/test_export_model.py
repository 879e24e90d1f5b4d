"""Models that torch cannot export: the line at fault, and what to do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from graphgen.errors import GraphgenError
from graphgen.lowering.aten.export_model import export


class Branching(nn.Module):
    """A model that looks at the value of a tensor."""

    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            return x + 1
        return x


def test_a_branch_on_the_value_of_a_tensor(capfd: pytest.CaptureFixture[str]):
    with pytest.raises(GraphgenError) as caught:
        export(Branching(), (torch.ones(3),), {})
    assert caught.value.what == "the model branches on the value of a tensor: if x.sum() > 0:"
    assert caught.value.where.startswith("test_export_model.py:")
    assert "torch.where" in caught.value.help
    # Not the page of text that torch prints.
    assert "def forward" not in "".join(capfd.readouterr())


def test_dynamic_rope_is_refused_by_name():
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        vocab_size=11,
        max_position_embeddings=16,
        use_cache=False,
        rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
    )
    model = transformers.LlamaForCausalLM(config)
    with pytest.raises(GraphgenError, match="rope_type 'dynamic' computes") as caught:
        export(model, (torch.ones((1, 4), dtype=torch.int64),), {})
    assert "rope_type yarn" in caught.value.help
