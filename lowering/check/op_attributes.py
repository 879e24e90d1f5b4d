"""Attributes of ops for the rules, opaque HLO instructions included."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from graphgen.errors import GraphgenError
from graphgen.ir import Op
from graphgen.lowering.hlo.scalar_computations import reducer_of
from graphgen.lowering.hlo.subcomputations import COMPUTATIONS
from graphgen.lowering.hlo.unmodelled import UnmodelledError
from graphgen.lowering.hlo_proto.fields import (
    ComputationField,
    DotField,
    GatherField,
    InstructionField,
    WindowField,
)
from graphgen.lowering.hlo_proto.proto_module import HloComputation
from graphgen.lowering.hlo_proto.replica_groups import read_groups, read_pairs
from graphgen.lowering.hlo_proto.wire import Message

_F = InstructionField
# Attributes of window dimensions: our names to HLO's fields.
_WINDOW = {
    "lhs_dilation": WindowField.BASE_DILATION,
    "base_dilations": WindowField.BASE_DILATION,
    "rhs_dilation": WindowField.WINDOW_DILATION,
    "window_dilations": WindowField.WINDOW_DILATION,
    "window_strides": WindowField.STRIDE,
    "window_dimensions": WindowField.SIZE,
}


def attributes_of(op: Op) -> Mapping[str, object]:
    """The attributes of an op; of an ``hlo.opaque`` those that rules read, from its fields.

    A rule does not fire if an attribute that it reads is missing.
    """
    if op.name != "hlo.opaque":
        return op.attrs
    return _opaque(op.attrs.text("fields") + op.attrs.text("more"), op.attrs.text("regions"))


@lru_cache(maxsize=256)
def _opaque(fields: str, regions: str) -> Mapping[str, object]:
    found: dict[str, object] = {}
    try:
        own = Message(bytes.fromhex(fields))
        _collective(own, found)
        _dimensions(own, found)
        first, *_ = regions.split(",")
        found["kind"] = _kind(bytes.fromhex(first)) if first else ""
    except GraphgenError:
        # Bytes of another program: damaged fields yield no attributes.
        return found
    return found


def _collective(own: Message, found: dict[str, object]) -> None:
    if groups := read_groups(own):
        found["replica_groups"] = groups
    if own.has(_F.SOURCE_TARGET_PAIRS):
        found["source_target_pairs"] = read_pairs(own)


def _dimensions(own: Message, found: dict[str, object]) -> None:
    if dims := own.integers(_F.DIMENSIONS):
        found |= {"split_dimension": dims[0], "dimension": dims[0]}
    if own.has(_F.K):
        found["k"] = own.integer(_F.K)
    if (dot := own.message(_F.DOT)) is not None:
        found["lhs_contracting_dims"] = dot.integers(DotField.LHS_CONTRACTING)
    if (gather := own.message(_F.GATHER)) is not None:
        found["collapsed_slice_dims"] = gather.integers(GatherField.COLLAPSED_SLICE_DIMS)
        found["start_index_map"] = gather.integers(GatherField.START_INDEX_MAP)
    if (window := own.message(_F.WINDOW)) is not None:
        each = window.messages(WindowField.DIMENSIONS)
        for key, number in _WINDOW.items():
            found[key] = tuple([dim.integer(number) for dim in each])


def _kind(region: bytes) -> str:
    """The one op of a reducer, empty where it is more than one."""
    last = Message(region).messages(COMPUTATIONS)[-1]
    root = last.integer(ComputationField.ROOT_ID)
    try:
        return reducer_of(HloComputation(last, 1, "", root))
    except UnmodelledError:
        return ""
