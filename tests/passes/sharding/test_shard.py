"""Sharding: what is annotated, how each op carries a layout, and the program of one rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

import graphgen.passes.pipelines  # noqa: F401
from graphgen.errors import GraphgenError
from graphgen.eval import Array, evaluate, evaluate_ranks
from graphgen.ir import RANK, WEIGHTS_GLOBAL, WEIGHTS_RANK, Function, Module, Role
from graphgen.ir.dtype import f32
from graphgen.models import build, known_shape
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.text import parse

SPECIALIZE = "canonicalize,specialize{batch=[2],context=[8],tokens=[8]}"


def mini(**changes: object) -> Module:
    return build({**known_shape("llama-3.1-8b"), **changes}, f32, mini=True)


def partitioned(tp: int = 2, **changes: object) -> Module:
    module = mini(**changes)
    run_pipeline(module, parse_pipeline(f"{SPECIALIZE},shard{{tp={tp}}},pad-to-mesh,partition"))
    return module


def test_two_sums_a_layer_and_every_shape_divided():
    whole, parts = mini(), partitioned()
    run_pipeline(whole, parse_pipeline(SPECIALIZE))
    for function in parts.programs():
        reduces = [op for op in function.ops if op.name == "all_reduce"]
        assert len(reduces) == 2 * 2 + 1
        assert {op.attrs["replica_groups"] for op in reduces} == {((0, 1),)}
        assert [op.loc.scope for op in reduces] == [
            "model",
            *[
                f"model.layers.{layer}.{part}"
                for layer in range(2)
                for part in ("self_attn.o_proj", "mlp.down_proj")
            ],
        ]
        assert all("partition" in op.loc.via for op in reduces)
        sizes = shapes(function, "rope", "attention", "kv_update", "cache_read", "silu")
        before = shapes(whole.function(function.name), *sizes)
        for name in sizes:
            halved = [halve(shape, -1 if name == "silu" else 2) for shape in before[name]]
            assert sizes[name] == halved, name
    caches = {row.physical.text for row in parts.entries(Role.STATE)}
    assert caches == {"f32[2,8,1,8]"}
    assert {row.logical.text for row in parts.entries(Role.STATE)} == {"f32[2,8,2,8]"}


def shapes(function: Function, *names: str) -> dict[str, list[tuple[object, ...]]]:
    return {name: [op.results[0].shape for op in function.ops if op.name == name] for name in names}


def halve(shape: tuple[object, ...], dim: int) -> tuple[object, ...]:
    out = list(shape)
    size = out[dim]
    assert isinstance(size, int)
    out[dim] = size // 2
    return tuple(out)


def test_every_program_knows_its_rank():
    for function in partitioned().programs():
        assert function.args[0].name == RANK
        assert function.args[0].type.text == "s32[1]"


def test_layouts_of_weights_stay_in_the_interface():
    row = partitioned().interface["model.layers.0.mlp.down_proj.weight"]
    assert row.sharding is not None
    assert row.sharding.text == "{-,tp}"
    assert row.logical is row.physical


def test_states_are_cut_and_joined_by_functions_of_the_module():
    module = partitioned()
    row = module.entries(Role.STATE)[0]
    assert (row.pack, row.unpack) == ("pack.f32.2x8x2x8.dim2", "unpack.f32.2x8x2x8.dim2")
    whole = np.arange(2 * 8 * 2 * 8, dtype=np.float32).reshape(2, 8, 2, 8)
    parts: list[Array] = []
    for rank in range(2):
        given = {"whole": whole, "rank": np.array([rank], np.int32)}
        (part,) = evaluate(module.function(row.pack), given).values()
        np.testing.assert_array_equal(part, whole[:, :, rank : rank + 1])
        parts.append(part)
    back = evaluate(module.function(row.unpack), {"parts": np.stack(parts)})["whole"]
    np.testing.assert_array_equal(back, whole)
    # All caches have one shape, so there is one pair of functions.
    assert len({row.pack for row in module.entries(Role.STATE)}) == 1


def test_each_rank_gets_its_own_rows_of_a_weight():
    module = partitioned()
    run_pipeline(module, parse_pipeline("lift-weights"))
    prepare = module.function(WEIGHTS_RANK)
    random = np.random.default_rng(0)
    given = {
        value.name or "": random.standard_normal(value.type.dims).astype(np.float32)
        for value in prepare.args
    }
    for rank in range(2):
        out = evaluate(prepare, {**given, RANK: np.array([rank], np.int32)})
        layer = "model.layers.1"
        up = given[f"{layer}.mlp.up_proj.weight"]
        down = given[f"{layer}.mlp.down_proj.weight"]
        half = up.shape[0] // 2
        mine = slice(rank * half, (rank + 1) * half)
        np.testing.assert_array_equal(out[f"{layer}.mlp.up_proj.weight.prepared"], up[mine])
        np.testing.assert_array_equal(out[f"{layer}.mlp.down_proj.weight.prepared"], down[:, mine])


@pytest.mark.parametrize(
    ("tp", "changes"),
    [(3, {}), (4, {}), (16, {}), (5, {"num_key_value_heads": 32})],
)
def test_a_degree_that_does_not_divide_is_refused(
    tp: int, changes: dict[str, object], golden: Callable[[str, str], None]
):
    with pytest.raises(GraphgenError) as caught:
        partitioned(tp, **changes)
    assert caught.value.code == "GG0304"
    golden(f"passes/partition_tp{tp}.txt", str(caught.value))


LAYERS = """\
module @m level=canonical mesh=tp:2 {{
  input %x : f32[2,4]
  weight %up : f32[8,4] sharding={up}
  weight %down : f32[4,8] sharding={down}
  output %y : f32[2,{size}]
}}

