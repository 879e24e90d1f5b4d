"""The compile configuration that follows from a NeuronConfig."""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import isfinite
from typing import Final, TypedDict, cast

from graphgen.config.bucket_ladder import powers
from graphgen.config.compile_config import CompileConfig
from graphgen.config.option_words import (
    ACTIVATIONS_DYNAMIC,
    ACTIVATIONS_WIDE,
    ATTENTION_OF_MODEL,
    CACHE_DTYPES,
)
from graphgen.passes.kernels.neuron_rules import NATIVE
from graphgen.runtime.aws_config.expert_config import (
    BlockwiseMatmulConfig,
    MoENeuronConfig,
    RouterConfig,
)
from graphgen.runtime.aws_config.lora_settings import adapter_fields
from graphgen.runtime.aws_config.medusa_checks import medusa_heads, medusa_nodes
from graphgen.runtime.aws_config.model_checks import quantized_checkpoint, scale_scheme
from graphgen.runtime.aws_config.neuron_config import (
    KVQuantizationConfig,
    NeuronConfig,
    OnDeviceSamplingConfig,
)


class _ExpertSettings(TypedDict, total=False):
    """Fields of a compilation that are about experts."""

    moe_ep_degree: int
    moe_prefill_ep_degree: int
    return_router_logits: bool
    return_expert_index: bool
    capacity_factor: float
    expert_block_size: int
    router_dtype: str


ELEMENTS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}
_CACHE_DTYPES = {"float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2", "int8": "int8"}

# The environment variable that names the manifest; AWS's configurations have no word for it.
_MANIFEST: Final = "GRAPHGEN_KERNEL_ARTIFACTS"
# By attribute the word of ``native_kernels``.
_WORDS: Final[Mapping[str, str]] = {
    "attn_kernel_enabled": "attention",
    "qkv_kernel_enabled": "qkv",
    "mlp_kernel_enabled": "mlp",
    "quantized_mlp_kernel_enabled": "quantized_mlp",
    "rmsnorm_quantize_kernel_enabled": "rmsnorm_quantize",
}
# Products of the MLP, which quantized_mlp_kernel_enabled computes of 8-bit rows, and the bound of
# these where none is given.
_MLP_WEIGHTS: Final = ("*.mlp.*",)
_MLP_BOUND: Final = 1200.0


def compile_settings(config: NeuronConfig, target: str = "cpu") -> CompileConfig:
    """The compile configuration of a NeuronConfig for a target.

    Raises:
        GraphgenError: GG0903 for impossible combinations, GG0904 for what is not built for the
            target.
    """
    config.check(target)
    tokens, prompts = _count(config, "tkg_batch_size"), _count(config, "ctx_batch_size")
    rows = _count(config, "kv_cache_batch_size")
    return CompileConfig(
        target=target,
        tp=_count(config, "tp_degree"),
        flash_decoding=bool(config.value("flash_decoding_enabled")),
        pp_degree=_count(config, "pp_degree"),
        cp_degree=_count(config, "cp_degree"),
        mlp_cp_degree=_count(config, "mlp_cp_degree"),
        attention_dp_degree=_count(config, "attention_dp_degree"),
        weight_gather_length=_gathered(config),
        rules=_rules(config),
        **_experts(config),
        **adapter_fields(config),
        batch=(tokens,),
        prefill_batch=(prompts,) if prompts != tokens else (),
        rows=rows if rows != max(tokens, prompts) else 0,
        context=_ladder(config, "context_encoding_buckets", "max_context_length"),
        tokens=_ladder(config, "token_generation_buckets", "max_length"),
        slots=_count(config, "max_length"),
        page_cache=_count(config, "pa_block_size") if config.value("is_block_kv_layout") else 0,
        cache_blocks=_count(config, "pa_num_blocks") if config.value("is_block_kv_layout") else 0,
        dtype=_dtype(config),
        rpl_reduce_dtype=_reduce_dtype(config),
        attention_dtype=_attention_dtype(config),
        quantization=_quantization(config),
        activation_quantization_type=_activations(config),
        activation_quantization_weights=_MLP_WEIGHTS if _narrow_mlp(config) else (),
        quantize_clamp_bound=_clamp_bound(config),
        kv_cache_quant=bool(config.value("kv_cache_quant")),
        kv_cache_dtype=_cache_dtype(config),
        sampling=_sampling(config),
        speculation_length=_count(config, "speculation_length"),
        verify_batch=_verify_batch(config, tokens),
        native_kernels=_native_kernels(config, target),
        kernel_artifacts=_kernel_manifest(target),
        tree_nodes=medusa_nodes(config),
        num_medusa_heads=medusa_heads(config),
    )


