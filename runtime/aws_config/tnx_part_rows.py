"""Attributes of the configurations inside transformers-neuronx's NeuronConfig."""

from __future__ import annotations

from typing import Any, Final

from graphgen.config.fields import ValueType, one_of, optional, words
from graphgen.runtime.aws_config.attribute import (
    Attribute,
    Derived,
    NoEffect,
    PartOf,
    Refused,
    RunTimeSetting,
    owned_by,
    sets,
)
from graphgen.runtime.aws_config.tnx_rows import AMP, QUANTIZED, SAMPLING, WEIGHTS, part
from graphgen.runtime.aws_config.value_kinds import (
    BOOL,
    COUNT,
    INDEX,
    MAPPING,
    NUMBER,
    TEXTS,
    tuple_of,
)

QUANTIZATION: Final = "tnx.QuantizationConfig"
KV_QUANTIZATION: Final = "tnx.KVCacheQuantizationConfig"
GENERATION: Final = "tnx.GenerationConfig"
BATCHING: Final = "tnx.ContinuousBatchingConfig"
SPARSE: Final = "tnx.SparseAttnConfig"
BLOCKS: Final = "tnx.BlkSparseAttnConfig"
WINDOW: Final = "tnx.SlidingWindowAttnConfig"


def _each(kind: ValueType[Any]) -> ValueType[Any]:
    """One value, or a list with a value of each sequence."""
    return one_of(kind, tuple_of(kind, f"a list of them, {kind.noun} for each sequence"))


_WIDE = Refused("a KV cache of this type", "take 's8' or 'f8e4m3fn', or amp for all")

TNX_QUANTIZATION = owned_by(
    QUANTIZATION,
    Attribute(
        "quant_dtype", words("s8", "f8e4m3fn"), "s8", "element type of quantized weights", WEIGHTS
    ),
    Attribute(
        "dequant_dtype",
        AMP,
        "f16",
        "element type of products with quantized weights; that of amp",
        PartOf("tnx.from_pretrained.amp"),
    ),
    Attribute(
        "quantize_method",
        words("vector_dynamic", "direct_cast"),
        "vector_dynamic",
        "vector_dynamic, a scale for each output channel",
        NoEffect("the only one there is"),
        unbuilt={
            "direct_cast": Refused("quantization without scales", "take 'vector_dynamic'"),
        },
    ),
    Attribute("quantize_attn", BOOL, True, "quantization of attention's weights too", WEIGHTS),
    Attribute(
        "no_quantize_list",
        TEXTS,
        (),
        "parts of the names of weights that keep their element type",
        WEIGHTS,
    ),
)

TNX_CACHE_QUANTIZATION = owned_by(
    KV_QUANTIZATION,
    Attribute(
        "quant_dtype",
        words("s8", "f16", "bf16", "f8e4m3fn"),
        "s8",
        "element type of quantized caches",
        sets("kv_cache_dtype", lambda cache: QUANTIZED[str(cache["quant_dtype"])]),
        unbuilt=dict.fromkeys(("f16", "bf16"), _WIDE),
        decision="whole numbers without scales would lose all that is below a half: s8 has a "
        "scale a token and head, which is kept with its numbers",
    ),
    Attribute(
        "dequant_dtype",
        AMP,
        "bf16",
        "element type that attention reads; that of amp",
        PartOf("tnx.from_pretrained.amp"),
    ),
    Attribute(
        "quantize_method",
        words("direct_cast"),
        "direct_cast",
        "direct_cast, values without scales; what is out of range becomes the largest number",
        NoEffect("the only one there is"),
    ),
)

_INPUT = RunTimeSetting("an input of the programs, once a token")

