"""Programs before and after each rewrite of ``legalize`` for a target, with the same numbers."""

# Tables of uses read best with one use a line.
# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from graphgen.eval import Array, evaluate_ranks, numpy_dtype, rank_index
from graphgen.ir import RANK, Module, TensorType
from graphgen.lowering.hlo.read import read_hlo
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.passes.core import Rewriter, run_pipeline
from graphgen.passes.legalize.inline import Inliner
from graphgen.passes.legalize.legalization_rules import EVERYWHERE
from graphgen.passes.legalize.legalize import Legalize
from graphgen.runtime.device_kit.kit_program import KitProgram, kit_program, ranks_of, some_array
from graphgen.targets import Accelerator, find_target
from graphgen.text import parse

# By rewrite: the element type that it is about, and ops; %y is the result, %i holds indices, %q positions.
_PROGRAMS: Mapping[str, tuple[str, str]] = {
    "exchange-of-two": ("f32", "arg %x : f32[4,8]\n%y = all_to_all(%x) split_dimension=0 concat_dimension=0 replica_groups=[[0,1]] : f32[4,8]"),
    "front-of-sort": ("f32", "arg %x : f32[4,16]\n%s = sort(%x) dimension=1 descending=true : f32[4,16]\n%y = slice(%s) start_indices=[0,0] limit_indices=[4,3] : f32[4,3]"),
    "sort-by-kernel": ("f32", "arg %x : f32[4,16]\n%y = sort(%x) dimension=1 : f32[4,16]"),
    "top-k-without-sort": ("f32", "arg %x : f32[4,16]\n%y, %p = top_k(%x) k=3 : f32[4,3], s32[4,3]"),
    "top-k-by-kernel": ("f32", "arg %x : f32[4,16]\n%y, %p = top_k(%x) k=3 : f32[4,3], s32[4,3]"),
    "integer-dot": ("s32", "arg %x : s32[2,64]\narg %w : s32[64,8]\n%y = dot_general(%x, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[0] dtype=s32 : s32[2,8]"),
    "integer-sum-over-ranks": ("s32", "arg %x : s32[4,8]\n%y = all_reduce(%x) kind=add replica_groups=[[0,1]] : s32[4,8]"),
    "integer-extreme-over-ranks": ("s32", "arg %x : s32[4,8]\n%y = all_reduce(%x) kind=maximum replica_groups=[[0,1]] : s32[4,8]"),
    "integer-scatter-add": ("s32", "arg %x : s32[5,4]\narg %i : s32[3]\narg %u : s32[3,4]\n%y = scatter(%x, %i, %u) update_window_dims=[1] inserted_window_dims=[0] scatter_dims_to_operand_dims=[0] index_vector_dim=1 kind=add : s32[5,4]"),
    "wide-shift": ("s8", "arg %x : s8[4,8]\narg %i : s8[4,8]\n%y = shift_right_arithmetic(%x, %i) : s8[4,8]"),
    "exchange-along-the-first": ("f32", "arg %x : f32[4,8]\n%y = all_to_all(%x) split_dimension=1 concat_dimension=1 replica_groups=[[0,1,2,3]] : f32[4,8]"),
    "gather-of-elements": ("f32", "arg %x : f32[8,4]\narg %i : s32[3,1]\n%y = gather(%x, %i) offset_dims=[1,2] collapsed_slice_dims=[] start_index_map=[0] index_vector_dim=1 slice_sizes=[1,4] : f32[3,1,4]"),
    "gather-of-rows": ("f32", "arg %x : f32[4,5,8]\narg %i : s32[3,2]\n%y = gather(%x, %i) offset_dims=[1] collapsed_slice_dims=[0,1] start_index_map=[0,1] index_vector_dim=1 slice_sizes=[1,1,8] : f32[3,8]"),
    "scatter-of-rows": ("f32", "arg %x : f32[4,5,8]\narg %i : s32[1,2]\narg %u : f32[1,8]\n%y = scatter(%x, %i, %u) update_window_dims=[1] inserted_window_dims=[0,1] scatter_dims_to_operand_dims=[0,1] index_vector_dim=1 kind=assign : f32[4,5,8]"),
    "erf-by-quotients": ("f32", "arg %x : f32[4,8]\n%y = erf(%x) : f32[4,8]"),
    "widened-f8-dot": ("f8e4m3fn", "arg %x : f8e4m3fn[2,64]\narg %w : f8e4m3fn[64,8]\n%y = dot_general(%x, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[0] dtype=f32 : f32[2,8]"),
    "mask-of-rows": ("s32", "arg %q : s32[2,3]\narg %i : s32[2]\n%0 = key_positions(%i) attended=8 : s32[2,8]\n%y = attention_mask(%q, %0) : pred[2,3,8]"),
}  # fmt: skip
_OF_A_RANK = """
HloModule kit

ENTRY main {
  x = f32[4,8] parameter(0)
  r = u32[] replica-id()
  c = f32[] convert(r)
  b = f32[4,8] broadcast(c), dimensions={}
  ROOT y = f32[4,8] add(x, b)
}
"""
RANK_RULE = "rank-as-input"


