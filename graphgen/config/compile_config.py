"""The options of a compilation: each is one field, declared once, with its help and its choices.

From a field follow the option of the pipeline (``default{roll_window_cache=true}``, read by
``graphgen.passes.core.options``), the flag of the commands that compile models
(``--roll-window-cache``, made by :mod:`graphgen.cli.flags`), and the option of the
runtime (part of :class:`graphgen.runtime.engine.EngineOptions`, recorded in artifacts). A new
option is one field here; its phase in :mod:`graphgen.passes.phases` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, Self, TypeVar

from graphgen.config import option_groups as groups
from graphgen.config.bucket_ladder import bucket_ladder, chunk_sizes
from graphgen.config.fields import boolean, integer, list_of, number, option, text, words
from graphgen.config.option_words import (
    ACTIVATIONS,
    ACTIVATIONS_WIDE,
    ATTENTION_OF_MODEL,
    CACHE_DTYPES,
    CACHE_SCALES,
    DEFAULT_CACHE_SCALE,
    DISPATCH_AUTO,
    DTYPES,
    EXCHANGE_AUTO,
    EXPERT_DISPATCH,
    EXPERT_EXCHANGES,
    KERNELS_AUTO,
    KERNELS_OFF,
    KERNELS_ON,
    LATENT_AUTO,
    LATENT_FORMS,
    TILES_AUTO,
)
from graphgen.config.rank_config import RankConfig
from graphgen.errors import GraphgenError

C = TypeVar("C", bound="CompileConfig")


@dataclass(frozen=True, kw_only=True)
class ProgramOptions:
    """The programs: sizes of calls, buckets, forms, and how tokens are chosen."""

    GROUP: ClassVar[str] = groups.PROGRAMS

    batch: tuple[int, ...] = option(list_of(integer()), (1,), "sizes of B.", flag=None)
    prefill_batch: tuple[int, ...] = option(
        list_of(integer()),
        (),
        "sizes of B of the prefill programs; by default those of ``batch``.",
        flag=None,
    )
    rows: int = option(integer(), 0, "of a cache; by default the largest batch.", flag=None)
    context: tuple[int, ...] = option(
        list_of(integer()), (128,), "buckets of the prefill programs.", flag=None
    )
    tokens: tuple[int, ...] = option(
        list_of(integer()), (128,), "buckets of the decode programs.", flag=None
    )
    chunk: tuple[int, ...] = option(
        list_of(integer()),
        (),
        "tokens a row of the chunk programs, which go on after what a row holds; by default there "
        "are none.",
        flag=None,
    )
    slots: int = option(integer(), 0, "of a cache row; by default the largest bucket.", flag=None)
    dims: tuple[str, ...] = option(
        list_of(text()), (), "sizes of symbols of any name, as in ``dims=[N=8]``.", flag=None
    )
    latent_attention: str = option(
        words(*LATENT_FORMS),
        LATENT_AUTO,
        "the form of the pass ``absorb-latent-projections``: whether attention over latent vectors "
        "reads them itself (``absorb``) or keys and values made of them (``expand``).",
        flag="Form of attention over latent vectors (DeepSeek): absorb, expand or what costs "
        "least, the default.",
    )
    attention_block: str = option(
        text(),
        TILES_AUTO,
        "tokens and slots of the tiles that ``tile-attention`` computes attention in, as in "
        "``256x512``; ``auto`` for what costs least, ``off`` for no tiles.",
        flag="Tokens and slots of a tile of attention (256x512), off, or what costs least, the "
        "default.",
    )
    steps_per_launch: int = option(
        integer(1),
        1,
        "decode steps that one launch makes beside those of one, where programs choose tokens.",
        flag="Decode steps a launch, 1 by default; more need --on-device-sampling.",
    )
    outline: bool = option(
        boolean(),
        False,
        "whether layers that compute the same become one function, as the last step.",
        flag=None,
    )
    hidden_states: bool = option(
        boolean(),
        False,
        "whether programs return the hidden states before each layer and after the last norm too.",
        flag=None,
        pipeline=False,
    )
    inputs_embeds: bool = option(
        boolean(),
        False,
        "whether programs take embeddings in the place of tokens.",
        flag=None,
        pipeline=False,
    )
    sampling: str = option(
        text(),
        "",
        "the pass that lets programs choose tokens, as pipelines write it; empty for logits.",
        flag=None,
        pipeline=False,
    )


@dataclass(frozen=True, kw_only=True)
class CacheOptions:
    """Caches of keys and values."""

    GROUP: ClassVar[str] = groups.CACHES

    roll_window_cache: bool = option(
        boolean(),
        False,
        "whether layers with a window have caches that hold no more than it.",
        flag="Caches of layers with a sliding window hold no more than the window.",
    )
    kv_cache_quant: bool = option(
        boolean(),
        False,
        "whether caches hold 8-bit numbers.",
        flag="Keep keys and values in 8 bits.",
    )
    kv_cache_dtype: str = option(
        words(*CACHE_DTYPES),
        CACHE_DTYPES[0],
        "of the numbers of quantized caches.",
        flag="Numbers of quantized caches; by default f8e4m3.",
    )
    kv_cache_scale: str = option(
        words("auto", *CACHE_SCALES),
        "auto",
        "granularity of the scales of a quantized cache; auto is per_token for int8, else none.",
        flag="Scale granularity of a quantized cache; by default per_token for int8, else none.",
    )
    kv_cache_ranges: str = option(
        text(),
        "",
        "the file of ``graphgen calibrate`` that per_tensor, per_key and per_channel read.",
        flag="File of graphgen calibrate, for scales per_tensor, per_key and per_channel.",
    )
    page_cache: int = option(
        integer(0),
        0,
        "slots of a block of the caches, which rows share by a table; 0 for a cache row each.",
        flag="Keep caches in blocks of this many tokens; by default each sequence has a row.",
        flag_name="--block-size",
    )
    cache_blocks: int = option(
        integer(0),
        0,
        "blocks of the caches; by default as many as all rows need.",
        flag=None,
        served=("--num-gpu-blocks-override",),
    )

    @property
    def cache_scale(self) -> str:
        """The scales of quantized caches, ``auto`` resolved."""
        given = self.kv_cache_scale
        return DEFAULT_CACHE_SCALE[self.kv_cache_dtype] if given == "auto" else given


@dataclass(frozen=True, kw_only=True)
class PrecisionOptions:
    """Element types."""

    GROUP: ClassVar[str] = groups.PRECISION

    dtype: str = option(
        words(*DTYPES, "as-declared"),
        "f32",
        "element type of weights, activations and caches.",
        flag="Element type; as-declared is the checkpoint's own.",
        requested=True,
        group="",
        pipeline=False,
    )
    weight_dtypes: tuple[str, ...] = option(
        list_of(text()),
        (),
        "weights of a type of their own, ``f32:*norm.weight``.",
        flag=None,
        pipeline=False,
    )
    rpl_reduce_dtype: str = option(
        words(*DTYPES),
        DTYPES[0],
        "of row-parallel sums, which ranks send each other.",
        flag="Element type of row-parallel sums over ranks; by default f32.",
    )
    attention_dtype: str = option(
        words(ATTENTION_OF_MODEL, *DTYPES),
        ATTENTION_OF_MODEL,
        "of queries, keys and values inside attention; ``model`` for that of the hidden states.",
        flag="Element type of queries, keys and values in attention; by default the model's.",
    )
    softmax_dtype: str = option(
        words(*DTYPES),
        DTYPES[0],
        "of the softmax of attention.",
        flag="Element type of the softmax of attention; by default f32.",
    )
    router_dtype: str = option(
        words(*DTYPES),
        DTYPES[0],
        "element type of the logits of routers.",
        flag="Element type of the logits of routers, before experts are chosen; by default f32.",
    )
    cast_logits_dtype: str = option(
        words(*DTYPES),
        DTYPES[0],
        "element type that logits are rounded to.",
        flag="Element type that logits are rounded to; by default f32.",
    )


@dataclass(frozen=True, kw_only=True)
class QuantizationOptions:
    """Weights and activations in narrow numbers."""

    GROUP: ClassVar[str] = groups.QUANTIZATION

    quantization: str = option(
        text(),
        "",
        "the pass that quantizes the weights, as pipelines write it; empty for none.",
        flag=None,
        served=("--quantized",),
        pipeline=False,
    )
    keep_quantized: bool = option(
        boolean(),
        False,
        "whether weights of a GGUF file stay in the 4 or 8 bits of its blocks.",
        flag="Keep the weights of a GGUF file in the 4 or 8 bits that it stores.",
        pipeline=False,
    )
    activation_quantization_type: str = option(
        words(*ACTIVATIONS),
        ACTIVATIONS_WIDE,
        "rows that narrow weights are multiplied by become 8-bit numbers too, with a scale a row "
        "(``dynamic``), a product, found beforehand (``static``), or a group (``blocks``).",
        flag="8-bit activations beside narrow weights: dynamic (a scale a row), static or blocks.",
    )
    activation_ranges: str = option(
        text(),
        "",
        "the file of ``graphgen calibrate`` that static scales of activations come from; without "
        "it those of the checkpoint.",
        flag="File of graphgen calibrate, for static activations; by default the checkpoint's "
        "scales.",
    )
    activation_quantization_weights: tuple[str, ...] = option(
        list_of(text()),
        (),
        "names, as in a shell, of weights whose rows become 8 bits; by default all.",
        flag=None,
    )
    quantize_clamp_bound: float = option(
        number(),
        0.0,
        "largest absolute value of activations that are quantized; 0 for any.",
        flag=None,
    )


@dataclass(frozen=True, kw_only=True)
class ExpertOptions:
    """Mixtures of experts."""

    GROUP: ClassVar[str] = groups.EXPERTS

    moe_ep_degree: int = option(
        integer(1),
        1,
        "groups of the ranks that have experts of their own; the ranks of a group share each of "
        "them.",
        flag="Groups of the ranks with experts of their own, a divisor of --tp; by default 1.",
    )
    moe_prefill_ep_degree: int = option(
        integer(0),
        0,
        "``moe_ep_degree`` of the programs that read prompts, if theirs is another; experts are "
        "then held twice. 0 for the same.",
        flag="Groups of the ranks with experts of their own while prompts are read, if not "
        "--moe-ep-degree: experts are then held twice.",
    )
    expert_dispatch: str = option(
        words(*EXPERT_DISPATCH),
        DISPATCH_AUTO,
        "the form of the pass ``dispatch-experts``: how tokens get to the experts of a mixture.",
        flag="Dispatch of tokens to the experts of a mixture; by default the cheapest form.",
    )
    expert_block_size: int = option(
        integer(0),
        0,
        "tokens of a block of one expert where ``expert_dispatch`` is blockwise; 0 for what costs "
        "the least.",
        flag=None,
    )
    expert_exchange: str = option(
        words(*EXPERT_EXCHANGES),
        EXCHANGE_AUTO,
        "exchange of tokens with the experts of other ranks: by an all-gather and "
        "a reduce-scatter, by an all-to-all each way, or by the one that sends less.",
        flag=None,
    )
    capacity_factor: float = option(
        number(),
        0.0,
        "of ``limit-expert-capacity``: experts have places for that many times their share of the "
        "tokens, others are dropped; 0 for places for all.",
        flag="Places of an expert over its share of the tokens, which drops others; none by "
        "default.",
    )
    return_router_logits: bool = option(
        boolean(),
        False,
        "whether programs return the logits of the router of each mixture of experts too.",
        flag=None,
        pipeline=False,
    )
    return_expert_index: bool = option(
        boolean(),
        False,
        "whether programs return the experts of each token in each mixture too.",
        flag=None,
        pipeline=False,
    )


@dataclass(frozen=True, kw_only=True)
class KernelOptions:
    """Kernels in the place of ops."""

    GROUP: ClassVar[str] = groups.PROGRAMS

    kernels: str = option(
        words(KERNELS_AUTO, KERNELS_ON, KERNELS_OFF),
        KERNELS_AUTO,
        "``on``: products become calls of the CPU's kernels, with packed weights, and for Neuron "
        "norms and activations calls that its compiler documents; "
        "``auto``: in the runtime where the kernels are built, and not in pipelines.",
        flag="Kernels in C++ for products with weights; by default where they are built.",
    )
    native_kernels: tuple[str, ...] = option(
        list_of(text()),
        (),
        "kernels in NKI that programs for Neuron call; each needs an artifact.",
        flag=None,
    )
    kernel_artifacts: str = option(
        text(), "", "the manifest of kernels in NKI; docs/kernels.md.", flag=None
    )
    min_rows: int = option(
        integer(), 8, "rows a 16-bit product with a weight is padded to.", flag=None
    )


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """Programs that verify proposed tokens."""

    GROUP: ClassVar[str] = groups.SPECULATION

    speculation_length: int = option(
        integer(0),
        0,
        "tokens a row that programs of the phase verify take at once; 0 for no such programs.",
        flag="Tokens that a speculative step verifies, the last one included; 0 for none.",
    )
    verify_lengths: tuple[int, ...] = option(
        list_of(integer()),
        (),
        "fewer tokens a row that further programs of the phase verify take, for steps that are "
        "proposed fewer.",
        flag=None,
    )
    verify_batch: tuple[int, ...] = option(
        list_of(integer()),
        (),
        "sizes of B of the programs of the phase verify; by default those of ``batch``.",
        flag=None,
    )
    tree_nodes: int = option(
        integer(0),
        0,
        "nodes of a tree that programs of the phase verify_tree take at once, the last token of a "
        "row and those proposed; 0 for no such programs.",
        flag=None,
    )
    feature_layers: tuple[int, ...] = option(
        list_of(integer()),
        (),
        "numbers of the hidden states that programs return as ``features``, one after the other, "
        "as drafts of EAGLE take them.",
        flag=None,
        pipeline=False,
    )
    num_medusa_heads: int = option(
        integer(0),
        0,
        "heads of Medusa whose guesses after each node of a tree programs return; 0 for none.",
        flag=None,
        pipeline=False,
    )


@dataclass(frozen=True, kw_only=True)
class AdapterOptions:
    """Adapters (LoRA) beside projections."""

    GROUP: ClassVar[str] = groups.ADAPTERS

    max_loras: int = option(
        integer(0),
        0,
        "slots for adapters (LoRA), which each row may have another one of; 0 for none.",
        flag="Adapters (LoRA) that programs hold at once, a different one for each sequence.",
    )
    max_lora_rank: int = option(
        integer(1),
        16,
        "largest rank of an adapter.",
    )
    lora_target_modules: tuple[str, ...] = option(
        list_of(text()),
        (),
        "projections with adapters, as ``q_proj``; all but embeddings, heads, routers.",
        flag=None,
    )


@dataclass(frozen=True, kw_only=True)
class CompileConfig(
    AdapterOptions,
    VerifyOptions,
    KernelOptions,
    ExpertOptions,
    QuantizationOptions,
    PrecisionOptions,
    CacheOptions,
    ProgramOptions,
    RankConfig,
):
    """All that the programs of a model depend on, beside the model itself.

    The help of each field is its documentation; ``graphgen pipeline default`` prints it. ``given``
    has the names of the fields that somebody set, which count beside an artifact's own values.
    """

    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    @property
    def asked(self) -> dict[str, object]:
        """The values that somebody set, by name."""
        return {name: value for name, value in self.values().items() if name in self.given}

    @property
    def cache_rows(self) -> int:
        """Rows of a cache, at least those of the largest call."""
        return self.rows or max((*self.batch, *self.prefill_batch, *self.verify_batch))

    @property
    def max_len(self) -> int:
        """Slots of a cache row."""
        return self.slots or max((*self.context, *self.tokens))

    def serving(
        self: C,
        *,
        batch: int,
        max_len: int,
        max_context: int = 0,
        context: Sequence[int] = (),
        tokens: Sequence[int] = (),
        chunk: Sequence[int] = (),
        bucketing: bool = True,
    ) -> C:
        """The same for calls of ``batch`` rows and sequences of up to ``max_len`` tokens.

        Args:
            batch: B of every call, and the rows of a cache.
            max_len: slots of a cache row.
            max_context: longest prompt; 0 for ``max_len``.
            context: prefill buckets; empty for powers of two up to ``max_context``.
            tokens: decode buckets; empty for powers of two up to ``max_len``.
            chunk: tokens a row of the chunk programs; empty for none.
            bucketing: False for one bucket per phase, the largest.

        Raises:
            GraphgenError: GG0705 for sizes and buckets that contradict each other.
        """
        longest = max_context or (max(context) if context else max_len)
        if longest > max_len:
            raise GraphgenError(
                "GG0705",
                f"prompts of up to {longest} tokens do not fit in sequences of up to {max_len}",
                help=f"--max-context-length {max_len} at most, or a larger --seq-len",
            )
        return replace(
            self,
            batch=(batch,),
            context=bucket_ladder("context-encoding", context, longest, bucketing=bucketing),
            tokens=bucket_ladder("token-generation", tokens, max_len, bucketing=bucketing),
            chunk=chunk_sizes(chunk, max_len),
            slots=max_len,
        )

    def values(self) -> dict[str, object]:
        """The values of all options by name."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.compare}

    @classmethod
    def of(cls, **values: object) -> Self:
        """The defaults, with these values given."""
        return cls().updated(values)

    def updated(self: C, changes: Mapping[str, object]) -> C:
        """The same with the values of ``changes`` by name, now given; ``None`` changes nothing.

        Raises:
            TypeError: for a name that is not a field.
        """
        found = {name: value for name, value in changes.items() if value is not None}
        return replace(self, given=self.given | found.keys(), **found)  # pyright: ignore[reportArgumentType]

    def over(self, base: C) -> C:
        """``base`` with the values that are given here."""
        return base.updated(self.asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSizes:
    """The sizes that calls of a model are compiled for, as they are requested.

    Attributes:
        max_len: slots of a cache row; ``None`` for enough.
        max_context: longest prompt; ``None`` for ``max_len``.
        context: prefill buckets; empty for powers of two.
        tokens: decode buckets; empty for powers of two.
        chunk: tokens of the programs that take long prompts in parts; empty for none.
        bucketing: False for one bucket per phase.
    """

    max_len: int | None = None
    max_context: int | None = None
    context: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    chunk: tuple[int, ...] = ()
    bucketing: bool = True

    def of(self, config: C, batch: int, max_len: int) -> C:
        """``config`` for calls of ``batch`` rows and sequences of ``max_len`` tokens (GG0705)."""
        return config.serving(
            batch=batch,
            max_len=max_len,
            max_context=self.max_context or 0,
            context=self.context,
            tokens=self.tokens,
            chunk=self.chunk,
            bucketing=self.bucketing,
        )
