"""Attributes for batch sizes, sequence lengths, buckets and element types."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from graphgen.config.bucket_ladder import powers
from graphgen.config.fields import optional, words
from graphgen.config.option_words import ATTENTION_OF_MODEL
from graphgen.runtime.aws_config.attribute import (
    Attribute,
    CompileRequest,
    Derived,
    NoEffect,
    PartOf,
    Refused,
    RunTimeSetting,
    Values,
    owned_by,
    same_as,
    sets,
)
from graphgen.runtime.aws_config.value_kinds import (
    BOOL,
    COMPUTE_DTYPE,
    COUNT,
    COUNTS,
    ELEMENTS,
    INDEX,
)


def _longest(values: Values) -> object:
    ladders = (values["context_encoding_buckets"], values["token_generation_buckets"])
    return max([128, *(size for sizes in ladders for size in cast("tuple[int, ...]", sizes or ()))])


def _new_tokens(values: Values) -> object:
    names = ("seq_len", "max_length", "max_context_length")
    longest, row, prompt = (cast(int, values[name]) for name in names)
    return max(min(longest - prompt, row), 0) or None


def sequences_of_chunks(values: Values) -> int:
    """The sequences of a call with ``is_chunked_prefill``; 0 without it, or where none are given.

    It is the batch size then, as in NxD Inference, whose prompts form one row.
    """
    config = cast("Values | None", values["chunked_prefill_config"])
    return cast(int, config["max_num_seqs"]) if config and values["is_chunked_prefill"] else 0


def _token_rows(values: Values) -> int:
    """The rows of a call of the token programs."""
    return sequences_of_chunks(values) or cast(int, values["tkg_batch_size"])


def _prompt_rows(values: Values) -> int:
    """The rows of a call of the context programs; chunks of sequences run one after the other."""
    chunks = values["is_chunked_prefill"] and not values.is_given("ctx_batch_size")
    return 1 if chunks else cast(int, values["ctx_batch_size"])


def _prefill_batch(request: CompileRequest) -> tuple[int, ...]:
    """The batch size of the context programs, if it is not that of the token programs."""
    rows = _prompt_rows(request)
    return (rows,) if rows != _token_rows(request) else ()


def _cache_rows(request: CompileRequest) -> int:
    """Rows of a cache; 0 for those of the largest call."""
    rows = cast(int, request["kv_cache_batch_size"])
    return rows if rows > max(_token_rows(request), _prompt_rows(request)) else 0


def _ladder(request: CompileRequest, buckets: str, largest: str) -> tuple[int, ...]:
    """The buckets of a phase, ascending: one without bucketing, else those given or all powers."""
    longest = cast(int, request[largest])
    if not request["enable_bucketing"]:
        return (longest,)
    given = cast("tuple[int, ...] | None", request[buckets])
    return tuple(sorted(set(given))) if given else powers(longest)


def _dtype(request: CompileRequest) -> str:
    as_declared = request["cast_type"] == "as-declared"
    return "as-declared" if as_declared else ELEMENTS[str(request["torch_dtype"])]


def _attention_dtype(request: CompileRequest) -> str:
    """The element type of attention, where it is not that of the hidden states."""
    given = request["attention_dtype"]
    same = given is None or given == request["torch_dtype"]
    return ATTENTION_OF_MODEL if same else ELEMENTS[str(given)]


def reduce_dtype(given: str, model: str) -> Callable[[CompileRequest], str]:
    """The element type of row-parallel sums, of two attributes: its own, else the model's.

    One rank has no sums; f32 is the default.
    """

    def value(request: CompileRequest) -> str:
        named = str(request[given] or request[model]) if request["tp_degree"] != 1 else "f32"
        return ELEMENTS.get(named, named)

    return value


def torch_name(element: str) -> str:
    """PyTorch's name of an element type (KeyError)."""
    return {ours: theirs for theirs, ours in ELEMENTS.items()}[element]


def _chunks(request: CompileRequest) -> tuple[int, ...]:
    """Tokens of the programs that go on after what a sequence has in its blocks; none for others.

    The sizes are the context buckets, but for one as long as a sequence: a context program of that
    size takes as many.
    """
    if not request["is_prefix_caching"] and not request["is_chunked_prefill"]:
        return ()
    longest = _ladder(request, "token_generation_buckets", "max_length")[-1]
    sizes = _ladder(request, "context_encoding_buckets", "max_context_length")
    return tuple(size for size in sizes if size < longest)