func @f phase=decode {{
  arg %x : f32[2,4]
  arg %up : f32[8,4]
  arg %down : f32[4,8]
{body}
}}
"""
DIMS = "lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32"
UP = f"  %h = dot_general(%x, %up) {DIMS} : f32[2,8]  # m.py:3 up"
DOWN = f"  %y = dot_general(%h, %down) {DIMS} : f32[2,4]  # m.py:4 down"
CUT = "  %y = slice(%h) start_indices=[0,0] limit_indices=[2,2] : f32[2,2]  # m.py:4 down"
OUTER = "lhs_contracting_dims=[0] rhs_contracting_dims=[0] dtype=f32"
SQUARE = f"  %z = dot_general(%h, %h) {OUTER} : f32[8,8]  # m.py:5"
SPLIT = f"{UP.replace('[2,8]', '[2,8]{-,tp}')}\n  return y = %h"
BROKEN = {
    "an axis the mesh does not have": LAYERS.format(
        up="{ep,-}", down="{-,-}", size=8, body=f"{UP}\n  return y = %h"
    ),
    "a value with an axis the mesh does not have": LAYERS.format(
        up="{-,-}", down="{-,-}", size=8, body=SPLIT.replace("tp", "ep")
    ),
    "a size that does not divide": LAYERS.format(
        up="{tp,-}", down="{-,-}", size=8, body=f"{UP}\n  return y = %h"
    ).replace("tp:2", "tp:3"),
    "a value of a size that does not divide": LAYERS.format(
        up="{-,-}", down="{-,-}", size=8, body=SPLIT
    ).replace("tp:2", "tp:3"),
    "a weight that is a sum": LAYERS.format(
        up="{-,-+tp}", down="{-,-}", size=8, body=f"{UP}\n  return y = %h"
    ),
}  # fmt: skip


def test_what_cannot_be_split_is_refused_by_name(golden: Callable[[str, str], None]):
    shown: list[str] = []
    for name, text in BROKEN.items():
        with pytest.raises(GraphgenError) as caught:
            run_pipeline(parse(text), parse_pipeline("partition"))
        shown.append(f"## {name}\n{caught.value}")
    golden("passes/partition_errors.txt", "\n\n".join(shown))


FACTS = """\
module @m level=canonical mesh=tp:2 {
  input %x : f32[2,4]
  weight %up : f32[8,4] sharding={tp,-}
  weight %down : f32[4,8] sharding={-,tp}
  output %y : f32[2,4]
}

