"""How single ops are divided: which layouts of operands give which layouts of results."""

# Tables of uses read best with one use a line.
# ruff: noqa: E501

from __future__ import annotations

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.eval import evaluate_ranks, rank_index
from graphgen.ir import Function, Op, tensor
from graphgen.ir.dtype import f32, s32
from graphgen.ir.sharding import parse_sharding
from graphgen.ops import OPS, op_def
from graphgen.ops.factors import elementwise_factors
from graphgen.passes.sharding.mesh import Mesh, local_shape
from graphgen.passes.sharding.sharding_plan import ShardingPlan, propagated
from graphgen.passes.sharding.strategies import Strategy, strategies
from graphgen.passes.spmd.spmd_ops import EmitContext, emit_part
from graphgen.text import parse
from graphgen.text.grammar import parse_attr
from tests.oracles import small_modules as programs

PAIR = Mesh({"tp": 2})
GRID = Mesh({"dp": 2, "tp": 2})
DOT = "dot_general(%x, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32"
BATCHED = "dot_general(%x, %w) lhs_contracting_dims=[2] rhs_contracting_dims=[2] lhs_batch_dims=[0] rhs_batch_dims=[0] dtype=f32"
SOLVE = "lower=true unit_diagonal=false transpose_a=NO_TRANSPOSE"
CONV = 'convolution(%x, %w) dim_labels="b0f_0io->b0f" low=[2] dtype=f32'
IMAGE = "f32[2,6,4] f32[3,4,8]"
GATHER = "gather(%x, %w) offset_dims=[1] collapsed_slice_dims=[0] start_index_map=[0] index_vector_dim=1 slice_sizes=[1,4]"
SCATTER = "scatter(%x, %w, %v) update_window_dims=[1] inserted_window_dims=[0] scatter_dims_to_operand_dims=[0] index_vector_dim=1"
MATRIX, PAIR_OF = "f32[8,4]", "f32[8,4] f32[8,4]"
CACHE = "f32[4,6,4,8] f32[2,3,4,8] s32[2] s32[2,3]"
MOVED = "f32[4,6,4,8] s32[2] s32[2,3] s32[2] s32[2,3]"
IN_PLACE = "f32[4,6,4,8] f32[4,3,4,8] s32[4] s32[4,3]"
HEADS = "f32[2,3,4,8] f32[2,6,2,8] f32[2,6,2,8] pred[2,3,6]"
ALIBI = f"{HEADS} f32[4] f32[2,3,6]"
NORM_OF = "f32[4,8] f32[8]"
NORM_TO_8_BITS = "rms_norm_quantize(%x, %w) epsilon=1e-05 dtype=s8 limit=127.0"
# Types of the operands, the op, layouts of the operands, layouts of the results.
PROPOSED = "s32[2,2] s32[2] s32[2,3,4] f32[2,3,4] s32[2,2,5] f32[2,2,5] f32[2,3,2]"
MIXTURE = "f32[4,8] s32[4,2] f32[4,2] f32[4,6,8] f32[4,6,8] f32[4,10,6]"
MIXED = "experts(%x, %w, %v, %u, %s, %r) dtype=f32"
LAST = "f32[2,4,6] s32[2,4] s32[2]"
DIVIDED = [
    ("f32[2,4,6]", "quantize_rows(%x) element=s8 limit=127", "{-,tp,-}", "{-,tp,-}"),
    ("u8[2,4,10]", "dequantize_rows(%x) element=s8 dtype=f32", "{tp,-,-}", "{tp,-,-}"),
    (MATRIX, "exponential(%x)", "{tp,-}", "{tp,-}"),
    (LAST, "last_token(%x, %w, %v)", "{-,tp,-} {-,tp} {-}", "{-,-+tp}"),
    (LAST, "last_token(%x, %w, %v)", "{tp,-,-} {tp,-} {tp}", "{tp,-}"),
    (PAIR_OF, "add(%x, %w)", "{-,tp} {-,tp}", "{-,tp}"),
    (PAIR_OF, "add(%x, %w)", "{-,-+tp} {-,-+tp}", "{-,-+tp}"),
    (PAIR_OF, "multiply(%x, %w)", "{-,-} {-,-+tp}", "{-,-+tp}"),
    (PAIR_OF, "compare(%x, %w) direction=LT", "{tp,-} {tp,-}", "{tp,-}"),
    ("pred[8,4] f32[8,4] f32[8,4]", "select(%x, %w, %v)", "{-,tp} {-,tp} {-,tp}", "{-,tp}"),
    ("pred[8,4] f32[8,4] f32[8,4]", "select(%x, %w, %v)", "{-,-} {-,-+tp} {-,-+tp}", "{-,-+tp}"),
    ("f32[] f32[8,4] f32[]", "clamp(%x, %w, %v)", "{} {-,tp} {}", "{-,tp}"),
    (MATRIX, "convert(%x) dtype=bf16", "{-,tp}", "{-,tp}"),
    ("bf16[8,4]", "convert(%x) dtype=f32", "{-,-+tp}", "{-,-+tp}"),
    (MATRIX, "bitcast_convert(%x) dtype=s8", "{-,tp}", "{-,tp,-}"),
    (MATRIX, "silu(%x)", "{-,tp}", "{-,tp}"),
    (MATRIX, "transpose(%x) permutation=[1,0]", "{tp,-}", "{-,tp}"),
    # Only the first three dimensions are joined; the last stays as it is.
    ("f32[3,2,2,8]", "reshape(%x) shape=[2,6,8]", "{-,-,-,tp}", "{-,-,tp}"),
    ("f32[8]", "broadcast_in_dim(%x) shape=[2,8] dimensions=[1]", "{tp}", "{-,tp}"),
    # What repeats may repeat less.
    ("f32[8]", "broadcast_in_dim(%x) shape=[2,8] dimensions=[1]", "{-}", "{tp,-}"),
    ("f32[1,8]", "broadcast_in_dim(%x) shape=[2,8] dimensions=[0,1]", "{-,-}", "{tp,-}"),
    # Columns of the weight, rows of the operand, or what is summed.
    ("f32[2,4] f32[8,4]", DOT, "{-,-} {tp,-}", "{-,tp}"),
    ("f32[2,4] f32[8,4]", DOT, "{tp,-} {-,-}", "{tp,-}"),
    ("f32[2,4] f32[8,4]", DOT, "{-,tp} {-,tp}", "{-,-+tp}"),
    ("f32[2,3,4] f32[2,5,4]", BATCHED, "{tp,-,-} {tp,-,-}", "{tp,-,-}"),
    # A convolution by batch, output features, input features, or groups; never in space.
    (IMAGE, CONV, "{tp,-,-} {-,-,-}", "{tp,-,-}"),
    (IMAGE, CONV, "{-,-,-} {-,-,tp}", "{-,-,tp}"),
    (IMAGE, CONV, "{-,-,tp} {-,tp,-}", "{-,-,-+tp}"),
    ("f32[2,6,4] f32[3,1,8]", f"{CONV} feature_group_count=4", "{-,-,tp} {-,-,tp}", "{-,-,tp}"),
    ("f32[2,6,4] f32[3,2,4]", f"{CONV} feature_group_count=2", "{-,-,tp} {-,-,tp}", "{-,-,tp}"),
    ("f32[4,6,3] f32[3,3,4]", f"{CONV} batch_group_count=2", "{tp,-,-} {-,-,tp}", "{-,-,tp}"),
    ("f32[B,S,8]", "reshape(%x) shape=[B,S,2,4]", "{-,-,tp}", "{-,-,tp,-}"),
    ("f32[B,S,2,4]", "reshape(%x) shape=[B,S,8]", "{-,-,tp,-}", "{-,-,tp}"),
    ("f32[1,1,8]", "reshape(%x) shape=[1,1,2,4]", "{-,-,tp}", "{-,-,tp,-}"),
    ("f32[1,2,4]", "reshape(%x) shape=[8]", "{-,tp,-}", "{tp}"),
    ("f32[3,8]", "reshape(%x) shape=[3,1,8]", "{-,tp}", "{-,-,tp}"),
    ("f32[4,6]", "reshape(%x) shape=[6,4]", "{tp,-}", "{tp,-}"),
    ("f32[1,8]", "reshape(%x) shape=[8]", "{-,-+tp}", "{-+tp}"),
    (MATRIX, "slice(%x) start_indices=[0,0] limit_indices=[8,2]", "{tp,-}", "{tp,-}"),
    ("f32[8,4] f32[]", "pad(%x, %w) low=[0,1] high=[0,1]", "{tp,-} {}", "{tp,-}"),
    ("f32[8,4] f32[]", "reduce_window(%x, %w) window_dimensions=[1,2] kind=add", "{tp,-} {}", "{tp,-}"),
    (
        "f32[8,4] f32[8,3] f32[]",
        "select_and_scatter(%x, %w, %v) window_dimensions=[1,2] direction=GE kind=add",
        "{tp,-} {tp,-} {}",
        "{tp,-}",
    ),
    ("f32[8,4,4] f32[8,4,2]", f"triangular_solve(%x, %w) left_side=true {SOLVE}", "{tp,-,-} {tp,-,-}", "{tp,-,-}"),
    ("f32[3,4,4] f32[3,4,8]", f"triangular_solve(%x, %w) left_side=true {SOLVE}", "{-,-,-} {-,-,tp}", "{-,-,tp}"),
    ("f32[4,4] f32[8,4]", f"triangular_solve(%x, %w) left_side=false {SOLVE}", "{-,-} {tp,-}", "{tp,-}"),
    ("f32[8,4,4]", "cholesky(%x) lower=true", "{tp,-,-}", "{tp,-,-}"),
    ("f32[8,6]", "fft(%x) fft_type=RFFT fft_length=[6]", "{tp,-}", "{tp,-}"),
    ("u64[2]", "rng_bit_generator(%x) algorithm=rng_default dtype=u32 shape=[8]", "{-}", "{-} {-}"),
    (PAIR_OF, "concatenate(%x, %w) dimension=0", "{-,tp} {-,tp}", "{-,tp}"),
    ("f32[8,4] s32[2]", "take(%x, %w) dimension=0", "{-,tp} {-}", "{-,tp}"),
    (MATRIX, "reduce(%x) dimensions=[1] kind=add", "{tp,-}", "{tp}"),
    (MATRIX, "reduce(%x) dimensions=[1] kind=add", "{-,tp}", "{-+tp}"),
    (MATRIX, "reduce(%x) dimensions=[1] kind=maximum", "{-,tp}", "{->tp}"),
    (MATRIX, "reduce(%x) dimensions=[1] kind=minimum", "{-,tp}", "{-<tp}"),
    ("f32[6,4] s32[2]", GATHER, "{-,tp} {-}", "{-,tp}"),
    ("f32[6,4] s32[2]", GATHER, "{-,-} {tp}", "{tp,-}"),
    ("f32[6,4] s32[2] f32[2,4]", SCATTER, "{-,tp} {-} {-,tp}", "{-,tp}"),
    ("f32[8,4] s32[] s32[]", "dynamic_slice(%x, %w, %v) slice_sizes=[1,4]", "{-,tp} {} {}", "{-,tp}"),
    ("f32[8,4] f32[1,4] s32[] s32[]", "dynamic_update_slice(%x, %w, %v, %u)", "{-,tp} {-,tp} {} {}", "{-,tp}"),
    ("f32[8,4] s32[8,4]", "sort(%x, %w) dimension=1", "{tp,-} {tp,-}", "{tp,-} {tp,-}"),
    (MATRIX, "top_k(%x) k=2", "{tp,-}", "{tp,-} {tp,-}"),
    (MATRIX, "top_k(%x) k=3", "{-,tp}", "{-,-} {-,-}"),
    (MATRIX, "reverse(%x) dimensions=[0]", "{-,tp}", "{-,tp}"),
    ("", "iota() dtype=s32 shape=[2,8] dimension=0", "", "{-,tp}"),
    ("f32[8,4] s32[2,3]", "embedding(%x, %w)", "{-,tp} {-,-}", "{-,-,tp}"),
    ("f32[8,4] s32[2,3]", "embedding(%x, %w)", "{tp,-} {-,-}", "{-,-,-+tp}"),
    ("f32[2,3,8] f32[8]", "rms_norm(%x, %w) epsilon=1e-05", "{tp,-,-} {-}", "{tp,-,-}"),
    (NORM_OF, NORM_TO_8_BITS, "{tp,-} {-}", "{tp,-} {tp}"),
    ("f32[4,8] f32[8] f32[8]", "layer_norm(%x, %w, %v) epsilon=1e-05", "{tp,-} {-} {-}", "{tp,-}"),
    (MATRIX, "quantize(%x) dtype=s8 dimensions=[1] limit=127.0", "{tp,-}", "{tp,-} {tp}"),
    # Blocks of rows, and a scale a rank for its own blocks.
    ("s8[8,4] f32[8,2]", "dequantize(%x, %w) block=[1,2] dtype=f32", "{tp,-} {tp,-}", "{tp,-}"),
    ("s8[8,4] f32[8,2] s8[8,2]", "dequantize(%x, %w, %v) block=[1,2] dtype=f32", "{-,tp} {-,tp} {-,tp}", "{-,tp}"),
    ("s8[8,4] f32[8,1]", "dequantize(%x, %w) block=[1,4] dtype=f32", "{-,tp} {-,-}", "{-,tp}"),
    ("s32[2,3]", "rope_table(%x) inv_freq=f32[1](1.0)", "{tp,-}", "{tp,-,-} {tp,-,-}"),
    ("s32[2]", "key_positions(%x) attended=6", "{tp}", "{tp,-}"),
    ("s32[2,3] s32[2,6]", "attention_mask(%x, %w)", "{tp,-} {tp,-}", "{tp,-,-}"),
    ("s32[2,3]", "key_distance(%x) attended=6", "{tp,-}", "{tp,-,-}"),
    ("f32[2,3,4,8] f32[2,3,4] f32[2,3,4]", "rope(%x, %w, %v)", "{-,-,tp,-} {-,-,-} {-,-,-}", "{-,-,tp,-}"),
    ("f32[2,6,4,8] s32[2]", "cache_read(%x, %w) attended=3", "{-,-,tp,-} {-}", "{-,-,tp,-}"),
    ("f32[2,6,4,8] s32[2]", "cache_read(%x, %w) attended=3", "{tp,-,-,-} {-}", "{-,-,-,-+tp}"),
    ("f32[2,6,4,8] s32[2]", "cache_read(%x, %w) attended=3 rows=in_place", "{tp,-,-,-} {tp}", "{tp,-,-,-}"),
    # Slots, where a rank has all or its part of those that are read.
    ("f32[2,6,4,8] s32[2]", "cache_read(%x, %w) attended=6", "{-,tp,-,-} {-}", "{-,tp,-,-}"),
    ("f32[2,6,4,8] s32[2]", "cache_read(%x, %w) attended=4 rows=in_place parts=2", "{-,tp,-,-} {-}", "{-,tp,-,-}"),
    (CACHE, "kv_update(%x, %w, %v, %u)", "{-,-,tp,-} {-,-,tp,-} {-} {-,-}", "{-,-,tp,-}"),
    (CACHE, "kv_update(%x, %w, %v, %u)", "{tp,-,-,-} {-,-,-,-} {-} {-,-}", "{tp,-,-,-}"),
    (IN_PLACE, "kv_update(%x, %w, %v, %u) rows=in_place", "{tp,-,-,-} {tp,-,-,-} {tp} {tp,-}", "{tp,-,-,-}"),
    (CACHE, "kv_update(%x, %w, %v, %u)", "{-,tp,-,-} {-,-,-,-} {-} {-,-}", "{-,tp,-,-}"),
    ("s32[2,3]", "tree_slots(%x)", "{tp,-}", "{tp,-}"),
    ("s32[2,3] s32[2,6]", "tree_positions(%x, %w)", "{tp,-} {tp,-}", "{tp,-}"),
    ("s32[2,3] s32[2,6] s32[2,3,3]", "tree_mask(%x, %w, %v)", "{tp,-} {tp,-} {tp,-,-}", "{tp,-,-}"),
    (PROPOSED, "accept(%x, %w, %v, %u, %s, %r, %q)", "{tp,-} {tp} {tp,-,-} {tp,-,-} {tp,-,-} {tp,-,-} {tp,-,-}", "{tp,-} {tp}"),
    (MOVED, "kv_move(%x, %w, %v, %u, %s)", "{-,-,tp,-} {-} {-,-} {-} {-,-}", "{-,-,tp,-}"),
    (HEADS, "attention(%x, %w, %v, %u) scale=0.5", "{-,-,tp,-} {-,-,tp,-} {-,-,tp,-} {-,-,-}", "{-,-,tp,-}"),
    (HEADS, "attention(%x, %w, %v, %u) scale=0.5", "{tp,-,-,-} {tp,-,-,-} {tp,-,-,-} {tp,-,-}", "{tp,-,-,-}"),
    (HEADS, "attention(%x, %w, %v, %u) scale=0.5", "{-,-,-,-} {-,tp,-,-} {-,tp,-,-} {-,-,tp}", "{-,-,-,-+tp}"),
    (HEADS, "attention_part(%x, %w, %v, %u) scale=0.5", "{-,-,tp,-} {-,-,tp,-} {-,-,tp,-} {-,-,-}", "{-,-,tp} {-,-,tp} {-,-,tp,-}"),
    # One key-value head: its query heads may be dealt out.
    ("f32[2,3,4,8] f32[2,6,1,8] f32[2,6,1,8] pred[2,3,6]", "attention(%x, %w, %v, %u) scale=0.5", "{-,-,tp,-} {-,-,-,-} {-,-,-,-} {-,-,-}", "{-,-,tp,-}"),
    (ALIBI, "attention(%x, %w, %v, %u, %s, %r) scale=0.5", "{-,-,tp,-} {-,-,tp,-} {-,-,tp,-} {-,-,-} {tp} {-,-,-}", "{-,-,tp,-}"),
    ("f32[2,3,4] s32[2,3] s32[2]", "last_token(%x, %w, %v)", "{-,-,tp} {-,-} {-}", "{-,tp}"),
    ("f32[4,4]", "gelu(%x) approximate=tanh", "{tp,-}", "{tp,-}"),
    # Tokens, experts, inner features, outer features.
    (MIXTURE, MIXED, "{tp,-} {tp,-} {tp,-} {-,-,-} {-,-,-} {-,-,-}", "{tp,-}"),
    (MIXTURE, MIXED, "{-,-} {-,-} {-,-} {tp,-,-} {tp,-,-} {tp,-,-}", "{-,-+tp}"),
    (MIXTURE, MIXED, "{-,-} {-,-} {-,-} {-,tp,-} {-,tp,-} {-,-,tp}", "{-,-+tp}"),
    (MIXTURE, MIXED, "{-,-} {-,-} {-,-} {-,-,-} {-,-,-} {-,tp,-}", "{-,tp}"),
    (MIXTURE, f"{MIXED} capacity=2", "{-,-} {-,-} {-,-} {tp,-,-} {tp,-,-} {tp,-,-}", "{-,-+tp}"),
]  # fmt: skip
TWO_AXES = [
    ("f32[4,4] f32[8,4]", DOT, "{dp,-} {tp,-}", "{dp,tp}"),
    ("f32[4,4] f32[8,4]", DOT, "{dp,tp} {-,tp}", "{dp,-+tp}"),
    ("f32[4,4] f32[8,4]", DOT, "{-,-} {dp*tp,-}", "{-,dp*tp}"),
    ("f32[4,4] f32[8,4]", DOT, "{-,-} {tp*dp,-}", "{-,tp*dp}"),
    ("f32[2,4]", "reshape(%x) shape=[8]", "{dp,tp}", "{dp*tp}"),
    ("f32[2,4]", "reshape(%x) shape=[8]", "{tp,dp}", "{tp*dp}"),
]  # fmt: skip
REFUSED = [
    ("f32[2,4,6]", "quantize_rows(%x) element=s8 limit=127", "{-,-,tp}"),
    ("u8[2,4,10]", "dequantize_rows(%x) element=s8 dtype=f32", "{-,-,tp}"),
    (PAIR_OF, "add(%x, %w)", "{-,tp} {tp,-}"),
    (PAIR_OF, "add(%x, %w)", "{-,-+tp} {-,-}"),
    (PAIR_OF, "multiply(%x, %w)", "{-,-+tp} {-,-+tp}"),
    (MATRIX, "exponential(%x)", "{-,-+tp}"),
    ("s32[8] s32[8]", "divide(%x, %w)", "{-+tp} {-}"),
    # Parts that are rounded first are not the sum that is rounded.
    (MATRIX, "convert(%x) dtype=bf16", "{-,-+tp}"),
    ("f32[2,4] f32[8,4]", DOT, "{-,-} {-,tp}"),
    ("f32[2,3,4] f32[2,5,4]", BATCHED, "{tp,-,-} {-,-,-}"),
    ("f32[B,S,6]", "reshape(%x) shape=[B,S,3,2]", "{-,-,tp}"),
    ("f32[3,4]", "reshape(%x) shape=[12]", "{-,tp}"),
    ("f32[B,4]", "exponential(%x)", "{tp,-}"),
    ("f32[2,3,4,8] f32[2,3,4] f32[2,3,4]", "rope(%x, %w, %v)", "{-,-,-,tp} {-,-,-} {-,-,-}"),
    # The first slots of a row are those of one rank.
    ("f32[2,6,4,8] s32[2]", "cache_read(%x, %w) attended=2", "{-,tp,-,-} {-}"),
    (HEADS, "attention_part(%x, %w, %v, %u) scale=0.5", "{-,-,-,-} {-,tp,-,-} {-,tp,-,-} {-,-,tp}"),
    (HEADS, "attention(%x, %w, %v, %u) scale=0.5", "{-,-,tp,-} {-,-,-,-} {-,-,-,-} {-,-,-}"),
    ("f32[8,4] f32[4]", "rms_norm(%x, %w) epsilon=1e-05", "{-,tp} {tp}"),
    (NORM_OF, NORM_TO_8_BITS, "{-,tp} {tp}"),
    (MATRIX, "slice(%x) start_indices=[0,0] limit_indices=[8,2]", "{-,tp}"),
    (MATRIX, "reduce(%x) dimensions=[0] kind=maximum", "{-,-+tp}"),
    (MATRIX, "sort(%x) dimension=1", "{-,tp}"),
    (MATRIX, "quantize(%x) dtype=s8 dimensions=[1] limit=127.0", "{-,tp}"),
    ("s8[8,6] f32[8,3]", "dequantize(%x, %w) block=[1,2] dtype=f32", "{-,tp} {-,-}"),
    ("s8[8,6] f32[8,2]", "dequantize(%x, %w) block=[1,4] dtype=f32", "{-,tp} {-,-}"),
    ("", "constant() value=f32[](1.0)", "{tp}"),
    (MIXTURE, MIXED, "{-,tp} {-,-} {-,-} {-,-,tp} {-,-,tp} {-,-,-}"),
    # The first tokens of all, not of a part.
    (MIXTURE, f"{MIXED} capacity=2", "{tp,-} {tp,-} {tp,-} {-,-,-} {-,-,-} {-,-,-}"),
]  # fmt: skip


