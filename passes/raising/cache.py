"""Raise cache updates: writes of windows at computed positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.ir import Dim, Op, Value
from graphgen.ir.dtype import s32
from graphgen.passes.core import NoMatch, no_match, rule
from graphgen.passes.raising.index_analysis import IndexPart, counts_along, part_of
from graphgen.pattern.see_through import integer

_START = IndexPart(None, number=0)
# Ops between an argument and the cache in it.
_SAME_NUMBERS = ("transpose", "reshape", "kv_update", "slice")


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of a tensor that are written.

    Attributes:
        cache: the tensor.
        shape: its sizes.
        new: the updates.
        sizes: window sizes, by dimension of ``cache``.
        starts: window starts, by dimension of ``cache``.
        batch: the dimensions of ``new`` that count windows.
        inner: the dimension of ``new`` by dimension of ``cache``, ``None`` for size 1.
        clamped: a window that does not fit is moved; else it is dropped.
    """

    cache: Value
    shape: tuple[Dim, ...]
    new: Value
    sizes: tuple[Dim, ...]
    starts: tuple[IndexPart, ...]
    batch: tuple[int, ...]
    inner: tuple[int | None, ...]
    clamped: bool


@dataclass(frozen=True, slots=True)
class Roles:
    """Roles of the dimensions of a cache.

    Attributes:
        order: the dimensions of rows, slots, heads and the size of a head.
        row_axis: the dimension of the batch that counts rows, if one does.
        token_axis: the dimension of the batch that counts tokens, if one does.
        counted: row b of the call is row b of the cache.
    """

    order: tuple[int, int, int, int]
    row_axis: int | None
    token_axis: int | None
    counted: bool


