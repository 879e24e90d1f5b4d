"""Programs that move slots and rows of caches, made from the states of a module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import Entry, Function, Module, Role, Value
from graphgen.ir.dtype import s32
from graphgen.passes.core import run_pipeline
from graphgen.passes.kv_cache.paged_layout import BLOCK_TABLE, PagedRows
from graphgen.passes.kv_cache.rolled_layout import RolledLayout
from graphgen.passes.legalize.legalize import Legalize


@dataclass(frozen=True, slots=True)
class StatesProgram:
    """A program of its own for the states of a module, which keep their representations.

    Attributes:
        name: of the program.
        phase: of the program.
        level: of the module.
    """

    name: str
    phase: str
    level: str

    def made(self, module: Module, build: Callable[[Builder], None]) -> Module:
        """The module.

        Args:
            module: its states and layouts are the new one's, with the functions ``pack`` and
                ``unpack``, so that the two may be compared in logical terms.
            build: appends the program.
        """
        made = Module(f"{module.name}.{self.name}", self.level, dict(module.mesh))
        entries = (*module.entries(Role.STATE), *module.entries(Role.LAYOUT))
        for name in sorted({name for row in entries for name in (row.pack, row.unpack)} - {""}):
            made.add(module.function(name))
        with Builder(made.add(Function(self.name, self.phase)), made) as b:
            build(b)
        for row in entries:
            made.interface[row.name] = row
        return made


KV_MOVE = "kv_move"
FROM_SLOTS, TO_SLOTS = "from_slots", "to_slots"


def kv_move_module(module: Module, count: int, target: str = "cpu") -> Module:
    """A module with one program ``kv_move`` over the states of another module.

    Its inputs are ``seq_ids`` s32 [R], ``from_slots`` and ``to_slots`` s32 [R,count]: slots of a
    plain cache row, -1 for none, whatever form the states have. Each slot gets what another one of
    its row held before the call, in every state. The states keep their representations and the
    functions ``pack`` and ``unpack``.

    It is a program of its own and no part of the next step, so that a step of any phase may follow,
    no other program changes, and artifacts of any age have it. A path that is the front of its tree
    needs no launch.

    Args:
        module: with caches [R,M,K,D].
        count: largest number of slots that are moved in a row, at least 1.
        target: what the program will run on.

    Raises:
        GraphgenError: GG0304 for caches whose rows or slots are divided among ranks, and for states
            other than caches.
    """
    states, layouts = module.entries(Role.STATE), module.entries(Role.LAYOUT)
    rows = _checked_rows(states, bool(layouts), "speculate without a tree")

    def build(b: Builder) -> None:
        ids = b.input("seq_ids", s32, (rows,), domain=(0, rows))
        last = states[0].logical.shape[1] - 1
        sources, targets = (
            b.input(name, s32, (rows, count), domain=(-1, last)) for name in (FROM_SLOTS, TO_SLOTS)
        )
        for row in layouts:
            b.function.block.add_arg(row.physical, row.name)
        for row in states:
            state = b.state(row.name, row.physical.dtype, row.physical.shape)
            places = [_places(b, row, ids, slots) for slots in (sources, targets)]
            b.set_state(state, b.op(KV_MOVE, state, *places[0], *places[1]))

    made = StatesProgram(KV_MOVE, "move", "sharded").made(module, build)
    run_pipeline(made, [Legalize(target)])
    return made


ROW_ORDER, FROM_ROWS = "row_order", "from_rows"


def row_order_module(module: Module, target: str = "cpu") -> Module:
    """A module with one program ``row_order`` over the states of another module.

    Its input is ``from_rows`` s32 [R]: row r of every state becomes what row ``from_rows[r]`` was
    before the call, as beam search wants it. All slots of a row are moved by ``kv_move``, whatever
    form the states have; in a paged cache rows keep their blocks.

    Args:
        module: with caches [R,M,K,D].
        target: what the program will run on.

    Raises:
        GraphgenError: GG0304 as of :func:`kv_move_module`.
    """
    states, layouts = module.entries(Role.STATE), module.entries(Role.LAYOUT)
    rows = _checked_rows(states, bool(layouts), "generate with num_beams=1")

    def build(b: Builder) -> None:
        sources = b.input(FROM_ROWS, s32, (rows,), domain=(0, rows - 1))
        for row in layouts:
            b.function.block.add_arg(row.physical, row.name)
        for row in states:
            state = b.state(row.name, row.physical.dtype, row.physical.shape)
            slots = b.iota(s32, (rows, row.logical.shape[1]), 1)
            ids = (sources, b.iota(s32, (rows,), 0))
            places = [_places(b, row, each, slots) for each in ids]
            b.set_state(state, b.op(KV_MOVE, state, *places[0], *places[1]))

    made = StatesProgram(ROW_ORDER, "move", "sharded").made(module, build)
    run_pipeline(made, [Legalize(target)])
    return made


def _places(b: Builder, row: Entry, ids: Value, slots: Value) -> tuple[Value, Value]:
    """Rows s32 [n] and slots s32 [n,m] of a state for slots of plain rows."""
    if row.last:
        return ids, RolledLayout(row.logical.dims[1], row.last).slot_of(b, slots)
    table = b.function.arg(BLOCK_TABLE)
    if table is None:
        return ids, slots
    blocks, block, *_ = row.physical.dims
    count, plain, *_ = row.logical.dims
    layout = PagedRows(count, plain, block, blocks)
    return layout.place_of(b, table, ids, slots)


def _checked_rows(states: list[Entry], paged: bool, remedy: str) -> int:
    """R of all states; ``remedy`` is what to do where they are not caches (GG0304)."""
    for row in states:
        logical, physical = row.logical.shape, row.physical.shape
        if len(logical) != 4 or len(physical) != 4:
            raise GraphgenError(
                "GG0304",
                f"kv_move: {row.name} is {row.physical.text}, and no cache [R,M,K,D]",
                help=remedy,
            )
        if row.sharding is not None and row.sharding.dims[1]:
            raise GraphgenError(
                "GG0304",
                f"kv_move: the slots of {row.name} are divided among ranks",
                help=f"{remedy}, or leave out flash_decoding",
            )
        if not paged and physical[0] != logical[0]:
            raise GraphgenError(
                "GG0304",
                f"kv_move: the rows of {row.name} are divided among ranks",
                help="choose a strategy for heads other than SHARD_OVER_BATCH",
            )
    return states[0].logical.dims[0]


def row_copy_module(module: Module) -> Module:
    """A module with one program ``copy_row`` over the states of another module.

    Its inputs are ``source`` and ``target``, s32 scalars in [0, R); row ``target`` of every state
    becomes row ``source``, and nothing else changes. The states keep their representations and the
    functions ``pack`` and ``unpack``, so the copy may be compared in logical terms.

    Where the states are kept in blocks, ``source`` and ``target`` are blocks.

    Args:
        module: whose states have the rows of the cache as their first dimension, in both
            representations, or are all kept in blocks.
    """

    def build(b: Builder) -> None:
        rows = min([row.physical.dims[0] for row in module.entries(Role.STATE)], default=1)
        source, target = (
            b.input(name, s32, (), domain=(0, rows - 1)) for name in ("source", "target")
        )
        zero = b.literal(0, s32)
        for row in module.entries(Role.STATE):
            type_ = row.physical
            state = b.state(row.name, type_.dtype, type_.shape)
            b.set_state(state, _copied(b, state, source, target, zero))

    return StatesProgram("copy_row", "copy", module.level).made(module, build)


def _copied(b: Builder, state: Value, source: Value, target: Value, zero: Value) -> Value:
    """A state whose row ``target`` is its row ``source``."""
    rest = [zero] * (len(state.shape) - 1)
    one = b.dynamic_slice(state, [source, *rest], [1, *state.shape[1:]])
    return b.dynamic_update_slice(state, one, [target, *rest])


def token_feed_module(module: Module, given: int, taken: int) -> Module:
    """A module with one program ``feed.bGIVEN.bTAKEN``.

    Its inputs are ``host`` s32 [taken,1], ``given`` s32 [given] and ``source`` s32 [taken]; its
    output ``fed`` s32 [taken,1] is ``given[source]`` in each row whose source is not negative, and
    ``host`` in the others.

    Args:
        module: for its ranks, which all do the same.
        given: rows of the launch that chose the tokens.
        taken: rows of the launch that processes them.
    """
    made = Module(f"{module.name}.feed", module.level, dict(module.mesh))
    function = made.add(Function(f"feed.b{given}.b{taken}", "feed"))
    with Builder(function, made) as b:
        host = b.input("host", s32, (taken, 1))
        tokens = b.input("given", s32, (given,))
        source = b.input("source", s32, (taken,), domain=(-1, given - 1))
        from_host = b.compare(source, b.full(0, source.type), "LT")
        fed = b.select(from_host, b.reshape(host, (taken,)), b.take(tokens, source, 0))
        b.output("fed", b.reshape(fed, (taken, 1)))
    return made
