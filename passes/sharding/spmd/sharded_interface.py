"""Interface of sharded states and outputs: local types, with pack and unpack functions."""

from __future__ import annotations

from graphgen.build import Builder
from graphgen.ir import (
    Entry,
    Function,
    Module,
    Role,
    Sharding,
    TensorType,
    Value,
    replicated,
    tensor,
)
from graphgen.passes.sharding.reshard.reshard_ops import SLICE, ReshardStep, emit_step
from graphgen.passes.sharding.spec.mesh import Mesh, local_shape
from graphgen.passes.weights.layout_change import repack


def split_row(module: Module, mesh: Mesh, row: Entry) -> None:
    """Give a split state or output the type of one rank's part, and functions for the others."""
    layout = row.sharding
    if layout is None or layout.replicated or row.role not in (Role.STATE, Role.OUTPUT):
        return
    local = tensor(row.physical.dtype, local_shape(mesh, row.physical, layout))
    label = _label(mesh, layout)
    if row.role is Role.STATE:
        _split_state(module, mesh, row, local, label)
        return
    unpack = f"unpack.{row.logical.text_name}.{label}"
    if unpack not in module.functions:
        function = module.add(Function(unpack))
        stacked = tensor(local.dtype, (mesh.ranks, *local.shape))
        parts = function.block.add_arg(stacked, "parts")
        with Builder(function) as b:
            joined = _joined(b, mesh, layout, parts, row.physical)
            function.outputs = [("whole", b.reshape(joined, row.logical.shape))]
    module.interface[row.name] = row.with_physical(local, "", unpack)


def _split_state(module: Module, mesh: Mesh, row: Entry, local: TensorType, label: str) -> None:
    layout, whole = row.sharding, row.physical
    assert layout is not None
    step = ReshardStep(SLICE, replicated(whole.rank), layout)

    def pack(b: Builder, part: Value, rank: Value) -> Value:
        return emit_step(b, mesh, rank, part, step)

    def unpack(b: Builder, parts: Value) -> Value:
        return b.reshape(_joined(b, mesh, layout, parts, whole), (1, *whole.shape))

    repack(module, row, local, label, (pack, unpack), mesh.ranks)


def _label(mesh: Mesh, layout: Sharding) -> str:
    """The layout in letters a function's name may have: ``dim2``, or ``dim0-dp.dim2-tp``."""
    cut = [(dim, axes) for dim, axes in enumerate(layout.dims) if axes]
    if len(cut) == 1 and len(mesh.axes) == 1:
        return f"dim{cut[0][0]}"
    return ".".join(f"dim{dim}-{'-'.join(axes)}" for dim, axes in cut)


def _joined(b: Builder, mesh: Mesh, layout: Sharding, parts: Value, whole: TensorType) -> Value:
    """Parts [ranks, ...] as the whole: each axis moves before the dimension it cuts."""
    local = parts.shape[1:]
    grid = b.reshape(parts, (*mesh.axes.values(), *local))
    names = list(mesh.axes)
    for axis in [axis for axis in names if axis not in layout.axes]:
        # All along this axis hold the same: take the first.
        dim = names.index(axis)
        first = b.slice_dim(grid, dim, 0, 1)
        names.pop(dim)
        grid = b.reshape(first, (*first.shape[:dim], *first.shape[dim + 1 :]))
    order: list[int] = []
    for dim, axes in enumerate(layout.dims):
        order += [*[names.index(axis) for axis in axes], len(names) + dim]
    return b.reshape(b.transpose(grid, order), whole.shape)