@rule("scatter", "dynamic_update_slice")
def raise_kv_update(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """Tokens written into some slots of an argument are an update of a cache."""
    if op.result.type.rank != 4:
        return NoMatch("the buffer written to does not have four dimensions", op.result)
    windows = windows_of(op)
    return windows if isinstance(windows, NoMatch) else updated(b, windows)


def windows_of(op: Op) -> Windows | NoMatch:
    """Describe the windows of a scatter or a dynamic_update_slice."""
    return _scattered(op) if op.name == "scatter" else _sliced(op)


def updated(b: Builder, windows: Windows) -> Sequence[Value] | NoMatch:
    """Build the update of a cache of four dimensions."""
    plan = planned(windows)
    return plan if isinstance(plan, NoMatch) else update(b, windows, *plan)


def planned(windows: Windows) -> tuple[Roles, int] | NoMatch:
    """Find the roles of the dimensions, and the last slot at which a window fits."""
    if not is_kept(windows.cache):
        return no_match(
            "the buffer written to is not an argument, so nothing is kept", windows.cache, depth=3
        )
    roles = _roles(windows)
    if isinstance(roles, NoMatch):
        return roles
    room = _room(windows, roles.order[1])
    return room if isinstance(room, NoMatch) else (roles, room)


def _scattered(op: Op) -> Windows | NoMatch:
    cache, indices, new = op.operands
    attrs = op.attrs
    if attrs.text("kind") != "assign":
        return no_match("it adds to what is there", op.result)
    target = attrs.integers("scatter_dims_to_operand_dims")
    vector, inserted = attrs.integer("index_vector_dim"), attrs.integers("inserted_window_dims")
    rank = cache.type.rank
    starts = [_START] * rank
    for index, dim in enumerate(target):
        found = part_of(indices, vector, index)
        if found is None:
            return no_match("the start is not one number for each dimension", indices, depth=2)
        starts[dim] = found
    windows = iter(attrs.integers("update_window_dims"))
    inner = tuple(None if dim in inserted else next(windows) for dim in range(rank))
    sizes = tuple(1 if dim is None else new.shape[dim] for dim in inner)
    batch = tuple(dim for dim in range(new.type.rank) if dim not in inner)
    return Windows(cache, cache.shape, new, sizes, tuple(starts), batch, inner, clamped=False)


def _sliced(op: Op) -> Windows:
    cache, new, *starts = op.operands
    parts: list[IndexPart] = []
    for start in starts:
        known = integer(start)
        parts.append(IndexPart(start if known is None else None, number=known))
    return Windows(
        cache, cache.shape, new, new.shape, tuple(parts), (), tuple(range(new.type.rank)), True
    )


def is_kept(value: Value) -> bool:
    """Test whether ``value`` is an argument, or the result of writes into one."""
    work, seen = [value], set[Value]()
    while work:
        value = work.pop()
        if value.op is None or value in seen:
            continue
        seen.add(value)
        if value.op.name == "concatenate":
            # Written layers between unwritten ones.
            work += value.op.operands
        elif value.op.name in _SAME_NUMBERS:
            work.append(value.op.operands[0])
        else:
            return False
    return True


def _roles(windows: Windows) -> Roles | NoMatch:
    """Decide roles: slots are computed; rows counted, indexed or whole; heads and size remain."""
    shape = windows.shape
    free: list[int] = []
    for dim in range(4):
        whole = windows.sizes[dim] == shape[dim] and (
            windows.clamped or windows.starts[dim].known() == 0
        )
        if not whole or windows.inner[dim] is None:
            free.append(dim)
    axes = {dim: counts_along(windows.starts[dim]) for dim in free if windows.sizes[dim] == 1}
    counted = [dim for dim, axis in axes.items() if axis is not None]
    if len(free) not in (1, 2):
        return no_match(
            f"it writes at computed places in {len(free)} dimensions", windows.cache, depth=4
        )
    if len(free) == 1:
        others = [dim for dim in range(4) if dim not in free]
        return _all_rows(windows, (others[0], free[0], others[1], others[2]))
    rows = counted[0] if counted else free[0]
    (slots,) = set(free) - {rows}
    if windows.sizes[rows] != 1:
        return no_match(
            "it writes some of the rows, not all and not one by one", windows.cache, depth=5
        )
    rest = [dim for dim in range(4) if dim not in free]
    return _named_rows(windows, (rows, slots, rest[0], rest[1]), axes.get(rows))


def _all_rows(windows: Windows, order: tuple[int, int, int, int]) -> Roles | NoMatch:
    """Every row is written at the same slots."""
    if len(windows.batch) > 1:
        return no_match("windows are counted in more than one dimension", windows.new, depth=6)
    return Roles(order, None, 0 if windows.batch else None, counted=True)


def _named_rows(
    windows: Windows, order: tuple[int, int, int, int], axis: int | None
) -> Roles | NoMatch:
    """Each row is written at slots of its own."""
    part = windows.starts[order[0]]
    if axis is None and len(part.at) > 1:
        used = {
            place
            for dim, place in enumerate(part.at)
            if part.value is not None and part.value.shape[dim] != 1
        }
        if len(used) > 1:
            return no_match("the rows differ from token to token", windows.new, depth=7)
        axis = used.pop() if used else None
    elif axis is None:
        axis = part.at[0] if part.at else None
    if len(windows.batch) > 2:
        return no_match("windows are counted in more than two dimensions", windows.new, depth=8)
    others = [place for place in range(len(windows.batch)) if place != axis]
    if axis is None and len(others) > 1:
        return no_match("the dimension that counts rows is not known", windows.new, depth=9)
    # Row b of the call is row b of the cache if the counts are equal.
    places = windows.new.shape[windows.batch[axis]] if axis is not None else 1
    first = counts_along(part) is not None or part.known() == 0
    counted = first and places == windows.shape[order[0]]
    return Roles(order, axis, others[0] if others else None, counted)


def _room(windows: Windows, slots: int) -> int | NoMatch:
    """Find the last slot at which a window fits; 0 where it is not needed."""
    size, limit = windows.sizes[slots], windows.shape[slots]
    if size == 1 and not windows.clamped:
        return 0
    if not isinstance(size, int) or not isinstance(limit, int):
        return no_match("the number of slots is not known yet", windows.cache, depth=10)
    start = windows.starts[slots].known()
    if start is not None and not windows.clamped and not 0 <= start <= limit - size:
        return no_match("the window is outside the cache", windows.cache, depth=11)
    return limit - size


def update(b: Builder, windows: Windows, roles: Roles, room: int) -> Sequence[Value]:
    """Build the update that writes the windows."""
    rows = roles.order[0]
    new = _tokens(b, windows, roles)
    batch, active = new.shape[:2]
    positions = _positions(b, windows, roles, (batch, active), room)
    if roles.counted:
        seq_ids = b.iota(s32, (batch,), 0)
    else:
        part = windows.starts[rows]
        seq_ids = part.built(b, [roles.row_axis if roles.row_axis is not None else 0], (batch,))
        if windows.clamped and part.value is not None:
            seq_ids = _between(b, seq_ids, windows.shape[rows])
    return [kv_update(b, windows.cache, roles.order, new, seq_ids, positions, roles.counted)]


def kv_update(
    b: Builder,
    cache: Value,
    order: Sequence[int],
    new: Value,
    seq_ids: Value,
    positions: Value,
    in_place: bool,
) -> Value:
    """Build the update of a cache whose dimensions of rows, slots, heads and size are ``order``."""
    straight = tuple(order) == (0, 1, 2, 3)
    ours = cache if straight else b.transpose(cache, order)
    attrs = {"rows": "in_place"} if in_place else {}
    made = b.emit("kv_update", (ours, new, seq_ids, positions), dict(attrs)).result
    return made if straight else b.transpose(made, [order.index(dim) for dim in range(4)])


def _between(b: Builder, starts: Value, rows: Dim) -> Value:
    assert isinstance(rows, int)
    return b.op("clamp", b.literal(0, s32), starts, b.literal(rows - 1, s32))


def _tokens(b: Builder, windows: Windows, roles: Roles) -> Value:
    """Lay out the updates as [B,S,K,D]."""
    rows, slots, heads, size = roles.order
    new, batch = windows.new, windows.batch
    row = batch[roles.row_axis] if roles.row_axis is not None else windows.inner[rows]
    token = batch[roles.token_axis] if roles.token_axis is not None else windows.inner[slots]
    wanted = (row, token, windows.inner[heads], windows.inner[size])
    shape = [1 if dim is None else new.shape[dim] for dim in wanted]
    order = [dim for dim in wanted if dim is not None]
    # Consecutive windows of one slot have one more dimension, of size 1.
    order += [dim for dim in range(new.type.rank) if dim not in order]
    turned = new if order == sorted(order) else b.transpose(new, order)
    return b.reshape(turned, shape)


def _positions(
    b: Builder, windows: Windows, roles: Roles, shape: tuple[Dim, Dim], room: int
) -> Value:
    """Build the slot of each token, s32 [B,S]; -1 for a window that is dropped."""
    slots = roles.order[1]
    part, size = windows.starts[slots], windows.sizes[slots]
    nowhere = len(windows.batch)
    order = [nowhere if axis is None else axis for axis in (roles.row_axis, roles.token_axis)]
    start = part.built(b, order, shape)
    if windows.clamped:
        start = b.op("clamp", b.literal(0, s32), start, b.literal(room, s32))
    if size == 1:
        return start
    positions = b.binary("add", start, b.iota(s32, shape, 1))
    if windows.clamped or part.known() is not None:
        return positions
    fits = b.binary(
        "and",
        b.compare(start, b.full(0, start.type), "GE"),
        b.compare(start, b.full(room, start.type), "LE"),
    )
    return b.select(fits, positions, b.full(-1, start.type))
