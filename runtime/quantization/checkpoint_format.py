"""Formats of quantized weights: tensors under Hugging Face's or AWS's names, and config.json.

The formats themselves are those that are read, see :mod:`graphgen.passes.quantization`: an
option of ``graphgen quantize`` names a scheme there, which packs the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.eval import numpy_dtype
from graphgen.json_value import Json
from graphgen.passes.quantization.compressed_formats import (
    StoredQuantization,
    compressed_config,
    fp8_config,
)
from graphgen.passes.quantization.scheme_table import SCHEMES
from graphgen.passes.quantization.schemes import (
    BLOCKWISE,
    ELEMENTS,
    GROUP,
    PER_TENSOR,
    WeightScheme,
)
from graphgen.passes.quantization.stored_scheme import StoredForm
from graphgen.runtime.checkpoint.expert_tensors import SplitExperts
from graphgen.runtime.checkpoint.interfaces import Checkpoint, TensorInfo
from graphgen.runtime.checkpoint.split_rows import RowRange, SplitRows
from graphgen.runtime.quantization.quantizable import QuantizableWeight
from graphgen.runtime.quantization.rounding import QuantizedWeight

Array = npt.NDArray[np.generic]
FORMATS = ("huggingface", "nxdi")


@dataclass(frozen=True, slots=True)
class TensorOfWeight:
    """A tensor of the written file.

    Attributes:
        suffix: appended to the name of the module, such as ``weight_scale``.
        dtype: NumPy's type.
        shape: in the file.
    """

    suffix: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]


def check_format(form: str, scheme: WeightScheme) -> None:
    """Refuse a scheme that a format cannot state (GG0705)."""
    if form not in FORMATS:
        raise GraphgenError(
            "GG0705", f"format {form} is unknown", help=f"one of {', '.join(FORMATS)}"
        )
    if form == "nxdi" and (scheme.scheme in (BLOCKWISE, GROUP)):
        raise GraphgenError(
            "GG0705",
            f"--format nxdi has no {scheme.text}: AWS's keys have a scale a tensor or a channel",
            help="leave --format out, or choose another type",
        )
    if form == "huggingface" and scheme.dtype == "f8e5m2":
        raise GraphgenError(
            "GG0705",
            "no format of transformers has f8e5m2 weights",
            help="--format nxdi, or --quantization-dtype f8e4m3",
        )
    if form == "huggingface" and scheme.scheme == BLOCKWISE and scheme.dtype != "f8e4m3":
        raise GraphgenError(
            "GG0705",
            f"no format of transformers has blocks of {scheme.dtype}",
            help="--quantization-dtype f8e4m3, or --quantization-type per_channel_symmetric",
        )


def check_shape(name: str, shape: tuple[int, int], scheme: WeightScheme) -> None:
    """Refuse a weight that groups do not divide: the formats have no short group (GG0705)."""
    columns = shape[1]
    if scheme.scheme != GROUP or columns % scheme.group_size == 0:
        return
    fitting = [size for size in (128, 64, 32, 16) if columns % size == 0]
    helps = f"--group-size {fitting[0]}, or " if fitting and scheme.dtype != "mxfp4" else ""
    raise GraphgenError(
        "GG0705",
        f"the {columns} inputs of '{name}' are not divided by groups of {scheme.group_size}, and "
        "the format has no short group",
        help=f"{helps}--modules-to-not-convert {name.removesuffix('.weight')}",
    )


def stored_form(form: str, scheme: WeightScheme) -> StoredQuantization:
    """The stored scheme of a format, and its numbers."""
    rows = 0 if scheme.scheme == PER_TENSOR else 1
    block = scheme.block((1, 1)) if scheme.scheme in (BLOCKWISE, GROUP) else (rows, 0)
    name = _PACKED.get(scheme.dtype, "compressed-tensors")
    if scheme.scheme == BLOCKWISE:
        name = "fp8"
    if form == "nxdi":
        name = "aws"
    return StoredQuantization(SCHEMES[name], StoredForm(ELEMENTS[scheme.dtype], block))


def stored_tensors(
    form: str, scheme: WeightScheme, shape: tuple[int, int]
) -> tuple[TensorOfWeight, ...]:
    """The tensors of one weight [N,K], without their contents."""
    found = stored_form(form, scheme)
    tensors = [
        TensorOfWeight(last, numpy_dtype(type_.dtype), type_.dims)
        for last, type_ in found.scheme.parts(found.form, shape).items()
    ]
    if scheme.scheme == PER_TENSOR:
        # Both formats write the one scale as a vector.
        tensors[-1] = replace(tensors[-1], shape=(1,))
    if found.scheme.shape:
        tensors.append(TensorOfWeight(found.scheme.shape, np.dtype(np.int64), (2,)))
    return tuple(tensors)


def contents(form: str, made: QuantizedWeight) -> tuple[Array, ...]:
    """The arrays of :func:`stored_tensors`, but for their shapes."""
    found = stored_form(form, made.scheme)
    assert found.scheme.pack is not None
    arrays = found.scheme.pack(found.form, made.values, made.scale)
    shape = [np.array(made.values.shape, np.int64)] if found.scheme.shape else []
    return (*arrays.values(), *shape)


def quantization_config(scheme: WeightScheme, kept: Sequence[str]) -> Mapping[str, Json]:
    """``quantization_config`` of a config.json for Hugging Face's formats.

    Args:
        scheme: of the quantized weights.
        kept: modules of linear layers that are not quantized.
    """
    found = stored_form("huggingface", scheme)
    return (fp8_config if scheme.scheme == BLOCKWISE else compressed_config)(found, kept)


# The schemes of numbers that are not stored one by one.
_PACKED = {"int4": "pack-quantized", "mxfp4": "mxfp4"}


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
