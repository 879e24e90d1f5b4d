"""Wrong rewrites, planted: each is one place among many that are rewritten correctly.

A planted pass rebuilds every op of one kind as it is, and one of them wrongly. Everything it leaves
passes the verifier: only numbers can tell, and only bisecting can tell which place it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import ClassVar

from graphgen.build import Builder
from graphgen.exec.session import Workload
from graphgen.ir import Literal, Module, Op, Value, dtype
from graphgen.ir.dtype import bf16, f32, f64
from graphgen.models.family_module import build_module
from graphgen.models.llama import LLAMA, LlamaConfig
from graphgen.models.mistral import MISTRAL, MistralConfig
from graphgen.passes.core import (
    NoMatch,
    Pass,
    Rewriter,
    Rule,
    no_match,
    parse_pipeline,
    rule,
    run_pipeline,
)
from graphgen.passes.legalize.legalize import Legalize
from graphgen.passes.programs.specialize import Specialize
from graphgen.passes.sharding.shard import Shard
from graphgen.passes.spmd.partition import Partition
from graphgen.passes.workload.make_workload import make_workload

# Half a head is as wide as there are query heads, and q, o and the stream are square: wrong
# dimensions fit.
CONFIG = LlamaConfig(
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    vocab_size=67,
    attention_bias=True,
)
WINDOWED = MistralConfig(
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    vocab_size=67,
    sliding_window=6,
)
NAMED = (Specialize, Legalize, Shard, Partition)
# Pipelines that bring the logical module to where a rewrite can be planted.
LOGICAL = ""
SIMPLE = "specialize{batch=[3],context=[8],tokens=[8,16]},legalize"
RANKS = "shard{tp=2},pad-to-mesh,partition"

Rewrite = Callable[[Op, Builder], Sequence[Value]]


@cache
def model(after: str = LOGICAL, element: str = "f32", windowed: bool = False) -> Module:
    """The mini Llama, or Mistral, after a pipeline; shared, so not to be changed."""
    if windowed:
        module = build_module(MISTRAL, WINDOWED, dtype(element))
    else:
        module = build_module(LLAMA, CONFIG, dtype(element))
    run_pipeline(module, parse_pipeline(after))
    return module


@cache
def script(
    after: str = LOGICAL, element: str = "f32", shuffled: bool = False, windowed: bool = False
) -> Workload:
    """What the mini Llama is compared over."""
    return make_workload(model(after, element, windowed), seed=3, shuffled=shuffled)


def anywhere(op: Op) -> bool:
    """Every op of the kind in the scope."""
    return True


@dataclass(frozen=True, slots=True)
class Bug:
    """One wrong rewrite.

    Attributes:
        name: of the rule.
        root: kind of op that is rewritten.
        program, scope, where: the one op that is rewritten wrongly.
        wrong: how.
        after: the pipeline before it.
        element: element type of the model.
        shuffled: whether rows of a call must be other rows of the cache for it to show.
        rounding: whether it is the rounding that is wrong, and the meaning kept.
        budget: rounding the planted pass declares.
        windowed: whether the model reads a window of six tokens only.
    """

    name: str
    root: str
    program: str
    scope: str
    wrong: Rewrite
    where: Callable[[Op], bool] = anywhere
    after: str = LOGICAL
    element: str = "f32"
    shuffled: bool = False
    rounding: bool = False
    budget: float = 0.0
    windowed: bool = False

    def here(self, op: Op, program: str) -> bool:
        """Whether this is the op to be rewritten wrongly."""
        return program == self.program and op.loc.scope == self.scope and self.where(op)


def rebuild(op: Op, b: Builder) -> Sequence[Value]:
    """The op as it is."""
    return b.emit(op.name, op.operands, dict(op.attrs)).results


def planting(bug: Bug, wrong: Rewrite, history: list[bool]) -> Rule:
    """The rule, with ``wrong`` in the one place; ``history`` is told of every application."""

    @rule(bug.root)
    def apply(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        if "planted" in op.loc.via:
            return no_match("it has been rebuilt", op.results[0])
        here = bug.here(op, b.function.name)
        history.append(here)
        return wrong(op, b) if here else rebuild(op, b)

    return replace(apply, name=bug.name)


@dataclass(frozen=True)
class Planted(Pass):
    """Rebuild ops of one kind, one of them wrongly.

    Options:
        bug: which.
        harmless: rebuild that one correctly as well.
        history: for each application of the last run, whether it was the wrong one.
    """

    name: ClassVar[str] = "planted"
    bug: Bug
    harmless: bool = False
    history: list[bool] = field(default_factory=list[bool])

    @property
    def rounding(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The bug's budget."""
        return self.bug.budget

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Apply the rule everywhere."""
        self.history.clear()
        wrong = rebuild if self.harmless else self.bug.wrong
        rules = (planting(self.bug, wrong, self.history),)
        for function in module.functions.values():
            rewriter.apply_rules(function, rules)

    def __str__(self) -> str:
        return f"planted{{bug={self.bug.name}}}"


def operands(*order: int) -> Rewrite:
    """The op on operands in another order."""

    def wrong(op: Op, b: Builder) -> Sequence[Value]:
        return b.emit(op.name, [op.operands[i] for i in order], dict(op.attrs)).results

    return wrong


def changed(index: int, change: Callable[[Value, Builder], Value]) -> Rewrite:
    """The op with one operand changed."""

    def wrong(op: Op, b: Builder) -> Sequence[Value]:
        given = list(op.operands)
        given[index] = change(given[index], b)
        return b.emit(op.name, given, dict(op.attrs)).results

    return wrong


def attribute(**attrs: float | str | tuple[int, ...] | tuple[tuple[int, ...], ...]) -> Rewrite:
    """The op with other attributes."""

    def wrong(op: Op, b: Builder) -> Sequence[Value]:
        return b.emit(op.name, op.operands, {**op.attrs, **attrs}).results

    return wrong


def only(index: int) -> Rewrite:
    """The op dropped: one of its operands instead."""

    def wrong(op: Op, b: Builder) -> Sequence[Value]:
        return [op.operands[index]]

    return wrong


def argument(name: str) -> Callable[[Value, Builder], Value]:
    """Another argument of the program."""

    def change(value: Value, b: Builder) -> Value:
        other = b.function.arg(name)
        assert other is not None
        return other

    return change


def plus(amount: float) -> Callable[[Value, Builder], Value]:
    """A number more."""

    def change(value: Value, b: Builder) -> Value:
        return b.binary("add", value, amount)

    return change


def halves_swapped(value: Value, b: Builder) -> Value:
    """The second half of the last dimension before the first."""
    last, size = len(value.shape) - 1, value.shape[-1]
    assert isinstance(size, int)
    first = b.slice_dim(value, last, 0, size // 2)
    return b.concatenate([b.slice_dim(value, last, size // 2, size), first], last)


def heads_reversed(value: Value, b: Builder) -> Value:
    """[..., heads, D] with the heads from last to first."""
    heads = range(CONFIG.num_attention_heads)
    return b.concatenate([b.slice_dim(value, 2, i, i + 1) for i in reversed(heads)], 2)


def gate_and_up_swapped(op: Op, b: Builder) -> Sequence[Value]:
    """``gate * silu(up)``."""
    gate, up = op.operands
    assert gate.op is not None
    return [b.op("multiply", gate.op.operands[0], b.silu(up))]


def before_update(value: Value, b: Builder) -> Value:
    """The cache as it was before this call."""
    assert value.op is not None
    return value.op.operands[0]


def added_instead(name: str) -> Rewrite:
    """Another elementwise op of the same operands."""

    def wrong(op: Op, b: Builder) -> Sequence[Value]:
        return [b.op(name, *op.operands)]

    return wrong


def through_bf16(op: Op, b: Builder) -> Sequence[Value]:
    """The result rounded to bf16."""
    return [b.convert(b.convert(rebuild(op, b)[0], bf16), op.result.dtype)]


def product_in_bf16(op: Op, b: Builder) -> Sequence[Value]:
    """The product rounded to the operands' type before the bias is added."""
    made = b.emit(op.name, op.operands, {**op.attrs, "dtype": bf16}).result
    return [b.convert(made, f32)]