def op_of(types: str, use: str) -> Op:
    names = ["%x", "%w", "%v", "%u", "%s", "%r", "%q"]
    args = [f"arg {name} : {type_}" for name, type_ in zip(names, types.split(), strict=False)]
    made = parse(programs.function(*args)).function("f")
    name, _, rest = use.partition("(")
    known = {attr.name: attr for attr in op_def(name).attrs}
    pairs = [word.partition("=")[::2] for word in rest.partition(")")[2].split()]
    attrs = {key: parse_attr(known[key], value) for key, value in pairs}
    return Builder(made).emit(name, made.args, attrs)


def found(op: Op, mesh: Mesh, wanted: str) -> Strategy | None:
    layouts = tuple(parse_sharding(text) for text in wanted.split())
    fitting = [way for way in strategies(op, mesh) if way.in_shardings == layouts]
    # Where the operands say nothing, the one that does divide the result.
    return max(fitting, key=lambda way: len(way.cuts), default=None)


@pytest.mark.parametrize(("types", "use", "operands", "results"), DIVIDED)
def test_what_an_op_makes_of_layouts(types: str, use: str, operands: str, results: str):
    op = op_of(types, use)
    layouts = tuple(parse_sharding(text) for text in operands.split())
    given = [
        way.out_shardings for way in strategies(op, PAIR, ("tp",)) if way.in_shardings == layouts
    ]
    assert tuple(parse_sharding(text) for text in results.split()) in given


