"""How the parts of a fused tensor lie follows from the heads they make."""

from __future__ import annotations

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Module, Role, dtype
from graphgen.models import build, known_shape
from graphgen.passes.core import Rewriter, parse_pipeline, run_pipeline
from graphgen.passes.gqa.assign_heads import CacheLayouts
from graphgen.passes.gqa.head_gather import HeadGather
from graphgen.passes.pipelines import default
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse
from tests.oracles.families import ORACLES

BEFORE = "canonicalize,unfuse-projections,shard{tp=2}"


def mini(name: str, pipeline: str) -> Module:
    module = build(known_shape(name), dtype("f32"), mini=True)
    run_pipeline(module, parse_pipeline(pipeline))
    return module


@pytest.mark.parametrize(
    ("name", "weight"), [("gpt2", "{-,tp}"), ("bloom-560m", "{tp,-}"), ("gpt-neox-20b", "{tp,-}")]
)
def test_slices_of_a_fused_tensor_are_split_by_heads(name: str, weight: str):
    module = mini(name, BEFORE)
    for function in module.programs():
        dots = [op for op in function.ops if op.name == "dot_general"]
        made = [op.operands[1] for op in dots if op.operands[1].op is not None]
        # q, k and v of two layers; the other weights are the checkpoint's own, laid out by name.
        assert [value.sharding.text if value.sharding else "" for value in made] == [weight] * 6
        vectors = [
            op.operands[0].sharding
            for op in function.ops
            if op.name == "broadcast_in_dim" and op.operands[0].op is not None
        ]
        assert [layout.text for layout in vectors if layout] == ["{tp}"] * 6
    fused = [row for row in module.entries(Role.WEIGHT) if "attn.c_attn" in row.name]
    assert all(row.sharding is None for row in fused)


def test_without_taking_apart_nothing_is_laid_out():
    for function in mini("gpt2", "canonicalize,shard{tp=2}").programs():
        dots = [op for op in function.ops if op.name == "dot_general"]
        assert all(op.operands[1].sharding is None for op in dots)


@pytest.mark.parametrize("name", ["gpt2", "bloom-560m", "gpt-neox-20b", "opt-125m", "gpt-j-6b"])
def test_two_sums_a_layer_at_most_and_half_the_weights(name: str):
    products = []
    for tp in (1, 2):
        module = build(known_shape(name), dtype("f32"), mini=True)
        run_pipeline(module, default(CompileConfig(tp=tp)))
        (decode,) = [f for f in module.programs() if f.phase == "decode"]
        # Where attention and MLP are added to the same stream, one sum serves both; one embedding.
        beside = name in ("gpt-j-6b", "gpt-neox-20b")
        assert [op.name for op in decode.ops].count("all_reduce") == (tp - 1) * (
            (2 - beside) * 2 + 1
        )
        weights = [op.operands[1] for op in decode.ops if op.name == "dot_general"]
        products.append(
            [v.type.nbytes for v in weights if v.op is None and not {129, 257} & {*v.type.dims}]
        )
    # GPT-J's MLP reads what its attention reads: the product with both is one.
    assert len(products[0]) == (2 * 3 if name == "gpt-j-6b" else 2 * 4)
    assert products[0] == [2 * size for size in products[1]]


@pytest.mark.parametrize("family", ["gpt2", "bloom", "gpt_neox"])
@pytest.mark.one_in(3)
def test_heads_that_do_not_divide_are_padded_through_the_slices(family: str):
    """Six heads over four ranks: maps of heads reach the slices, their biases and the slopes."""
    width = "n_embd" if family == "gpt2" else "hidden_size"
    heads = "num_attention_heads" if family == "gpt_neox" else "n_head"
    module = build(
        {"model_type": family, **ORACLES[family].sizes, width: 48, heads: 6}, dtype("f32")
    )
    verdicts = validate(
        module,
        default(CompileConfig(batch=(3,), context=(8,), tokens=(8, 16), tp=4)),
        make_workload(module),
    )
    assert all(verdict.ok for verdict in verdicts)


def test_layouts_of_as_many_heads_have_numbers():
    text = "module @m level=canonical mesh=tp:2 {\n" + "".join(
        f"  state %{name} : f32[3,8,2,4]\n" for name in "abcd"
    )
    module = parse(text + "}\n")
    layouts = CacheLayouts(module, Rewriter("heads"), {})
    for name, blocks in (("a", (0, 0, 1, 1)), ("b", (0, 1, 0, 1)), ("c", (1, 0, 1, 0)),
                         ("d", (0, 1, -1))):  # fmt: skip
        layouts.assign(module.interface[name], HeadGather(blocks, 2))
    layouts.assign(module.interface["a"], HeadGather((0, 0, 1, 1), 2))
    assert list(layouts.labels.values()) == ["heads4", "heads4.2", "heads4.3", "heads3"]
    assert [module.interface[name].physical.text for name in "abcd"] == [
        *["f32[3,8,4,4]"] * 3,
        "f32[3,8,3,4]",
    ]