_BATCH = sets("batch", lambda request: (_token_rows(request),))
_SLOTS = sets("slots", lambda request: request["max_length"])
_CONTEXT = sets(
    "context", lambda request: _ladder(request, "context_encoding_buckets", "max_context_length")
)
_TOKENS = sets("tokens", lambda request: _ladder(request, "token_generation_buckets", "max_length"))
_DTYPE = sets("dtype", _dtype)
CHUNKS = sets("chunk", _chunks)

SIZES = owned_by(
    "NeuronConfig",
    Attribute(
        "batch_size",
        COUNT,
        1,
        "sequences of a call",
        _BATCH,
        source="C01",
        described=lambda settings: settings.cache_rows,
    ),
    Attribute(
        "seq_len",
        COUNT,
        Derived("128, or the largest bucket that is given", _longest),
        "the longest sequence, prompt and new tokens together",
        _SLOTS,
        source="C03",
        described=lambda settings: settings.max_len,
    ),
    Attribute(
        "max_length",
        COUNT,
        same_as("seq_len"),
        "the longest sequence of a cache row; less than seq_len makes the rows shorter",
        _SLOTS,
        source="C06",
    ),
    Attribute(
        "max_context_length",
        COUNT,
        same_as("max_length"),
        "the longest prompt",
        _CONTEXT,
        source="C04",
        described=lambda settings: max(settings.context),
    ),
    Attribute(
        "max_new_tokens",
        optional(COUNT),
        Derived("seq_len - max_context_length, max_length at most, None for 0", _new_tokens),
        "new tokens of a generation that gives no limit",
        RunTimeSetting("the limit of new tokens"),
        source="C05",
    ),
    Attribute(
        "n_active_tokens",
        COUNT,
        same_as("seq_len"),
        "tokens that a program processes at once",
        NoEffect("each program processes as many tokens as its bucket has"),
        source="C07",
    ),
    Attribute(
        "n_positions",
        COUNT,
        same_as("seq_len"),
        "positions of a sequence; at least max_length",
        NoEffect("positions follow from max_length and the model's own limit"),
        source="C08",
    ),
    Attribute(
        "padding_side",
        words("right", "left"),
        "right",
        "the side on which prompts of a batch are padded",
        RunTimeSetting("the side on which prompts are padded"),
        source="C02",
    ),
    Attribute(
        "allow_input_truncation",
        BOOL,
        False,
        "whether a prompt longer than the largest bucket is cut",
        RunTimeSetting("prompts that are cut after the tokens of the largest bucket"),
    ),
)

DTYPES = owned_by(
    "NeuronConfig",
    Attribute(
        "torch_dtype",
        COMPUTE_DTYPE,
        "bfloat16",
        "element type of weights, activations and caches",
        _DTYPE,
        source="C09",
        described=lambda settings: torch_name(settings.dtype),
    ),
    Attribute(
        "overrides_torch_dtype",
        BOOL,
        Derived("torch_dtype is given", lambda values: values.is_given("torch_dtype")),
        "a mark that the library writes into its files",
        NoEffect("torch_dtype counts where it is given, and bfloat16 where it is not"),
        decision="the references say that torch_dtype is bfloat16 where it is not given; the "
        "library takes the type of the model's own configuration instead",
    ),
    Attribute(
        "cast_type",
        words("config", "as-declared"),
        "config",
        "casts all weights to torch_dtype (config), or keeps the type of each (as-declared)",
        _DTYPE,
        source="C11",
    ),
    Attribute(
        "rpl_reduce_dtype",
        optional(COMPUTE_DTYPE),
        None,
        "element type of row-parallel sums over ranks; None for torch_dtype",
        sets("rpl_reduce_dtype", reduce_dtype("rpl_reduce_dtype", "torch_dtype")),
        source="C10",
        described=lambda settings: torch_name(settings.rpl_reduce_dtype),
        decision="the newer reference says None, the older one torch_dtype; sums are in "
        "torch_dtype, the type in which the library's layers hand on what they sum",
    ),
    Attribute(
        "attention_dtype",
        optional(COMPUTE_DTYPE),
        None,
        "element type of attention; None and torch_dtype for that of the hidden states",
        sets("attention_dtype", _attention_dtype),
        source="C25",
        described=lambda settings: (
            torch_name(settings.attention_dtype)
            if settings.attention_dtype != ATTENTION_OF_MODEL
            else None
        ),
    ),
)