@pytest.mark.parametrize(("types", "use", "operands", "results"), TWO_AXES)
def test_over_two_axes(types: str, use: str, operands: str, results: str):
    way = found(op_of(types, use), GRID, operands)
    assert way is not None
    assert " ".join(layout.text for layout in way.out_shardings) == results


@pytest.mark.parametrize(("types", "use", "operands"), REFUSED)
def test_layouts_an_op_has_no_form_for(types: str, use: str, operands: str):
    layouts = tuple(parse_sharding(text) for text in operands.split())
    assert [
        way for way in strategies(op_of(types, use), PAIR, ("tp",)) if way.in_shardings == layouts
    ] == []


def test_every_op_is_divided_somewhere_above():
    divided = {use.partition("(")[0] for _, use, _, _ in DIVIDED}
    alike = {name for name, op in OPS.items() if op.factor_rule is elementwise_factors}
    whole = {name for name, op in OPS.items() if op.factor_rule is None}
    assert divided | alike | whole == set(OPS)


def test_work_is_divided_by_what_is_cut():
    op = op_of("f32[4,4] f32[8,4]", DOT)
    whole, *_ = strategies(op, GRID)
    assert whole.whole
    for text, parts in (("{dp,-} {-,-}", 2), ("{dp,-} {tp,-}", 4), ("{-,-+dp} {tp,-}", 2)):
        way = found(op, GRID, text)
        assert way is not None
        assert way.work == whole.work // parts


