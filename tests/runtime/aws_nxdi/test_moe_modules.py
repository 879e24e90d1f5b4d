"""NxD's modules of experts beside their formulas in NumPy, from configurations."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module, Role
from graphgen.ir.dtype import f32
from graphgen.passes.pipelines import parse
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from graphgen.runtime.aws.nxdi import (
    BlockwiseMatmulConfig,
    ExpertMLPs,
    HybridShardingConfig,
    MoE,
    MoENeuronConfig,
    NeuronConfig,
    RoutedExpertsMLPOpsConfig,
    RouterConfig,
    RouterTopK,
    initialize_moe_module,
)

TOKENS, E, K, H, INNER = 6, 4, 2, 8, 5
SIZES = SimpleNamespace(
    num_local_experts=E,
    num_experts_per_tok=K,
    hidden_size=H,
    intermediate_size=INNER,
    hidden_act="silu",
)
ROUTED = {
    "num_experts": E,
    "top_k": K,
    "hidden_size": H,
    "intermediate_size": INNER,
    "hidden_act": "silu",
    "glu_mlp": True,
}
Arrays = Mapping[str, np.ndarray]


def program(moe: MoE) -> Module:
    """Six tokens through a module."""
    module = Module("m")
    function = module.functions["main"] = Function("main", phase="decode")
    with Builder(function, module) as b, b.scope("mlp"):
        for count, value in enumerate(moe(b, b.input("x", f32, (TOKENS, H)))):
            b.output(f"out{count}", value)
    return module


def inputs(module: Module, scale: float = 1.0) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    rows = module.interface.values()
    shapes = {row.name: row.logical.dims for row in rows if row.role is not Role.OUTPUT}
    return {
        name: scale * draw.standard_normal(shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def results(moe: MoE, given: Arrays) -> list[np.ndarray]:
    return [np.asarray(value) for value in program(moe).evaluate(given).values()]


def expected(given: Arrays, *, sigmoid: bool = False, normalize: bool = True, **form: Any):
    """The formulas of NxD's modules: affinities of all experts, those of the chosen, its MLPs."""
    x = given["x"]
    logits = x @ given["mlp.router.linear_router.weight"].T
    affinities = 1 / (1 + np.exp(-logits))
    if not sigmoid:
        affinities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    index = np.argsort(-logits, axis=-1, kind="stable")[:, :K]
    wide, down = (
        given[f"mlp.expert_mlps.mlp_op.{p}.weight"] for p in ("gate_up_proj", "down_proj")
    )
    y = np.zeros_like(x)
    for token, chosen in enumerate(index):
        weights = affinities[token, chosen]
        weights = weights / weights.sum() if normalize else weights
        for expert, weight in zip(chosen, weights, strict=True):
            early = weight if form.get("early") else 1.0
            gate, up = np.split(early * x[token] @ wide[expert], 2)
            gate = np.clip(gate, *form.get("gate", (-np.inf, np.inf)))
            up = np.clip(up, *form.get("up", (-np.inf, np.inf))) + form.get("bias", 0.0)
            act = gate / (1 + np.exp(-form.get("scale", 1.0) * gate)) * form.get("scale", 1.0)
            y[token] += weight / early * (act * up) @ down[expert]
    return y, logits, index