def rewrites_of(device: Accelerator) -> list[str]:
    """The names of the rewrites that ``legalize`` has for a target."""
    names = [rule.name for rule in EVERYWHERE] + [*find_target(device.name).rules]
    return [name for name in names if name in _PROGRAMS or name == RANK_RULE]


def rewrite_names(name: str) -> list[str]:
    """The names of a rewrite's cases."""
    return [f"rewrite/{name}/{form}" for form in ("before", "after")]


def rewrite_programs(name: str, device: Accelerator) -> Iterator[KitProgram]:
    """The programs before and after a rewrite for a target."""
    kind = _PROGRAMS[name][0] if name in _PROGRAMS else "f32"
    before, after = _module(name), _module(name)
    inputs = _inputs(before, name)
    wanted = evaluate_ranks(before.function("f"), inputs, module=before)[0]
    run_pipeline(after, [Legalize(target=device.name)])
    # Composites have no form in HLO: before is what they mean everywhere.
    Inliner(Rewriter("kit"), {}, ()).run(before.function("f"))
    for case, module in zip(rewrite_names(name), (before, after), strict=True):
        module.level = "target"
        function = module.function("f")
        given = {value.name or "": inputs[0][value.name or ""] for value in function.args}
        made = kit_program(case, module, function, given, wanted, dtype=kind)
        yield made if ranks_of(module, function) == 1 else replace(made, inputs={}, outputs={})


def _module(name: str) -> Module:
    """The program of a rewrite before it."""
    if name == RANK_RULE:
        module = read_hlo(parse_hlo_text(_OF_A_RANK))
        function = next(iter(module.functions.values()))
        function.name = "f"
        module.functions.clear()
        module.add(function)
        module.level = "sharded"
        return module
    _, text = _PROGRAMS[name]
    results = [word for word in ("%y", "%p") if f"{word} =" in text or f"{word}, " in text]
    lines = [f"  {line}" for line in text.splitlines()]
    returns = [f"  return {word[1:]} = {word}" for word in results]
    head = ["module @kit level=sharded {", "}", "", "func @f {"]
    return parse("\n".join([*head, *lines, *returns, "}", ""]))


def _inputs(module: Module, name: str) -> list[dict[str, Array]]:
    """The arguments of each rank; integers other than indices use all of their bits."""
    function = module.function("f")
    return [
        {
            **{
                value.name or "": _array(
                    f"{name} {value.name} {rank}", value.name or "", value.type
                )
                for value in function.args
            },
            RANK: rank_index(rank),
        }
        for rank in range(ranks_of(module, function))
    ]


def _array(seed: str, name: str, type_: TensorType) -> Array:
    if name == "i":
        return some_array(seed, type_, 4)
    if name == "q":
        return np.broadcast_to(np.arange(type_.dims[-1]), type_.dims).astype(np.int32)
    small = some_array(seed, type_)
    if not type_.dtype.is_integer:
        return small
    # Odd multiples of a large number: sums in f32 would not be exact.
    return (small.astype(np.int64) * 0x1234567).astype(numpy_dtype(type_.dtype))