@pytest.mark.parametrize(
    ("types", "use", "operands", "sent"),
    [
        # Of 2 rows 3 numbers in f32 and their places in s32.
        ("f32[2,8]", "top_k(%x) k=3", "{-,tp}", 2 * 3 * (4 + 4)),
        # Of 2 x 3 tokens and 4 heads the maximum and the sum of the scores in f32.
        (HEADS, "attention(%x, %w, %v, %u) scale=0.5", "{-,-,-,-} {-,tp,-,-} {-,tp,-,-} {-,-,tp}", 24 * (4 + 4)),
    ],
)  # fmt: skip
def test_what_each_rank_found_is_sent_to_the_other(types: str, use: str, operands: str, sent: int):
    layouts = tuple(parse_sharding(text) for text in operands.split())
    ways = strategies(op_of(types, use), PAIR, ("tp",))
    (way,) = [way for way in ways if way.in_shardings == layouts]
    # Each of two ranks sends it once.
    assert (way.sent, way.collectives) == (2 * sent, 1)


def test_what_is_read_of_a_part_of_a_row_is_whole():
    """A rank that reads the first slots of its part has all of the part, on whichever axes."""
    op = op_of("f32[2,8,4,8] s32[2]", "cache_read(%x, %w) attended=8 rows=in_place parts=2")
    for way in strategies(op, GRID, slots=("tp",)):
        assert way.in_shardings[0].dims[1] == way.out_shardings[0].dims[1], way


