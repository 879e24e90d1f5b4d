"""MXFP4 weights of experts, as transformers stores them: GPT-OSS's ``X_blocks`` and ``X_scales``.

transformers, ``integrations/mxfp4.py``, ``convert_moe_packed_tensors``: ``X_blocks`` holds the
numbers of a weight [expert, out, in], 32 of them in 16 bytes, and ``X_scales`` an exponent for 32.
The weight that the model multiplies with is [expert, in, out].
"""

from __future__ import annotations

from collections.abc import Mapping

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import DType, TensorType, Value, tensor
from graphgen.ir.dtype import f8e8m0fnu, f32, u8
from graphgen.passes.quantize.stored.scheme import StoredForm


def expert_blocks_parts(form: StoredForm, shape: tuple[int, ...]) -> Mapping[str, TensorType]:
    """Bytes [expert, out, groups, bytes of a group], and an exponent a group.

    Raises:
        GraphgenError: GG0502 if the inputs are not whole groups: the format has no short one.
    """
    experts, columns, rows = shape
    size = form.block[1]
    if columns % size:
        raise GraphgenError(
            "GG0502",
            f"the {columns} inputs of an expert's weight are no whole groups of {size}, and the "
            "format of mxfp4 has no short group",
            help="take a checkpoint that is not quantized",
        )
    groups = columns // size
    return {
        "blocks": tensor(u8, (experts, rows, groups, size // 2)),
        "scales": tensor(u8, (experts, rows, groups)),
    }


def expert_blocks_widen(
    b: Builder, form: StoredForm, parts: Mapping[str, Value], shape: tuple[int, ...], dtype: DType
) -> Value:
    """Of two numbers in a byte the first one is lowest; the weight program turns them once."""
    experts, columns, rows = shape
    pairs = b.bitcast_convert(parts["blocks"], form.element)
    numbers = b.reshape(pairs, (experts, rows, columns))
    scale = b.convert(b.bitcast_convert(parts["scales"], f8e8m0fnu), f32)
    turned = [b.transpose(value, (0, 2, 1)) for value in (numbers, scale)]
    return b.dequantize(*turned, block=(1, form.block[1], 1), dtype=dtype)
