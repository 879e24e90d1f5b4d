"""MXFP4 weights of experts, as transformers stores GPT-OSS's: blocks of numbers, and scales.

transformers, ``integrations/mxfp4.py``, ``convert_moe_packed_tensors``: blocks are the numbers of
a weight [expert, out, in], 32 of them in 16 bytes, and scales an exponent for 32. Gate and up take
turns in one tensor; the view of a checkpoint has them apart.
"""

from __future__ import annotations

from collections.abc import Mapping

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import DType, TensorType, Value, tensor
from graphgen.ir.dtype import f8e8m0fnu, f32, u8
from graphgen.passes.quantize.stored.scheme import StoredForm, known_on_device, widened


def expert_blocks_parts(form: StoredForm, shape: tuple[int, ...]) -> Mapping[str, TensorType]:
    """Bytes [expert, out, groups, bytes of a group], and an exponent a group.

    Raises:
        GraphgenError: GG0502 if the inputs are not whole groups: the format has no short one.
    """
    experts, rows, columns = shape
    size = form.block[1]
    if columns % size:
        raise GraphgenError(
            "GG0502",
            f"the {columns} inputs of an expert's weight are not whole groups of {size}, and the "
            "format of mxfp4 has no short group",
            help="take a checkpoint that is not quantized",
        )
    groups = columns // size
    return {
        "weight_blocks": tensor(u8, (experts, rows, groups, size // 2)),
        "weight_scales": tensor(u8, (experts, rows, groups)),
    }


def expert_blocks_widen(
    b: Builder, form: StoredForm, parts: Mapping[str, Value], shape: tuple[int, ...], dtype: DType
) -> Value:
    """Of two numbers in a byte the first one is lowest."""
    numbers = b.reshape(b.bitcast_convert(parts["weight_blocks"], form.element), shape)
    scale = b.convert(b.bitcast_convert(parts["weight_scales"], f8e8m0fnu), f32)
    return widened(b, form, known_on_device(b, form, numbers), scale, None, dtype)