# How what every rank makes of whole weights is best cut.
WHOLE = [
    ("reduce(%x) dimensions=[1] kind=maximum", "{tp,-}", "{tp}"),
    ("reduce(%x) dimensions=[1] kind=maximum", "{-,tp}", "{-}"),
    ("quantize(%x) dtype=s8 dimensions=[1] limit=127.0", "{tp,-}", "{tp,-} {tp}"),
    ("quantize(%x) dtype=s8 dimensions=[1] limit=127.0", "{-,tp}", "{-,tp} {-}"),
    ("quantize(%x) dtype=s8 dimensions=[0,1] limit=127.5", "{-,tp}", "{-,tp} {}"),
    ("slice(%x) start_indices=[0,0] limit_indices=[3,4]", "{tp,-}", "{-,-}"),
    ("transpose(%x) permutation=[1,0]", "{tp,-}", "{-,tp}"),
]


@pytest.mark.parametrize(("use", "given", "wanted"), WHOLE)
def test_what_is_made_of_whole_weights_is_cut_as_they_are(use: str, given: str, wanted: str):
    op = op_of("f32[8,4]", use)
    plan = ShardingPlan(pins={op.operands[0]: parse_sharding(given)})
    assert " ".join(layout.text for layout in propagated(op, plan, PAIR)) == wanted


