"""Every rule alone: where it fires, the result means what it did before, on random numbers."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from typing import cast

import numpy as np
import pytest

import graphgen.passes
from graphgen.analysis.fingerprint import function_fingerprint
from graphgen.eval import MEANING, Array, evaluate_ranks
from graphgen.eval.evaluate import rank_index
from graphgen.ir import RANK, Function
from graphgen.ops import verify
from graphgen.passes.core import Rewriter
from graphgen.passes.core.journal import Journal
from graphgen.passes.core.rule import Rule
from graphgen.text import parse
from tests.oracles.raising_samples import ACTIVATIONS, CACHES, EXPERTS, KNOWN_PLACES, SPELLINGS
from tests.oracles.sample import any_array


def rules() -> dict[str, Rule]:
    """Every rule that stands in a module, or in a tuple there; others are made by their pass."""
    found: dict[str, Rule] = {}
    for module in pkgutil.walk_packages(graphgen.passes.__path__, "graphgen.passes."):
        for value in vars(importlib.import_module(module.name)).values():
            items = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
            found |= {item.name: item for item in items if isinstance(item, Rule)}
    return found


RMS = (
    "arg %x : f32[2,4]\narg %w : f32[4]\n%s = multiply(%x, %x) : f32[2,4]\n"
    "%t = reduce(%s) dimensions=[1] kind=add : f32[2]\n"
    "%u = broadcast_in_dim(%t) shape=[2,1] dimensions=[0] : f32[2,1]\n"
    "%n = constant() value=f32[](4.0) : f32[]\n"
    "%c = broadcast_in_dim(%n) shape=[2,1] dimensions=[] : f32[2,1]\n"
    "%v = divide(%u, %c) : f32[2,1]\n%e = constant() value=f32[](0.125) : f32[]\n"
    "%d = broadcast_in_dim(%e) shape=[2,1] dimensions=[] : f32[2,1]\n%q = add(%v, %d) : f32[2,1]\n"
    "%r = rsqrt(%q) : f32[2,1]\n"
    "%b = broadcast_in_dim(%r) shape=[2,4] dimensions=[0,1] : f32[2,4]\n"
    "%h = multiply(%b, %x) : f32[2,4]\n"
    "%g = broadcast_in_dim(%w) shape=[2,4] dimensions=[1] : f32[2,4]\n"
    "%a = multiply(%g, %h) : f32[2,4]"
)
ROPE = (
    "arg %x : f32[1,3,2,4]\narg %c : f32[1,3,2]\narg %s : f32[1,3,2]\n"
    "%l = slice(%x) start_indices=[0,0,0,0] limit_indices=[1,3,2,2] : f32[1,3,2,2]\n"
    "%h = slice(%x) start_indices=[0,0,0,2] limit_indices=[1,3,2,4] : f32[1,3,2,2]\n"
    "%i = broadcast_in_dim(%c) shape=[1,3,2,2] dimensions=[0,1,3] : f32[1,3,2,2]\n"
    "%j = broadcast_in_dim(%s) shape=[1,3,2,2] dimensions=[0,1,3] : f32[1,3,2,2]\n"
    "%m = multiply(%l, %i) : f32[1,3,2,2]\n%n = multiply(%h, %j) : f32[1,3,2,2]\n"
    "%o = multiply(%h, %i) : f32[1,3,2,2]\n%p = multiply(%l, %j) : f32[1,3,2,2]\n"
    "%d = subtract(%m, %n) : f32[1,3,2,2]\n%e = add(%p, %o) : f32[1,3,2,2]\n"
    "%a = concatenate(%d, %e) dimension=3 : f32[1,3,2,4]"
)
ROTATED_ROPE = (
    "arg %x : f32[1,2,3,4]\narg %f : f32[1,3,2]\n"
    "%w = concatenate(%f, %f) dimension=2 : f32[1,3,4]\n"
    "%c = cosine(%w) : f32[1,3,4]\n%s = sine(%w) : f32[1,3,4]\n"
    "%l = slice(%x) start_indices=[0,0,0,0] limit_indices=[1,2,3,2] : f32[1,2,3,2]\n"
    "%h = slice(%x) start_indices=[0,0,0,2] limit_indices=[1,2,3,4] : f32[1,2,3,2]\n"
    "%n = negate(%h) : f32[1,2,3,2]\n%t = concatenate(%n, %l) dimension=3 : f32[1,2,3,4]\n"
    "%i = broadcast_in_dim(%c) shape=[1,2,3,4] dimensions=[0,2,3] : f32[1,2,3,4]\n"
    "%j = broadcast_in_dim(%s) shape=[1,2,3,4] dimensions=[0,2,3] : f32[1,2,3,4]\n"
    "%m = multiply(%x, %i) : f32[1,2,3,4]\n%o = multiply(%t, %j) : f32[1,2,3,4]\n"
    "%a = add(%m, %o) : f32[1,2,3,4]"
)
# Keys of one head repeated for two queries' heads; heads before tokens.
ATTENTION = (
    "arg %x : f32[1,3,4]\narg %k : f32[1,1,5,2]\narg %v : f32[1,1,5,2]\narg %m : pred[3,5]\n"
    "%r = reshape(%x) shape=[1,3,2,2] : f32[1,3,2,2]\n"
    "%q = transpose(%r) permutation=[0,2,1,3] : f32[1,2,3,2]\n"
    "%e = broadcast_in_dim(%k) shape=[1,1,2,5,2] dimensions=[0,1,3,4] : f32[1,1,2,5,2]\n"
    "%f = reshape(%e) shape=[1,2,5,2] : f32[1,2,5,2]\n"
    "%g = broadcast_in_dim(%v) shape=[1,1,2,5,2] dimensions=[0,1,3,4] : f32[1,1,2,5,2]\n"
    "%h = reshape(%g) shape=[1,2,5,2] : f32[1,2,5,2]\n"
    "%d = dot_general(%q, %f) lhs_contracting_dims=[3] rhs_contracting_dims=[3] "
    "lhs_batch_dims=[0,1] rhs_batch_dims=[0,1] dtype=f32 : f32[1,2,3,5]\n"
    "%n = constant() value=f32[](0.5) : f32[]\n"
    "%o = broadcast_in_dim(%n) shape=[1,2,3,5] dimensions=[] : f32[1,2,3,5]\n"
    "%s = multiply(%d, %o) : f32[1,2,3,5]\n%z = constant() value=f32[](-1e9) : f32[]\n"
    "%y = broadcast_in_dim(%z) shape=[1,2,3,5] dimensions=[] : f32[1,2,3,5]\n"
    "%l = broadcast_in_dim(%m) shape=[1,2,3,5] dimensions=[2,3] : pred[1,2,3,5]\n"
    "%t = select(%l, %s, %y) : f32[1,2,3,5]\n"
    "%u = reduce(%t) dimensions=[3] kind=maximum : f32[1,2,3]\n"
    "%w = broadcast_in_dim(%u) shape=[1,2,3,5] dimensions=[0,1,2] : f32[1,2,3,5]\n"
    "%i = subtract(%t, %w) : f32[1,2,3,5]\n%j = exponential(%i) : f32[1,2,3,5]\n"
    "%p = reduce(%j) dimensions=[3] kind=add : f32[1,2,3]\n"
    "%c = broadcast_in_dim(%p) shape=[1,2,3,5] dimensions=[0,1,2] : f32[1,2,3,5]\n"
    "%b = divide(%j, %c) : f32[1,2,3,5]\n"
    "%a = dot_general(%b, %h) lhs_contracting_dims=[3] rhs_contracting_dims=[2] "
    "lhs_batch_dims=[0,1] rhs_batch_dims=[0,1] dtype=f32 : f32[1,2,3,2]"
)

# For each rule programs in which it fires.
KERNEL = 'arg %x : f32[2,5]\n%a = custom_call(%x) target="AwsNeuron'
TOP = (
    'arg %x : f32[2,5]\n%v, %i = custom_call(%x) target="AwsNeuronTopK" config="2" '
    "results=[f32[2,2],u32[2,2]] : f32[2,2], u32[2,2]\n"
)
SAMPLES: dict[str, list[str]] = {
    **ACTIVATIONS,
    **CACHES,
    **EXPERTS,
    **SPELLINGS,
    **KNOWN_PLACES,
    "scale-product": [
        "arg %x : f32[2,3,8]\narg %q : s8[6,8]\narg %w : f32[SCALES]\n"
        "%0 = dequantize(%q, %w) block=[BLOCK] dtype=f32 : f32[6,8]\n"
        "%a = dot_general(%x, %0) lhs_contracting_dims=[2] rhs_contracting_dims=[1] dtype=f32 "
        ": f32[2,3,6]".replace("SCALES", scales).replace("BLOCK", block)
        for scales, block in (("6,1", "1,8"), ("1,1", "6,8"))
    ],
    # The free dimensions of the right side follow what is contracted, or stand before and after it.
    "one-free-dimension": [
        "arg %x : bf16[5,2]\narg %w : bf16[5,3,4]\n%a = dot_general(%x, %w) "
        "lhs_contracting_dims=[0] rhs_contracting_dims=[0] dtype=f32 : f32[2,3,4]",
        "arg %x : bf16[6,5,2]\narg %w : bf16[3,5,6,4]\n%a = dot_general(%x, %w) lhs_batch_dims=[0] "
        "rhs_batch_dims=[2] lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 "
        ": f32[6,2,3,4]",
    ],
    "in-type-of-weight": [
        "arg %x : bf16[2,4]\narg %w : f32[4]\n%n = convert(%w) dtype=bf16 : bf16[4]\n"
        "%a = rms_norm(%x, %n) epsilon=1e-05 : bf16[2,4]"
    ],
    "product-in-type-of-weight": [
        "arg %x : bf16[2,4]\narg %w : f32[3,4]\n%n = convert(%w) dtype=bf16 : bf16[3,4]\n"
        "%a = dot_general(%x, %n) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=bf16 "
        ": bf16[2,3]"
    ],
    "rounded-rows": [
        "arg %w : f32[5,4]\narg %i : s32[3]\n%n = convert(%w) dtype=bf16 : bf16[5,4]\n"
        "%a = take(%n, %i) dimension=0 : bf16[3,4]"
    ],
    "widened-again": [
        "arg %w : f32[5,4]\n%n = convert(%w) dtype=bf16 : bf16[5,4]\n"
        "%a = convert(%n) dtype=f32 : f32[5,4]"
    ],
    "mask-of-rows": [
        "arg %i : s32[2,3]\narg %n : s32[2]\n%0 = key_positions(%n) attended=8 : s32[2,8]\n"
        f"%a = attention_mask(%i, %0) window={window} : pred[2,3,8]"
        for window in (0, 3)
    ],
    "kernel-by-ops": [
        "arg %x : f32[2,5]\narg %w : f32[5]\n%e = constant() value=f32[](0.1) : f32[]\n"
        '%a = custom_call(%x, %w, %e) target="AwsNeuronRmsNorm" config="1" '
        "results=[f32[2,5]] : f32[2,5]",
        f'{KERNEL}Softmax" config="-1" results=[f32[2,5]] : f32[2,5]',
        f'{KERNEL}ArgMax" config="0" results=[u32[5]] : u32[5]',
        f'{KERNEL}ArgMin" config="1" results=[u32[2]] : u32[2]',
        *[
            f'{KERNEL}{name}" results=[f32[2,5]] : f32[2,5]'
            for name in ("Gelu", "GeluApprxTanh", "Silu")
        ],
        f"{TOP}%a = negate(%v) : f32[2,2]",
        f"{TOP}%a = popcnt(%i) : u32[2,2]",
    ],
    "identity": [
        "arg %x : f32[2,3]\n%a = reshape(%x) shape=[2,3] : f32[2,3]",
        "arg %x : f32[2,3]\n%a = transpose(%x) permutation=[0,1] : f32[2,3]",
        "arg %x : bf16[2]\n%a = convert(%x) dtype=bf16 : bf16[2]",
        "arg %x : f32[2,3]\n%a = broadcast_in_dim(%x) shape=[2,3] dimensions=[0,1] : f32[2,3]",
        "arg %x : f32[3]\n%a = slice(%x) start_indices=[0] limit_indices=[3] strides=[1] : f32[3]",
        "arg %x : f32[3]\narg %v : f32[]\n%a = pad(%x, %v) low=[0] high=[0] : f32[3]",
    ],
    "raise-rms-norm": [RMS],
    "raise-rms-norm-bare": [RMS[: RMS.index("%g =")].replace("%h", "%a")],
    "raise-embedding": [
        "arg %t : f32[7,3]\narg %i : s32[2,4,1]\n%a = gather(%t, %i) offset_dims=[2] "
        "collapsed_slice_dims=[0] start_index_map=[0] index_vector_dim=2 slice_sizes=[1,3] "
        ": f32[2,4,3]",
        *[
            f"arg %t : f32[7,3]\narg %i : {kind}[2]\n%a = gather(%t, %i) offset_dims=[1] "
            "collapsed_slice_dims=[0] start_index_map=[0] index_vector_dim=1 slice_sizes=[1,3] "
            ": f32[2,3]"
            for kind in ("s64", "u8", "u32")
        ],
    ],
    "raise-rope": [ROPE],
    "raise-rotated-rope": [ROTATED_ROPE],
    "raise-attention": [ATTENTION],
    "reshape-of-reshape": [
        "arg %x : f32[2,6]\n%r = reshape(%x) shape=[12] : f32[12]\n"
        "%a = reshape(%r) shape=[3,4] : f32[3,4]"
    ],
    "transpose-of-transpose": [
        "arg %x : f32[2,3,4]\n%t = transpose(%x) permutation=[1,2,0] : f32[3,4,2]\n"
        "%a = transpose(%t) permutation=[2,1,0] : f32[2,4,3]"
    ],
    "transpose-of-units": [
        "arg %x : f32[1,3]\n%a = transpose(%x) permutation=[1,0] : f32[3,1]",
    ],
    "concatenate-of-one": ["arg %x : f32[3]\n%a = concatenate(%x) dimension=0 : f32[3]"],
    "concatenate-of-empty": [
        "arg %x : f32[3]\narg %y : f32[0]\narg %z : f32[2]\n"
        "%a = concatenate(%y, %x, %y, %z) dimension=0 : f32[5]",
        "arg %x : f32[3]\narg %y : f32[0]\n%a = concatenate(%x, %y) dimension=0 : f32[3]",
    ],
    "constant-on-the-right": [
        "arg %x : f32[]\n%c = constant() value=f32[](3.0) : f32[]\n%a = add(%c, %x) : f32[]",
        "arg %x : s32[]\n%c = constant() value=s32[](3) : s32[]\n%a = multiply(%c, %x) : s32[]",
    ],
    "broadcast-of-broadcast": [
        "arg %x : f32[2]\n%b = broadcast_in_dim(%x) shape=[3,2] dimensions=[1] : f32[3,2]\n"
        "%a = broadcast_in_dim(%b) shape=[2,4,3] dimensions=[2,0] : f32[2,4,3]"
    ],
    "broadcast-of-reshape": [
        "arg %x : f32[2]\n%r = reshape(%x) shape=[1,2] : f32[1,2]\n"
        "%a = broadcast_in_dim(%r) shape=[3,2] dimensions=[0,1] : f32[3,2]"
    ],
    "moved-splat": [
        "arg %x : f32[]\n%b = broadcast_in_dim(%x) shape=[2,3] dimensions=[] : f32[2,3]\n"
        "%a = reshape(%b) shape=[6] : f32[6]",
        "arg %x : f32[]\n%b = broadcast_in_dim(%x) shape=[2,3] dimensions=[] : f32[2,3]\n"
        "%a = transpose(%b) permutation=[1,0] : f32[3,2]",
    ],
    "slice-of-slice": [
        "arg %x : f32[9]\n"
        "%s = slice(%x) start_indices=[1] limit_indices=[9] strides=[2] : f32[4]\n"
        "%a = slice(%s) start_indices=[1] limit_indices=[4] strides=[2] : f32[2]"
    ],
    "slice-of-broadcast": [
        "arg %x : f32[4]\n%b = broadcast_in_dim(%x) shape=[3,4] dimensions=[1] : f32[3,4]\n"
        "%a = slice(%b) start_indices=[1,0] limit_indices=[3,4] strides=[1,1] : f32[2,4]"
    ],
    "concatenate-of-slices": [
        "arg %x : f32[6]\n"
        "%s = slice(%x) start_indices=[0] limit_indices=[2] strides=[1] : f32[2]\n"
        "%t = slice(%x) start_indices=[2] limit_indices=[5] strides=[1] : f32[3]\n"
        "%a = concatenate(%s, %t) dimension=0 : f32[5]"
    ],
    "convert-of-convert": [
        "arg %x : bf16[5]\n%w = convert(%x) dtype=f32 : f32[5]\n"
        "%a = convert(%w) dtype=bf16 : bf16[5]"
    ],
    "wide-dot": [
        "arg %x : bf16[2,3]\narg %w : bf16[4,3]\n%a = dot_general(%x, %w) "
        "lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=bf16 : bf16[2,4]"
    ],
    "integer-dot": [
        f"arg %x : {kind}[2,{depth}]\narg %w : {kind}[{depth},3]\n%a = dot_general(%x, %w) "
        f"lhs_contracting_dims=[1] rhs_contracting_dims=[0] dtype={to} : {to}[2,3]"
        for kind, to, depth in [("s32", "s32", 5), ("u32", "u32", 300), ("s64", "s64", 9)]
    ],
    "integer-sum-over-ranks": [
        f"arg %x : {kind}[4,4]\n%a = {op} kind=add replica_groups=[[0,1],[3,2]] : {kind}[{shape}]"
        for kind in ("s32", "u32", "s64", "u64")
        for op, shape in (("all_reduce(%x)", "4,4"), ("reduce_scatter(%x) dimension=1", "4,2"))
    ],
    "integer-extreme-over-ranks": [
        f"arg %x : {kind}[4,4]\n%a = {op} kind={of} replica_groups=[[0,1],[3,2]] : {kind}[{shape}]"
        for kind in ("s32", "u32", "s64")
        for of in ("maximum", "minimum")
        for op, shape in (("all_reduce(%x)", "4,4"), ("reduce_scatter(%x) dimension=0", "2,4"))
    ],
    "integer-scatter-add": [
        f"arg %x : {kind}[9,2]\narg %i : s32[5,1]\narg %u : {kind}[5,2]\n%a = scatter(%x, %i, %u) "
        "update_window_dims=[1] inserted_window_dims=[0] scatter_dims_to_operand_dims=[0] "
        f"index_vector_dim=1 kind=add : {kind}[9,2]"
        for kind in ("s32", "u8", "s64", "pred")
    ],
    "wide-shift": [
        f"arg %x : {kind}[5]\narg %n : {kind}[5]\n%a = shift_right_arithmetic(%x, %n) : {kind}[5]"
        for kind in ("s8", "u8", "s16", "u16")
    ],
    "exchange-along-the-first": [
        f"arg %x : f32[4,6]\n%a = all_to_all(%x) split_dimension={split} concat_dimension={concat} "
        f"replica_groups=[[1,0]] : f32[{shape}]"
        for split, concat, shape in [(0, 1, "2,12"), (1, 0, "8,3"), (1, 1, "4,6")]
    ],
    "front-of-sort": [
        f"arg %x : {kind}[3,{size}]\n"
        f"%s = sort(%x) dimension=1 descending={way} : {kind}[3,{size}]\n"
        "%a = slice(%s) start_indices=[0,0] limit_indices=[3,5] strides=[1,1] "
        f": {kind}[3,5]"
        for kind in ("f32", "bf16", "s32", "u32", "s8")
        for way in ("true", "false")
        for size in (16, 13)
    ],
    "sort-by-kernel": [
        "arg %x : f32[11,2]\narg %w : s32[11,2]\n"
        "%k, %a = sort(%x, %w) dimension=0 descending=true : f32[11,2], s32[11,2]",
        "arg %x : s32[2,300]\n%i = iota() shape=[2,300] dimension=1 dtype=s32 : s32[2,300]\n"
        "%k, %a = sort(%x, %i) dimension=1 : s32[2,300], s32[2,300]",
        "arg %x : u16[40]\n%a = sort(%x) dimension=0 : u16[40]",
    ],
    "exchange-of-two": [
        f"arg %x : f32[4,6]\n%a = all_to_all(%x) split_dimension={split} concat_dimension={concat} "
        f"replica_groups=[[3,0],[1,2]] : f32[{shape}]"
        for split, concat, shape in [(0, 0, "4,6"), (0, 1, "2,12"), (1, 0, "8,3"), (1, 1, "4,6")]
    ],
    "rank-as-input": [
        f'arg %x : u32[4]\n%i = hlo.opaque() opcode="{opcode}" results=[u32[]] : u32[]\n'
        "%b = broadcast_in_dim(%i) shape=[4] : u32[4]\n%c = multiply(%x, %b) : u32[4]\n"
        "%a = all_gather(%c) dimension=0 replica_groups=[[0,1]] : u32[8]"
        for opcode in ("replica-id", "partition-id")
    ],
    "erf-by-quotients": [
        f"arg %x : {kind}[400]\n%a = erf(%x) : {kind}[400]" for kind in ("f32", "bf16", "f16")
    ],
    "widened-f8-dot": [
        "arg %x : f8e4m3fn[2,3]\narg %w : f8e4m3fn[4,3]\n%a = dot_general(%x, %w) "
        "lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : f32[2,4]"
    ],
    "gather-of-elements": [
        "arg %x : f32[9,8]\narg %i : s32[3,2]\n%a = gather(%x, %i) offset_dims=[0,2] "
        "collapsed_slice_dims=[] start_index_map=[1,0] index_vector_dim=1 slice_sizes=[2,3] "
        ": f32[2,3,3]",
        "arg %x : f32[9,8,2]\narg %i : s64[2,3]\n%a = gather(%x, %i) offset_dims=[1,2] "
        "collapsed_slice_dims=[0] start_index_map=[0,1] index_vector_dim=0 slice_sizes=[1,1,2] "
        ": f32[3,1,2]",
        "arg %x : f32[9]\narg %i : s32[3]\n%a = gather(%x, %i) offset_dims=[1] "
        "collapsed_slice_dims=[] start_index_map=[0] index_vector_dim=1 slice_sizes=[4] : f32[3,4]",
    ],
    "gather-of-rows": [
        "arg %x : f32[5,4,2]\narg %i : s32[3,2]\n%a = gather(%x, %i) offset_dims=[1] "
        "collapsed_slice_dims=[0,1] start_index_map=[0,1] index_vector_dim=1 slice_sizes=[1,1,2] "
        ": f32[3,2]",
        "arg %x : f32[5,4]\narg %i : s32[2,3,4]\n%a = gather(%x, %i) offset_dims=[] "
        "collapsed_slice_dims=[0,1] start_index_map=[0,1] index_vector_dim=0 slice_sizes=[1,1] "
        ": f32[3,4]",
    ],
    "scatter-of-rows": [
        f"arg %x : f32[5,4,2]\narg %i : s32[3,2]\narg %u : f32[3,2]\n%a = scatter(%x, %i, %u) "
        "update_window_dims=[1] inserted_window_dims=[0,1] scatter_dims_to_operand_dims=[0,1] "
        f"index_vector_dim=1 kind={kind} : f32[5,4,2]"
        for kind in ("add", "assign")
    ],
}


def program(sample: str) -> Function:
    lines = "".join(f"  {line}\n" for line in sample.splitlines())
    text = f"module @m level=sharded {{\n}}\n\nfunc @f {{\n{lines}  return y = %a\n}}\n"
    return parse(text).function("f")


def inputs(function: Function, seed: int) -> list[dict[str, Array]]:
    """Random arrays for each rank the program names; integers also of every size there is."""
    random = np.random.default_rng(seed)
    named = [op for op in function.ops if "replica_groups" in op.attrs]
    groups = [group for op in named for group in op.attrs.groups("replica_groups")]
    ranks = max([rank for group in groups for rank in group], default=0) + 1
    given: list[dict[str, Array]] = []
    for _ in range(ranks):
        arrays = {value.name or "": any_array(random, value.type) for value in function.args}
        for value in function.args:
            if value.dtype.is_integer and value.name != "i" and seed % 2:
                data = random.bytes(value.type.nbytes)
                kind = arrays[value.name or ""].dtype
                arrays[value.name or ""] = np.frombuffer(data, kind).reshape(value.type.dims)
        given.append(arrays | {RANK: rank_index(len(given))})
    return given


def test_every_rule_has_a_sample():
    assert set(rules()) == set(SAMPLES)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_rule_keeps_the_meaning(name: str):
    rule = rules()[name]
    roots: set[str] = set()
    for sample in SAMPLES[name]:
        before, after = program(sample), program(sample)
        journal = Journal()
        Rewriter("test", journal).apply_rules(after, [rule])
        assert [item.rule for item in journal.applications], sample
        roots |= {item.root.split(" = ")[1].split("(")[0] for item in journal.applications}
        for seed in range(3):
            given = inputs(before, seed)
            pair = [evaluate_ranks(f, given, MEANING) for f in (before, after)]
            for wanted, found in zip(*[[out["y"] for out in outs] for outs in pair], strict=True):
                assert found.shape == wanted.shape
                if wanted.dtype.kind in "iub":
                    np.testing.assert_array_equal(found, wanted)
                    continue
                np.testing.assert_allclose(
                    found.astype(np.float64), wanted.astype(np.float64), rtol=1e-9, atol=1e-9
                )
        module = parse("module @m level=sharded {\n}\n\nfunc @g {\n  arg %x : f32[]\n}\n")
        module.add(after)
        verify(module)
    # Of a rule with several roots each is tried, where they are rewritten differently.
    assert name not in ("identity", "moved-splat") or roots == set(rule.roots)


EXAMPLES = {name: rule for name, rule in rules().items() if "Given:" in (rule.apply.__doc__ or "")}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_a_rule_is_true(name: str):
    rule = EXAMPLES[name]
    _, text = inspect.cleandoc(rule.apply.__doc__ or "").split("Given:\n")
    given, result = map(inspect.cleandoc, text.split("Result:\n"))
    functions = [program(re.sub(r"%y\b", "%a", part)) for part in (given, result)]
    Rewriter("test").apply_rules(functions[0], [rule])
    got, wanted = (function_fingerprint(function) for function in functions)
    assert got == wanted


def test_the_rules_for_neuron_show_examples():
    assert {"integer-sum-over-ranks", "exchange-along-the-first", "gather-of-elements"} <= set(
        EXAMPLES
    )
