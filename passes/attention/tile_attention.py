"""Attention in tiles, chosen for each attention by its cost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from graphgen.config.fields import option, words
from graphgen.config.option_words import DTYPES, TILES_AUTO, TILES_OFF
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module, Op, dtype
from graphgen.ops.control import kernel_of
from graphgen.passes.attention.tile_costs import AttentionShape, TileCost, asked_cost, tile_costs
from graphgen.passes.attention.tile_loop import looped
from graphgen.passes.attention.tile_operands import attention_kind
from graphgen.passes.attention.tile_sizes import TILED
from graphgen.passes.attention.unrolled_tiles import unrolled
from graphgen.passes.attention.window_slots import windowed
from graphgen.passes.core import Pass, Rewriter, no_match, register
from graphgen.passes.kernels.cpu_attention import has_attention_kernel
from graphgen.passes.outline.op_templates import OpKind, OpTemplates
from graphgen.passes.outline.shared_functions import SharedFunctions
from graphgen.targets import find_target, target_names


@register
@dataclass(frozen=True)
class TileAttention(Pass):
    """Compute attention in tiles, a block of tokens by a block of slots.

    The largest score, the sum of powers and the weighted sum of values go from one tile of a block
    of tokens to the next (FlashAttention, arXiv 2205.14135 and 2307.08691), so that no value over
    all tokens and all slots exists: masks and distances are made for each tile. On the CPU tiles
    are turns of a loop, which leaves out those whose mask allows nothing; on an accelerator they
    follow each other in the program, all of them: a prompt may go on with a sequence. Where windows
    let a block of tokens read few slots, its tiles are those, from a slot on that positions say.

    Options:
        block: ``auto`` for what costs the least, see :mod:`graphgen.passes.attention.tile_costs`;
            ``off`` for no tiles; ``256x512`` for tiles of 256 tokens and 512 slots, ``256`` for as
            many of both.
        target: what the programs will run on.
        softmax: element type of the powers.
        kernels: ``select-kernels`` follows: what the CPU's kernel computes as a whole costs what
            the kernel takes.

    Given:
        module @m level=canonical {
          input %q : f32[1,1,1,4]
          input %k : f32[1,3,1,4]
          input %v : f32[1,3,1,4]
          input %p : s32[1,1]
          input %kp : s32[1,3]
          output %o : f32[1,1,1,4]
        }

        func @f phase=decode {
          arg %q : f32[1,1,1,4]
          arg %k : f32[1,3,1,4]
          arg %v : f32[1,3,1,4]
          arg %p : s32[1,1]
          arg %kp : s32[1,3]
          %m = attention_mask(%p, %kp) : pred[1,1,3]
          %o = attention(%q, %k, %v, %m) scale=0.5 : f32[1,1,1,4]
          return o = %o
        }

    Result (``tile-attention{block=2,target=trn2},cse,dce``):
        module @m level=canonical {
          input %q : f32[1,1,1,4]
          input %k : f32[1,3,1,4]
          input %v : f32[1,3,1,4]
          input %p : s32[1,1]
          input %kp : s32[1,3]
          output %o : f32[1,1,1,4]
        }

        func @f phase=decode {
          arg %q : f32[1,1,1,4]
          arg %k : f32[1,3,1,4]
          arg %v : f32[1,3,1,4]
          arg %p : s32[1,1]
          arg %kp : s32[1,3]
          %0, %1 = hlo.opaque(%q, %p) opcode="opt-barrier" form="(xx)->(xx)" \
results=[f32[1,1,1,4],s32[1,1]] : f32[1,1,1,4], s32[1,1]
          %2 = slice(%k) start_indices=[0,0,0,0] limit_indices=[1,2,1,4] : f32[1,2,1,4]
          %3 = slice(%v) start_indices=[0,0,0,0] limit_indices=[1,2,1,4] : f32[1,2,1,4]
          %4 = slice(%kp) start_indices=[0,0] limit_indices=[1,2] : s32[1,2]
          %5 = attention_mask(%1, %4) : pred[1,1,2]
          %6 = reshape(%0) shape=[1,1,1,1,4] : f32[1,1,1,1,4]
          %7 = dot_general(%6, %2) lhs_contracting_dims=[4] rhs_contracting_dims=[3] \
lhs_batch_dims=[0,2] rhs_batch_dims=[0,2] dtype=f32 : f32[1,1,1,1,2]
          %8 = constant() value=f32[](0.5) : f32[]
          %9 = broadcast_in_dim(%8) shape=[1,1,1,1,2] : f32[1,1,1,1,2]
          %10 = multiply(%7, %9) : f32[1,1,1,1,2]
          %11 = broadcast_in_dim(%5) shape=[1,1,1,1,2] dimensions=[0,2,4] : pred[1,1,1,1,2]
          %12 = constant() value=f32[](-3.4028235e+38) : f32[]
          %13 = broadcast_in_dim(%12) shape=[1,1,1,1,2] : f32[1,1,1,1,2]
          %14 = select(%11, %10, %13) : f32[1,1,1,1,2]
          %15 = reduce(%14) dimensions=[4] kind=maximum : f32[1,1,1,1]
          %16 = broadcast_in_dim(%15) shape=[1,1,1,1,2] dimensions=[0,1,2,3] : f32[1,1,1,1,2]
          %17 = subtract(%14, %16) : f32[1,1,1,1,2]
          %18 = exponential(%17) : f32[1,1,1,1,2]
          %19 = reduce(%18) dimensions=[4] kind=add : f32[1,1,1,1]
          %20 = dot_general(%18, %3) lhs_contracting_dims=[4] rhs_contracting_dims=[1] \
lhs_batch_dims=[0,1] rhs_batch_dims=[0,2] dtype=f32 : f32[1,1,1,1,4]
          %21 = slice(%k) start_indices=[0,2,0,0] limit_indices=[1,3,1,4] : f32[1,1,1,4]
          %22 = slice(%v) start_indices=[0,2,0,0] limit_indices=[1,3,1,4] : f32[1,1,1,4]
          %23 = slice(%kp) start_indices=[0,2] limit_indices=[1,3] : s32[1,1]
          %24 = attention_mask(%1, %23) : pred[1,1,1]
          %25 = dot_general(%6, %21) lhs_contracting_dims=[4] rhs_contracting_dims=[3] \
lhs_batch_dims=[0,2] rhs_batch_dims=[0,2] dtype=f32 : f32[1,1,1,1,1]
          %26 = broadcast_in_dim(%8) shape=[1,1,1,1,1] : f32[1,1,1,1,1]
          %27 = multiply(%25, %26) : f32[1,1,1,1,1]
          %28 = broadcast_in_dim(%24) shape=[1,1,1,1,1] dimensions=[0,2,4] : pred[1,1,1,1,1]
          %29 = broadcast_in_dim(%12) shape=[1,1,1,1,1] : f32[1,1,1,1,1]
          %30 = select(%28, %27, %29) : f32[1,1,1,1,1]
          %31 = reduce(%30) dimensions=[4] kind=maximum : f32[1,1,1,1]
          %32 = broadcast_in_dim(%31) shape=[1,1,1,1,1] dimensions=[0,1,2,3] : f32[1,1,1,1,1]
          %33 = subtract(%30, %32) : f32[1,1,1,1,1]
          %34 = exponential(%33) : f32[1,1,1,1,1]
          %35 = reduce(%34) dimensions=[4] kind=add : f32[1,1,1,1]
          %36 = dot_general(%34, %22) lhs_contracting_dims=[4] rhs_contracting_dims=[1] \
lhs_batch_dims=[0,1] rhs_batch_dims=[0,2] dtype=f32 : f32[1,1,1,1,4]
          %37 = maximum(%15, %31) : f32[1,1,1,1]
          %38 = subtract(%15, %37) : f32[1,1,1,1]
          %39 = exponential(%38) : f32[1,1,1,1]
          %40 = broadcast_in_dim(%39) shape=[1,1,1,1,4] dimensions=[0,1,2,3] : f32[1,1,1,1,4]
          %41 = multiply(%19, %39) : f32[1,1,1,1]
          %42 = multiply(%20, %40) : f32[1,1,1,1,4]
          %43 = subtract(%31, %37) : f32[1,1,1,1]
          %44 = exponential(%43) : f32[1,1,1,1]
          %45 = broadcast_in_dim(%44) shape=[1,1,1,1,4] dimensions=[0,1,2,3] : f32[1,1,1,1,4]
          %46 = multiply(%35, %44) : f32[1,1,1,1]
          %47 = multiply(%36, %45) : f32[1,1,1,1,4]
          %48 = add(%41, %46) : f32[1,1,1,1]
          %49 = add(%42, %47) : f32[1,1,1,1,4]
          %50 = broadcast_in_dim(%48) shape=[1,1,1,1,4] dimensions=[0,1,2,3] : f32[1,1,1,1,4]
          %51 = divide(%49, %50) : f32[1,1,1,1,4]
          %52 = transpose(%51) permutation=[0,2,1,3,4] : f32[1,1,1,1,4]
          %o = reshape(%52) shape=[1,1,1,4] : f32[1,1,1,4]
          return o = %o
        }
    """

    name: ClassVar[str] = "tile-attention"
    finite_math_only: ClassVar[bool] = True
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical", "sharded")
    requires: ClassVar[tuple[str, ...]] = ("specialized", "partitioned")
    # Powers are summed tile by tile, and rescaled.
    rounding: ClassVar[float] = 2e-2
    block: str = TILES_AUTO
    target: str = option(words(target_names), "cpu")
    softmax: str = option(words(*DTYPES), DTYPES[0])
    kernels: bool = False

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """The attention of every function but the meanings of kernels."""
        asked = block_of(self.block)
        if self.target not in target_names():
            # Legalization refuses it.
            return
        shared = SharedFunctions(module)
        meanings = {
            op.attrs.text("to_apply")
            for function in module.functions.values()
            for op in function.block
            if kernel_of(op)
        }
        for function in list(module.functions.values()):
            if function.name in meanings:
                continue
            templates = OpTemplates()
            for op in [op for op in function.block if op.name in TILED]:
                if rewriter.exhausted:
                    break
                self._tile(function, op, asked, rewriter, shared, templates)
        shared.put_first()

    def _tile(
        self,
        function: Function,
        op: Op,
        asked: tuple[int, int] | None,
        rewriter: Rewriter,
        shared: SharedFunctions,
        templates: OpTemplates,
    ) -> None:
        shape, target = (
            AttentionShape.of(op, prompt=function.phase == "prefill"),
            find_target(self.target),
        )
        if target.is_accelerator and (found := windowed(op)) is not None:
            # Loops leave out what masks forbid as they run.
            shape = replace(shape, window=found.reach)
        costs = tile_costs(shape, target, kernel=self.kernels and has_attention_kernel(op))
        if self.block == TILES_OFF:
            chosen = next(cost for cost in costs if cost.sizes.whole)
        else:
            chosen = costs[0] if asked is None else asked_cost(shape, target, *asked)
        self._explain(function, op, chosen, costs, rewriter)
        if chosen.sizes.whole or rewriter.declines(function, op, "tiles"):
            return
        with rewriter.before(function, op) as b:
            sizes, softmax = chosen.sizes, dtype(self.softmax)
            if target.is_accelerator:
                values = unrolled(b, op, sizes, softmax)
            else:
                made_of = attention_kind(op, every_token=sizes.rows == 1)
                kind = OpKind((*made_of.key, sizes), made_of.reads)
                values = templates.place(
                    b, op, kind, partial(looped, b, op, sizes, softmax, shared)
                )
        rewriter.replace(function, op, values, "tiles", gain=chosen.text)

    def _explain(
        self,
        function: Function,
        op: Op,
        chosen: TileCost,
        costs: Sequence[TileCost],
        rewriter: Rewriter,
    ) -> None:
        """Say what was chosen, and why nothing else was."""
        for cost in costs:
            if cost.sizes != chosen.sizes:
                slower = f"{cost.text} costs more than {chosen.text}"
                why = slower if self.block == TILES_AUTO else f"block={self.block} is set"
                rewriter.decline(
                    function, "whole" if cost.sizes.whole else "tiles", op, no_match(why)
                )
        if chosen.sizes.whole:
            # As it was: explain has the costs.
            return
        shown = dict.fromkeys([chosen.text, *[cost.text for cost in costs]])
        sizes = f"{chosen.sizes.tokens} tokens, {chosen.sizes.slots} slots"
        rewriter.remark(f"@{function.name}: {sizes}: {'; '.join(shown)}")


def block_of(text: str) -> tuple[int, int] | None:
    """Tokens and slots of a tile; ``None`` for ``auto`` and ``off``.

    Raises:
        GraphgenError: GG0302 for anything but these words, ``256`` and ``256x512``.
    """
    if text in (TILES_AUTO, TILES_OFF):
        return None
    found = re.fullmatch(r"([1-9]\d*)(?:x([1-9]\d*))?", text)
    if found is None:
        raise GraphgenError(
            "GG0302",
            f"tile-attention: block={text} is neither {TILES_AUTO}, {TILES_OFF} nor the size of a "
            "tile",
            help="256x512 has 256 tokens and 512 slots, 256 as many of both",
        )
    return int(found[1]), int(found[2] or found[1])