def part_of(types: str, use: str, operands: str) -> tuple[Op, Function]:
    """The op, and what one rank of two does of it."""
    op = op_of(types, use)
    way = found(op, PAIR, operands)
    assert way is not None
    function = Function("f")
    rank = function.block.add_arg(tensor(s32, (1,)), "rank")
    parts = [
        function.block.add_arg(tensor(v.dtype, local_shape(PAIR, v.type, layout)), v.name or "")
        for v, layout in zip(op.operands, way.in_shardings, strict=True)
    ]
    shapes = [
        local_shape(PAIR, v.type, g) for v, g in zip(op.results, way.out_shardings, strict=True)
    ]
    results = emit_part(EmitContext(Builder(function), PAIR, rank), op, parts, way, shapes)
    function.outputs = [("y", results[0])]
    return op, function


def test_ids_of_another_part_of_the_table_give_zeros():
    _, function = part_of("f32[8,4] s32[6]", "embedding(%x, %w)", "{tp,-} {-}")
    table = np.arange(32, dtype=np.float32).reshape(8, 4)
    # Beyond either end an id is clamped, as it is without parts.
    ids = np.array([0, 3, 4, 7, -5, 99], np.int32)
    out = evaluate_ranks(
        function,
        [{"rank": rank_index(r), "x": table[4 * r : 4 * r + 4], "w": ids} for r in range(2)],
    )
    first, second = (rank["y"] for rank in out)
    np.testing.assert_array_equal(first[[2, 3, 5]], 0)
    np.testing.assert_array_equal(second[[0, 1, 4]], 0)
    np.testing.assert_array_equal(first + second, table[np.clip(ids, 0, 7)])


