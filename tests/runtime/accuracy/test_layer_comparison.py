"""The first wrong layer: planted errors in transformers' models and in stubs."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from graphgen.errors import GraphgenError
from graphgen.runtime.accuracy.hugging_face_model import HuggingFaceModel
from graphgen.runtime.accuracy.layer_comparison import compare_layers
from graphgen.runtime.accuracy.step_model import HiddenStates
from tests.oracles.families import ORACLES

TOKENS = [3, 14, 15, 9, 26, 5, 35]


def planted(model: PreTrainedModel, name: str) -> PreTrainedModel:
    """A copy in which weights whose name contains ``name`` are 1 % too large."""
    changed = copy.deepcopy(model)
    with torch.no_grad():
        for key, weight in changed.named_parameters():
            if name in key:
                weight.mul_(1.01)
    return changed


@pytest.fixture(scope="module")
def mini() -> PreTrainedModel:
    return ORACLES["llama"].model(num_hidden_layers=4)


@pytest.mark.parametrize(
    ("name", "first", "place"),
    [
        (".layers.2.", 2, "layer 2"),
        (".layers.0.mlp.down_proj", 0, "layer 0"),
        (".layers.3.self_attn.q_proj", 3, "layer 3"),
        ("embed_tokens", -1, "embedding"),
        ("model.norm", 3, "layer 3"),
        ("lm_head", None, "the head after the last layer, or the rounding of f32"),
        ("nothing", None, "the head after the last layer, or the rounding of f32"),
    ],
)
def test_the_first_wrong_layer_is_named(
    mini: PreTrainedModel, name: str, first: int | None, place: str
):
    result = compare_layers(
        HuggingFaceModel(mini), HuggingFaceModel(planted(mini, name)), TOKENS, "f32"
    )
    assert len(result.layers) == 5
    assert result.to_json()["first_layer"] == first
    assert result.place == place


def test_rounding_of_the_element_type_is_no_error(mini: PreTrainedModel):
    narrow = HuggingFaceModel(copy.deepcopy(mini).bfloat16())
    assert compare_layers(HuggingFaceModel(mini), narrow, TOKENS, "bf16").first is None
    assert compare_layers(HuggingFaceModel(mini), narrow, TOKENS, "f32").first is not None


class Stub:
    """Hidden states of two layers, given."""

    def __init__(self, *states: HiddenStates) -> None:
        self.states = list(states)

    def hidden_states(self, tokens: Sequence[int]) -> list[HiddenStates]:
        return self.states


ONES = np.ones((2, 3), np.float32)


def test_nan_and_zero_are_compared_too():
    bad = ONES.copy()
    bad[1, 2] = np.nan
    result = compare_layers(Stub(ONES, ONES), Stub(ONES, bad), [1, 2], "f32")
    assert result.first is not None
    assert (result.first.layer, result.first.worst_token) == (0, 1)
    assert result.to_json()["layers"][1]["relative_error"] == "inf"  # type: ignore[index, call-overload]
    zero = Stub(0 * ONES, ONES)
    assert compare_layers(zero, zero, [1], "f32").first is None
    assert compare_layers(zero, Stub(ONES, ONES), [1], "f32").first is not None


def test_other_models_and_types_are_refused():
    with pytest.raises(GraphgenError, match="1 layers of size 3, the tested model 0 of size 3"):
        compare_layers(Stub(ONES, ONES), Stub(ONES), [1], "f32")
    with pytest.raises(GraphgenError, match="rounding of f12 is not known; known are f32, f16"):
        compare_layers(Stub(ONES), Stub(ONES), [1], "f12")