TNX_GENERATION = owned_by(
    GENERATION,
    Attribute(
        "max_length",
        optional(COUNT),
        None,
        "longest sequence, prompt and new tokens",
        RunTimeSetting("the length at which sample stops"),
    ),
    Attribute(
        "do_sample",
        BOOL,
        False,
        "drawn tokens instead of the best ones",
        SAMPLING,
    ),
    Attribute("top_k", _each(INDEX), 50, "number of best tokens to draw from; 0 for all", _INPUT),
    Attribute(
        "top_p", _each(NUMBER), 1.0, "probability that the best tokens to draw from reach", _INPUT
    ),
    Attribute(
        "top_p_min_tokens", _each(INDEX), 1, "number of tokens that top_p keeps at least", _INPUT
    ),
    Attribute("temperature", _each(NUMBER), 1.0, "divisor of scores", _INPUT),
    Attribute(
        "global_top_k",
        optional(COUNT),
        None,
        "number of best tokens that programs look at; None for those that top_k needs",
        SAMPLING,
    ),
    Attribute(
        "eos_token_id",
        optional(one_of(INDEX, tuple_of(INDEX, "a list of token ids"))),
        None,
        "tokens that end a sequence; None for those of the model",
        RunTimeSetting("the tokens at which sample ends a sequence"),
        decision="None stands for the model's; transformers-neuronx goes on to the full length",
    ),
    Attribute(
        "dynamic",
        BOOL,
        False,
        "values that update_generation_config may change",
        RunTimeSetting("the right to change values after compilation"),
    ),
    Attribute("deterministic", BOOL, False, "0.5 in place of random numbers", SAMPLING),
    Attribute(
        "per_batch_line",
        BOOL,
        False,
        "lists with one value for each sequence",
        RunTimeSetting("the right to give lists"),
    ),
)

_PAGED = Refused("paged KV caches", "leave it out: each sequence has a cache row of its own")

TNX_BATCHING = owned_by(
    BATCHING,
    Attribute(
        "max_num_seqs",
        optional(COUNT),
        Derived("batch_size_for_shared_caches", lambda v: v["batch_size_for_shared_caches"]),
        "number of sequences in the cache; that of batch_size",
        PartOf("tnx.from_pretrained.batch_size"),
    ),
    Attribute(
        "batch_size_for_shared_caches",
        optional(COUNT),
        None,
        "older name of max_num_seqs",
        PartOf("max_num_seqs"),
        replaces="max_num_seqs",
    ),
    Attribute(
        "max_model_len",
        optional(COUNT),
        None,
        "longest sequence; that of n_positions",
        PartOf("tnx.from_pretrained.n_positions"),
    ),
    Attribute(
        "optimized_paged_attention",
        BOOL,
        False,
        "attention over the blocks of the sequences that take part",
        _PAGED,
    ),
    Attribute("block_size", optional(COUNT), None, "positions of a block", _PAGED),
    Attribute("num_blocks", optional(COUNT), None, "number of blocks", _PAGED),
    Attribute(
        "enable_chunked_prefill",
        BOOL,
        False,
        "prompts in pieces",
        Refused("chunked prefill", "leave it out: a prompt is one call"),
    ),
)

_MASK = PartOf("tnx.NeuronConfig.sparse_attn")

TNX_SPARSE = (
    *owned_by(
        SPARSE,
        Attribute(
            "attn_type",
            words("blk_sparse", "window", "custom"),
            "blk_sparse",
            "form of the mask",
            _MASK,
        ),
        Attribute("causal", BOOL, False, "no attention to later positions", _MASK),
        Attribute(
            "sparse_attn_config",
            one_of(
                part("tnx.BlkSparseAttnConfig", "BlkSparseAttnConfig"),
                part("tnx.SlidingWindowAttnConfig", "SlidingWindowAttnConfig"),
            ),
            None,
            "sizes of the mask",
            _MASK,
        ),
        Attribute("same_mask_per_layer", BOOL, True, "one mask for all layers", _MASK),
        Attribute(
            "sparse_mask_dict",
            MAPPING,
            Derived("an empty dictionary", lambda _: dict[object, object]()),
            "masks by their numbers of queries and keys",
            _MASK,
        ),
    ),
    *owned_by(
        BLOCKS,
        Attribute("blk_size", COUNT, 128, "positions of a block", _MASK),
        Attribute("num_global_blks", INDEX, 0, "first blocks that all others see", _MASK),
        Attribute("num_local_blks", INDEX, 1, "neighbouring blocks that a block sees", _MASK),
        Attribute("num_random_blks", INDEX, 0, "random blocks that a block sees", _MASK),
    ),
    *owned_by(
        WINDOW,
        Attribute("window_size", COUNT, 128, "positions that a token sees", _MASK),
    ),
)