@pytest.mark.parametrize("rows", ["any", "in_place"])
def test_each_rank_writes_its_own_rows_of_a_cache(rows: str):
    use = f"kv_update(%x, %w, %v, %u) rows={rows}"
    layouts = (
        "{tp,-,-,-} {tp,-,-,-} {tp} {tp,-}"
        if rows == "in_place"
        else "{tp,-,-,-} {-,-,-,-} {-} {-,-}"
    )
    _, function = part_of("f32[4,3,1,2] f32[4,1,1,2] s32[4] s32[4,1]", use, layouts)
    new = np.arange(1, 9, dtype=np.float32).reshape(4, 1, 1, 2)
    # Row 2 is idle; elsewhere the rows of a call may be any rows of the cache.
    ids = np.array([0, 1, 4, 3] if rows == "in_place" else [3, 0, 4, 1], np.int32)
    at = np.array([[0], [1], [-1], [2]], np.int32)
    wanted = np.zeros((4, 3, 1, 2), np.float32)
    for row, slot, update in zip(ids, at[:, 0], new, strict=True):
        if row < 4:
            wanted[row, slot] = update[0]
    given = []
    for rank in range(2):
        mine = slice(2 * rank, 2 * rank + 2) if rows == "in_place" else slice(None)
        cache = np.zeros((2, 3, 1, 2), np.float32)
        given.append(
            {"rank": rank_index(rank), "x": cache, "w": new[mine], "v": ids[mine], "u": at[mine]}
        )
    out = evaluate_ranks(function, given)
    np.testing.assert_array_equal(np.concatenate([rank["y"] for rank in out]), wanted)
    assert function.outputs[0][1].dtype is f32
