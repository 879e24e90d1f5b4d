"""Mixtures with biases, bounds and another gate, beside transformers' experts of GPT-OSS."""

from __future__ import annotations

from math import inf

import numpy as np
import torch
from transformers import GptOssConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts, GptOssTopKRouter

from graphgen.build import Builder
from graphgen.ir import Function, Module
from graphgen.ir.dtype import f32
from graphgen.nn import ExpertForm, MixtureConfig, TopKRouter, routed

WIDTH, INNER, EXPERTS, CHOSEN = 8, 6, 4, 2
GPT_OSS = ExpertForm(True, "swiglu", 1.702, 1.0, (-inf, 7.0), (-7.0, 7.0))


def mixture_module(config: MixtureConfig, activation: str = "sigmoid") -> Module:
    """Five tokens through a mixture."""
    module = Module("m")
    function = module.functions["main"] = Function("main", phase="decode")
    with Builder(function, module) as b:
        x = b.input("x", f32, (5, WIDTH))
        found = routed(b, x, config, activation, f32)
        b.output("y", found.hidden)
        b.output("logits", found.logits)
        b.output("indices", found.indices)
    return module


def test_the_experts_of_gpt_oss():
    config = GptOssConfig(
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_local_experts=EXPERTS,
        num_experts_per_tok=CHOSEN,
    )
    torch.manual_seed(0)
    router, experts = GptOssTopKRouter(config), GptOssExperts(config)
    for value in (*router.parameters(), *experts.parameters()):
        torch.nn.init.normal_(value, std=3.0)  # so that bounds are met
    x = torch.randn(5, WIDTH)
    logits, weights, indices = router(x)
    theirs = experts(x, indices, weights)
    wide, bias = experts.gate_up_proj.detach(), experts.gate_up_proj_bias.detach()
    held = {
        "mlp.router.weight": router.weight,
        "mlp.router.bias": router.bias,
        "mlp.experts.gate_proj.weight": wide[..., ::2].transpose(1, 2),
        "mlp.experts.up_proj.weight": wide[..., 1::2].transpose(1, 2),
        "mlp.experts.down_proj.weight": experts.down_proj.transpose(1, 2),
        "mlp.experts.gate_proj.bias": bias[:, ::2],
        "mlp.experts.up_proj.bias": bias[:, 1::2],
        "mlp.experts.down_proj.bias": experts.down_proj_bias,
    }
    form = MixtureConfig(
        TopKRouter(EXPERTS, CHOSEN, over="chosen", bias=True),
        INNER,
        form=GPT_OSS,
        gate="router",
    )
    inputs = {name: value.detach().numpy() for name, value in held.items()}
    found = mixture_module(form).evaluate({"x": x.numpy(), **inputs})
    ours = {name: np.asarray(value) for name, value in found.items()}
    np.testing.assert_array_equal(ours["indices"], indices.numpy())
    np.testing.assert_allclose(ours["logits"], logits.detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(ours["y"], theirs.detach().numpy(), rtol=1e-4, atol=1e-4)
