"""Attributes of quantized weights and caches."""

from __future__ import annotations

from math import inf

from graphgen.config.fields import one_of, optional, words
from graphgen.runtime.aws_config.attribute import (
    Attribute,
    CompileSetting,
    NoEffect,
    PartOf,
    Refused,
    RunTimeSetting,
    owned_by,
)
from graphgen.runtime.aws_config.value_kinds import (
    BOOL,
    COUNT,
    DTYPE,
    INTEGER,
    NUMBER,
    TEXT,
    TEXTS,
    nested,
    tuple_of,
)

_SCHEMES = (
    "per_tensor_symmetric",
    "per_channel_symmetric",
    "blockwise_symmetric",
    "expert_wise_per_channel_symmetric",
)
_BLOCKS = Refused(
    "a scale for each block of a weight", "set quantization_type='per_channel_symmetric'"
)
_MX = Refused("MXFP4", "leave it out, and set quantization_dtype to int8 or f8e4m3")
_CACHE_DTYPE = Refused(
    "a KV cache of this type", "set quant_dtype to float8_e4m3fn, float8_e5m2 or int8"
)

QUANTIZATION = owned_by(
    "NeuronConfig",
    Attribute(
        "quantized",
        BOOL,
        False,
        "whether products read 8-bit weights; needs quantized_checkpoints_path",
        CompileSetting("quantization"),
        source="C36",
    ),
    Attribute(
        "quantized_checkpoints_path",
        optional(TEXT),
        None,
        "the quantized checkpoint; where it does not exist, weights are quantized while they are "
        "loaded",
        RunTimeSetting("the checkpoint that weights are read from"),
        source="C37",
    ),
    Attribute(
        "quantization_dtype",
        words("int8", "f8e4m3", "f8e5m2"),
        "int8",
        "element type of quantized weights",
        CompileSetting("quantization"),
        source="C38",
    ),
    Attribute(
        "quantization_type",
        words(*_SCHEMES),
        "per_tensor_symmetric",
        "the part of a weight that shares a scale",
        CompileSetting("quantization"),
        source="C39",
        unbuilt={"blockwise_symmetric": _BLOCKS},
    ),
    Attribute(
        "modules_to_not_convert",
        optional(TEXTS),
        None,
        "parts of dotted names of weights that are not quantized; None for none",
        CompileSetting("quantization"),
        source="C40",
    ),
    Attribute(
        "draft_model_modules_to_not_convert",
        optional(TEXTS),
        None,
        "the same for the draft model",
        RunTimeSetting("modules_to_not_convert of the draft in fused programs"),
        source="C41",
    ),
    Attribute(
        "quantization_block_size",
        optional(one_of(COUNT, tuple_of(COUNT, "a list of positive integers"))),
        None,
        "elements of a block that shares a scale",
        _BLOCKS,
    ),
    Attribute(
        "quantization_block_axis",
        optional(one_of(INTEGER, tuple_of(INTEGER, "a list of integers"))),
        None,
        "axes along which weights are cut into blocks",
        _BLOCKS,
    ),
    Attribute(
        "quantization_scale_dtype",
        TEXT,
        "f32",
        "element type of scales",
        Refused("scales of another type than f32", "leave it out"),
        inactive=("float32",),
    ),
    Attribute("is_mxfp4_compute", BOOL, False, "whether products read 4-bit weights", _MX),
    Attribute("is_full_model_shuffled", BOOL, False, "a layout of 4-bit weights", _MX),
    Attribute("is_hidden_dim_shuffled", BOOL, False, "a layout of 4-bit weights", _MX),
    Attribute("is_intermediate_dim_shuffled", BOOL, False, "a layout of 4-bit weights", _MX),
    Attribute(
        "quantized_mlp_kernel_enabled",
        BOOL,
        False,
        "computes the MLP with 8-bit operands, which changes the numbers",
        CompileSetting("activation_quantization_weights"),
        source="C46",
    ),
    Attribute(
        "rmsnorm_quantize_kernel_enabled",
        BOOL,
        False,
        "quantizes the MLP's input in a kernel of its own",
        NoEffect("the numbers are those of quantized_mlp_kernel_enabled"),
        CompileSetting("native_kernels"),
        source="C47",
    ),
    Attribute(
        "activation_quantization_type",
        optional(words("dynamic", "static")),
        None,
        "quantizes activations with scales found at run time (dynamic) or given (static): the "
        "input_scale of the checkpoint",
        CompileSetting("activation_quantization_type"),
    ),
    Attribute(
        "quantize_clamp_bound",
        NUMBER,
        inf,
        "bound of activations before they are quantized",
        CompileSetting("quantize_clamp_bound"),
    ),
)

CACHE_QUANTIZATION = owned_by(
    "NeuronConfig",
    Attribute(
        "kv_cache_quant",
        BOOL,
        False,
        "keeps the cache as 8-bit numbers",
        CompileSetting("kv_cache_quant"),
        source="C42",
        decision="the flag alone changes nothing in the library, which needs kv_quant_config too; "
        "here it is enough, and kv_quant_config has its defaults: float8_e4m3fn, cast directly",
    ),
    Attribute(
        "kv_quant_config",
        optional(nested("KVQuantizationConfig")),
        None,
        "the numbers and scales of a quantized cache; needs kv_cache_quant",
        CompileSetting("kv_cache_dtype"),
    ),
)

_NO_SCALES = NoEffect("values are cast without scales")
_METHODS = words(
    "per_tensor_symmetric",
    "per_channel_symmetric",
    "per_key_symmetric",
)

KV_QUANTIZATION = owned_by(
    "KVQuantizationConfig",
    Attribute(
        "k_quant_method", _METHODS, "per_tensor_symmetric", "shares of a scale, keys", _NO_SCALES
    ),
    Attribute(
        "v_quant_method", _METHODS, "per_tensor_symmetric", "shares of a scale, values", _NO_SCALES
    ),
    Attribute(
        "quant_dtype",
        DTYPE,
        "float8_e4m3fn",
        "element type of the cache; f8e4m3 ends at 240, as on the device",
        PartOf("NeuronConfig.kv_quant_config"),
        unbuilt=dict.fromkeys(("bfloat16", "float16", "float32", "float64"), _CACHE_DTYPE),
        decision="whole numbers without scales would lose all that is below a half: int8 has a "
        "scale a token and head, which is kept with its numbers",
    ),
    Attribute(
        "direct_cast",
        BOOL,
        True,
        "converts without scales; what is out of range becomes the largest number of the type",
        Refused(
            "a KV cache with the scales of NxD Inference, which no calibration ever sets there,",
            "set direct_cast=True; or measure scales with graphgen calibrate, and run it with "
            "graphgen generate --kv-cache-quant --kv-cache-scale per_key --kv-cache-ranges FILE",
        ),
    ),
)
