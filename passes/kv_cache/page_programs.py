"""Rewrite a program for paged caches: each write and read goes through the block table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from graphgen.build import Builder
from graphgen.ir import Entry, Function, Op, Value
from graphgen.ops import make_attrs
from graphgen.passes.core import NoMatch, Rewriter, no_match
from graphgen.passes.kv_cache.paged_layout import BLOCK_TABLE, PagedRows


@dataclass(frozen=True, slots=True)
class PagedState:
    """A cache in one program.

    Attributes:
        cache: the state, as the program takes it.
        update: its ``kv_update``.
        reads: the ``cache_read`` of it, before or after the update.
    """

    cache: Value
    update: Op
    reads: tuple[Op, ...]


def find_state(function: Function, row: Entry) -> PagedState | NoMatch | None:
    """The writes and reads of a state; ``None`` where the program does not take it."""
    cache = function.arg(row.name)
    if cache is None:
        return None
    updates = [op for op in cache.users if op.name == "kv_update" and op.operands[0] is cache]
    if len(updates) != 1:
        return no_match(f"{len(updates)} updates write it", cache)
    (update,) = updates
    if function.outputs.get(row.name) is not update.result:
        return no_match("the update is not what is kept", update.result, depth=2)
    reads: list[Op] = []
    for value in (cache, update.result):
        for user in value.users:
            if user.name == "cache_read" and user.operands[0] is value:
                reads.append(user)
            elif user is not update or update.operands.count(cache) > 1:
                return no_match(f"{user.name} reads it as plain rows", value, depth=3)
    handed_out = [name for name, value in function.outputs if value in (cache, update.result)]
    if handed_out != [row.name]:
        return no_match("it is another output too", update.result, depth=4)
    return PagedState(cache, update, tuple(reads))


@dataclass(slots=True)
class Pager:
    """Changes one program, state by state.

    Attributes:
        function: the program.
        rewriter: of the pass.
        layout: of all paged states.
        places: blocks and slots of the tokens, by the rows and the positions of an update.
        blocks: blocks that are read, by rows and attended positions.
    """

    function: Function
    rewriter: Rewriter
    layout: PagedRows
    places: dict[tuple[Value, Value], tuple[Value, Value]] = field(
        default_factory=dict[tuple[Value, Value], tuple[Value, Value]]
    )
    blocks: dict[tuple[Value, int, bool], Value] = field(
        default_factory=dict[tuple[Value, int, bool], Value]
    )

    def page(self, state: PagedState) -> None:
        """Keep one state in blocks."""
        update = state.update
        physical = self.layout.physical(state.cache.type)
        state.cache.type = update.result.type = physical
        cache, new, seq_ids, positions = update.operands
        blocks, slots = self._places(seq_ids, positions)
        b = self.rewriter.before(self.function, update)
        tokens = b.reshape(new, (blocks.shape[0], 1, *new.shape[2:]))
        # Blocks are the rows now, each token has its own.
        update.attrs = make_attrs("kv_update", {})
        update.set_operands((cache, tokens, blocks, slots))
        for op in state.reads:
            self._read(op)

    def _read(self, op: Op) -> None:
        cache, seq_ids = op.operands
        rows, attended, *_ = op.result.type.dims
        in_place = op.attrs.text("rows") == "in_place"
        found = self.blocks.get((seq_ids, attended, in_place))
        if found is None:
            b = self._after((seq_ids,), op)
            found = self.layout.blocks_read(b, self._table(), seq_ids, attended, in_place=in_place)
            self.blocks[seq_ids, attended, in_place] = found
        b = self.rewriter.before(self.function, op)
        whole = self.layout.read(b, found, cache, rows, attended)
        self.rewriter.replace(self.function, op, [whole])

    def _places(self, seq_ids: Value, positions: Value) -> tuple[Value, Value]:
        found = self.places.get((seq_ids, positions))
        if found is None:
            (user, *_) = [op for op in positions.users if op.name == "kv_update"]
            b = self._after((seq_ids, positions), user)
            found = self.layout.place_of(b, self._table(), seq_ids, positions)
            self.places[seq_ids, positions] = found
        return found

    def _table(self) -> Value:
        table = self.function.arg(BLOCK_TABLE)
        return table or self.function.block.add_arg(self.layout.table, BLOCK_TABLE)

    def _after(self, values: Sequence[Value], user: Op) -> Builder:
        """A builder at the first place where all ``values`` are known; every layer is after it."""
        made = {value.op for value in values if value.op is not None}
        place = self.function.block.first
        for op in self.function.block if made else ():
            if op in made:
                place = op.next
        assert place is not None
        b = self.rewriter.before(self.function, place)
        b.loc = user.loc.through(self.rewriter.pass_name)
        return b
