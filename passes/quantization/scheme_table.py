"""The table of schemes by name."""

from __future__ import annotations

from collections.abc import Mapping

from graphgen.passes.quantization.packed import (
    awq_parts,
    awq_widen,
    expert_blocks_parts,
    expert_blocks_widen,
    gptq_parts,
    gptq_widen,
    mxfp4_pack,
    mxfp4_parts,
    mxfp4_widen,
    nibble_parts,
    nibble_widen,
    pack_quantized_pack,
    pack_quantized_parts,
    pack_quantized_widen,
)
from graphgen.passes.quantization.stored_scheme import (
    Parts,
    StoredScheme,
    Widen,
    plain_pack,
    plain_parts,
    plain_widen,
)


def _plain(
    name: str,
    scale: str,
    zero: str = "",
    factor: float = 1.0,
    unread: tuple[str, ...] = (),
    modules: tuple[str, ...] = (),
) -> StoredScheme:
    """Numbers under the weight's own name, of a matrix or of one an expert."""
    parts, widen = plain_parts("weight", scale, zero), plain_widen("weight", scale, zero, factor)
    pack = plain_pack("weight", scale) if factor == 1.0 else None
    return StoredScheme(
        name, scale, scale, parts, widen, unread, pack, ranks=(2, 3), modules=modules
    )


def _blocks(name: str, parts: Parts, widen: Widen) -> StoredScheme:
    """Numbers in blocks, of a matrix or of one an expert."""
    return StoredScheme(name, "qs", "d", parts, widen, ranks=(2, 3))


_ALL = (
    # NxD Inference: X.weight and X.scale, one element or [out, 1].
    _plain("aws", "scale"),
    # https://github.com/vllm-project/compressed-tensors: "naive-", "int-" and "float-quantized".
    _plain("compressed-tensors", "weight_scale", "weight_zero_point", unread=("weight_shape",)),
    # The same, "pack-quantized".
    StoredScheme(
        "pack-quantized",
        "weight_packed",
        "weight_scale",
        pack_quantized_parts,
        pack_quantized_widen,
        ("weight_shape", "weight_g_idx"),
        pack_quantized_pack,
        "weight_shape",
        ranks=(2, 3),
    ),
    # The same, "mxfp4-pack-quantized".
    StoredScheme(
        "mxfp4",
        "weight_packed",
        "weight_scale",
        mxfp4_parts,
        mxfp4_widen,
        pack=mxfp4_pack,
        ranks=(2, 3),
    ),
    # transformers' own, of GPT-OSS's experts, with gate and up apart.
    StoredScheme(
        "mxfp4-experts",
        "weight_blocks",
        "weight_scales",
        expert_blocks_parts,
        expert_blocks_widen,
        ranks=(3,),
        modules=("*.experts.*_proj",),
    ),
    # transformers: FbgemmFp8Linear; the bound is of activations.
    _plain("fbgemm_fp8", "weight_scale", unread=("input_scale_ub",)),
    # transformers: FP8Linear, DeepSeek-V3; weight_scale_inv is what a number is multiplied by.
    _plain("fp8", "weight_scale_inv", modules=("*_proj", "*_proj_with_mqa")),
    StoredScheme("gptq", "qweight", "scales", gptq_parts, gptq_widen(1), ("g_idx",)),
    StoredScheme("gptq_v2", "qweight", "scales", gptq_parts, gptq_widen(0), ("g_idx",)),
    StoredScheme("awq", "qweight", "scales", awq_parts, awq_widen),
    # bitsandbytes, Linear8bitLt: SCB is the largest magnitude of a row, which 127 stands for.
    _plain("bitsandbytes", "SCB", factor=1 / 127, unread=("weight_format",)),
    # GGUF, by its own names of kinds; the numbers of a file are in several.
    _blocks("Q8_0", plain_parts("qs", "d"), plain_widen("qs", "d")),
    _blocks("Q4_0", nibble_parts(32, minimum=False), nibble_widen(32)),
    _blocks("Q4_1", nibble_parts(32, minimum=True), nibble_widen(32)),
    _blocks("Q4_K", nibble_parts(64, minimum=True), nibble_widen(64)),
)
SCHEMES: Mapping[str, StoredScheme] = {scheme.name: scheme for scheme in _ALL}
