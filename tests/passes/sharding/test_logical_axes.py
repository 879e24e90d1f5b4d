"""Saying how a model lies: axes found by their use, whatever tensors are called, and names."""

from __future__ import annotations

import pytest

import graphgen.passes.pipelines  # noqa: F401
from graphgen.errors import GraphgenError
from graphgen.eval import MEANING
from graphgen.exec.session import Runner
from graphgen.ir import Module, Role
from graphgen.ir.dtype import f32
from graphgen.models import SHAPES, build, known_shape
from graphgen.passes.core import Rewriter, parse_pipeline, run_pipeline
from graphgen.passes.equiv.deviation import compare
from graphgen.passes.sharding.layout_rules import DECODER_RULES, annotate, annotations_of
from graphgen.passes.sharding.logical_axes import LOGICAL, model_axes
from graphgen.passes.sharding.shard import Shard
from graphgen.passes.workload.make_workload import make_workload


def mini(name: str = "llama-3.1-8b", **changes: object) -> Module:
    module = build({**known_shape(name), **changes}, f32, mini=True)
    run_pipeline(module, parse_pipeline("canonicalize,unfuse-projections"))
    return module


def lay_out(module: Module, rules: dict[str, str]) -> None:
    annotate(module, rules, Rewriter("shard"))


def layouts(module: Module, *, inside: str = "layers.0") -> dict[str, str]:
    return {
        row.name.removeprefix(f"model.{inside}."): row.sharding.text
        for row in module.interface.values()
        if row.sharding and inside in row.name
    }


def test_the_usual_layout_of_a_decoder():
    module = mini(attention_bias=True, mlp_bias=True)
    run_pipeline(module, parse_pipeline("shard{tp=2}"))
    assert module.mesh == {"tp": 2}
    assert layouts(module) == {
        "self_attn.q_proj.weight": "{tp,-}",
        "self_attn.q_proj.bias": "{tp}",
        "self_attn.k_proj.weight": "{tp,-}",
        "self_attn.k_proj.bias": "{tp}",
        "self_attn.v_proj.weight": "{tp,-}",
        "self_attn.v_proj.bias": "{tp}",
        "self_attn.k_cache": "{-,-,tp,-}",
        "self_attn.v_cache": "{-,-,tp,-}",
        "self_attn.o_proj.weight": "{-,tp}",
        "mlp.gate_proj.weight": "{tp,-}",
        "mlp.gate_proj.bias": "{tp}",
        "mlp.up_proj.weight": "{tp,-}",
        "mlp.up_proj.bias": "{tp}",
        "mlp.down_proj.weight": "{-,tp}",
    }
    rows = module.interface.values()
    others = {row.name: row.sharding for row in rows if "layers" not in row.name}
    split = {name: layout.text for name, layout in others.items() if layout}
    assert split == {"model.embed_tokens.weight": "{tp,-}", "lm_head.weight": "{tp,-}"}