def scale_first(op: Op, b: Builder) -> Sequence[Value]:
    """A quarter of the query, and four times the scale."""
    query, *others = op.operands
    scale = op.attrs.number("scale") * 4
    return b.emit(op.name, [query * 0.25, *others], {**op.attrs, "scale": scale}).results


def in_f64(op: Op, b: Builder) -> Sequence[Value]:
    """The op in double precision: a sum that is rounded once more is the same."""
    wide = [b.convert(value, f64) for value in op.operands]
    return [b.convert(b.op(op.name, *wide), op.result.dtype)]


def slower_rotation(op: Op, b: Builder) -> Sequence[Value]:
    """Frequencies as of ``theta`` = 500,000 in a model of 10,000."""
    half = CONFIG.head_dim // 2
    slow = Literal.of(f32, [500000.0 ** (-i / half) for i in range(half)])
    return b.emit(op.name, op.operands, {**op.attrs, "inv_freq": slow}).results


def twice(op: Op, b: Builder) -> Sequence[Value]:
    """The op on its own result."""
    return b.emit(op.name, rebuild(op, b), dict(op.attrs)).results


def one_earlier(op: Op, b: Builder) -> Sequence[Value]:
    """A slice of the last dimension that starts, and ends, one element early."""
    starts, limits = list(op.attrs.dims("start_indices")), list(op.attrs.dims("limit_indices"))
    starts[-1] -= 1
    limits[-1] -= 1
    return [b.slice(op.operands[0], starts, limits)]


