"""Replica groups and source-target pairs of collectives, in every encoding of XLA."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from graphgen.errors import GraphgenError
from graphgen.limits import RANKS
from graphgen.lowering.hlo_proto.fields import GroupField, InstructionField, MeshGroupField
from graphgen.lowering.hlo_proto.wire import Message, delimited, integer, integers, text

ReplicaGroups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class IotaGroups:
    """Groups given as a formula, see :func:`iota_groups`."""

    count: int
    size: int
    dims: tuple[int, ...]
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MeshGroups:
    """Groups given as axes of a mesh: devices that differ along these axes alone are a group.

    Attributes:
        axes: name and size of each axis of the mesh.
        devices: of the mesh in row-major order; empty for 0, 1, 2, ...
        order: the same as a formula: sizes, and the order in which they are moved.
        chosen: axes by number with the part that is meant: the product of the parts before it, and
            its size; both 0 for a whole axis.
    """

    axes: tuple[tuple[str, int], ...]
    devices: tuple[int, ...]
    order: tuple[tuple[int, ...], tuple[int, ...]]
    chosen: tuple[tuple[int, int, int], ...]

    def groups(self) -> ReplicaGroups:
        """The groups as lists of devices (GG0801)."""
        sizes: list[int] = []
        # Of each part of an axis, its place among the parts of all axes.
        places: dict[tuple[int, int], int] = {}
        for number, (_, size) in enumerate(self.axes):
            mine = [
                (before or 1, part or size) for axis, before, part in self.chosen if axis == number
            ]
            cuts = sorted({1, size}.union(*[(low, low * part) for low, part in mine]))
            for low, high in zip(cuts, cuts[1:] or cuts, strict=False):
                places[number, low] = len(sizes)
                sizes.append(high // low)
        joined = [places[axis, before or 1] for axis, before, _ in self.chosen]
        wanted = [part or self.axes[axis][1] for axis, _, part in self.chosen]
        inside = math.prod(wanted)
        if len(set(joined)) < len(joined) or [sizes[place] for place in joined] != wanted:
            raise GraphgenError("GG0801", "axes of a mesh that overlap")
        count = math.prod([size for _, size in self.axes])
        rest = [place for place in range(len(sizes)) if place not in joined]
        found = iota_groups(count // inside, inside, sizes, [*rest, *joined])
        dims, moved = self.order
        devices = self.devices or (iota_groups(1, count, dims, moved)[0] if dims else ())
        if not devices:
            return found
        if sorted(devices) != list(range(count)):
            raise GraphgenError("GG0801", f"the devices of a mesh are not 0 to {count - 1}")
        return tuple([tuple([devices[place] for place in group]) for group in found])


def write_groups(groups: Sequence[Sequence[int]] | IotaGroups | MeshGroups) -> bytes:
    """Encode groups as a list, field 49, which every version of XLA reads; a formula as one."""
    if isinstance(groups, MeshGroups):
        return _write_mesh(groups)
    if isinstance(groups, IotaGroups):
        inner = integer(GroupField.IOTA_GROUPS, groups.count)
        inner += integer(GroupField.IOTA_PER_GROUP, groups.size)
        inner += integers(GroupField.IOTA_DIMS, groups.dims)
        inner += integers(GroupField.IOTA_PERMUTATION, groups.order)
        return delimited(InstructionField.IOTA_DEVICE_LIST, inner)
    return b"".join(
        [
            delimited(InstructionField.REPLICA_GROUPS, integers(GroupField.REPLICA_IDS, group))
            for group in groups
        ]
    )


def _write_mesh(groups: MeshGroups) -> bytes:
    f = MeshGroupField
    axes = [
        delimited(f.AXES, text(f.NAME, name) + integer(f.SIZE, size)) for name, size in groups.axes
    ]
    mesh = b"".join(axes) + integers(f.DEVICE_IDS, groups.devices)
    sizes, moved = groups.order
    if sizes:
        order = integers(f.ORDER_SIZES, sizes) + integers(f.ORDER_MOVED, moved)
        mesh += delimited(f.ORDER, order)
    chosen = [
        delimited(
            f.CHOSEN,
            integer(f.AXIS, axis)
            + (
                delimited(f.PART, integer(f.PART_BEFORE, before) + integer(f.PART_SIZE, size))
                if size
                else b""
            ),
        )
        for axis, before, size in groups.chosen
    ]
    return delimited(InstructionField.MESH_DEVICE_LIST, delimited(f.MESH, mesh) + b"".join(chosen))


def _read_mesh(message: Message) -> MeshGroups:
    f = MeshGroupField
    mesh = message.message(f.MESH) or Message(b"")
    axes = tuple([(axis.text(f.NAME), axis.integer(f.SIZE)) for axis in mesh.messages(f.AXES)])
    chosen: list[tuple[int, int, int]] = []
    for item in message.messages(f.CHOSEN):
        part = item.message(f.PART)
        before, size = (part.integer(f.PART_BEFORE), part.integer(f.PART_SIZE)) if part else (0, 0)
        chosen.append((item.integer(f.AXIS), before, size))
    formula = mesh.message(f.ORDER) or Message(b"")
    order = formula.integers(f.ORDER_SIZES), formula.integers(f.ORDER_MOVED)
    found = MeshGroups(axes, mesh.integers(f.DEVICE_IDS), order, tuple(chosen))
    check_mesh(found)
    return found


def check_mesh(groups: MeshGroups) -> None:
    """Require axes of the mesh, and parts that divide them (GG0801)."""
    for name, size in groups.axes:
        if not 0 < size <= RANKS.most:
            raise GraphgenError("GG0801", f"axis {name} of a mesh has size {size}; {RANKS}")
    for axis, before, size in groups.chosen:
        if not 0 <= axis < len(groups.axes):
            raise GraphgenError("GG0801", f"a mesh of {len(groups.axes)} axes has no axis {axis}")
        name, whole = groups.axes[axis]
        if (before, size) != (0, 0) and (before < 1 or size < 1 or whole % (before * size)):
            what = f"({before}){size} is not a part of the axis {name} of size {whole}"
            raise GraphgenError("GG0801", what)


def read_groups(instruction: Message) -> ReplicaGroups:
    """Decode the groups of a collective: field 49, 87, 92 or 93, in any form (GG0801)."""
    mesh = instruction.message(InstructionField.MESH_DEVICE_LIST)
    if mesh is not None:
        return _read_mesh(mesh).groups()
    groups = _listed(instruction, InstructionField.REPLICA_GROUPS)
    iota = instruction.message(InstructionField.IOTA_DEVICE_LIST)
    if iota is not None:
        return _iota(iota)
    devices = instruction.message(InstructionField.COLLECTIVE_DEVICE_LIST)
    if devices is None or groups:
        return groups
    iota = devices.message(GroupField.LIST_IOTA)
    return _iota(iota) if iota else _listed(devices, GroupField.LIST_GROUPS)


def stated_groups(instruction: Message) -> ReplicaGroups | IotaGroups | MeshGroups:
    """The groups of a collective as they are stated: listed, a formula, or axes of a mesh."""
    mesh = instruction.message(InstructionField.MESH_DEVICE_LIST)
    if mesh is not None:
        return _read_mesh(mesh)
    devices = instruction.message(InstructionField.COLLECTIVE_DEVICE_LIST)
    iota = instruction.message(InstructionField.IOTA_DEVICE_LIST) or (
        devices.message(GroupField.LIST_IOTA) if devices else None
    )
    if iota is None:
        return read_groups(instruction)
    order = iota.integers(GroupField.IOTA_PERMUTATION)
    return IotaGroups(
        iota.integer(GroupField.IOTA_GROUPS),
        iota.integer(GroupField.IOTA_PER_GROUP),
        iota.integers(GroupField.IOTA_DIMS),
        order,
    )


def _listed(message: Message, number: int) -> ReplicaGroups:
    return tuple(item.integers(GroupField.REPLICA_IDS) for item in message.messages(number))


def _iota(message: Message) -> ReplicaGroups:
    count = message.integer(GroupField.IOTA_GROUPS)
    size = message.integer(GroupField.IOTA_PER_GROUP)
    dims = message.integers(GroupField.IOTA_DIMS)
    order = message.integers(GroupField.IOTA_PERMUTATION)
    return iota_groups(count, size, dims, order)


def iota_groups(count: int, size: int, dims: Sequence[int], order: Sequence[int]) -> ReplicaGroups:
    """``iota(count * size).reshape(dims).transpose(order).reshape(count, size)`` (GG0801)."""
    dims = dims or (count * size,)
    order = order or tuple(range(len(dims)))
    fits = 0 < count * size <= RANKS.most and min(dims) > 0 and math.prod(dims) == count * size
    if not fits or sorted(order) != list(range(len(dims))):
        raise GraphgenError("GG0801", f"replica groups [{count},{size}]<={list(dims)}{list(order)}")
    strides = [math.prod(dims[i + 1 :]) for i in range(len(dims))]
    ranks = [0]
    for dim in order:
        ranks = [rank + step * strides[dim] for rank in ranks for step in range(dims[dim])]
    return tuple(tuple(ranks[i * size : (i + 1) * size]) for i in range(count))


def write_pairs(pairs: Sequence[Sequence[int]]) -> bytes:
    """Encode the source and target of each transfer of a collective-permute."""
    return b"".join(
        [
            delimited(
                InstructionField.SOURCE_TARGET_PAIRS,
                integer(GroupField.SOURCE, pair[0]) + integer(GroupField.TARGET, pair[1]),
            )
            for pair in pairs
        ]
    )


def read_pairs(instruction: Message) -> ReplicaGroups:
    """Decode the source and target of each transfer of a collective-permute."""
    return tuple(
        (item.integer(GroupField.SOURCE), item.integer(GroupField.TARGET))
        for item in instruction.messages(InstructionField.SOURCE_TARGET_PAIRS)
    )