def sampling_defaults(config: NeuronConfig) -> tuple[int, float, float]:
    """top_k, top_p and temperature of rows that give none; (1, 1.0, 1.0) is the best token."""
    sampling = config.value("on_device_sampling_config")
    if not isinstance(sampling, OnDeviceSamplingConfig):
        return 1, 1.0, 1.0
    top_k, top_p = sampling.value("top_k"), sampling.value("top_p")
    return cast(int, top_k), cast(float, top_p), cast(float, sampling.value("temperature"))


def _count(config: NeuronConfig, name: str) -> int:
    return cast(int, config.value(name))


def _experts(config: NeuronConfig) -> _ExpertSettings:
    """Fields of experts; none for a model that has no options of experts."""
    if not isinstance(config, MoENeuronConfig):
        return {}
    tokens, prompts = config.expert_groups("tkg"), config.expert_groups("cte")
    made: _ExpertSettings = {
        "moe_ep_degree": tokens,
        "moe_prefill_ep_degree": prompts if prompts != tokens else 0,
        "return_router_logits": bool(config.value("return_router_logits")),
        "return_expert_index": bool(config.value("return_expert_index")),
        "capacity_factor": cast("float | None", config.value("capacity_factor")) or 0.0,
    }
    blocks = config.value("blockwise_matmul_config")
    if isinstance(blocks, BlockwiseMatmulConfig):
        made["expert_block_size"] = cast(int, blocks.value("block_size"))
    router = config.value("router_config")
    if isinstance(router, RouterConfig):
        made["router_dtype"] = ELEMENTS[str(router.value("dtype"))]
    return made


def _rules(config: NeuronConfig) -> tuple[str, ...]:
    """Layouts beside the usual ones."""
    rules = (_tokens(config),) if config.value("sequence_parallel_enabled") else ()
    whole = isinstance(config, MoENeuronConfig) and config.whole_shared_experts
    return (*rules, "*.shared_expert*.weight:{-,-}") if whole else rules


def _gathered(config: NeuronConfig) -> int:
    """The length from which weights may be gathered: AWS's with its sequence parallelism."""
    tokens = config.value("sequence_parallel_enabled")
    if not tokens:
        return CompileConfig().weight_gather_length
    return _count(config, "weight_gather_seq_len_threshold")


def _tokens(config: NeuronConfig) -> str:
    """Tokens of the residual stream over all ranks, those that share a prompt first."""
    # Only here: a compiled model is opened without any pass.
    from graphgen.passes.sharding.rank_axes import RankAxes

    degrees = ("tp_degree", "cp_degree", "attention_dp_degree")
    ranks = RankAxes(*[_count(config, name) for name in degrees])
    return f"prefill:sequence:{ranks.every_token}"


def _verify_batch(config: NeuronConfig, tokens: int) -> tuple[int, ...]:
    """Batch size of verification programs, if it differs from the token programs'."""
    rows = _count(config, "spec_batch_size")
    return (rows,) if config.value("speculation_length") and rows != tokens else ()


def _ladder(config: NeuronConfig, buckets: str, largest: str) -> tuple[int, ...]:
    """The buckets of a phase, ascending: one without bucketing, else those given or all powers."""
    longest = _count(config, largest)
    if not config.value("enable_bucketing"):
        return (longest,)
    given = cast("tuple[int, ...] | None", config.value(buckets))
    return tuple(sorted(set(given))) if given else powers(longest)


def _dtype(config: NeuronConfig) -> str:
    if config.value("cast_type") == "as-declared":
        return "as-declared"
    return ELEMENTS[str(config.value("torch_dtype"))]