def over_queries(op: Op, b: Builder) -> Sequence[Value]:
    """[B,K,S,G,C] summed over S and put where the sum over C, as long, belongs."""
    total = b.reduce(op.operands[0], [2], op.attrs.text("kind"))
    return [b.transpose(total, [0, 1, 3, 2])]


def along_heads(op: Op, b: Builder) -> Sequence[Value]:
    """The table [B,S,D/2] spread along D/2 instead of along the heads, of which there are D/2."""
    return [b.broadcast_in_dim(op.operands[0], op.result.shape, [0, 1, 2])]


def zero_instead(value: Value, b: Builder) -> Value:
    """Zeros."""
    return b.full(0.0, value.type)


def other_rank(op: Op, b: Builder) -> Sequence[Value]:
    """A slice that starts at 0 on every rank."""
    whole, *starts = op.operands
    sizes = op.attrs.dims("slice_sizes")
    return [b.dynamic_slice(whole, [zero_instead(start, b) for start in starts], sizes)]


def wide_slice(op: Op) -> bool:
    """The slice of the second half of the queries."""
    return op.attrs.dims("start_indices")[-1] != 0 and op.result.shape[2] == 4


def of_attention(op: Op) -> bool:
    """What attention gives, as one row a token."""
    return op.operands[0].producer("attention") is not None


def of_queries(op: Op) -> bool:
    """Of all heads rather than of the KV heads."""
    return op.operands[0].shape[2] == CONFIG.num_attention_heads


def cosine(op: Op) -> bool:
    """The cosines, spread over the query heads."""
    made = op.operands[0].producer("cosine")
    return made is not None and op.result.shape[2] == CONFIG.num_attention_heads


def of_mask(op: Op) -> bool:
    """Slots that are both filled and not ahead."""
    made = op.operands[1].producer("compare")
    return made is not None and made.attrs.text("direction") == "LT"