def test_a_module_of_no_options_is_the_softmax_of_all_experts_that_sums_to_one():
    moe = initialize_moe_module(SIZES)
    given = inputs(program(moe))
    (y,) = results(moe, given)
    np.testing.assert_allclose(y, expected(given)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bias", [False, True])
def test_experts_without_a_gate_are_one_product_and_an_activation(bias: bool):
    options = MoENeuronConfig(glu_mlp=False)
    moe = initialize_moe_module(SIZES, neuron_config=options, experts_bias=bias)
    given = inputs(program(moe))
    up, down = (given[f"mlp.expert_mlps.mlp_op.{p}_proj.weight"] for p in ("up", "down"))
    assert (up.shape, down.shape) == ((E, H, INNER), (E, INNER, H))
    x, (y,) = given["x"], results(moe, given)
    logits = x @ given["mlp.router.linear_router.weight"].T
    affinities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    added = [np.zeros((E, size), np.float32) for size in (INNER, H)]
    if bias:
        added = [given[f"mlp.expert_mlps.mlp_op.{p}_proj.bias"] for p in ("up", "down")]
    for token, chosen in enumerate(np.argsort(-logits, axis=-1, kind="stable")[:, :K]):
        weights = affinities[token, chosen] / affinities[token, chosen].sum()
        wanted = np.zeros(H, np.float32)
        for expert, weight in zip(chosen, weights, strict=True):
            h = x[token] @ up[expert] + added[0][expert]
            h = h / (1 + np.exp(-h))
            wanted += weight * (h @ down[expert] + added[1][expert])
        np.testing.assert_allclose(y[token], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ranks", [1, 2])
def test_experts_without_a_gate_keep_their_meaning_over_ranks(ranks: int):
    moe = initialize_moe_module(SIZES, neuron_config=MoENeuronConfig(glu_mlp=False))
    module = program(moe)
    given = make_workload(module)
    verdicts = validate(module, parse(f"default{{tp={ranks}}}"), given)
    assert all(verdict.ok for verdict in verdicts)


def test_the_options_of_a_moe_neuron_config_reach_its_module():
    options = MoENeuronConfig(
        router_config=RouterConfig.from_kwargs(router_act_fn="sigmoid", router_dtype="float32"),
        normalize_top_k_affinities=False,
        early_expert_affinity_modulation=True,
        hidden_act_scaling_factor=1.5,
        hidden_act_bias=0.5,
        gate_clamp_upper_limit=2.0,
        up_clamp_lower_limit=-1.0,
        up_clamp_upper_limit=1.0,
        return_router_logits=True,
        return_expert_index=True,
    )
    moe = initialize_moe_module(SIZES, neuron_config=options)
    given = inputs(program(moe))
    y, logits, index = results(moe, given)
    form = {"scale": 1.5, "bias": 0.5, "gate": (-np.inf, 2.0), "up": (-1.0, 1.0), "early": True}
    right = expected(given, sigmoid=True, normalize=False, **form)
    np.testing.assert_allclose(y, right[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(logits, right[1], rtol=1e-5)
    np.testing.assert_array_equal(index, right[2])


def test_modules_alone_say_what_they_say_together():
    router, experts = RouterTopK(E, K, H), ExpertMLPs(**ROUTED, normalize_top_k_affinities=True)
    module = Module("m")
    function = module.functions["main"] = Function("main", phase="decode")
    with Builder(function, module) as b, b.scope("mlp"):
        x = b.input("x", f32, (TOKENS, H))
        _, affinities, index = router(b, x)
        b.output("apart", experts(b, x, affinities, index))
        b.output("affinities", affinities)
    given = inputs(module)
    apart = module.evaluate(given)
    np.testing.assert_allclose(
        np.asarray(apart["apart"]), results(MoE(router, experts), given)[0], rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(np.asarray(apart["affinities"]).sum(-1), 1.0, rtol=1e-5)


def test_affinities_of_chosen_logits_alone_are_zero_for_the_others():
    router = RouterTopK(E, K, H, apply_act_fn_over_topk=True, bias=True)
    module = Module("m")
    function = module.functions["main"] = Function("main", phase="decode")
    with Builder(function, module) as b:
        for name, value in zip("lai", router(b, b.input("x", f32, (TOKENS, H))), strict=True):
            b.output(name, value)
    found = {name: np.asarray(v) for name, v in module.evaluate(inputs(module)).items()}
    assert ((found["a"] > 0).sum(-1) == K).all()
    picked = np.take_along_axis(found["l"], found["i"], -1)
    soft = np.exp(picked) / np.exp(picked).sum(-1, keepdims=True)
    np.testing.assert_allclose(np.take_along_axis(found["a"], found["i"], -1), soft, rtol=1e-5)


def test_logits_of_a_narrow_router_are_rounded():
    moe = initialize_moe_module(
        SIZES,
        neuron_config=MoENeuronConfig(
            router_config={"dtype": "bfloat16"}, return_router_logits=True
        ),
    )
    given = inputs(program(moe))
    logits = results(moe, given)[1]
    assert (logits.view(np.uint32) & 0xFFFF == 0).all()
    np.testing.assert_allclose(logits, expected(given)[1], rtol=1e-2)


def test_experts_that_every_token_has_are_added():
    shared = initialize_moe_module(SimpleNamespace(**vars(SIZES), n_shared_experts=2))
    module = program(shared)
    given = inputs(module)
    assert given["mlp.shared_experts.gate_proj.weight"].shape == (2 * INNER, H)
    gate, up, down = (
        given[f"mlp.shared_experts.{name}_proj.weight"].T for name in ("gate", "up", "down")
    )
    hidden = given["x"] @ gate
    beside = (hidden / (1 + np.exp(-hidden)) * (given["x"] @ up)) @ down
    right = expected(given)[0] + beside
    np.testing.assert_allclose(results(shared, given)[0], right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", ["tp=2", "tp=4,moe_ep_degree=2", "expert_dispatch=blockwise"])
@pytest.mark.one_in(3)
def test_passes_divide_weights_in_the_layout_of_nxd(options: str):
    moe = initialize_moe_module(SIZES, hidden_size=8, intermediate_size=8, experts_bias=True)
    module = program(moe)
    script = make_workload(module, seed=0)
    verdicts = validate(module, parse(f"default{{{options}}}"), script)
    assert [verdict.pass_text for verdict in verdicts if not verdict.ok] == []


# ---- defects of peers ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "hybrid",
    [
        None,
        HybridShardingConfig(
            moe_cte_tp_degree=2, moe_cte_ep_degree=2, moe_tkg_tp_degree=2, moe_tkg_ep_degree=2
        ),
    ],
)
def test_n12_the_bound_of_up_holds_once_with_hybrid_sharding(hybrid: HybridShardingConfig | None):
    """NxD Inference adds ``hidden_act_bias`` to ``up_clamp_upper_limit`` for each of two modules.

    ``min(u, 1) + 2`` is at most 3; a bound that is moved twice lets it reach 7.
    """
    options = MoENeuronConfig(
        tp_degree=4,
        hybrid_sharding_config=hybrid,
        glu_type="swiglu",
        hidden_act_bias=2.0,
        up_clamp_upper_limit=1.0,
        up_clamp_lower_limit=-1.0,
    )
    first, again = (initialize_moe_module(SIZES, neuron_config=options) for _ in range(2))
    assert str(program(first)) == str(program(again))
    (op,) = [op for op in program(again).functions["main"].block if op.name == "experts"]
    assert (op.attrs["up_upper"], op.attrs["up_lower"], op.attrs["up_offset"]) == (1.0, -1.0, 2.0)
    assert options.value("up_clamp_upper_limit") == 1.0


def test_top_1_of_a_module_keeps_its_weight():
    """NxD divides by the sum for more than one expert only: the weight of one would be 1."""
    moe = initialize_moe_module(SIZES, top_k=1)
    scaled = inputs(program(moe))
    doubled = {**scaled, "mlp.router.linear_router.weight": np.zeros((E, H), np.float32)}
    y = results(moe, doubled)[0]
    one = initialize_moe_module(SIZES, num_experts=E, top_k=1, apply_act_fn_over_topk=True)
    np.testing.assert_allclose(4 * y, results(one, doubled)[0], rtol=1e-4, atol=1e-5)


def test_m16_the_mappings_of_blocks_can_be_turned_off():
    """NxD keeps ``(value, True)`` or a tuple of one, which is true for every value."""
    for name in ("parallelize_token_to_block_mapping", "optimized_block_to_token_mapping"):
        for make in (BlockwiseMatmulConfig, BlockwiseMatmulConfig.from_kwargs):
            assert make(**{name: False}).value(name) is False
            assert make().value(name) is True
            with pytest.raises(GraphgenError, match="must be true or false"):
                make(**{name: (False,)})
            (note,) = make(**{name: False}).notes()
            assert "blocks follow from the routing by ordinary ops" in note


# ---- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "code", "text"),
    [
        (lambda: RouterTopK(4, 5, 8), "GG0903", "top_k must be from 1 to num_experts"),
        (lambda: RouterTopK(4, 2, 8, act_fn="tanh"), "GG0902", "softmax or sigmoid"),
        (lambda: RouterTopK(4, 2, 8, dtype="float64"), "GG0904", "router of this type"),
        (
            lambda: ExpertMLPs(**{**ROUTED, "glu_mlp": False, "glu_type": "swiglu"}),
            "GG0903",
            "options of a gate",
        ),
        (lambda: ExpertMLPs(**{**ROUTED, "hidden_act": "mish"}), "GG0904", "activation"),
        (lambda: ExpertMLPs(**ROUTED, capacity_factor=1.25), "GG0904", "capacity of one module"),
        (lambda: ExpertMLPs(**ROUTED, top_kk=2), "GG0901", "did you mean top_k"),
        (lambda: initialize_moe_module(SimpleNamespace()), "GG0503", "num_local_experts or"),
        (
            lambda: initialize_moe_module(
                SimpleNamespace(neuron_config=NeuronConfig()), E, K, H, 4, "silu"
            ),
            "GG0902",
            "not a MoENeuronConfig",
        ),
    ],
)
def test_mistakes_are_named(make: Any, code: str, text: str):
    with pytest.raises(GraphgenError) as caught:
        make()
    assert caught.value.code == code
    assert text in f"{caught.value.what} {caught.value.help}"


def test_experts_take_their_configuration_whole():
    config = RoutedExpertsMLPOpsConfig(**ROUTED, bias=True)
    assert ExpertMLPs(routed_experts_mlp_config=config).form.bias
    assert config.frozen


@pytest.mark.parametrize("early", [False, True])
def test_experts_compute_what_their_configuration_says(early: bool):
    config = RoutedExpertsMLPOpsConfig(
        **ROUTED,
        hidden_act_scaling_factor=1.5,
        hidden_act_bias=0.5,
        gate_clamp_upper_limit=2.0,
        gate_clamp_lower_limit=-2.0,
        up_clamp_upper_limit=1.0,
        up_clamp_lower_limit=-1.0,
        normalize_top_k_affinities=not early,
        early_expert_affinity_modulation=early,
    )
    experts = ExpertMLPs(routed_experts_mlp_config=config)
    moe = MoE(RouterTopK(E, K, H, act_fn="sigmoid"), experts)
    given = inputs(program(moe))
    form = {"scale": 1.5, "bias": 0.5, "gate": (-2.0, 2.0), "up": (-1.0, 1.0), "early": early}
    right = expected(given, sigmoid=True, normalize=not early, **form)[0]
    np.testing.assert_allclose(results(moe, given)[0], right, rtol=1e-4, atol=1e-5)
