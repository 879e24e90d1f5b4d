"""Replica groups and source-target pairs of collectives, in every encoding of XLA."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from graphgen.errors import GraphgenError
from graphgen.limits import RANKS
from graphgen.lowering.hlo_proto.fields import GroupField, InstructionField
from graphgen.lowering.hlo_proto.wire import Message, delimited, integer, integers

# Upper bound of the ranks in a group list given as a formula, which could name any number.

ReplicaGroups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class IotaGroups:
    """Groups given as a formula, see :func:`iota_groups`."""

    count: int
    size: int
    dims: tuple[int, ...]
    order: tuple[int, ...]


def write_groups(groups: Sequence[Sequence[int]] | IotaGroups) -> bytes:
    """Encode groups as a list, field 49, which every version of XLA reads; a formula as one."""
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


def read_groups(instruction: Message) -> ReplicaGroups:
    """Decode the groups of a collective: field 49, 87 or 92, listed or a formula (GG0801)."""
    groups = _listed(instruction, InstructionField.REPLICA_GROUPS)
    iota = instruction.message(InstructionField.IOTA_DEVICE_LIST)
    if iota is not None:
        return _iota(iota)
    devices = instruction.message(InstructionField.COLLECTIVE_DEVICE_LIST)
    if devices is None or groups:
        return groups
    iota = devices.message(GroupField.LIST_IOTA)
    return _iota(iota) if iota else _listed(devices, GroupField.LIST_GROUPS)


def stated_groups(instruction: Message) -> ReplicaGroups | IotaGroups:
    """The groups of a collective as they are stated: listed, or a formula."""
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
