"""Rules over several attributes: impossible combinations, and combinations to remark on.

NxD Inference checks some of them when a configuration is made, some when a model is compiled, and
some not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

from graphgen.runtime.aws_config.attribute import Values
from graphgen.runtime.aws_config.size_rows import sequences_of_chunks


@dataclass(frozen=True, slots=True)
class Reader:
    """The values of a configuration, by type."""

    values: Values

    def on(self, name: str) -> bool:
        """True for a value that requests something: true, positive, or not empty."""
        return bool(self.values[name])

    def number(self, name: str) -> int:
        """An integer; 0 for ``None``."""
        return cast("int | None", self.values[name]) or 0

    def numbers(self, name: str) -> tuple[int, ...]:
        """A list of integers; empty for ``None``."""
        return cast("tuple[int, ...] | None", self.values[name]) or ()

    def text(self, name: str) -> str:
        """A string; empty for ``None``."""
        return str(self.values[name] or "")

    def given(self, name: str) -> bool:
        """True for an attribute that somebody set."""
        return self.values.is_given(name)


@dataclass(frozen=True, slots=True)
class CombinationRule:
    """A condition on the attributes of one configuration.

    Attributes:
        attributes: names that the error shows with their values, the one to change first.
        rule: a clause that holds for possible configurations.
        remedy: an imperative.
        broken: True for an impossible configuration.
        owner: name of the class.
        source: number of the rule's row in the table of features.
    """

    attributes: tuple[str, ...]
    rule: str
    remedy: str
    broken: Callable[[Reader], bool]
    owner: str = "NeuronConfig"
    source: str = ""


def needs(first: str, second: str, source: str = "") -> CombinationRule:
    """The attribute ``first`` can be on only with ``second``."""
    return CombinationRule(
        (first, second),
        f"{first} needs {second}",
        f"set {second}, or leave {first} out",
        lambda read: read.on(first) and not read.on(second),
        source=source,
    )


def excludes(first: str, second: str, source: str = "") -> CombinationRule:
    """Both attributes cannot be on."""
    return CombinationRule(
        (first, second),
        f"{first} and {second} exclude each other",
        f"leave {second} or {first} out",
        lambda read: read.on(first) and read.on(second),
        source=source,
    )


def at_most(first: str, second: str, source: str = "") -> CombinationRule:
    """The number, or the largest of the numbers, ``first`` is at most ``second``."""

    def broken(read: Reader) -> bool:
        value = read.values[first]
        largest = max(read.numbers(first), default=0) if isinstance(value, tuple) else value
        return isinstance(largest, int) and largest > read.number(second)

    return CombinationRule(
        (first, second),
        f"{first} must be at most {second}",
        f"lower {first}, or raise {second}",
        broken,
        source=source,
    )


def divides(first: str, second: str, source: str = "") -> CombinationRule:
    """The number ``first`` divides ``second``."""
    return CombinationRule(
        (first, second),
        f"{second} must be divisible by {first}",
        f"set {first} to a divisor of {second}",
        lambda read: read.number(second) % read.number(first) != 0,
        source=source,
    )


def _needs_bfloat16(name: str, source: str) -> CombinationRule:
    return CombinationRule(
        (name, "torch_dtype"),
        f"{name} needs torch_dtype bfloat16",
        f"set torch_dtype to bfloat16, or leave {name} out",
        lambda read: read.on(name) and read.text("torch_dtype") != "bfloat16",
        source=source,
    )


def _needs_bucketing(name: str, source: str) -> CombinationRule:
    return CombinationRule(
        (name, "enable_bucketing"),
        f"{name} has no effect without enable_bucketing",
        f"set enable_bucketing=True, or leave {name} out",
        lambda read: read.on(name) and not read.on("enable_bucketing"),
        source=source,
    )


def _token_kernels(read: Reader) -> int:
    return sum(map(read.on, _TOKEN_KERNELS))


def _context_lengths(read: Reader) -> tuple[int, ...]:
    buckets = read.numbers("context_encoding_buckets") if read.on("enable_bucketing") else ()
    return (*buckets, read.number("max_context_length"))


_TOKEN_KERNELS = (
    "attn_tkg_nki_kernel_enabled",
    "attn_tkg_builtin_kernel_enabled",
    "attn_block_tkg_nki_kernel_enabled",
)
_SPECULATIVE = ("speculation_length", "enable_fused_speculation", "is_medusa", "token_tree_config")

SIZE_RULES = (
    at_most("max_length", "seq_len", "C06"),
    at_most("max_context_length", "max_length", "C04"),
    at_most("max_new_tokens", "max_length", "C05"),
    CombinationRule(
        ("n_positions", "max_length"),
        "n_positions must be at least max_length",
        "leave n_positions out",
        lambda read: read.number("n_positions") < read.number("max_length"),
        source="C08",
    ),
    at_most("context_encoding_buckets", "max_context_length", "C34"),
    at_most("token_generation_buckets", "max_length", "C35"),
    _needs_bucketing("context_encoding_buckets", "C34"),
    _needs_bucketing("token_generation_buckets", "C35"),
    at_most("ctx_batch_size", "kv_cache_batch_size", "C49"),
    at_most("tkg_batch_size", "kv_cache_batch_size", "C49"),
    at_most("token_generation_batches", "tkg_batch_size"),
    CombinationRule(
        ("spec_batch_size", "speculation_length", "kv_cache_batch_size"),
        "spec_batch_size must be at most kv_cache_batch_size",
        "lower spec_batch_size, or raise kv_cache_batch_size",
        lambda read: (
            read.on("speculation_length")
            and read.number("spec_batch_size") > read.number("kv_cache_batch_size")
        ),
        source="C52",
    ),
    *(excludes("token_generation_batches", name) for name in _SPECULATIVE),
    excludes("token_generation_batches", "is_chunked_prefill"),
    excludes("token_generation_batches", "is_prefix_caching"),
    excludes("token_generation_batches", "is_block_kv_layout"),
)

PARALLEL_RULES = (
    divides("cp_degree", "tp_degree"),
    divides("attention_dp_degree", "tp_degree"),
    divides("attention_dp_degree", "tkg_batch_size"),
    CombinationRule(
        ("attention_dp_degree", "is_block_kv_layout"),
        "attention_dp_degree above 1 divides the rows of caches, and blocks go to any row",
        "leave attention_dp_degree or is_block_kv_layout out",
        lambda read: read.number("attention_dp_degree") > 1 and read.on("is_block_kv_layout"),
    ),
    CombinationRule(
        ("attention_dp_degree", "is_continuous_batching"),
        "attention_dp_degree above 1 needs is_continuous_batching",
        "set is_continuous_batching, or leave attention_dp_degree out",
        lambda read: (
            read.number("attention_dp_degree") > 1 and not read.on("is_continuous_batching")
        ),
    ),
    CombinationRule(
        ("attention_dp_degree", "cp_degree"),
        "cp_degree above 1 must be a multiple of attention_dp_degree",
        "set attention_dp_degree to a divisor of cp_degree",
        lambda read: (
            read.number("cp_degree") > 1
            and read.number("cp_degree") % read.number("attention_dp_degree") != 0
        ),
    ),
    CombinationRule(
        ("mlp_cp_degree", "sequence_parallel_enabled"),
        "mlp_cp_degree above 1 needs sequence_parallel_enabled",
        "set sequence_parallel_enabled, or leave mlp_cp_degree out",
        lambda read: read.number("mlp_cp_degree") > 1 and not read.on("sequence_parallel_enabled"),
    ),
    CombinationRule(
        ("mlp_cp_degree", "cp_degree"),
        "mlp_cp_degree above 1 must be cp_degree",
        "set mlp_cp_degree to cp_degree, or leave it out",
        lambda read: (
            read.number("mlp_cp_degree") > 1
            and read.number("mlp_cp_degree") != read.number("cp_degree")
        ),
    ),
    CombinationRule(
        ("attention_dp_degree", "tkg_batch_size", "kv_cache_batch_size"),
        "attention_dp_degree above 1 needs tkg_batch_size rows in the cache",
        "set kv_cache_batch_size to tkg_batch_size, or leave it out",
        lambda read: (
            read.number("attention_dp_degree") > 1
            and read.number("kv_cache_batch_size") != read.number("tkg_batch_size")
        ),
    ),
    CombinationRule(
        ("sequence_parallel_enabled", "max_context_length", "tp_degree"),
        "with sequence_parallel_enabled, every context length must be divisible by tp_degree",
        "change max_context_length and context_encoding_buckets to multiples of tp_degree",
        lambda read: (
            read.on("sequence_parallel_enabled")
            and any(length % read.number("tp_degree") for length in _context_lengths(read))
        ),
        source="C23",
    ),
    CombinationRule(
        ("start_rank_id", "local_ranks_size", "world_size"),
        "start_rank_id and local_ranks_size must be within world_size",
        "lower local_ranks_size or start_rank_id",
        lambda read: (
            read.on("world_size")
            and read.on("local_ranks_size")
            and read.number("start_rank_id") + read.number("local_ranks_size")
            > read.number("world_size")
        ),
    ),
)

QUANTIZATION_RULES = (
    CombinationRule(
        ("quantized", "quantized_checkpoints_path"),
        "quantized needs quantized_checkpoints_path",
        "set quantized_checkpoints_path to the folder of the quantized checkpoint",
        lambda read: read.on("quantized") and not read.on("quantized_checkpoints_path"),
        source="C36",
    ),
    needs("rmsnorm_quantize_kernel_enabled", "quantized_mlp_kernel_enabled", "C47"),
    needs("is_full_model_shuffled", "is_mxfp4_compute"),
    needs("activation_quantization_type", "quantized"),
    excludes("activation_quantization_type", "mlp_kernel_enabled"),
    excludes("activation_quantization_type", "quantized_mlp_kernel_enabled"),
    *(
        CombinationRule(
            ("modules_to_not_convert", "quantized", kernel),
            f"a quantized model with {kernel} needs modules_to_not_convert",
            "name the modules that keep their type, the attention layers among them",
            lambda read, kernel=kernel: (
                read.on("quantized") and read.on(kernel) and not read.on("modules_to_not_convert")
            ),
            source="C40",
        )
        for kernel in ("qkv_kernel_enabled", "qkv_nki_kernel_enabled")
    ),
)

KERNEL_RULES = (
    needs("qkv_kernel_enabled", "fused_qkv", "C44"),
    _needs_bfloat16("qkv_kernel_enabled", "C44"),
    _needs_bfloat16("mlp_kernel_enabled", "C45"),
    needs("qkv_cte_nki_kernel_fuse_rope", "qkv_kernel_enabled"),
    needs("qkv_cte_nki_kernel_fuse_rope", "qkv_nki_kernel_enabled"),
    needs("attn_block_cte_nki_kernel_enabled", "attn_block_tkg_nki_kernel_enabled"),
    needs("attn_block_tkg_nki_kernel_cache_update", "attn_block_tkg_nki_kernel_enabled"),
    needs("attn_block_tkg_nki_kernel_cascaded_attention", "attn_block_tkg_nki_kernel_enabled"),
    CombinationRule(
        ("attn_block_tkg_nki_kernel_enabled", "qkv_kernel_enabled", "qkv_nki_kernel_enabled"),
        "attn_block_tkg_nki_kernel_enabled needs qkv_kernel_enabled or qkv_nki_kernel_enabled",
        "set qkv_nki_kernel_enabled, or leave attn_block_tkg_nki_kernel_enabled out",
        lambda read: (
            read.on("attn_block_tkg_nki_kernel_enabled")
            and not read.on("qkv_kernel_enabled")
            and not read.on("qkv_nki_kernel_enabled")
        ),
    ),
    CombinationRule(
        _TOKEN_KERNELS,
        "token programs have at most one attention kernel",
        "leave all but one out",
        lambda read: _token_kernels(read) > 1,
    ),
    *(excludes(kernel, "flash_decoding_enabled") for kernel in _TOKEN_KERNELS),
    *(excludes(kernel, "is_chunked_prefill") for kernel in _TOKEN_KERNELS),
    excludes("k_cache_transposed", "flash_decoding_enabled"),
    excludes("k_cache_transposed", "is_chunked_prefill"),
    excludes("k_cache_transposed", "is_block_kv_layout"),
    CombinationRule(
        ("strided_context_parallel_kernel_enabled", "cp_degree"),
        "strided_context_parallel_kernel_enabled needs cp_degree above 1",
        "set cp_degree, or leave strided_context_parallel_kernel_enabled out",
        lambda read: (
            read.on("strided_context_parallel_kernel_enabled") and read.number("cp_degree") < 2
        ),
    ),
)

FEATURE_RULES = (
    excludes("is_medusa", "async_mode", "C57"),
    needs("async_mode", "on_device_sampling_config", "C12"),
    CombinationRule(
        ("speculation_length", "max_length"),
        "speculation_length must be from 2, the last token and one proposed, to max_length",
        "set speculation_length to 2 or more, or to 0 for no speculation",
        lambda read: (
            read.on("speculation_length")
            and not 2 <= read.number("speculation_length") <= read.number("max_length")
        ),
        source="C51",
    ),
    CombinationRule(
        ("enable_fused_speculation", "speculation_length"),
        "enable_fused_speculation needs speculation_length",
        "set speculation_length, or leave enable_fused_speculation out",
        # It follows from EAGLE otherwise, which has a rule of its own.
        lambda read: (
            read.on("enable_fused_speculation")
            and not read.on("enable_eagle_speculation")
            and not read.on("speculation_length")
        ),
        source="C55",
    ),
    CombinationRule(
        ("enable_eagle_speculation", "speculation_length"),
        "enable_eagle_speculation needs speculation_length",
        "set speculation_length to the tokens that a step verifies, such as 5",
        # The draft is a copy of its target's configuration, and verifies nothing.
        lambda read: (
            read.on("enable_eagle_speculation")
            and not read.on("is_eagle_draft")
            and not read.on("speculation_length")
        ),
        source="C53",
    ),
    needs("enable_eagle_draft_input_norm", "enable_eagle_speculation", "C54"),
    needs("is_medusa", "medusa_speculation_length", "C57"),
    needs("is_medusa", "num_medusa_heads", "C57"),
    needs("is_medusa", "medusa_tree", "C57"),
    needs("medusa_tree", "is_medusa", "C57"),
    needs("num_medusa_heads", "is_medusa", "C57"),
    needs("medusa_speculation_length", "is_medusa", "C57"),
    excludes("is_medusa", "enable_fused_speculation", "C57"),
    excludes("is_eagle3", "token_tree_config"),
    excludes("is_eagle3", "is_prefix_caching"),
    excludes("flash_decoding_enabled", "speculation_length", "C21"),
    needs("is_prefix_caching", "is_block_kv_layout"),
    needs("is_chunked_prefill", "is_block_kv_layout"),
    needs("prefix_buckets", "is_prefix_caching"),
    CombinationRule(
        ("is_prefix_caching", "is_chunked_prefill"),
        "is_prefix_caching and is_chunked_prefill exclude each other: chunks share blocks by their "
        "block_table, too",
        "leave is_prefix_caching out",
        lambda read: read.on("is_prefix_caching") and read.on("is_chunked_prefill"),
    ),
    *(
        CombinationRule(
            (name, "enable_fused_speculation"),
            f"{name} and enable_fused_speculation exclude each other: the draft's cache is not in "
            "blocks",
            "leave enable_fused_speculation out",
            lambda read, name=name: (
                read.on(name)
                and read.on("enable_fused_speculation")
                and not read.on("enable_eagle_speculation")
            ),
        )
        for name in ("is_prefix_caching", "is_chunked_prefill")
    ),
    CombinationRule(
        ("lora_config", "is_chunked_prefill"),
        "lora_config with is_chunked_prefill is not built yet",
        "set is_prefix_caching in place of is_chunked_prefill, or leave lora_config out",
        lambda read: read.on("lora_config") and read.on("is_chunked_prefill"),
    ),
    CombinationRule(
        ("pa_num_blocks", "chunked_prefill_config"),
        "pa_num_blocks must be at least max_num_seqs: each sequence needs a block",
        "raise pa_num_blocks to max_num_seqs or more, or lower max_num_seqs",
        lambda read: (
            read.on("is_block_kv_layout")
            and read.number("pa_num_blocks") < sequences_of_chunks(read.values)
        ),
    ),
    *(
        CombinationRule(
            ("padding_side", name),
            f"{name} needs padding on the right",
            "set padding_side='right'",
            lambda read, name=name: read.text("padding_side") == "left" and read.on(name),
            source="C02",
        )
        for name in ("is_prefix_caching", "is_chunked_prefill", "is_block_kv_layout")
    ),
)

OTHER_RULES = (
    CombinationRule(
        ("on_device_sampling_config",),
        "an OnDeviceSamplingConfig is always on",
        "leave NeuronConfig.on_device_sampling_config out for programs that give logits",
        lambda read: not read.on("on_device_sampling_config"),
        "OnDeviceSamplingConfig",
    ),
    *(
        CombinationRule(
            ("max_loras", name),
            f"max_loras must be at least the number of adapters in {name}",
            "raise max_loras",
            lambda read, name=name: (
                read.given("max_loras") and len(_adapters(read, name)) > read.number("max_loras")
            ),
            "LoraServingConfig",
            "C59",
        )
        for name in ("lora_ckpt_paths",)
    ),
    replace(excludes("lora_ckpt_json", "lora_ckpt_paths", "C63"), owner="LoraServingConfig"),
    replace(excludes("lora_ckpt_json", "lora_ckpt_paths_cpu", "C63"), owner="LoraServingConfig"),
    replace(needs("lora_ckpt_paths_cpu", "dynamic_multi_lora", "C62"), owner="LoraServingConfig"),
    CombinationRule(
        ("top_k", "global_topk"),
        "top_k must be at most global_topk, the tokens that programs look at",
        "lower top_k, or raise global_topk; 0 looks at all tokens",
        lambda read: not _greedy(read) and 0 < read.number("global_topk") < read.number("top_k"),
        "OnDeviceSamplingConfig",
        "C32",
    ),
    replace(at_most("top_k", "num_experts", "M02"), owner="RoutedExpertsMLPOpsConfig"),
    replace(divides("moe_ep_degree", "tp_degree", "M20"), owner="MoENeuronConfig"),
    CombinationRule(
        ("moe_tp_degree", "moe_ep_degree", "tp_degree"),
        "moe_tp_degree times moe_ep_degree must be tp_degree",
        "leave moe_tp_degree out: it follows from the others",
        lambda read: (
            # 1 and 1 stand for no degrees of experts' own.
            read.given("moe_tp_degree")
            and read.number("moe_tp_degree") * read.number("moe_ep_degree")
            not in (1, read.number("tp_degree"))
        ),
        "MoENeuronConfig",
        "M20",
    ),
    replace(excludes("moe_mask_padded_tokens", "capacity_factor", "M07"), owner="MoENeuronConfig"),
    CombinationRule(
        ("capacity_factor",),
        "capacity_factor must be above 0",
        "leave capacity_factor out: experts then compute all their tokens",
        lambda read: (
            read.values["capacity_factor"] is not None
            and not cast("float", read.values["capacity_factor"]) > 0
        ),
        "MoENeuronConfig",
        "M07",
    ),
    CombinationRule(
        ("disable_normalize_top_k_affinities", "normalize_top_k_affinities"),
        "disable_normalize_top_k_affinities is the opposite of normalize_top_k_affinities",
        "give normalize_top_k_affinities alone",
        lambda read: (
            read.on("disable_normalize_top_k_affinities")
            and read.given("normalize_top_k_affinities")
            and read.on("normalize_top_k_affinities")
        ),
        "MoENeuronConfig",
        "M09",
    ),
)


def _adapters(read: Reader, name: str) -> dict[str, str]:
    return cast("dict[str, str] | None", read.values[name]) or {}


RULES: tuple[CombinationRule, ...] = (
    *SIZE_RULES,
    *PARALLEL_RULES,
    *QUANTIZATION_RULES,
    *KERNEL_RULES,
    *FEATURE_RULES,
    *OTHER_RULES,
)


def _unused(name: str, switch: str, source: str) -> CombinationRule:
    return CombinationRule(
        (name,),
        f"{switch} is not set",
        f"set {switch}",
        lambda read: not read.on(switch),
        source=source,
    )


def _sampling_note(name: str, rule: str, broken: Callable[[Reader], bool]) -> CombinationRule:
    return CombinationRule((name,), rule, "", broken, "OnDeviceSamplingConfig", "C27")


def _greedy(read: Reader) -> bool:
    return not read.on("do_sample") and not read.on("dynamic")


# Attributes without effect in some configurations; the rule is the clause that says why.
NOTES: tuple[CombinationRule, ...] = (
    *(
        _unused(name, "quantized", "C36")
        for name in (
            "quantization_dtype",
            "quantization_type",
            "modules_to_not_convert",
            "quantized_checkpoints_path",
        )
    ),
    _unused("kv_quant_config", "kv_cache_quant", ""),
    CombinationRule(
        ("quantize_clamp_bound",),
        "activations are not quantized: activation_quantization_type and "
        "quantized_mlp_kernel_enabled are not set",
        "",
        lambda read: (
            not read.on("activation_quantization_type")
            and not read.on("quantized_mlp_kernel_enabled")
        ),
    ),
    CombinationRule(
        ("sequence_parallel_enabled",),
        "one rank has the whole sequence",
        "",
        lambda read: read.number("tp_degree") == 1,
        source="C23",
    ),
    _unused("weight_gather_seq_len_threshold", "sequence_parallel_enabled", "C23"),
    _unused("spec_batch_size", "speculation_length", "C52"),
    CombinationRule(
        ("rpl_reduce_dtype",),
        "one rank has no sums over ranks",
        "",
        lambda read: read.number("tp_degree") == 1,
        source="C10",
    ),
    CombinationRule(
        ("draft_model_modules_to_not_convert",),
        "no draft is quantized: quantized or enable_fused_speculation is not set",
        "",
        lambda read: not read.on("quantized") or not read.on("enable_fused_speculation"),
        source="C41",
    ),
    _unused("output_logits", "on_device_sampling_config", "C68"),
    *(_unused(name, "is_block_kv_layout", "") for name in ("pa_num_blocks", "pa_block_size")),
    *(
        _sampling_note(name, "do_sample and dynamic are False", _greedy)
        for name in ("top_k", "top_p", "temperature", "deterministic", "global_topk")
    ),
)