# Rows of the first layer that are split, and how; names are the families' own.
OTHERS = {
    "opt-125m": {
        "decoder.layers.0.self_attn.k_proj.weight": "{tp,-}",
        "decoder.layers.0.self_attn.k_proj.bias": "{tp}",
        "decoder.layers.0.self_attn.v_proj.weight": "{tp,-}",
        "decoder.layers.0.self_attn.v_proj.bias": "{tp}",
        "decoder.layers.0.self_attn.q_proj.weight": "{tp,-}",
        "decoder.layers.0.self_attn.q_proj.bias": "{tp}",
        "decoder.layers.0.self_attn.out_proj.weight": "{-,tp}",
        "decoder.layers.0.fc1.weight": "{tp,-}",
        "decoder.layers.0.fc1.bias": "{tp}",
        "decoder.layers.0.fc2.weight": "{-,tp}",
    },
    # transformers' Conv1D has input features first.
    "gpt2": {
        "transformer.h.0.attn.c_proj.weight": "{tp,-}",
        "transformer.h.0.mlp.c_fc.weight": "{-,tp}",
        "transformer.h.0.mlp.c_fc.bias": "{tp}",
        "transformer.h.0.mlp.c_proj.weight": "{tp,-}",
    },
    "bloom-560m": {
        "transformer.h.0.self_attention.dense.weight": "{-,tp}",
        "transformer.h.0.mlp.dense_h_to_4h.weight": "{tp,-}",
        "transformer.h.0.mlp.dense_h_to_4h.bias": "{tp}",
        "transformer.h.0.mlp.dense_4h_to_h.weight": "{-,tp}",
    },
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_names_are_laid_out_by_their_use(name: str):
    module = mini(name)
    run_pipeline(module, [Shard(tp=2)])
    found = {
        row.name: row.sharding.text
        for row in module.entries(Role.WEIGHT)
        if row.sharding and ".0." in row.name
    }
    wanted = {key.removeprefix("model."): text for key, text in OTHERS[name].items()}
    assert {key.removeprefix("model."): text for key, text in found.items()} == wanted


@pytest.mark.parametrize("name", SHAPES)
def test_every_family_has_its_axes(name: str):
    module = mini(name)
    axes = model_axes(module)
    (function, _) = module.programs()
    tables = [op.operands[0] for op in function.ops if op.name == "embedding"]
    words, *places = [axes.of(table, 0) for table in tables]
    assert words == {"vocab"}
    assert all(found == {"positions"} for found in places)
    assert all("hidden" in axes.of(table, 1) for table in tables)
    logits = next(v for key, v in function.outputs if key == "logits")
    assert axes.of(logits, 1) == {"vocab"}
    for op in function.ops:
        if op.name == "attention":
            assert "heads" in axes.of(op.operands[0], 2)
            # One key-value head is nothing to split.
            assert axes.of(op.operands[1], 2) >= {"kv_heads"}
        if op.name in ("silu", "gelu"):
            assert axes.of(op.result, op.result.type.rank - 1) == {"intermediate"}
        # Latent vectors are as wide as nothing else.
        latent = op.loc.scope.endswith(("q_a_layernorm", "kv_a_layernorm"))
        if op.name in ("rms_norm", "layer_norm") and op.result.type.rank == 3 and not latent:
            # Some norms are of all heads of q or k together.
            found = axes.of(op.result, 2)
            assert found == {"hidden"} or found & {"heads", "kv_heads"}
    tokens = function.arg("tokens")
    assert tokens is not None
    assert [axes.of(tokens, dim) for dim in (0, 1)] == [{"batch"}, {"sequence"}]


def test_words_are_split_where_that_is_asked():
    module = mini()
    run_pipeline(module, parse_pipeline("shard{tp=2,vocab=true}"))
    assert layouts(module, inside="embed_tokens") == {"weight": "{tp,-}"}
    head = module.interface["lm_head.weight"].sharding
    assert head is not None
    assert head.text == "{tp,-}"


def test_rules_of_ones_own():
    module = mini()
    rules = "hidden:dp,intermediate:-,*.0.*.down_proj.weight:{-,tp},tokens:{dp,-},logits:{-,tp}"
    run_pipeline(module, parse_pipeline(f"shard{{mesh=[dp:2,tp:2],rules=[{rules}]}}"))
    assert module.mesh == {"dp": 2, "tp": 2}
    found = layouts(module)
    assert found["self_attn.q_proj.weight"] == "{tp,dp}"
    assert found["mlp.up_proj.weight"] == "{-,dp}"
    assert found["mlp.down_proj.weight"] == "{-,tp}"
    assert layouts(module, inside="layers.1")["mlp.down_proj.weight"] == "{dp,-}"
    for name, text in (("tokens", "{dp,-}"), ("logits", "{-,tp}")):
        layout = module.interface[name].sharding
        assert layout is not None
        assert layout.text == text


def test_the_last_matching_rule_wins():
    module = mini()
    lay_out(module, {"*.q_proj.weight": "{tp,-}", "*.0.*.q_proj.weight": "{-,-}"})
    rows = [row for row in module.interface.values() if "q_proj" in row.name]
    assert [row.sharding.text for row in rows if row.sharding] == ["{-,-}", "{tp,-}"]
    lay_out(module, {"heads": "dp"})
    rows = [row for row in module.interface.values() if "q_proj" in row.name]
    assert [row.sharding.text for row in rows if row.sharding] == ["{dp,-}", "{dp,-}"]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (
            {"*.no_such.weight": "{tp,-}"},
            "no input, weight, state or output is called '*.no_such.weight'",
        ),
        (
            {"model.norm.weight": "{tp,-}"},
            "'model.norm.weight': {tp,-} does not fit model.norm.weight f32[64]",
        ),
        ({"positions": "tp"}, "the model has no axis 'positions'"),
        ({"heads": "tp,-"}, "'tp,-' names no mesh axes to split heads by"),
        ({"heads": "-+tp"}, "'-+tp' names no mesh axes to split heads by"),
        ({"heads": "tp*tp"}, "a mesh axis is used twice in {tp*tp}"),
    ],
)
def test_rules_that_fit_nothing_are_refused(rules: dict[str, str], message: str):
    with pytest.raises(GraphgenError) as caught:
        annotations_of(mini(), rules)
    assert caught.value.what == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("tp=0", "shard: tp=0 must be at least 1"),
        ("mesh=[dp:2,tp]", "shard: 'tp' is not a mesh axis"),
        ("mesh=[dp:0]", "shard: dp=0 must be at least 1"),
        ("rules=[heads]", "shard: 'heads' is not a rule"),
        ("rules=[heads:]", "shard: 'heads:' is not a rule"),
    ],
)
def test_options_that_cannot_be(options: str, message: str):
    with pytest.raises(GraphgenError) as caught:
        run_pipeline(mini(), parse_pipeline(f"shard{{{options}}}"))
    assert (caught.value.code, caught.value.what) == ("GG0302", message)


