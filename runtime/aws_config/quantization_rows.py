"""Attributes of quantized weights and caches."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite
from pathlib import Path
from typing import Final, cast

from graphgen.config.fields import one_of, optional, words
from graphgen.config.option_words import ACTIVATIONS_DYNAMIC, ACTIVATIONS_WIDE, CACHE_DTYPES
from graphgen.passes.quantization.schemes import PER_CHANNEL
from graphgen.read_file import is_there
from graphgen.runtime.aws_config.attribute import (
    Attribute,
    CompileRequest,
    CompileSetting,
    NoEffect,
    PartOf,
    Refused,
    RunTimeSetting,
    Values,
    owned_by,
    sets,
)
from graphgen.runtime.aws_config.kernel_rows import native_kernel
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

# Products of the MLP, which quantized_mlp_kernel_enabled computes of 8-bit rows, and the bound of
# these where none is given.
_MLP_WEIGHTS: Final = ("*.mlp.*",)
_MLP_BOUND: Final = 1200.0


def scale_scheme(values: Values) -> str:
    """The part of a weight that shares a scale, by the name that ``quantize-weights`` has for it.

    Each expert's channels have scales of their own anyway, as a stack of matrices has.
    """
    stated = str(values["quantization_type"])
    return PER_CHANNEL if stated == "expert_wise_per_channel_symmetric" else stated


def quantized_checkpoint(values: Values) -> Path | None:
    """The quantized checkpoint that a configuration names, if it is there."""
    path = values["quantized_checkpoints_path"]
    found = Path(str(path)) if values["quantized"] and path is not None else None
    return found if found is not None and is_there(found) else None


def _quantization(request: CompileRequest) -> str:
    """The pass that quantizes weights while they are loaded; empty for stored ones."""
    if not request["quantized"] or quantized_checkpoint(request) is not None:
        return ""
    # Only here: a compiled model is opened without any pass.
    from graphgen.passes.quantization.quantize_weights import QuantizeWeights

    skip = cast("tuple[str, ...] | None", request["modules_to_not_convert"])
    dtype = str(request["quantization_dtype"])
    return str(QuantizeWeights(dtype, scale_scheme(request), skip or ()))


def _narrow_weights(request: CompileRequest) -> tuple[str, ...]:
    """Weights of the MLP, which alone multiplies 8-bit rows."""
    return _MLP_WEIGHTS if request["quantized_mlp_kernel_enabled"] is True else ()


def _narrow_mlp(request: CompileRequest) -> Mapping[str, object]:
    """The same, and the kernel that computes it on devices."""
    weights = _narrow_weights(request)
    words = ("quantized_mlp",) if weights else ()
    return {"activation_quantization_weights": weights, "native_kernels": words}


def _activations(request: CompileRequest) -> str:
    if request["quantized_mlp_kernel_enabled"] is True:
        return ACTIVATIONS_DYNAMIC
    return str(request["activation_quantization_type"] or ACTIVATIONS_WIDE)


def _clamp_bound(request: CompileRequest) -> float:
    """The bound of what is quantized; 0 for the library's infinity, but in its quantized MLP."""
    bound = cast(float, request["quantize_clamp_bound"])
    if isfinite(bound):
        return bound
    return _MLP_BOUND if request["quantized_mlp_kernel_enabled"] is True else 0.0


_WEIGHTS = sets("quantization", _quantization)

QUANTIZATION = owned_by(
    "NeuronConfig",
    Attribute(
        "quantized",
        BOOL,
        False,
        "whether products read 8-bit weights; needs quantized_checkpoints_path",
        _WEIGHTS,
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
        _WEIGHTS,
        source="C38",
    ),
    Attribute(
        "quantization_type",
        words(*_SCHEMES),
        "per_tensor_symmetric",
        "the part of a weight that shares a scale",
        _WEIGHTS,
        source="C39",
        unbuilt={"blockwise_symmetric": _BLOCKS},
    ),
    Attribute(
        "modules_to_not_convert",
        optional(TEXTS),
        None,
        "parts of dotted names of weights that are not quantized; None for none",
        _WEIGHTS,
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
        sets("activation_quantization_weights", _narrow_weights),
        CompileSetting(("activation_quantization_weights", "native_kernels"), _narrow_mlp),
        source="C46",
    ),
    Attribute(
        "rmsnorm_quantize_kernel_enabled",
        BOOL,
        False,
        "quantizes the MLP's input in a kernel of its own",
        NoEffect("the numbers are those of quantized_mlp_kernel_enabled"),
        native_kernel("rmsnorm_quantize_kernel_enabled", "rmsnorm_quantize"),
        source="C47",
    ),
    Attribute(
        "activation_quantization_type",
        optional(words("dynamic", "static")),
        None,
        "quantizes activations with scales found at run time (dynamic) or given (static): the "
        "input_scale of the checkpoint",
        sets("activation_quantization_type", _activations),
        described=lambda settings: (
            settings.activation_quantization_type
            if settings.activation_quantization_type != ACTIVATIONS_WIDE
            else None
        ),
    ),
    Attribute(
        "quantize_clamp_bound",
        NUMBER,
        inf,
        "bound of activations before they are quantized",
        sets("quantize_clamp_bound", _clamp_bound),
        described=lambda settings: settings.quantize_clamp_bound or inf,
    ),
)

# By the types of KVQuantizationConfig; that of the library where none is given.
_CACHE_DTYPES: Final = {"float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2", "int8": "int8"}

_TORCH_CACHE_DTYPES: Final = {ours: theirs for theirs, ours in _CACHE_DTYPES.items()}


def _cache_dtype(request: CompileRequest) -> str:
    numbers = cast("Values | None", request["kv_quant_config"])
    return CACHE_DTYPES[0] if numbers is None else _CACHE_DTYPES[str(numbers["quant_dtype"])]


CACHE_QUANTIZATION = owned_by(
    "NeuronConfig",
    Attribute(
        "kv_cache_quant",
        BOOL,
        False,
        "keeps the cache as 8-bit numbers",
        sets("kv_cache_quant"),
        source="C42",
        decision="the flag alone changes nothing in the library, which needs kv_quant_config too; "
        "here it is enough, and kv_quant_config has its defaults: float8_e4m3fn, cast directly",
    ),
    Attribute(
        "kv_quant_config",
        optional(nested("KVQuantizationConfig")),
        None,
        "the numbers and scales of a quantized cache; needs kv_cache_quant",
        sets("kv_cache_dtype", _cache_dtype),
        described=lambda settings: settings.kv_cache_quant,
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
        described=lambda settings: _TORCH_CACHE_DTYPES[settings.kv_cache_dtype],
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
