"""Sharding strategies of one op: per mesh axis a factor to shard, or an unreduced sum to keep."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from graphgen.analysis.work import work_of
from graphgen.ir import Op, Sharding, TensorType, replicated, sharding
from graphgen.ir.sharding import Axes
from graphgen.ops.factors import Factors, ValueFactors
from graphgen.passes.sharding.mesh import Mesh, divides, local_shape
from graphgen.passes.sharding.op_factors import factors_of, nominal
from graphgen.passes.sharding.reshard_ops import local_bytes
from graphgen.passes.sharding.ring_layout import ring_axes

# Operations in the time of a byte from memory: 16-bit products on trn1 (190 T/s, 820 GB/s).
BALANCE = 232
# The use of one axis: shard a factor, keep a set of operands unreduced, or none.
AxisUse = int | frozenset[int] | None


@dataclass(frozen=True, slots=True)
class Strategy:
    """One sharding of an op.

    Attributes:
        in_shardings: the layout of each operand.
        out_shardings: the layout of each result.
        cuts: per sharded factor, its axes.
        special: the axes that shard a special factor.
        work: bytes one rank reads and writes, plus one per :data:`BALANCE` operations.
        sent: bytes that all ranks send inside of the op, whose special form has collectives.
        collectives: how many of these follow one another: those of several results start together.
        requested: whether an option requests these, so that a search counts them for nothing.
        whole: true if all values are replicated.
    """

    in_shardings: tuple[Sharding, ...]
    out_shardings: tuple[Sharding, ...]
    cuts: Mapping[int, Axes] = field(default_factory=dict[int, Axes])
    special: Axes = ()
    work: int = 0
    sent: int = 0
    collectives: int = 0
    requested: bool = False

    @property
    def whole(self) -> bool:
        """True if all operands and results are replicated."""
        return all(layout.replicated for layout in (*self.in_shardings, *self.out_shardings))


def whole_strategy(op: Op) -> Strategy:
    """The strategy that replicates all operands and results."""
    return Strategy(
        tuple(replicated(value.type.rank) for value in op.operands),
        tuple(replicated(value.type.rank) for value in op.results),
        work=op_work(op),
    )


def strategies(op: Op, mesh: Mesh, slots: Axes = ()) -> tuple[Strategy, ...]:
    """All strategies of an op over a mesh; the first is replicated.

    Args:
        op: on whole values.
        mesh: the ranks.
        slots: the axes that may split slots of caches.
    """
    factors = factors_of(op)
    whole = whole_strategy(op)
    if factors is None:
        return (whole,)
    axes = [axis for axis, size in mesh.axes.items() if size > 1]
    free = [
        factor for factor in range(len(factors.sizes)) if factor not in factors.need_replication
    ]
    choices: list[AxisUse] = [None, *free, *factors.linear_in]
    found = [whole]
    for made in itertools.product(choices, repeat=len(axes)):
        chosen = dict(zip(axes, made, strict=True))
        carried = {axis: item for axis, item in chosen.items() if isinstance(item, frozenset)}
        if any(use in factors.slots and axis not in slots for axis, use in chosen.items()):
            continue
        for cuts in _cuts(mesh, factors, chosen):
            strategy = _strategy(op, mesh, factors, cuts, carried, whole.work)
            if strategy is not None and (cuts or carried):
                found.append(strategy)
    return tuple(found)


def ring_strategy(op: Op, mesh: Mesh) -> Strategy | None:
    """The strategy of an attention whose annotations make it a ring; ``None`` for any other op."""
    axes, query = ring_axes(op), op.operands[0].sharding if op.operands else None
    factors = factors_of(op)
    if not axes or query is None or factors is None:
        return None
    cuts = {
        parts[0]: cut for parts, cut in zip(factors.operands[0], query.dims, strict=True) if cut
    }
    found = _strategy(op, mesh, factors, cuts, {}, whole_strategy(op).work)
    if found is None:
        return None
    layouts = list(found.in_shardings)
    for at in (1, 2):
        rows, _, heads, _ = layouts[at].dims
        layouts[at] = sharding([rows, axes, heads, ()])
    hops = mesh.size(axes) - 1
    blocks = zip(op.operands[1:3], layouts[1:3], strict=True)
    sent = sum([local_bytes(mesh, value.type, layout) for value, layout in blocks])
    return replace(
        found,
        in_shardings=tuple(layouts),
        special=axes,
        sent=hops * sent * mesh.ranks,
        collectives=hops,
    )


def _cuts(
    mesh: Mesh, factors: Factors, chosen: Mapping[str, AxisUse]
) -> Iterator[Mapping[int, Axes]]:
    """The axes per sharded factor; several axes of one factor in any order."""
    axes: dict[int, Axes] = {}
    for axis, choice in chosen.items():
        if isinstance(choice, int):
            axes[choice] = (*axes.get(choice, ()), axis)
    if all(divides(factors.sizes[factor], mesh.size(cut)) for factor, cut in axes.items()):
        for orders in itertools.product(*[itertools.permutations(cut) for cut in axes.values()]):
            yield dict(zip(axes, orders, strict=True))


def _strategy(
    op: Op,
    mesh: Mesh,
    factors: Factors,
    cuts: Mapping[int, Axes],
    carried: Mapping[str, frozenset[int]],
    work: int,
) -> Strategy | None:
    """The strategy with these cuts and unreduced sums; ``None`` if it is illegal."""
    unreduced = {axis: factors.reduction[f] for f, axes in cuts.items() for axis in axes
            if f in factors.reduction}  # fmt: skip
    kinds = {*unreduced.values(), *["add"] * bool(carried)}
    if len(kinds) > 1:
        return None
    in_shardings: list[Sharding] = []
    for index, (value, dims) in enumerate(zip(op.operands, factors.operands, strict=True)):
        partial = [axis for axis, linear in carried.items() if index in linear]
        layout = _layout(mesh, factors, value.type, dims, cuts, partial)
        if layout is None:
            return None
        in_shardings.append(layout)
    out_shardings: list[Sharding] = []
    for value, dims in zip(op.results, factors.results, strict=True):
        layout = _layout(
            mesh, factors, value.type, dims, cuts, (*carried, *unreduced), next(iter(kinds), "add")
        )
        if layout is None:
            return None
        out_shardings.append(layout)
    parts = mesh.size([axis for axes in cuts.values() for axis in axes])
    special = next((axes for factor, axes in cuts.items() if factor in factors.special), ())
    sent = _sent_inside(op, mesh, special, in_shardings)
    shardings = tuple(in_shardings), tuple(out_shardings)
    return Strategy(*shardings, cuts, special, work // parts, sent, 1 if sent else 0)


def _sent_inside(op: Op, mesh: Mesh, special: Axes, in_shardings: Sequence[Sharding]) -> int:
    """Bytes that all ranks send in the special form, a gather of what each of them found.

    ``top_k`` gathers numbers and places, ``attention`` the maximum and the sum of its scores.
    """
    if op.name not in ("top_k", "attention") or not special:
        return 0
    *rows, size = local_shape(mesh, op.operands[0].type, in_shardings[0])
    count = nominal(math.prod([*rows, 1]))
    if op.name == "attention":
        each = 2 * 4 * count
    else:
        count *= min(op.attrs.integer("k"), nominal(size))
        each = count * sum(value.type.dtype.bits for value in op.results) // 8
    return each * (mesh.size(special) - 1) * mesh.ranks


def _layout(
    mesh: Mesh,
    factors: Factors,
    type_: TensorType,
    dims: ValueFactors,
    cuts: Mapping[int, Axes],
    partial: Sequence[str],
    kind: str = "add",
) -> Sharding | None:
    """The layout of one value; ``None`` if its parts would not be boxes."""
    out: list[Axes] = []
    for size, parts in zip(type_.shape, dims, strict=True):
        axes: Axes = ()
        complete = True
        for factor in parts:
            cut = cuts.get(factor, ())
            if cut and not complete:
                # An inner factor sharded inside an unsharded outer one: strided parts.
                return None
            axes += cut
            complete = complete and mesh.size(cut) == factors.sizes[factor]
        if not divides(size, mesh.size(axes)):
            return None
        out.append(axes)
    return sharding(out, partial, kind)


def op_work(op: Op) -> int:
    """Bytes that an op reads and writes, plus one per :data:`BALANCE` operations."""
    work = work_of(op)
    operations = nominal(work.flops) + nominal(work.transcendentals)
    return nominal(work.bytes) + operations // BALANCE
