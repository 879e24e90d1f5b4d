"""Mini twins decide as their models do, and decisions are told apart by what matters."""

from __future__ import annotations

import pytest

from graphgen.ir import dtype
from graphgen.models import SHAPES, build, known_shape, read_model_config
from passes.core import run_pipeline
from passes.core.journal import Journal
from passes.debug.decisions import Decisions, Site, decisions, differences
from passes.legalize.legalize import TARGETS
from passes.pipelines import Buckets, default

BUCKETS = Buckets(context=(128,), tokens=(128,))


def decided(config: dict[str, object], *, tp: int, mini: bool, target: str = "cpu") -> Decisions:
    """What the default pipeline decides."""
    module = build(config, dtype("bf16"), mini=mini)
    run_pipeline(module, default(BUCKETS, tp=tp, target=target), journal=(journal := Journal()))
    return decisions(journal)


def ranks(config: dict[str, object]) -> list[int]:
    """One rank, and the least number that divides the heads of the model and of its twin."""
    read = read_model_config(config)
    heads = [one.to_hf()["num_key_value_heads"] for one in (read, read.mini())]
    split = [tp for tp in (2, 3, 4, 5, 7) if all(int(str(n)) % tp == 0 for n in heads)]
    return [1, *split[:1]]


CASES = [
    (name, tp, target)
    for name in SHAPES
    for tp in ranks(dict(known_shape(name)))
    for target in TARGETS
]


@pytest.mark.parametrize(("name", "tp", "target"), CASES)
def test_a_twin_decides_as_its_model(name: str, tp: int, target: str):
    config = dict(known_shape(name))
    twin = decided(config, tp=tp, mini=True, target=target)
    model = decided(config, tp=tp, mini=False, target=target)
    assert differences(twin, model) == []
    rules = {site.rule for site in twin.made}
    assert {"fuse-siblings", "inline attention, wide-dot"} <= rules
    assert twin.near
    assert sum(map(len, twin.made.values())) > 20


def test_most_models_are_compared_on_several_ranks():
    assert len([1 for _, tp, _ in CASES if tp > 1]) * 2 >= len(SHAPES)


def test_another_decision_shows():
    config = dict(known_shape("llama-3.1-8b"))
    one = decided(config, tp=1, mini=True)
    two = decided({**config, "num_hidden_layers": 5}, tp=1, mini=False)
    assert differences(one, two) == []
    # A bias more is an operation more, in every layer.
    biased = decided({**config, "mlp_bias": True}, tp=1, mini=True)
    found = differences(one, biased)
    assert any("mlp.down_proj" in line and "never here" in line for line in found)


def test_what_is_compared():
    at = Site("p", "r", "f", "layers.N")
    one = Decisions({at: {1: 32}}, {at: "N rows are enough"})
    assert differences(one, Decisions({at: {1: 2}}, {at: "N rows are enough"})) == []
    assert differences(one, Decisions({at: {2: 32}}, {at: "N rows are too many"})) == [
        "p: r in @f layers.N: applied 1 times here, 2 times there",
        "p: r in @f layers.N: 'N rows are enough' here, 'N rows are too many' there",
    ]
    assert differences(one, Decisions()) == [
        "p: r in @f layers.N: applied 1 times here, never there",
        "p: r in @f layers.N: 'N rows are enough' here, '-' there",
    ]