func @f phase=decode {
  arg %x : f32[2,4]
  arg %up : f32[8,4]
  arg %down : f32[4,8]
  %t = transpose(%up) permutation=[1,0] : f32[4,8]
  %a = abs(%down) : f32[4,8]
  %rows = reduce(%a) dimensions=[1] kind=maximum : f32[4]
  %all = reduce(%up) dimensions=[0,1] kind=maximum : f32[]
  %h = dot_general(%x, %t) lhs_contracting_dims=[1] rhs_contracting_dims=[0] dtype=f32 : f32[2,8]
  %s = broadcast_in_dim(%all) shape=[2,8] : f32[2,8]
  %hs = multiply(%h, %s) : f32[2,8]
  %z = dot_general(%hs, %down) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 \
: f32[2,4]
  %r = broadcast_in_dim(%rows) shape=[2,4] dimensions=[1] : f32[2,4]
  %y = multiply(%z, %r) : f32[2,4]
  return y = %y
}
"""


def test_facts_about_a_whole_weight_are_made_before_it_is_cut():
    module, whole = parse(FACTS), parse(FACTS)
    run_pipeline(module, parse_pipeline("partition,lift-weights"))
    shared = module.function(WEIGHTS_GLOBAL)
    made = [(op.name, op.result.type.text) for op in shared.ops]
    assert ("reduce", "f32[4]") in made
    assert ("reduce", "f32[]") in made
    cuts = [op for op in module.function(WEIGHTS_RANK).ops if op.name == "dynamic_slice"]
    assert [op.result.type.text for op in cuts] == ["f32[4,4]", "f32[4,4]"]
    random = np.random.default_rng(0)
    given = {
        v.name or "": random.standard_normal(v.type.dims).astype(np.float32)
        for v in whole.function("f").args
    }
    (wanted,) = evaluate(whole.function("f"), given).values()
    facts = evaluate(shared, given)
    ranks: list[dict[str, Array]] = []
    for rank in range(2):
        one = {**given, **facts, RANK: np.array([rank], np.int32)}
        ranks.append(one | evaluate(module.function(WEIGHTS_RANK), one))
    for out in evaluate_ranks(module.function("f"), ranks):
        np.testing.assert_allclose(out["y"], wanted, rtol=1e-5)


def test_biases_are_added_once():
    # The bias of a row-split layer belongs behind the sum; that of a column-split one is cut.
    text = LAYERS.format(
        up="{tp,-}",
        down="{-,tp}",
        size=4,
        body="\n".join(
            [
                "  arg %b : f32[8]",
                "  arg %c : f32[4]",
                UP,
                "  %bs = broadcast_in_dim(%b) shape=[2,8] dimensions=[1] : f32[2,8]",
                "  %hb = add(%h, %bs) : f32[2,8]",
                DOWN.replace("(%h,", "(%hb,").replace("%y =", "%z ="),
                "  %cs = broadcast_in_dim(%c) shape=[2,4] dimensions=[1] : f32[2,4]",
                "  %y = add(%z, %cs) : f32[2,4]",
                "  return y = %y",
            ]
        ),
    ).replace("  output", "  weight %b : f32[8] sharding={tp}\n  weight %c : f32[4]\n  output")
    module, whole = parse(text), parse(text)
    run_pipeline(module, parse_pipeline("partition"))
    assert Counter(op.name for op in module.function("f").ops)["all_reduce"] == 1
    random = np.random.default_rng(0)
    given = {
        v.name or "": random.standard_normal(v.type.dims).astype(np.float32)
        for v in whole.function("f").args
    }
    (wanted,) = evaluate(whole.function("f"), given).values()
    ranks = [{**given, RANK: np.array([rank], np.int32)} for rank in range(2)]
    for out in evaluate_ranks(module.function("f"), ranks):
        np.testing.assert_allclose(out["y"], wanted, rtol=1e-5)
