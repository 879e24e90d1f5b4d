"""DeepSeek's parts: routers of groups of experts, kinds of layers, what the cache keeps."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, Array, evaluate
from graphgen.ir import Function, Module, Role
from graphgen.ir.dtype import f32
from graphgen.models import build, known_shape
from graphgen.models.deepseek import read_deepseek_v2, read_deepseek_v3
from graphgen.nn import ExpertGroups, TopKRouter
from graphgen.nn.experts import route

TOKENS, EXPERTS = 40, 12


def routed(config: TopKRouter, logits: Array, bias: Array | None) -> tuple[Array, Array]:
    """What the router gives for logits f32 [T,E]."""
    module = Module("m")
    function = module.add(Function("f", phase="decode"))
    with Builder(function, module) as b:
        found = route(b, b.input("logits", f32, logits.shape), config)
        for name, value in zip(("indices", "weights"), found, strict=True):
            b.output(name, value)
    given = {"logits": logits} | ({} if bias is None else {config.correction: bias})
    out = evaluate(function, given, MEANING)
    return out["indices"], out["weights"]


def chosen(config: TopKRouter, logits: Array, bias: Array | None) -> tuple[Array, Array]:
    """The same by arXiv 2412.19437, section 2.1.2, a token at a time."""
    groups = config.groups
    assert groups is not None
    indices, weights = [], []
    for row in logits.astype(np.float64):
        power = np.exp(row - row.max())
        scores = power / power.sum() if config.score == "softmax" else 1 / (1 + np.exp(-row))
        ranked = scores if bias is None else scores + bias
        size = len(row) // groups.count
        best = [
            sorted(ranked[g * size : (g + 1) * size])[-groups.best :] for g in range(groups.count)
        ]
        kept = sorted(range(groups.count), key=lambda g: -sum(best[g]))[: groups.kept]
        allowed = [e for e in range(len(row)) if e // size in kept]
        mine = sorted(allowed, key=lambda e: -ranked[e])[: config.top_k]
        share = scores[mine]
        share = share / (share.sum() + config.epsilon) if config.normalize else share
        indices.append(mine)
        weights.append(share * config.scaling)
    return np.array(indices), np.array(weights)


ROUTERS = {
    "V2": TopKRouter(EXPERTS, 3, scaling=16.0, groups=ExpertGroups(4, 2)),
    "V3": TopKRouter(
        *(EXPERTS, 4, "sigmoid"),
        normalize=True,
        scaling=2.5,
        groups=ExpertGroups(3, 2, best=2),
        correction="bias",
        epsilon=1e-20,
    ),
}


@pytest.mark.parametrize("name", ROUTERS)
def test_experts_are_those_of_the_best_groups(name: str):
    config, random = ROUTERS[name], np.random.default_rng(5)
    logits = random.normal(0, 2, (TOKENS, EXPERTS)).astype(np.float32)
    bias = random.normal(0, 0.5, EXPERTS).astype(np.float32) if config.correction else None
    ours, theirs = routed(config, logits, bias), chosen(config, logits, bias)
    np.testing.assert_array_equal(ours[0], theirs[0])
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6)
    without = routed(config, logits, np.zeros_like(bias)) if bias is not None else None
    assert without is None or (without[0] != ours[0]).any()


def test_n11_scores_below_zero_win_against_groups_that_are_left_out():
    """NxD's GroupLimitedRouter has no bias, and zeros for the scores of other groups."""
    config = ROUTERS["V3"]
    random = np.random.default_rng(6)
    logits = random.normal(0, 1, (TOKENS, EXPERTS)).astype(np.float32)
    # Every score with its bias is below zero: a zero would be chosen first.
    bias = np.full(EXPERTS, -2, np.float32) + random.normal(0, 0.1, EXPERTS).astype(np.float32)
    indices, weights = routed(config, logits, bias)
    size = EXPERTS // 3
    assert all(len({expert // size for expert in row}) <= 2 for row in indices.tolist())
    theirs = chosen(config, logits, bias)
    np.testing.assert_array_equal(indices, theirs[0])
    np.testing.assert_allclose(weights, theirs[1], rtol=1e-6)
    np.testing.assert_allclose(weights.sum(-1), 2.5, rtol=1e-6)


def test_the_cache_keeps_a_latent_vector_and_one_rotated_key():
    module = build(known_shape("deepseek-v3"), f32, phases=("decode",), layers=1)
    (cache,) = module.entries(Role.STATE)
    assert cache.name == "model.layers.0.self_attn.latent_cache"
    assert cache.logical.shape[2:] == (1, 512 + 64)
    (attention,) = [op for op in module.function("decode").ops if op.name == "attention"]
    assert attention.operands[1].shape[2:] == (128, 192)
    assert attention.operands[2].shape[2:] == (128, 128)
    # 192 ** -0.5 * (0.1 * log(40) + 1) ** 2
    assert attention.attrs.number("scale") == pytest.approx(0.1352337788608801)


def test_parameters_are_those_of_the_papers():
    total = {
        name: sum(row.logical.nbytes // 4 for row in module.entries(Role.WEIGHT))
        for name in ("deepseek-v2-lite", "deepseek-v2", "deepseek-v3")
        for module in [build(known_shape(name), f32, phases=("decode",))]
    }
    assert {name: round(count / 1e9, 1) for name, count in total.items()} == {
        "deepseek-v2-lite": 15.7,
        "deepseek-v2": 235.7,
        "deepseek-v3": 671.0,
    }


def test_layers_with_experts_are_every_so_many_after_the_dense_ones():
    config = {**known_shape("deepseek-v3"), "num_hidden_layers": 7, "moe_layer_freq": 2}
    read = read_deepseek_v3(config)
    assert [read.mixture(layer) is not None for layer in range(7)] == [0, 0, 0, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("changes", "code", "what"),
    [
        ({"topk_method": "greedy"}, "GG0502", "topk_method = 'greedy'"),
        ({"scoring_func": "softmax"}, "GG0502", "scoring_func = 'softmax'"),
        ({"n_group": 7}, "GG0503", "n_group = 7 and topk_group = 4 do not fit 256"),
        ({"topk_group": 9}, "GG0503", "topk_group = 9"),
        ({"num_key_value_heads": 8}, "GG0502", "num_key_value_heads = 8"),
        ({"first_k_dense_replace": -1}, "GG0503", "first_k_dense_replace = -1"),
        ({"mlp_bias": True}, "GG0502", "mlp_bias = True"),
    ],
)
def test_what_is_no_v3_is_refused(changes: dict[str, object], code: str, what: str):
    with pytest.raises(GraphgenError) as caught:
        read_deepseek_v3({**known_shape("deepseek-v3"), **changes})
    assert caught.value.code == code
    assert what in str(caught.value)


def test_v2_does_not_divide_weights_by_their_sum():
    with pytest.raises(GraphgenError, match="norm_topk_prob = True"):
        read_deepseek_v2({**known_shape("deepseek-v2"), "norm_topk_prob": True})
