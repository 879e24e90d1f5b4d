"""What holds for every family: checkpoint names, configurations, mini twins, refusals."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

import graphgen as gg
import graphgen.models
from graphgen.errors import GraphgenError
from graphgen.eval import NATIVE, evaluate
from graphgen.ir import Function, Role
from graphgen.ir.dtype import bf16, f32
from graphgen.models import SHAPES, build, known_shape, read_model_config
from graphgen.models.registry import FAMILIES
from graphgen.nn import StepInputs, alibi_slopes, rounded_biases
from graphgen.ops import verify
from tests.oracles.families import CASES, ORACLES
from tests.oracles.family_oracle import DECODER
from tests.oracles.stored_names import stored_shapes
from tests.ratios import code_lines


@pytest.mark.every_family
@pytest.mark.parametrize(("family", "variant"), CASES)
def test_weights_are_those_of_the_checkpoint(family: str, variant: str):
    oracle = ORACLES[family]
    given = {**oracle.sizes, **oracle.variants[variant]}
    config = getattr(transformers, oracle.config)(**given)
    with torch.device("meta"):
        model = getattr(transformers, f"{oracle.name}{oracle.head}")(config)
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set[str]()
    theirs = {k: shape for k, shape in stored_shapes(model).items() if k not in tied}
    module = build(json.loads(config.to_json_string(use_diff=False)), f32)
    verify(module)
    assert {row.name: row.logical.dims for row in module.entries(Role.WEIGHT)} == theirs


@pytest.mark.every_family
@pytest.mark.parametrize(("family", "variant"), CASES)
def test_a_configuration_comes_back(family: str, variant: str):
    """As transformers writes it, whole or only what differs, and as we write it."""
    oracle = ORACLES[family]
    given = {**oracle.sizes, **oracle.variants[variant]}
    config = getattr(transformers, oracle.config)(**given)
    read = read_model_config(json.loads(config.to_json_string(use_diff=False)))
    assert read_model_config(json.loads(config.to_json_string(use_diff=True))) == read
    again = json.loads(json.dumps(read.to_hf()))
    assert read_model_config(again) == read
    theirs = getattr(transformers, oracle.config)(**again)
    assert read_model_config(json.loads(theirs.to_json_string(use_diff=False))) == read


@pytest.mark.every_family
@pytest.mark.parametrize("family", FAMILIES)
def test_defaults_are_those_of_transformers(family: str):
    theirs = getattr(transformers, ORACLES[family].config)()
    sizes = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    required = family not in ("gpt2", "opt", "bloom", "gptj", "gpt_neox", "falcon", "dbrx")
    needed = {key: getattr(theirs, key) for key in sizes if required}
    needed |= {"vocab_size": theirs.vocab_size, "model_type": family}
    whole = json.loads(theirs.to_json_string(use_diff=False))
    assert read_model_config(needed) == read_model_config(whole)


def ops_by_layer(function: Function) -> tuple[Counter[str], set[frozenset[tuple[str, int]]]]:
    """How many ops of each name there are outside of the layers; and in them, once for a kind."""
    outside: Counter[str] = Counter()
    layers: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for op in function.ops:
        layer = re.search(r"\.(\d+)\.", f"{op.loc.scope}.")
        (layers[layer[1]] if layer else outside)[op.name] += 1
    return outside, {frozenset(counts.items()) for counts in layers.values()}


@pytest.mark.every_family
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.one_in(2)
def test_a_mini_twin_is_the_model_with_fewer_of_the_same_layers(name: str):
    """Each op of the model, leaving out layers that others are like, is an op of the twin."""
    full, mini = (build(known_shape(name), bf16, mini=flag) for flag in (False, True))
    assert 2 <= sum(op.name == "attention" for op in mini.function("decode").ops) <= 6
    for function in full.programs():
        assert ops_by_layer(mini.function(function.name)) == ops_by_layer(function)
    vocabulary = mini.interface["logits"].logical.shape[-1]
    assert isinstance(vocabulary, int)
    assert vocabulary % 2 == 1
    size = sum(row.logical.nbytes for row in mini.entries(Role.WEIGHT))
    assert size < 4_000_000


REFUSED: Mapping[str, Mapping[str, object]] = {
    "gpt2: another activation": {"model_type": "gpt2", "activation_function": "prelu"},
    "gpt2: heads that do not divide": {"model_type": "gpt2", "n_embd": 100, "n_head": 3},
    "gpt2: cross attention": {"model_type": "gpt2", "add_cross_attention": True},
    "gpt2: two names, two values": {"model_type": "gpt2", "n_embd": 64, "hidden_size": 32},
    "gpt2: a key nobody knows": {"model_type": "gpt2", "rotary_dim": 8},
    "gpt2: a size that is text": {"model_type": "gpt2", "n_layer": "12"},
    "mistral: a window of no tokens": {**DECODER, "model_type": "mistral", "sliding_window": 0},
    "mistral: biases": {**DECODER, "model_type": "mistral", "attention_bias": True},
    "qwen2: a kind of layer nobody knows": {
        **DECODER,
        "model_type": "qwen2",
        "layer_types": ["full_attention", "chunked_attention"],
    },
    "qwen3: kinds for another number of layers": {
        **DECODER,
        "model_type": "qwen3",
        "layer_types": ["full_attention"],
    },
    "opt: norms without weights": {
        "model_type": "opt",
        "layer_norm_elementwise_affine": False,
    },
    "opt: heads that do not divide": {"model_type": "opt", "hidden_size": 100},
    "gptj: more is rotated than there is": {"model_type": "gptj", "rotary_dim": 512},
    "gptj: all of it, the old way": {"model_type": "gptj", "rotary_dim": None},
    "gpt_neox: an odd part is rotated": {"model_type": "gpt_neox", "rotary_pct": 0.22},
    "gpt_neox: another rope": {
        "model_type": "gpt_neox",
        "rope_parameters": {"rope_type": "dynamic", "factor": 4.0},
    },
    "gemma3: scores brought within bounds": {
        **DECODER,
        "model_type": "gemma3_text",
        "attn_logit_softcapping": 50.0,
    },
    "bloom: heads that do not divide": {"model_type": "bloom", "hidden_size": 100, "n_head": 3},
    "bloom: two names, two values": {"model_type": "bloom", "n_embed": 64, "hidden_size": 32},
    "bloom: a key nobody knows": {"model_type": "bloom", "alibi_bias_max": 16},
    "bloom: a switch that is a number": {"model_type": "bloom", "tie_word_embeddings": 1},
}


def test_what_is_not_supported_is_refused_by_name(golden: Callable[[str, str], None]):
    shown: list[str] = []
    for name, config in REFUSED.items():
        with pytest.raises(GraphgenError) as caught:
            read_model_config(config)
        assert caught.value.code in ("GG0502", "GG0503")
        shown.append(f"## {name}\n{caught.value}")
    golden("graphgen/family_errors.txt", "\n\n".join(shown))


def test_both_names_of_a_size_may_be_given_if_they_agree():
    named = read_model_config({"model_type": "bloom", "n_embed": 64, "num_attention_heads": 4})
    both = {"model_type": "bloom", "n_embed": 64, "hidden_size": 64, "n_head": 4}
    assert read_model_config(both) == named


def test_sequences_are_as_long_as_the_table_of_positions():
    assert read_model_config(known_shape("gpt2")).max_position_embeddings == 1024
    assert read_model_config(known_shape("bloom-560m")).max_position_embeddings is None


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 6, 7, 8, 12, 16, 24, 32, 71, 112])
def test_slopes_are_those_of_transformers(heads: int):
    theirs = build_alibi_tensor(torch.ones(1, 2, dtype=torch.int64), heads, torch.float32)
    np.testing.assert_allclose(alibi_slopes(heads), theirs[:, 0, 1].numpy(), rtol=1e-6)


@pytest.mark.parametrize("heads", [4, 12, 71])
def test_rounded_biases_are_those_of_transformers(heads: int):
    from transformers.models.falcon.modeling_falcon import build_alibi_tensor as rounded

    module, count = gg.Module("biases"), 2048
    s32 = gg.dtype("s32")
    with gg.Builder(module.add(gg.Function("f", phase="decode")), module) as b:
        positions, slots = (b.input(name, s32, (1, 1)) for name in ("positions", "slots"))
        held, rows = b.input("held", s32, (1, count)), b.input("rows", s32, (1,))
        step = StepInputs(positions, slots, held, rows, 1, count, count)
        b.output("biases", rounded_biases(b, step, heads, 0.5))
    zero = np.zeros((1, 1), np.int32)
    given = {"positions": zero, "slots": zero, "rows": zero[0]}
    held_there = np.arange(count, dtype=np.int32)[None]
    ours = evaluate(module.function("f"), {**given, "held": held_there}, NATIVE)["biases"]
    theirs = rounded(torch.ones(1, count, dtype=torch.int64), heads, torch.float32)
    # Between 256 and 2048 most positions are rounded.
    np.testing.assert_array_equal(ours[0, :, 0], theirs[:, 0].numpy() * np.float32(0.5))


@pytest.mark.every_family
@pytest.mark.parametrize("family", ORACLES)
@pytest.mark.parametrize("value", [True, 0.5, {"kind": "new"}])
def test_a_switch_that_nobody_knows_is_refused_by_name(family: str, value: object):
    config = ORACLES[family].model().config.to_dict()
    read_model_config(config)
    with pytest.raises(GraphgenError, match="scores_are_squared") as caught:
        read_model_config({**config, "scores_are_squared": value})
    assert caught.value.code in ("GG0502", "GG0503")


def test_a_family_is_its_mathematics_and_its_names():
    folder = Path(graphgen.models.__file__).parent
    lines = {file.name: len(code_lines(file.read_text("utf-8"))) for file in folder.glob("*.py")}
    assert len(lines) > len(FAMILIES) // 2
    assert {name: count for name, count in lines.items() if count >= 250} == {}
