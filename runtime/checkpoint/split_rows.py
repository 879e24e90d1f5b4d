"""Linear layers that a checkpoint holds as one, such as q, k and v, as tensors of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Final

from graphgen.models import known_family
from graphgen.models.family import FusedRows
from graphgen.runtime.checkpoint.interfaces import (
    Array,
    Checkpoint,
    CheckpointView,
    TensorInfo,
)


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows of a stored tensor: those from ``start`` on in each of its blocks.

    Attributes:
        stored: the tensor's name.
        start: the first row in a block.
        rows: rows in a block.
        blocks: number of blocks.
    """

    stored: str
    start: int
    rows: int
    blocks: int

    def of(self, array: Array) -> Array:
        """The rows: a view of a single block, a copy of several."""
        apart = array.reshape(self.blocks, -1, *array.shape[1:])
        taken = apart[:, self.start : self.start + self.rows]
        return taken.reshape(-1, *array.shape[1:])


def with_split_rows(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with the layers apart that its family has apart; see :class:`FusedRows`.

    A tensor with another number of rows stays as it is; see :func:`check_checkpoint`.

    Raises:
        GraphgenError: GG0502, GG0503 for a configuration of such a family that is refused.
    """
    family = known_family(checkpoint.config.get("model_type"))
    if family is None:
        return checkpoint
    found = dict(_ranges(checkpoint, family.fused_rows(checkpoint.config)))
    return SplitRows(checkpoint, found) if found else checkpoint


def _ranges(
    checkpoint: Checkpoint, fused: Mapping[str, FusedRows]
) -> Iterator[tuple[str, RowRange]]:
    """(name in the view, rows) of every part of a fused layer's weight, bias or scales."""
    for stored, info in checkpoint.tensors().items():
        module, _, kind = stored.rpartition(".")
        for name, layout in fused.items():
            if module.endswith(f".{name}"):
                before = module.removesuffix(name)
                for part, rows in _rows_of_parts(info, kind, layout):
                    yield f"{before}{part}.{kind}", rows


def _rows_of_parts(
    info: TensorInfo, kind: str, layout: FusedRows
) -> Iterator[tuple[str, RowRange]]:
    """The rows of each part; none where the tensor cannot be divided.

    A scale may be that of some rows, whose blocks each part has whole, or of all: each part has it.
    """
    total = sum(rows for _, rows in layout.parts) * layout.blocks
    count = info.shape[0] if info.shape else 1
    scale = kind not in ("weight", "bias")
    if kind == "weight_shape" or (scale and prod(info.shape) == 1):
        yield from ((part, RowRange(info.name, 0, count, 1)) for part, _ in layout.parts)
        return
    each = total // count if scale and count and total % count == 0 else 1
    if count * each != total or any(rows % each for _, rows in layout.parts):
        return
    start = 0
    for part, rows in layout.parts:
        yield part, RowRange(info.name, start, rows // each, layout.blocks)
        start += rows // each


class SplitRows(CheckpointView):
    """A view of a checkpoint in which layers that it holds as one are apart.

    Args:
        base: the checkpoint as it is stored.
        parts: the rows of each tensor that is a part of another one, by its name.

    Attributes:
        parts: the same.
    """

    def __init__(self, base: Checkpoint, parts: Mapping[str, RowRange]) -> None:
        super().__init__(base)
        self.parts: Final = parts

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor by its name in the view; reads no tensor data."""
        stored = self.base.tensors()
        fused = {part.stored for part in self.parts.values()}
        found = {name: info for name, info in stored.items() if name not in fused}
        for name, part in self.parts.items():
            info = stored[part.stored]
            shape = (part.rows * part.blocks, *info.shape[1:])
            found[name] = TensorInfo(name, shape, info.dtype)
        return found

    def read(self, name: str) -> Array:
        """The tensor ``name``; see :class:`Checkpoint`."""
        part = self.parts.get(name)
        return self.base.read(name) if part is None else part.of(self.base.read(part.stored))
