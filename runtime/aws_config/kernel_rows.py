"""Attributes that choose kernels and layouts of Neuron devices; they change no number.

The quantized kernels do, and are in ``quantization_rows.py``.
"""

from __future__ import annotations

from graphgen.config.fields import one_of, optional
from graphgen.runtime.aws_config.attribute import (
    Attribute,
    CompilerArgument,
    CompileRequest,
    CompileSetting,
    NoEffect,
    Refused,
    RunTimeSetting,
    owned_by,
    sets,
)
from graphgen.runtime.aws_config.value_kinds import BOOL, CLASS, COUNT, TEXT

_NO_KERNELS = NoEffect("kernels exist on Neuron devices only")
_ORDINARY = NoEffect(
    "graphgen has no such kernel: ordinary ops compute the same, and may take longer on the device"
)
_NO_LAYOUT = NoEffect("it is a layout of Neuron devices' memory")


def _kernel(name: str, what: str, *, beside: CompilerArgument | None = None) -> Attribute:
    """A switch for a kernel, ``what`` after "the"."""
    return Attribute(
        name,
        BOOL,
        False,
        f"the {what}",
        _NO_KERNELS,
        _ORDINARY,
        beside=beside,
    )


def _optional_kernel(name: str, what: str) -> Attribute:
    """The same where ``None`` leaves the choice to the library."""
    return Attribute(
        name,
        optional(BOOL),
        None,
        f"the {what}; None leaves the choice to the compiler",
        _NO_KERNELS,
        _ORDINARY,
    )


def native_kernel(name: str, word: str, instead: str = "") -> CompileSetting:
    """A kernel in NKI that an attribute requests, which artifacts decide about.

    Args:
        name: of the attribute.
        word: of the field ``native_kernels``.
        instead: the attribute whose kernel stands in for this one.
    """

    def requested(request: CompileRequest) -> tuple[str, ...]:
        other = bool(instead) and request[instead] is True
        return (word,) if request[name] is True and not other else ()

    return sets("native_kernels", requested)


KERNELS = owned_by(
    "NeuronConfig",
    Attribute(
        "attn_kernel_enabled",
        optional(BOOL),
        None,
        "the flash attention kernel; None leaves the choice to the compiler",
        _NO_KERNELS,
        native_kernel("attn_kernel_enabled", "attention"),
        source="C43",
        decision="the references say False and describe a choice by length; None is that choice, "
        "and False excludes the kernel",
    ),
    Attribute(
        *("qkv_kernel_enabled", BOOL, False, "the fused QKV kernel", _NO_KERNELS),
        native_kernel("qkv_kernel_enabled", "qkv"),
        source="C44",
    ),
    Attribute(
        *("mlp_kernel_enabled", BOOL, False, "the MLP kernel", _NO_KERNELS),
        native_kernel("mlp_kernel_enabled", "mlp", instead="quantized_mlp_kernel_enabled"),
        source="C45",
    ),
    _kernel("qkv_nki_kernel_enabled", "QKV kernel in NKI"),
    _kernel("qkv_cte_nki_kernel_fuse_rope", "rotary embedding inside the QKV kernel"),
    _kernel("qkv_kernel_nbsd_layout", "NBSD layout of the QKV kernel's result"),
    _kernel("qkv_kernel_fuse_residual_add", "residual addition inside the QKV kernel"),
    _kernel("mlp_tkg_nki_kernel_enabled", "MLP kernel of token programs"),
    _kernel("mlp_kernel_fuse_residual_add", "residual addition inside the MLP kernel"),
    _kernel("fused_rmsnorm_skip_gamma", "norm without its weight inside kernels"),
    _kernel("out_proj_kernel_enabled", "output projection kernel"),
    _kernel("strided_context_parallel_kernel_enabled", "strided context-parallel kernel"),
    _kernel("attn_tkg_nki_kernel_enabled", "attention kernel of token programs"),
    _kernel("attn_tkg_builtin_kernel_enabled", "compiler's attention kernel of token programs"),
    _kernel(
        "attn_block_tkg_nki_kernel_enabled",
        "attention block kernel of token programs",
        beside=CompilerArgument(
            "--internal-backend-options=--enable-verifier=false", also="is_block_kv_layout"
        ),
    ),
    _kernel("attn_block_tkg_nki_kernel_cache_update", "cache update inside the attention kernel"),
    _kernel("attn_block_tkg_nki_kernel_cascaded_attention", "cascaded attention kernel"),
    Attribute(
        "attn_block_tkg_nki_kernel_use_online_softmax",
        BOOL,
        True,
        "the softmax of the attention block kernel in one pass",
        _NO_KERNELS,
        _ORDINARY,
    ),
    _kernel("attn_block_cte_nki_kernel_enabled", "attention block kernel of context programs"),
    _kernel("kv_cache_update_with_kernel", "cache update kernel"),
    _kernel("eagle_rolling_buffer_kernel_enabled", "rolling buffer kernel"),
    _kernel("pre_rope_rmsnorm", "norm of queries and keys inside the attention kernel"),
    _optional_kernel("moe_fused_nki_kernel_enabled", "fused expert kernel"),
    _optional_kernel("router_topk_nki_kernel_enabled", "router kernel"),
    _optional_kernel("expert_mlp_nki_kernel_enabled", "expert kernel"),
    _optional_kernel("shared_mlp_nki_kernel_enabled", "shared expert kernel"),
)

ATTENTION = owned_by(
    "NeuronConfig",
    Attribute(
        "fused_qkv",
        BOOL,
        False,
        "computes queries, keys and values as one product",
        NoEffect("products with one input are fused wherever their weights can be joined"),
        source="C22",
    ),
    Attribute(
        "qk_layernorm",
        BOOL,
        False,
        "states that the model normalizes queries and keys",
        RunTimeSetting("a check of the model: its own configuration decides"),
        source="C24",
    ),
    Attribute(
        "flash_decoding_enabled",
        BOOL,
        False,
        "splits the cache along the sequence over the ranks that share a head",
        sets("flash_decoding"),
        source="C21",
    ),
    Attribute(
        "attn_cls",
        one_of(TEXT, CLASS),
        "NeuronLlamaAttention",
        "class of the attention layers",
        NoEffect("attention follows from the model's own configuration"),
    ),
    Attribute(
        "k_cache_transposed",
        BOOL,
        False,
        "keeps keys with the sequence last",
        _NO_LAYOUT,
        Refused("transposed keys in the cache", "leave it out"),
    ),
    Attribute(
        "kv_cache_tiling",
        BOOL,
        False,
        "cuts the cache into tiles of 128 slots",
        _NO_LAYOUT,
        Refused("tiled caches", "leave it out"),
    ),
    Attribute(
        "disable_kv_cache_tiling",
        BOOL,
        False,
        "keeps the cache without tiles",
        NoEffect("caches have no tiles"),
    ),
    Attribute(
        "padded_hidden_size",
        optional(COUNT),
        None,
        "hidden size with padding",
        Refused("a padded hidden size", "leave it out: the sharding pass pads what it must"),
    ),
    Attribute(
        "padded_intermediate_size",
        optional(COUNT),
        None,
        "size of the MLP with padding",
        Refused("a padded MLP", "leave it out: the sharding pass pads what it must"),
    ),
)
