"""Caches of plain rows become blocks that a table assigns to rows: paged attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphgen.build import Builder
from graphgen.build.inline_function import inline_function
from graphgen.errors import GraphgenError
from graphgen.ir import Domain, Entry, Function, Module, Role, Value
from graphgen.passes.core import NoMatch, Pass, Rewriter, no_match, register
from graphgen.passes.kv_cache.page_programs import PagedState, Pager, find_state
from graphgen.passes.kv_cache.paged_layout import BLOCK_TABLE, PagedRows
from graphgen.passes.weights.layout_change import repack

_RULE = "page-state"
_DEFAULT = f"default.{BLOCK_TABLE}"


@register
@dataclass(frozen=True)
class PageCache(Pass):
    """Split a cache of R rows and M slots into N blocks of ``block`` slots, shared by rows.

    The programs take one more input, ``block_table`` s32 [R,T] with T = M / block rounded up: the
    block of each part of a row, negative for none. Rows may have blocks in common, and there may be
    fewer blocks than all rows need at their longest. A token whose part has no block is not
    written; what is read there is not defined. Attention and masks stay as they are.

    Where ranks divide the slots of a row, each has a part of every block under the same number: a
    block still stands for ``block`` positions, which have to divide.

    Options:
        block: slots of a block, on all ranks that divide a row together.
        blocks: N; 0 for as many as all rows need, R times T.

    Given:
        module @m level=canonical {
          input %new : f32[2,1,1,4]
          input %positions : s32[2,1]
          input %seq_ids : s32[2]
          state %k : f32[2,8,1,4]
          output %r : f32[2,8,1,4]
        }

        func @f phase=decode {
          arg %k : f32[2,8,1,4]
          arg %new : f32[2,1,1,4]
          arg %positions : s32[2,1]
          arg %seq_ids : s32[2]
          %0 = kv_update(%k, %new, %seq_ids, %positions) : f32[2,8,1,4]
          %r = cache_read(%0, %seq_ids) attended=8 : f32[2,8,1,4]
          return k = %0
          return r = %r
        }

    Result (``page-cache{block=4}``):
        module @m level=canonical {
          input %new : f32[2,1,1,4]
          input %positions : s32[2,1]
          input %seq_ids : s32[2]
          state %k : f32[2,8,1,4] as f32[4,4,1,4] pack=@pack.f32.2x8x1x4.pages4x4 \
unpack=@unpack.f32.2x8x1x4.pages4x4
          output %r : f32[2,8,1,4]
          layout %block_table : s32[2,2] pack=@default.block_table domain=[-1,3]
        }

        func @f phase=decode {
          arg %k : f32[4,4,1,4]
          arg %new : f32[2,1,1,4]
          arg %positions : s32[2,1]
          arg %seq_ids : s32[2]
          arg %block_table : s32[2,2]
          %0 = gather(%block_table, %seq_ids) offset_dims=[1] collapsed_slice_dims=[0] \
start_index_map=[0] index_vector_dim=1 slice_sizes=[1,2] : s32[2,2]
          %1 = reshape(%0) shape=[4] : s32[4]
          %2 = broadcast_in_dim(%seq_ids) shape=[2,1] dimensions=[0] : s32[2,1]
          %3 = constant() value=s32[](0) : s32[]
          %4 = broadcast_in_dim(%3) shape=[2,1] : s32[2,1]
          %5 = compare(%2, %4) direction=GE : pred[2,1]
          %6 = constant() value=s32[](2) : s32[]
          %7 = broadcast_in_dim(%6) shape=[2,1] : s32[2,1]
          %8 = compare(%2, %7) direction=LT : pred[2,1]
          %9 = and(%5, %8) : pred[2,1]
          %10 = constant() value=s32[](0) : s32[]
          %11 = broadcast_in_dim(%10) shape=[2,1] : s32[2,1]
          %12 = compare(%positions, %11) direction=GE : pred[2,1]
          %13 = constant() value=s32[](8) : s32[]
          %14 = broadcast_in_dim(%13) shape=[2,1] : s32[2,1]
          %15 = compare(%positions, %14) direction=LT : pred[2,1]
          %16 = and(%12, %15) : pred[2,1]
          %17 = and(%9, %16) : pred[2,1]
          %18 = constant() value=s32[](4) : s32[]
          %19 = broadcast_in_dim(%18) shape=[2,1] : s32[2,1]
          %20 = divide(%positions, %19) : s32[2,1]
          %21 = reshape(%2) shape=[2,1,1] : s32[2,1,1]
          %22 = reshape(%20) shape=[2,1,1] : s32[2,1,1]
          %23 = concatenate(%21, %22) dimension=2 : s32[2,1,2]
          %24 = gather(%block_table, %23) offset_dims=[] collapsed_slice_dims=[0,1] \
start_index_map=[0,1] index_vector_dim=2 slice_sizes=[1,1] : s32[2,1]
          %25 = constant() value=s32[](-1) : s32[]
          %26 = broadcast_in_dim(%25) shape=[2,1] : s32[2,1]
          %27 = select(%17, %24, %26) : s32[2,1]
          %28 = constant() value=s32[](3) : s32[]
          %29 = broadcast_in_dim(%28) shape=[2,1] : s32[2,1]
          %30 = and(%positions, %29) : s32[2,1]
          %31 = reshape(%27) shape=[2] : s32[2]
          %32 = kv_update(%k, %new, %31, %30) : f32[4,4,1,4]
          %33 = cache_read(%32, %1) attended=4 : f32[4,4,1,4]
          %r = reshape(%33) shape=[2,8,1,4] : f32[2,8,1,4]
          return k = %32
          return r = %r
        }

        func @default.block_table {
          %0 = iota() dtype=s32 shape=[2,2] dimension=0 : s32[2,2]
          %1 = iota() dtype=s32 shape=[2,2] dimension=1 : s32[2,2]
          %2 = constant() value=s32[](2) : s32[]
          %3 = broadcast_in_dim(%2) shape=[2,2] : s32[2,2]
          %4 = multiply(%0, %3) : s32[2,2]
          %5 = add(%4, %1) : s32[2,2]
          return table = %5
        }

        func @pack.f32.2x8x1x4.pages4x4 {
          arg %whole : f32[2,8,1,4]
          arg %rank : s32[1]
          arg %block_table : s32[2,2]
          %0 = constant() value=f32[](0.0) : f32[]
          %1 = reshape(%whole) shape=[4,4,1,4] : f32[4,4,1,4]
          %2 = broadcast_in_dim(%0) shape=[4,4,1,4] : f32[4,4,1,4]
          %3 = iota() dtype=s32 shape=[4,4] dimension=1 : s32[4,4]
          %4 = reshape(%block_table) shape=[4] : s32[4]
          %5 = kv_update(%2, %1, %4, %3) : f32[4,4,1,4]
          return part = %5
        }

        func @unpack.f32.2x8x1x4.pages4x4 {
          arg %parts : f32[1,4,4,1,4]
          arg %block_table : s32[2,2]
          %0 = reshape(%block_table) shape=[4] : s32[4]
          %1 = take(%parts, %0) dimension=1 : f32[1,4,4,1,4]
          %2 = reshape(%1) shape=[1,2,8,1,4] : f32[1,2,8,1,4]
          %3 = slice(%2) start_indices=[0,0,0,0,0] limit_indices=[1,2,8,1,4] : f32[1,2,8,1,4]
          %4 = reshape(%3) shape=[2,8,1,4] : f32[2,8,1,4]
          %5 = constant() value=s32[](0) : s32[]
          %6 = broadcast_in_dim(%5) shape=[2,2] : s32[2,2]
          %7 = compare(%block_table, %6) direction=GE : pred[2,2]
          %8 = broadcast_in_dim(%7) shape=[2,2,4] dimensions=[0,1] : pred[2,2,4]
          %9 = reshape(%8) shape=[2,8] : pred[2,8]
          %10 = slice(%9) start_indices=[0,0] limit_indices=[2,8] : pred[2,8]
          return whole = %4
          return held = %10
        }
    """

    name: ClassVar[str] = "page-cache"
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical", "sharded")
    requires: ClassVar[tuple[str, ...]] = ("specialized", "partitioned")
    block: int = 16
    blocks: int = 0

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """State by state, in all programs at once: they share one representation."""
        if self.block < 1 or self.blocks < 0:
            what = f"page-cache: block={self.block}, blocks={self.blocks}"
            raise GraphgenError("GG0302", what, help="a block has at least one slot")
        if BLOCK_TABLE in module.interface:
            raise GraphgenError("GG0304", f"page-cache: there is a {BLOCK_TABLE} already")
        pagers: dict[Function, Pager] = {}
        layout, count = None, 0
        for row in module.entries(Role.STATE):
            if rewriter.exhausted:
                return
            found = _uses(module, row, layout, rewriter)
            if not found:
                continue
            if layout is None:
                layout = self._layout(module, row)
            with rewriter.joined():
                for function, state in found:
                    pager = pagers.setdefault(function, Pager(function, rewriter, layout))
                    pager.page(state)
                _keep_blocks(module, row, layout)
            rewriter.note(found[0][0], f"blocks for {row.name}", found[0][1].update)
            count += 1
        if layout is None:
            rewriter.remark("no cache is written and read by rows")
            return
        rewriter.remark(f"{count} caches are {layout.blocks} blocks of {self.block} slots")

    def _layout(self, module: Module, row: Entry) -> PagedRows:
        """The layout of all states, and its table in the interface (GG0304)."""
        rows, slots, *_ = row.physical.dims
        ranks = module.parts(row, 1)
        block, rest = divmod(self.block, ranks)
        if rest:
            raise GraphgenError(
                "GG0304",
                f"page-cache: {ranks} ranks divide the slots of {row.name}, and a block of "
                f"{self.block} does not divide",
                help=f"take blocks of a multiple of {ranks} slots (--block-size)",
            )
        whole = rows * -(-slots // block)
        layout = PagedRows(rows, slots, block, self.blocks or whole)
        if layout.blocks < rows:
            what = f"page-cache: {layout.blocks} blocks for {rows} rows"
            raise GraphgenError("GG0304", what, help="every row needs a block")
        function = module.add(Function(_DEFAULT))
        with Builder(function) as b:
            function.outputs = [("table", layout.identity(b))]
        blocks = Domain(-1, layout.blocks - 1)
        table = Entry(Role.LAYOUT, BLOCK_TABLE, layout.table, layout.table, _DEFAULT, domain=blocks)
        module.interface[BLOCK_TABLE] = table
        return layout


def _uses(
    module: Module, row: Entry, layout: PagedRows | None, rewriter: Rewriter
) -> Sequence[tuple[Function, PagedState]]:
    """The state in each program that takes it; none, declined, where one does something else.

    Raises:
        GraphgenError: GG0304 for a ring, and for rows that are divided among ranks.
    """
    found: list[tuple[Function, PagedState]] = []
    for function in module.programs():
        state = find_state(function, row)
        if isinstance(state, PagedState) and layout is not None:
            state = _of_one_size(state, layout)
        if isinstance(state, NoMatch):
            at = state.at.op if state.at is not None else None
            first = at or function.block.first
            if first is not None:
                rewriter.decline(function, _RULE, first, state)
            return []
        if state is not None:
            found.append((function, state))
    if found:
        _check(row)
    return found


def _of_one_size(state: PagedState, layout: PagedRows) -> PagedState | NoMatch:
    if state.cache.type.dims[:2] != (layout.rows, layout.slots):
        return no_match("it has other rows or slots than the first cache", state.cache, depth=5)
    return state


def _check(row: Entry) -> None:
    if row.last:
        raise GraphgenError(
            "GG0304",
            f"page-cache: {row.name} is a ring of {row.last} slots, which has no blocks",
            help="leave out roll-window-cache",
        )
    if row.physical.dims[0] != row.logical.shape[0]:
        raise GraphgenError(
            "GG0304",
            f"page-cache: the rows of {row.name} are divided among ranks",
            help="choose a strategy for heads other than SHARD_OVER_BATCH",
        )


def _of_all_ranks(b: Builder, module: Module, row: Entry, held: Value) -> Value:
    """The slots pred [R,M] of whole rows that are held, of those of one rank's part.

    Found by the function that puts a row together, of rows that are 1 where they are held.
    """
    join = module.function(row.unpack)
    type_ = join.args[0].type
    one = b.convert(held, type_.dtype)
    (whole, *_) = inline_function(b, join, [b.broadcast_in_dim(one, type_.shape, [1, 2])])
    rows, slots, *window = whole.shape
    first = b.slice(whole, [0] * whole.type.rank, [rows, slots, *[1 for _ in window]])
    marks = b.reshape(first, (rows, slots))
    return b.compare(marks, b.full(0, marks.type), "NE")


def _keep_blocks(module: Module, row: Entry, layout: PagedRows) -> None:
    """Say in the interface that a state is kept in blocks."""

    def table(b: Builder) -> Value:
        found = b.function.arg(BLOCK_TABLE)
        assert found is not None
        return found

    def pack(b: Builder, part: Value, rank: Value) -> Value:
        return layout.pack(b, part, table(b))

    def unpack(b: Builder, parts: Value) -> Value:
        return layout.unpack(b, parts, table(b))

    def held(b: Builder) -> Value:
        own = layout.held(b, table(b))
        divided = row.physical.dims[1] != row.logical.dims[1]
        return _of_all_ranks(b, module, row, own) if divided else own

    inputs = {BLOCK_TABLE: layout.table}
    label = f"pages{layout.block}x{layout.blocks}"
    physical = layout.physical(row.physical)
    repack(module, row, physical, label, (pack, unpack), inputs=inputs, held=held)
