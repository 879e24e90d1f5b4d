"""Merge tensors that a checkpoint stores fused, to write them back as stored.

Hugging Face's name of Phi-3's q, k and v is one, ``qkv_proj.weight``: its rows are quantized
together. Experts that are stored as one tensor keep their type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphgen.errors import GraphgenError
from graphgen.passes.quantize.schemes import BLOCKWISE, WeightScheme
from graphgen.runtime.checkpoint.experts.fused_experts import SplitExperts
from graphgen.runtime.checkpoint.interfaces import Checkpoint, TensorInfo
from graphgen.runtime.checkpoint.split_rows import RowRange, SplitRows
from graphgen.runtime.quantization.quantizable import QuantizableWeight


@dataclass(frozen=True, slots=True)
class FusedTensors:
    """The stored tensors of a checkpoint that its views have in parts.

    Attributes:
        rows: the parts that are rows of a tensor, in order, by name.
        experts: the stored name of each part of experts' tensors.
        stored: the stored tensors by name.
    """

    rows: Mapping[str, RowRange]
    experts: Mapping[str, str]
    stored: Mapping[str, TensorInfo]

    def name(self, part: str) -> str:
        """The stored name of a tensor of the view."""
        return self.rows[part].stored if part in self.rows else self.experts.get(part, part)

    def joined(
        self, weights: Mapping[str, QuantizableWeight], scheme: WeightScheme
    ) -> dict[str, QuantizableWeight]:
        """The matrices as they are stored, each by the name of its first part.

        Args:
            weights: matrices to quantize, by name.
            scheme: their scheme.

        Raises:
            GraphgenError: GG0705 for some parts of a tensor without the others, and for blocks of
                the scheme that have rows of two parts.
        """
        others = {name: weight for name, weight in weights.items() if name not in self.rows}
        parts: dict[str, list[str]] = {}
        for name, part in self.rows.items():
            parts.setdefault(part.stored, []).append(name)
        for stored, names in parts.items():
            first = next((name for name in names if name in weights), None)
            if first is None:
                continue
            for name in names:
                self._check(name, scheme, quantized=name in weights)
            info = self.stored[stored]
            others[first] = QuantizableWeight(stored, info.shape, weights[first].contracted)
        return others

    def _check(self, name: str, scheme: WeightScheme, *, quantized: bool) -> None:
        part, high = self.rows[name], scheme.block((1, 1))[0]
        if not quantized:
            raise GraphgenError(
                "GG0705",
                f"'{part.stored}' is one tensor, of which '{name}' would keep its type alone",
                help="name all of its parts in --modules-to-not-convert, or none",
            )
        if scheme.scheme == BLOCKWISE and part.rows % high:
            raise GraphgenError(
                "GG0705",
                f"'{name}' is {part.rows} rows at a time of '{part.stored}', which are not whole "
                f"blocks of {high}",
                help="--quantization-type per_channel_symmetric",
            )


def fused_tensors(checkpoint: Checkpoint) -> FusedTensors:
    """The stored tensors that the views of a checkpoint have in parts."""
    rows: dict[str, RowRange] = {}
    experts: dict[str, str] = {}
    stored: dict[str, TensorInfo] = {}
    view: object = checkpoint
    while view is not None:
        if isinstance(view, SplitRows):
            rows |= view.parts
            stored |= {part.stored: view.base.tensors()[part.stored] for part in rows.values()}
        elif isinstance(view, SplitExperts):
            experts |= view.fused()
            stored |= {name: view.base.tensors()[name] for name in experts.values()}
        view = getattr(view, "base", None)
    return FusedTensors(rows, experts, stored)
