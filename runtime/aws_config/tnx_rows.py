"""Attributes of transformers-neuronx's NeuronConfig and of ``from_pretrained``."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final, cast

from graphgen.config.fields import MismatchError, ValueType, one_of, optional, value_type, words
from graphgen.runtime.aws_config.attribute import (
    Attribute,
    CompileSetting,
    Derived,
    NoEffect,
    PartOf,
    Refused,
    RunTimeSetting,
    Values,
    owned_by,
)
from graphgen.runtime.aws_config.value_kinds import BOOL, COUNT, COUNTS, INDEX, tuple_of

OWNER: Final = "tnx.NeuronConfig"
MODEL: Final = "tnx.from_pretrained"

AMP: Final = words("f32", "f16", "bf16")
_CAST = words("float32", "float16", "bfloat16")
_ORDER = tuple_of(INDEX, "a list of the dimensions 0 to 3")
_LAYOUT = words("HSB", "BSH")
# transformers-neuronx's strategies, and the strategy of the pass ``heads`` that each one is.
STRATEGIES: Final = {
    "shard-over-heads": "SHARD_OVER_HEADS",
    "shard-over-batch": "SHARD_OVER_BATCH",
    "replicated-heads": "REPLICATED_HEADS",
    "all-gather-heads": "ALL_GATHER_HEADS",
}


def _layout(what: str) -> tuple[NoEffect, Refused]:
    """The effects of a switch for the layout of arrays on a device."""
    return (
        NoEffect(f"{what} changes how a Neuron device computes, not the results"),
        Refused(what, "leave it out: the compiler chooses"),
    )


def _padding_side(values: Values) -> object:
    names = ("continuous_batching", "lhs_aligned", "use_2d_cache_ids")
    return "right" if any(values[name] for name in names) else "left"


def part(owner: str, name: str) -> ValueType[Any]:
    """A copy of a configuration of the class ``owner``, or a dictionary of its attributes.

    Args:
        owner: of the table.
        name: transformers-neuronx's, for the error.
    """

    noun = f"a {name}, a dictionary, or None"

    def accept(value: object) -> object:
        if value is None or isinstance(value, Mapping):
            return cast("object", value)
        if getattr(value, "owner", None) != owner:
            raise MismatchError("type", noun)
        # Later changes of the user's own do not reach it; programs would not follow them.
        return copy.deepcopy(value)

    return value_type(accept, noun, noun, {}, tag=owner)


_EAGLE = Refused("EAGLE speculation", "leave it out, and generate without speculation")

TNX_CONFIG = owned_by(
    OWNER,
    Attribute(
        "sparse_attn",
        part("tnx.SparseAttnConfig", "SparseAttnConfig"),
        None,
        "positions that attention leaves out",
        Refused("sparse attention", "leave it out: attention sees all positions"),
    ),
    Attribute(
        "quant",
        part("tnx.QuantizationConfig", "QuantizationConfig"),
        None,
        "quantization of weights",
        CompileSetting("quantization"),
    ),
    Attribute(
        "kv_cache_quant",
        part("tnx.KVCacheQuantizationConfig", "KVCacheQuantizationConfig"),
        None,
        "quantization of KV caches",
        CompileSetting("kv_cache_quant"),
    ),
    Attribute(
        "continuous_batching",
        part("tnx.ContinuousBatchingConfig", "ContinuousBatchingConfig"),
        None,
        "calls of forward that name the sequences they advance",
        RunTimeSetting("the meaning of forward's start_ids: ids of sequences"),
    ),
    Attribute(
        "attention_layout",
        _LAYOUT,
        "HSB",
        "order of the dimensions in attention",
        *_layout("the layout of attention"),
    ),
    Attribute(
        "collectives_layout",
        _LAYOUT,
        "HSB",
        "order of the dimensions in collectives",
        *_layout("the layout of collectives"),
    ),
    Attribute(
        "cache_layout",
        words("SBH", "BSH"),
        "SBH",
        "order of the dimensions of KV caches",
        *_layout("the layout of caches"),
    ),
    Attribute(
        "padding_side",
        words("left", "right"),
        Derived("right with continuous_batching, else left", _padding_side),
        "padded side of shorter prompts",
        RunTimeSetting("side on which forward expects the padding of shorter prompts"),
    ),
    Attribute(
        "lhs_aligned", BOOL, False, "older form of padding_side='right'", PartOf("padding_side")
    ),
    Attribute(
        "use_2d_cache_ids",
        BOOL,
        False,
        "older form of padding_side='right'",
        PartOf("padding_side"),
    ),
    Attribute(
        "group_query_attention",
        optional(words(*STRATEGIES)),
        None,
        "distribution of KV heads over ranks",
        CompileSetting("heads"),
        decision="an impossible strategy is an error; transformers-neuronx takes another one",
    ),
    Attribute(
        "sequence_parallel_norm",
        BOOL,
        False,
        "norms split along the sequence",
        CompileSetting("rules"),
    ),
    Attribute(
        "sequence_parallel_norm_threshold",
        COUNT,
        2048,
        "shortest prompt whose norms are split along the sequence",
        PartOf("sequence_parallel_norm"),
    ),
    Attribute(
        "bf16_rms_norm",
        BOOL,
        False,
        "RMSNorm in bf16",
        Refused("RMSNorm in bf16", "leave it out: norms compute in f32"),
    ),
    Attribute(
        "on_device_embedding",
        BOOL,
        False,
        "embedding lookup in programs",
        NoEffect("programs always look embeddings up"),
    ),
    Attribute(
        "on_device_generation",
        part("tnx.GenerationConfig", "GenerationConfig"),
        None,
        "settings of programs that choose tokens",
        CompileSetting("sampling"),
    ),
    Attribute(
        "all_reduce_dtype",
        optional(_CAST),
        None,
        "element type of row-parallel sums over ranks; None for that of amp",
        CompileSetting("rpl_reduce_dtype"),
    ),
    Attribute(
        "cast_logits_dtype",
        _CAST,
        "float32",
        "element type that logits are rounded to",
        CompileSetting("cast_logits_dtype"),
    ),
    Attribute(
        "fuse_qkv",
        BOOL,
        False,
        "one product for query, key and value",
        NoEffect("the pass fuse-projections joins products of one input wherever it can"),
    ),
    Attribute(
        "qkv_tiling",
        BOOL,
        False,
        "tiles of the joined product's weight",
        *_layout("the tiling of weights"),
    ),
    Attribute(
        "weight_tiling", BOOL, False, "tiles of all weights", *_layout("the tiling of weights")
    ),
    Attribute(
        "mlp_in_weight_tiling_permute_order",
        _ORDER,
        (1, 2, 0, 3),
        "order of the dimensions of tiles of the MLP's first weights",
        PartOf("weight_tiling"),
    ),
    Attribute(
        "mlp_out_weight_tiling_permute_order",
        _ORDER,
        (1, 2, 0, 3),
        "order of the dimensions of tiles of the MLP's last weight",
        PartOf("weight_tiling"),
    ),
    Attribute(
        "log_softmax_scores",
        BOOL,
        False,
        "logarithms of probabilities instead of logits",
        RunTimeSetting("the scores that forward and sample return"),
    ),
    Attribute(
        "output_all_logits",
        BOOL,
        False,
        "logits of every token of a prompt",
        Refused("logits of every token of a prompt", "read those of the last one"),
    ),
    Attribute(
        "shard_over_sequence",
        BOOL,
        False,
        "KV caches split along the sequence",
        CompileSetting("flash_decoding"),
    ),
    Attribute(
        "duplicate_q_weight_sos",
        BOOL,
        False,
        "queries of a group on each rank of flash decoding",
        NoEffect("ranks gather the queries of their group, a few numbers a token"),
    ),
    Attribute(
        "attn_output_transposed",
        BOOL,
        False,
        "transposed storage of the weight of attention's output",
        *_layout("the storage of weights"),
    ),
    Attribute(
        "mlp_out_weight_transpose",
        BOOL,
        False,
        "transposed storage of the MLP's last weight",
        *_layout("the storage of weights"),
    ),
    Attribute(
        "fuse_mlp",
        BOOL,
        False,
        "one product for gate and up projections",
        NoEffect("the pass fuse-projections joins products of one input wherever it can"),
    ),
    Attribute(
        "fused_rmsnorm_qkv",
        BOOL,
        False,
        "one kernel for the norm and the projections of attention",
        *_layout("the fusion of norms and projections"),
    ),
    Attribute(
        "fused_rmsnorm_mlp",
        BOOL,
        False,
        "one kernel for norm and MLP",
        *_layout("the fusion of norms and projections"),
    ),
    Attribute("is_eagle_target", BOOL, False, "a target of EAGLE speculation", _EAGLE),
    Attribute("is_eagle_draft", BOOL, False, "a draft model of EAGLE speculation", _EAGLE),
    Attribute(
        "has_pre_attention_norm",
        BOOL,
        True,
        "a norm before the first attention of a draft model",
        _EAGLE,
    ),
    Attribute(
        "compilation_worker_count",
        optional(COUNT),
        None,
        "number of programs compiled at the same time",
        NoEffect("programs compile one after the other, each on all cores"),
    ),
)

_UNROLL = NoEffect("programs hold all layers")
_SIZES = one_of(COUNT, COUNTS)

TNX_OPTIONS = owned_by(
    MODEL,
    Attribute(
        "n_positions",
        _SIZES,
        2048,
        "longest sequence, or the buckets of token generation",
        CompileSetting("tokens"),
        decision="by default no more than the positions that the model has",
    ),
    Attribute(
        "batch_size",
        _SIZES,
        1,
        "sequences of one call; a list for several sizes",
        CompileSetting("batch"),
    ),
    Attribute(
        "prompt_batch_size",
        optional(COUNT),
        None,
        "prompts of one call; each gives batch_size / prompt_batch_size sequences",
        RunTimeSetting("the number of prompts of sample"),
    ),
    Attribute(
        "amp",
        AMP,
        "f32",
        "element type of weights, activations and caches",
        CompileSetting("dtype"),
    ),
    Attribute("tp_degree", COUNT, 2, "ranks that the model is split over", CompileSetting("tp")),
    Attribute(
        "context_length_estimate",
        optional(one_of(INDEX, COUNTS)),
        None,
        "buckets of prompts; by default half of each bucket of token generation",
        CompileSetting("context"),
    ),
    Attribute("context_unroll", optional(COUNT), None, "layers of a program of prompts", _UNROLL),
    Attribute("unroll", optional(COUNT), None, "layers of a program of token generation", _UNROLL),
    Attribute(
        "prefixed_length",
        INDEX,
        0,
        "length of a prefix that all prompts share",
        Refused("a cached prefix of all prompts", "give it as part of each prompt"),
    ),
    Attribute(
        "reorder_cache",
        BOOL,
        False,
        "a program that permutes rows of KV caches",
        Refused("beam search", "sample, or decode greedily"),
    ),
)
