"""Attributes of transformers-neuronx's NeuronConfig and of ``from_pretrained``."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final, cast

from graphgen.config.fields import MismatchError, ValueType, one_of, optional, value_type, words
from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.attribute import (
    Attribute,
    CompileRequest,
    CompileSetting,
    Derived,
    NoEffect,
    PartOf,
    Refused,
    RunTimeSetting,
    Values,
    owned_by,
    sets,
)
from graphgen.runtime.aws_config.size_rows import reduce_dtype
from graphgen.runtime.aws_config.value_kinds import BOOL, COUNT, COUNTS, ELEMENTS, INDEX, tuple_of

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

# The part of a weight's name that stands for attention, by model type.
_ATTENTION: Final = {
    "gpt2": "attn",
    "gptj": "attn",
    "gpt_neox": "attention",
    "bloom": "self_attention",
}
# The pass's own default for programs that draw from the best tokens.
_CANDIDATES: Final = 256
# Element types of quantized weights and caches.
QUANTIZED: Final = {"s8": "int8", "f8e4m3fn": "f8e4m3"}


def _quantization(request: CompileRequest) -> str:
    """The pass that quantizes weights, as pipelines write it; empty for none."""
    quant = cast("Values | None", request["quant"])
    if quant is None:
        return ""
    # Only here: a compiled model is opened without any pass.
    from graphgen.passes.quantization.quantize_weights import QuantizeWeights

    skip = [*QuantizeWeights().skip, *cast("tuple[str, ...]", quant["no_quantize_list"])]
    if not quant["quantize_attn"]:
        skip.append(_ATTENTION.get(str(request.model.get("model_type")), "self_attn"))
    return str(QuantizeWeights(QUANTIZED[str(quant["quant_dtype"])], skip=tuple(skip)))


def sampling_pass(values: Values) -> str:
    """The pass that lets programs choose tokens, as pipelines write it; empty for logits."""
    generation = cast("Values | None", values["on_device_generation"])
    if generation is None:
        return ""
    dynamic = generation["dynamic"]
    if not generation["do_sample"] and not dynamic:
        return "on-device-sampling"
    candidates = generation["global_top_k"]
    if candidates is None:
        few = not dynamic and all(0 < k <= _CANDIDATES for k in _all(generation, "top_k"))
        candidates = _CANDIDATES if few else 0
    options = ["do_sample=true", f"global_topk={candidates}"]
    if generation["deterministic"]:
        options.append("deterministic=true")
    if dynamic or any(count > 1 for count in _all(generation, "top_p_min_tokens")):
        options.append("top_p_min_tokens=true")
    return f"on-device-sampling{{{','.join(options)}}}"


def _all(generation: Values, name: str) -> tuple[int, ...]:
    value = cast("int | tuple[int, ...]", generation[name])
    return (value,) if isinstance(value, int) else value


def _split_norms(request: CompileRequest) -> tuple[str, ...]:
    """Norms of prompts that are longer than a threshold, split along their tokens."""
    apart = request["tp_degree"] != 1 and request["sequence_parallel_norm"]
    longest = cast(int, request["sequence_parallel_norm_threshold"])
    return (f"prefill>={longest + 1}:sequence:tp",) if apart and _context(request) else ()


def _heads(request: CompileRequest) -> str:
    return STRATEGIES.get(str(request["group_query_attention"]), "auto")


def _batch(request: CompileRequest) -> tuple[int, ...]:
    batch = cast("int | tuple[int, ...]", request["batch_size"])
    return (batch,) if isinstance(batch, int) else tuple(sorted(set(batch)))


def _tokens(request: CompileRequest) -> tuple[int, ...]:
    """The buckets of token generation (GG0903)."""
    # Only here: a compiled model is opened without any pass.
    from graphgen.models import read_model_config
    from graphgen.passes.programs.bucket_sizes import Sizes, token_sizes

    positions = cast(Sizes, request["n_positions"])
    most = read_model_config(request.model).max_position_embeddings
    if most and not request.is_given("n_positions"):
        positions = min(cast(int, positions), most)
    tokens = token_sizes(positions)
    if most and tokens[-1] > most:
        raise exclusion(
            f"n_positions is {tokens[-1]}",
            f"the model has {most} positions",
            f"n_positions={most} or less",
        )
    return tokens


def _context(request: CompileRequest) -> tuple[int, ...]:
    """The buckets of prompts (GG0903)."""
    # Only here: a compiled model is opened without any pass.
    from graphgen.passes.programs.bucket_sizes import Sizes, context_sizes

    tokens = _tokens(request)
    context = context_sizes(cast("Sizes | None", request["context_length_estimate"]), tokens)
    if context and context[-1] > tokens[-1]:
        raise exclusion(
            f"context_length_estimate is {context[-1]} and n_positions {tokens[-1]}",
            "a prompt is part of a sequence",
            f"context_length_estimate={tokens[-1]} or less",
        )
    return context


def _lengths(request: CompileRequest) -> Mapping[str, object]:
    """The buckets of token generation, and the slots of a cache row."""
    tokens = _tokens(request)
    return {"tokens": tokens, "slots": tokens[-1]}


def exclusion(what: str, because: str, help: str) -> GraphgenError:
    """The error of an impossible combination."""
    return GraphgenError("GG0903", f"{what}: {because}", help=help)


WEIGHTS: Final = sets("quantization", _quantization)
SAMPLING: Final = sets("sampling", sampling_pass)

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
        WEIGHTS,
    ),
    Attribute(
        "kv_cache_quant",
        part("tnx.KVCacheQuantizationConfig", "KVCacheQuantizationConfig"),
        None,
        "quantization of KV caches",
        sets("kv_cache_quant", lambda request: request["kv_cache_quant"] is not None),
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
        sets("heads", _heads),
        decision="an impossible strategy is an error; transformers-neuronx takes another one",
    ),
    Attribute(
        "sequence_parallel_norm",
        BOOL,
        False,
        "norms split along the sequence",
        sets("rules", _split_norms),
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
        SAMPLING,
    ),
    Attribute(
        "all_reduce_dtype",
        optional(_CAST),
        None,
        "element type of row-parallel sums over ranks; None for that of amp",
        sets("rpl_reduce_dtype", reduce_dtype("all_reduce_dtype", "amp")),
    ),
    Attribute(
        "cast_logits_dtype",
        _CAST,
        "float32",
        "element type that logits are rounded to",
        sets("cast_logits_dtype", lambda request: ELEMENTS[str(request["cast_logits_dtype"])]),
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
        sets("flash_decoding"),
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
        CompileSetting(("tokens", "slots"), _lengths),
        decision="by default no more than the positions that the model has",
    ),
    Attribute(
        "batch_size",
        _SIZES,
        1,
        "sequences of one call; a list for several sizes",
        sets("batch", _batch),
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
        sets("dtype"),
    ),
    Attribute("tp_degree", COUNT, 2, "ranks that the model is split over", sets("tp")),
    Attribute(
        "context_length_estimate",
        optional(one_of(INDEX, COUNTS)),
        None,
        "buckets of prompts; by default half of each bucket of token generation",
        sets("context", _context),
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
        NoEffect("reorder_cache(ids) and the adapter's beams permute the rows of every cache"),
    ),
)
