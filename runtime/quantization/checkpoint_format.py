"""Formats of quantized weights: tensors under Hugging Face's or AWS's names, and config.json.

``compressed-tensors`` (its 0.10 and later) stores 8-bit values with ``weight_scale``, packs 4-bit
integers eight to an s32 and MXFP4 two to a byte; ``fp8``, DeepSeek's form, has blocks of 128 x 128
and ``weight_scale_inv``. NxD Inference has ``scale`` beside ``weight`` and nothing in config.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.passes.quantize.schemes import BLOCKWISE, GROUP, PER_TENSOR, WeightScheme
from graphgen.runtime.quantization.rounding import STORED, QuantizedWeight

Array = npt.NDArray[np.generic]
FORMATS = ("huggingface", "nxdi")
_NIBBLES = 8


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


def stored_tensors(
    form: str, scheme: WeightScheme, shape: tuple[int, int]
) -> tuple[TensorOfWeight, ...]:
    """The tensors of one weight [N,K], without their contents."""
    rows, columns = shape
    high, wide = scheme.block(shape)
    blocks = (-(-rows // high), -(-columns // wide))
    scale = np.dtype(np.float32)
    if scheme.dtype == "int4":
        return (
            TensorOfWeight("weight_packed", np.dtype(np.int32), (rows, -(-columns // _NIBBLES))),
            TensorOfWeight("weight_scale", scale, blocks),
            TensorOfWeight("weight_shape", np.dtype(np.int64), (2,)),
        )
    if scheme.dtype == "mxfp4":
        return (
            TensorOfWeight("weight_packed", np.dtype(np.uint8), (rows, columns // 2)),
            TensorOfWeight("weight_scale", np.dtype(np.uint8), blocks),
        )
    name = "scale" if form == "nxdi" else "weight_scale"
    if scheme.scheme == BLOCKWISE:
        name = "weight_scale_inv"
    counts = (1,) if scheme.scheme == PER_TENSOR else blocks
    return (
        TensorOfWeight("weight", STORED[scheme.dtype], shape),
        TensorOfWeight(name, scale, counts),
    )


def contents(made: QuantizedWeight) -> tuple[Array, ...]:
    """The arrays of :func:`stored_tensors`, but for their shapes."""
    if made.scheme.dtype == "int4":
        shape = np.array(made.values.shape, np.int64)
        return packed_int4(made.values), made.scale, shape
    if made.scheme.dtype == "mxfp4":
        # E8M0: the exponent of a power of two, biased by 127.
        exponents = (np.frexp(made.scale)[1] - 1 + 127).astype(np.uint8)
        return packed_mxfp4(made.values), exponents
    return made.values, made.scale


def packed_int4(values: Array) -> npt.NDArray[np.int32]:
    """Eight values plus 8 in an s32, the first one lowest; a row is filled up with zeros."""
    rows, columns = values.shape
    nibbles = np.zeros((rows, -(-columns // _NIBBLES) * _NIBBLES), np.uint8)
    nibbles[:, :columns] = values.astype(np.int8) + 8
    pairs = nibbles[:, ::2] | nibbles[:, 1::2] << 4
    return pairs.view("<i4")


def packed_mxfp4(values: Array) -> npt.NDArray[np.uint8]:
    """Two values in a byte, the first one lowest: sign, two bits of exponent, one of mantissa."""
    codes: npt.NDArray[np.uint8] = values.view(np.uint8) & np.uint8(15)
    return (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)


def quantization_config(scheme: WeightScheme, kept: Sequence[str]) -> Mapping[str, Json]:
    """``quantization_config`` of a config.json for Hugging Face's formats.

    Args:
        scheme: of the quantized weights.
        kept: modules of linear layers that are not quantized.
    """
    if scheme.scheme == BLOCKWISE:
        high, wide = scheme.block((1, 1))
        return {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "weight_block_size": [high, wide],
            "modules_to_not_convert": list(kept),
        }
    weights: dict[str, Json] = {
        "num_bits": scheme.bits,
        "type": "int" if scheme.dtype.startswith("int") else "float",
        "symmetric": True,
        "strategy": {PER_TENSOR: "tensor", GROUP: "group"}.get(scheme.scheme, "channel"),
        "dynamic": False,
    }
    if scheme.group_size:
        weights["group_size"] = scheme.group_size
    if scheme.dtype == "mxfp4":
        weights["scale_dtype"] = "torch.uint8"
    form = _COMPRESSED[scheme.dtype]
    group: dict[str, Json] = {"targets": ["Linear"], "weights": weights, "format": form}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": list(kept),
    }


_COMPRESSED = {
    "int8": "int-quantized",
    "f8e4m3": "float-quantized",
    "int4": "pack-quantized",
    "mxfp4": "mxfp4-pack-quantized",
}