def residual(scope: str) -> Callable[[Op], bool]:
    """Sums onto the stream that was last added to in ``scope``, or embedded there."""

    def where(op: Op) -> bool:
        made = op.operands[0].op
        return made is not None and made.loc.scope == scope and made.name in ("add", "embedding")

    return where


def kind_is(kind: str) -> Callable[[Op], bool]:
    """Reductions of one kind."""
    return lambda op: op.attrs.text("kind") == kind


def of_cache(name: str) -> Callable[[Op], bool]:
    """Updates of one of the two caches of a layer."""
    return lambda op: (op.operands[0].name or "").endswith(name)


def reads_cache(name: str) -> Callable[[Op], bool]:
    """Reads of one of the two caches of a layer."""

    def where(op: Op) -> bool:
        update = op.operands[0].producer("kv_update")
        return update is not None and of_cache(name)(update)

    return where


ATTENTION_0, ATTENTION_1 = "model.layers.0.self_attn", "model.layers.1.self_attn"
LAYER_0, LAYER_1 = "model.layers.0", "model.layers.1"
PREFILL, SECOND_BUCKET = "prefill.b3.s8", "decode.b3.c16"

BUGS = (
    Bug("swap-kv", "attention", "prefill", ATTENTION_1, operands(0, 2, 1, 3)),
    Bug("swap-kv-decode", "attention", "decode", ATTENTION_1, operands(0, 2, 1, 3)),
    Bug("attention-scale", "attention", "decode", ATTENTION_0, attribute(scale=1 / 8)),
    Bug(
        "rope-sign",
        "rope",
        "prefill",
        ATTENTION_0,
        changed(2, lambda sin, b: b.unary("negate", sin)),
        of_queries,
    ),
    Bug("rope-halves", "rope", "prefill", ATTENTION_1, changed(0, halves_swapped), of_queries),
    Bug("rope-tables", "rope", "decode", ATTENTION_0, operands(0, 2, 1), of_queries),
    Bug("rope-dropped", "rope", "decode", ATTENTION_1, only(0), of_queries),
    Bug("rope-theta", "rope_table", "decode", "", slower_rotation),
    Bug("bias-dropped", "add", "prefill", f"{ATTENTION_1}.v_proj", only(0)),
    Bug("mask-sees-ahead", "attention_mask", "prefill", "", changed(0, plus(1))),
    Bug("mask-lt-for-le", "attention_mask", "decode", "", changed(0, plus(-1))),
    Bug("mask-length", "attention_mask", "decode", "", changed(1, plus(-1))),
    Bug("eps", "rms_norm", "decode", f"{LAYER_1}.input_layernorm", attribute(epsilon=1e-5)),
    Bug(
        "other-norm-weight",
        "rms_norm",
        "prefill",
        f"{LAYER_1}.post_attention_layernorm",
        changed(1, argument(f"{LAYER_0}.post_attention_layernorm.weight")),
    ),
    Bug("stale-write", "kv_update", "decode", ATTENTION_0, only(0), of_cache("v_cache")),
    Bug(
        "position-plus-1",
        "kv_update",
        "prefill",
        ATTENTION_1,
        changed(3, plus(1)),
        of_cache("k_cache"),
    ),
    Bug(
        "stale-read",
        "cache_read",
        "decode",
        ATTENTION_1,
        changed(0, before_update),
        reads_cache("k_cache"),
    ),
    Bug(
        "first-row-only",
        "kv_update",
        "prefill",
        ATTENTION_0,
        changed(2, lambda ids, b: b.binary("multiply", ids, 0)),
        of_cache("k_cache"),
    ),
    Bug(
        "row-ids-ignored",
        "cache_read",
        "decode",
        ATTENTION_0,
        changed(1, lambda ids, b: b.iota(ids.dtype, ids.shape, 0)),
        reads_cache("k_cache"),
        shuffled=True,
    ),
    Bug("swap-gate-up", "multiply", "prefill", f"{LAYER_0}.mlp", gate_and_up_swapped),
    Bug("silu-sign", "silu", "decode", f"{LAYER_1}.mlp", changed(0, lambda x, b: -x)),
    Bug(
        "residual-dropped",
        "add",
        "decode",
        LAYER_0,
        only(1),
        residual("model"),
    ),
    Bug(
        "subtract",
        "add",
        "prefill",
        LAYER_1,
        added_instead("subtract"),
        residual(LAYER_1),
    ),
    Bug(
        "heads-reversed", "reshape", "decode", ATTENTION_1, changed(0, heads_reversed), of_attention
    ),
    Bug("last-token", "last_token", "prefill", "", changed(2, plus(-1))),
    Bug("shifted-ids", "embedding", "decode", "model", changed(1, plus(1))),
    Bug(
        "transposed-weight",
        "dot_general",
        "prefill",
        f"{ATTENTION_0}.o_proj",
        attribute(rhs_contracting_dims=(0,)),
    ),
    Bug(
        "tied-head",
        "dot_general",
        "decode",
        "lm_head",
        changed(1, argument("model.embed_tokens.weight")),
    ),
    # Where composites are inlined.
    Bug("half-minus-1", "slice", PREFILL, ATTENTION_1, one_earlier, wide_slice, SIMPLE),
    Bug("spread-over-heads", "broadcast_in_dim", PREFILL, ATTENTION_0, along_heads, cosine, SIMPLE),
    Bug("sum-queries", "reduce", PREFILL, ATTENTION_0, over_queries, kind_is("add"), SIMPLE),
    Bug("not-causal", "and", PREFILL, "", only(1), of_mask, SIMPLE),
    Bug(
        "masked-as-0", "select", SECOND_BUCKET, ATTENTION_1, changed(2, zero_instead), after=SIMPLE
    ),
    # On two ranks.
    Bug("reduce-dropped", "all_reduce", "decode", f"{ATTENTION_1}.o_proj", only(0), after=RANKS),
    Bug("reduce-twice", "all_reduce", "prefill", f"{LAYER_0}.mlp.down_proj", twice, after=RANKS),
    Bug(
        "reduce-alone",
        "all_reduce",
        "prefill",
        f"{LAYER_1}.mlp.down_proj",
        attribute(replica_groups=((0,), (1,))),
        after=RANKS,
    ),
    Bug(
        "reduce-maximum",
        "all_reduce",
        "decode",
        f"{LAYER_0}.mlp.down_proj",
        attribute(kind="maximum"),
        after=RANKS,
    ),
    Bug(
        "part-of-rank-0",
        "dynamic_slice",
        "prefill",
        f"{ATTENTION_1}.q_proj",
        other_rank,
        lambda op: (op.operands[0].name or "").endswith("weight"),
        RANKS,
    ),
    # The meaning is kept; the rounding is not.
    Bug(
        "narrowed",
        "dot_general",
        "decode",
        f"{LAYER_1}.mlp.down_proj",
        through_bf16,
        rounding=True,
    ),
    Bug(
        "narrow-product",
        "dot_general",
        "prefill",
        f"{ATTENTION_0}.q_proj",
        product_in_bf16,
        element="bf16",
        rounding=True,
    ),
)

# Other programs that mean the same: none of them may be flagged.
NO_BUGS = (
    Bug("addends-swapped", "add", "prefill", LAYER_1, operands(1, 0), residual(LAYER_1)),
    Bug(
        "maximum-kept",
        "subtract",
        PREFILL,
        ATTENTION_0,
        only(0),
        lambda op: op.operands[0].producer("select") is not None,
        SIMPLE,
        budget=1e-5,
    ),
    Bug(
        "scale-first",
        "attention",
        "decode",
        ATTENTION_1,
        scale_first,
        budget=1e-5,
    ),
    Bug(
        "widened",
        "add",
        "decode",
        f"{ATTENTION_0}.q_proj",
        in_f64,
    ),
)
