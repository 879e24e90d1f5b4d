"""The program that moves the slots of accepted nodes, made from the states of a module."""

from __future__ import annotations

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import Entry, Module, Role, Value
from graphgen.ir.dtype import s32
from graphgen.passes.core import run_pipeline
from graphgen.passes.legalize.legalize import Legalize
from graphgen.passes.paging.paged_rows import BLOCK_TABLE, PagedRows
from graphgen.passes.specialize.states_program import StatesProgram
from graphgen.passes.window.rolled_layout import RolledRows

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
    rows = _checked_rows(states, bool(layouts))

    def build(b: Builder) -> None:
        ids = b.input("seq_ids", s32, (rows,))
        sources, targets = (b.input(n, s32, (rows, count)) for n in (FROM_SLOTS, TO_SLOTS))
        for row in layouts:
            b.function.block.add_arg(row.physical, row.name)
        for row in states:
            state = b.state(row.name, row.physical.dtype, row.physical.shape)
            places = [_places(b, row, ids, slots) for slots in (sources, targets)]
            b.set_state(state, b.op(KV_MOVE, state, *places[0], *places[1]))

    made = StatesProgram(KV_MOVE, "move", "sharded").made(module, build)
    run_pipeline(made, [Legalize(target)])
    return made


def _places(b: Builder, row: Entry, ids: Value, slots: Value) -> tuple[Value, Value]:
    """Rows s32 [n] and slots s32 [n,m] of a state for slots of plain rows."""
    if row.last:
        return ids, RolledRows(row.logical.dims[1], row.last).slot_of(b, slots)
    table = b.function.arg(BLOCK_TABLE)
    if table is None:
        return ids, slots
    blocks, block, *_ = row.physical.dims
    count, plain, *_ = row.logical.dims
    layout = PagedRows(count, plain, block, blocks)
    return layout.place_of(b, table, ids, slots)


def _checked_rows(states: list[Entry], paged: bool) -> int:
    """R of all states (GG0304)."""
    for row in states:
        logical, physical = row.logical.shape, row.physical.shape
        if len(logical) != 4 or len(physical) != 4:
            raise GraphgenError(
                "GG0304",
                f"kv_move: {row.name} is {row.physical.text}, and no cache [R,M,K,D]",
                help="speculate without a tree",
            )
        if row.sharding is not None and row.sharding.dims[1]:
            raise GraphgenError(
                "GG0304",
                f"kv_move: the slots of {row.name} are divided among ranks",
                help="speculate without a tree, or leave out flash_decoding",
            )
        if not paged and physical[0] != logical[0]:
            raise GraphgenError(
                "GG0304",
                f"kv_move: the rows of {row.name} are divided among ranks",
                help="choose a strategy for heads other than SHARD_OVER_BATCH",
            )
    return states[0].logical.dims[0]