def _reduce_dtype(config: NeuronConfig) -> str:
    """The element type of row-parallel sums; f32 on one rank, which has none."""
    if _count(config, "tp_degree") == 1:
        return "f32"
    return ELEMENTS[str(config.value("rpl_reduce_dtype") or config.value("torch_dtype"))]


def _attention_dtype(config: NeuronConfig) -> str:
    """The element type of attention, where it is not that of the hidden states."""
    given = config.value("attention_dtype")
    same = given is None or given == config.value("torch_dtype")
    return ATTENTION_OF_MODEL if same else ELEMENTS[str(given)]


def _quantization(config: NeuronConfig) -> str:
    if not config.value("quantized") or quantized_checkpoint(config) is not None:
        return ""
    # Only here: a compiled model is opened without any pass.
    from graphgen.passes.quantization.quantize_weights import QuantizeWeights

    skip = cast("tuple[str, ...] | None", config.value("modules_to_not_convert"))
    dtype = str(config.value("quantization_dtype"))
    return str(QuantizeWeights(dtype, scale_scheme(config), skip or ()))


def _narrow_mlp(config: NeuronConfig) -> bool:
    """True if the MLP, and it alone, multiplies 8-bit rows."""
    return config.value("quantized_mlp_kernel_enabled") is True


def _activations(config: NeuronConfig) -> str:
    if _narrow_mlp(config):
        return ACTIVATIONS_DYNAMIC
    return str(config.value("activation_quantization_type") or ACTIVATIONS_WIDE)


def _clamp_bound(config: NeuronConfig) -> float:
    """The bound of what is quantized; 0 for the library's infinity, but in its quantized MLP."""
    bound = cast(float, config.value("quantize_clamp_bound"))
    if isfinite(bound):
        return bound
    return _MLP_BOUND if _narrow_mlp(config) else 0.0


def _cache_dtype(config: NeuronConfig) -> str:
    """The element type of quantized caches; that of the library where none is given."""
    given = config.value("kv_quant_config")
    numbers = given if isinstance(given, KVQuantizationConfig) else KVQuantizationConfig()
    return _CACHE_DTYPES.get(str(numbers.value("quant_dtype")), CACHE_DTYPES[0])


def _sampling(config: NeuronConfig) -> str:
    sampling = config.value("on_device_sampling_config")
    if not isinstance(sampling, OnDeviceSamplingConfig):
        return ""
    # Only here: a compiled model is opened without any pass.
    from graphgen.passes.programs.on_device_sampling import OnDeviceSampling

    return str(
        OnDeviceSampling(
            do_sample=bool(sampling.value("do_sample") or sampling.value("dynamic")),
            global_topk=cast(int, sampling.value("global_topk")),
            deterministic=bool(sampling.value("deterministic")),
            output_logits=bool(config.value("output_logits")),
        )
    )


def _native_kernels(config: NeuronConfig, target: str) -> tuple[str, ...]:
    """The kernels that the attributes request for a device and a manifest has; none for the CPU."""
    if not _kernel_manifest(target):
        return ()
    return tuple(_WORDS[name] for name in _requested_kernels(config))


def kernel_notes(config: NeuronConfig, target: str) -> tuple[str, ...]:
    """A remark for each kernel that no artifact is given of, for a device."""
    if target == "cpu" or _kernel_manifest(target):
        return ()
    kernels = {row.option: row.kernel for row in NATIVE}
    return tuple(
        f"NeuronConfig.{name} = True has no effect: {kernels[_WORDS[name]]} exists in NKI alone, "
        f"and no artifact of it is given for {target}; ordinary ops compute the same, or let "
        f"{_MANIFEST} name a manifest of kernels (docs/kernels.md)"
        for name in _requested_kernels(config)
    )


def _requested_kernels(config: NeuronConfig) -> list[str]:
    """The attributes that request a kernel."""
    found = [name for name in _WORDS if config.value(name) is True]
    if _narrow_mlp(config) and "mlp_kernel_enabled" in found:
        # The kernel of 8-bit products stands in for the other one.
        found.remove("mlp_kernel_enabled")
    return found


def _kernel_manifest(target: str) -> str:
    """The manifest of kernels for a device; empty for none, and for the CPU."""
    return "" if target == "cpu" else os.environ.get(_MANIFEST, "")