BATCHES = owned_by(
    "NeuronConfig",
    Attribute(
        "max_batch_size",
        COUNT,
        same_as("batch_size"),
        "rows of a cache with continuous batching",
        PartOf("kv_cache_batch_size"),
        source="C49",
    ),
    Attribute(
        "ctx_batch_size",
        COUNT,
        same_as("batch_size"),
        "sequences of a call of the context programs",
        sets("prefill_batch", _prefill_batch),
        source="C49",
        described=lambda settings: (settings.prefill_batch or settings.batch)[0],
    ),
    Attribute(
        "tkg_batch_size",
        COUNT,
        same_as("batch_size"),
        "sequences of a call of the token programs",
        _BATCH,
        source="C49",
        described=lambda settings: settings.batch[0],
    ),
    Attribute(
        "kv_cache_batch_size",
        COUNT,
        same_as("max_batch_size"),
        "rows of a cache",
        sets("rows", _cache_rows),
        decision="the library's default is batch_size; max_batch_size is the number of sequences "
        "that continuous batching keeps, and equals batch_size where only that is given",
    ),
    Attribute(
        "kv_cache_padding_size",
        INDEX,
        0,
        "rows of a cache for sequences that are not there",
        Refused("a padding row of the cache", "leave it out: rows that are not there write none"),
    ),
    Attribute(
        "is_continuous_batching",
        BOOL,
        False,
        "whether sequences come and go one by one; seq_ids choose their rows of the cache",
        NoEffect("sequences come and go one by one in any case"),
        source="C48",
        described=lambda settings: settings.attention_dp_degree > 1,
    ),
    Attribute(
        "apply_seq_ids_mask",
        BOOL,
        False,
        "whether rows of padded seq_ids keep their cache",
        Refused("a mask for padded seq_ids", "leave it out, and pass seq_ids of real rows only"),
    ),
)

BUCKETS = owned_by(
    "NeuronConfig",
    Attribute(
        "enable_bucketing",
        BOOL,
        False,
        "whether each phase has several programs for different lengths, or one for the longest",
        _CONTEXT,
        source="C33",
        described=lambda _: True,
    ),
    Attribute(
        "context_encoding_buckets",
        optional(COUNTS),
        None,
        "prompt lengths to compile for; None for the powers of two from 128 to max_context_length",
        _CONTEXT,
        source="C34",
        described=lambda settings: settings.context,
        decision="the ladder is complete; the library leaves 8192 out on the way to 10240",
    ),
    Attribute(
        "token_generation_buckets",
        optional(COUNTS),
        None,
        "sequence lengths to compile for; None for the powers of two from 128 to max_length",
        _TOKENS,
        source="C35",
        described=lambda settings: settings.tokens,
    ),
    Attribute(
        "buckets",
        COUNTS,
        Derived("[seq_len]", lambda values: (values["seq_len"],)),
        "one list of buckets, which the library replaces for each program",
        Refused(
            "one list of buckets for all programs",
            "set context_encoding_buckets and token_generation_buckets",
        ),
    ),
    Attribute(
        "bucket_n_active_tokens",
        BOOL,
        False,
        "whether the programs of one phase differ in their number of active tokens",
        NoEffect("context programs always process as many tokens as their bucket has"),
    ),
    Attribute(
        "prefix_buckets",
        optional(COUNTS),
        None,
        "lengths of cached prefixes to compile for",
        NoEffect(
            "programs read as many slots as token_generation_buckets say, those of a prefix too"
        ),
    ),
    Attribute(
        "token_generation_batches",
        optional(COUNTS),
        None,
        "batch sizes of the token programs to compile for",
        Refused("token programs of several batch sizes", "set tkg_batch_size to the largest"),
    ),
)

PREFIXES = owned_by(
    "NeuronConfig",
    Attribute(
        "is_prefix_caching",
        BOOL,
        False,
        "whether prompts that start alike share their cache, by the block_table of forward",
        CHUNKS,
        served="on unless it is False: what prompts have in common is processed once",
    ),
    Attribute(
        "windowed_context_encoding_size",
        optional(COUNT),
        None,
        "tokens of a prompt that are processed at a time",
        Refused("windowed context encoding", "leave it out: a prompt is processed in one program"),
    ),
    Attribute(
        "is_prefill_stage",
        optional(BOOL),
        None,
        "the phase of a program; the library sets it",
        NoEffect("each program knows its own phase"),
    ),
)