def test_an_axis_may_have_one_rank():
    module = mini()
    run_pipeline(module, parse_pipeline("shard{tp=1}"))
    assert module.mesh == {"tp": 1}


def test_the_usual_rules_may_match_nothing():
    assert annotations_of(Module("empty"), DECODER_RULES) == []
    assert set(DECODER_RULES) < set(LOGICAL)


def test_options_are_written_as_they_are_read():
    text = "shard{mesh=[dp:2,tp:4],rules=[heads:tp,*.w:{-,tp},x:{dp*tp,-}]}"
    (made,) = parse_pipeline(text)
    assert isinstance(made, Shard)
    assert made.rules == ("heads:tp", "*.w:{-,tp}", "x:{dp*tp,-}")
    assert str(made) == text


SIZES = "canonicalize,specialize{batch=[4],context=[8],tokens=[8],in_place=true}"
LAYOUTS = {
    "rows over half of the ranks, heads over the others": (
        "mesh=[dp:2,tp:2],rules=[batch:dp,rows:dp,hidden:-]"
    ),
    "features everywhere": "mesh=[dp:2,tp:2],rules=[hidden:dp]",
    "caches by rows, weights by heads": "tp=2,rules=[rows:tp]",
    "caches by places": "tp=2,rules=[slots:tp]",
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.one_in(2)
def test_a_model_means_the_same_however_it_lies(name: str):
    module = build(known_shape("llama-3.1-8b"), f32, mini=True)
    run_pipeline(module, parse_pipeline(SIZES))
    script = make_workload(module, seed=1, shuffled=False)
    wanted = Runner(module, script, arithmetic=MEANING).outcomes()
    run_pipeline(
        module, parse_pipeline(f"shard{{{LAYOUTS[name]}}},pad-to-mesh,partition{{beam=16}}")
    )
    found = Runner(module, script, arithmetic=MEANING).outcomes()
    assert compare(wanted, found).relative <= 1e-9
