"""Match attention of prompts that the flash attention kernel in NKI computes.

``attention_isa_kernel`` reads queries and keys [B*H,d,S] and values [B*H,S,d], and masks what is
later than each query. Its form that leaves the scores as they are takes a scale of 1 alone, so
queries are scaled before; its result is [B*H,d,S].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from graphgen.build import Builder
from graphgen.ir import Op, Value, tensor
from graphgen.ir.dtype import bf16, f32, s32
from graphgen.ops.attention import attention_terms
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.kernels.neuron_match import NativeMatch, NativeSettings, with_artifact
from graphgen.passes.weights.derived import PreparedValues

UNSHARDED, SHARDED, NONE = "unsharded", "sharded", "none"
_ANY = 1 << 40


@dataclass(frozen=True, slots=True)
class StrategyRow:
    """Programs, and the form of the kernel that they take.

    Attributes:
        cores: physical cores of a logical core; two and more share a kernel.
        masked: whether keys beyond the causal ones are masked, as padding is.
        at_least, below: lengths that the row holds for.
        multiple: of this, the length must be; otherwise the form is ``none``.
        requested: whether the kernel must be requested.
        form: of the kernel.
    """

    cores: int
    masked: bool
    at_least: int = 0
    below: int = _ANY
    multiple: int = 1
    requested: bool = False
    form: str = NONE

    @property
    def text(self) -> str:
        """The condition in words."""
        what = "with padding" if self.masked else "without padding"
        upper = "" if self.below == _ANY else f" and below {self.below}"
        whole = "" if self.multiple == 1 else f", a multiple of {self.multiple}"
        asked = ", requested" if self.requested else ""
        return f"{self.cores} cores, {what}, from {self.at_least}{upper} tokens{whole}{asked}"


STRATEGY: Final = (
    StrategyRow(2, False, form=SHARDED),
    StrategyRow(2, True, 1024, multiple=512, form=SHARDED),
    StrategyRow(2, True, 0, 1024, multiple=256, form=SHARDED),
    StrategyRow(1, False, 4096, form=UNSHARDED),
    StrategyRow(1, True, 4096, form=UNSHARDED),
    StrategyRow(1, False, 512, requested=True, form=UNSHARDED),
    StrategyRow(1, True, 512, requested=True, form=UNSHARDED),
)


def attention_strategy(
    length: int, cores: int, masked: bool, requested: bool
) -> tuple[str, StrategyRow | None]:
    """The form of the kernel, and the row that decides; ``None`` if none does.

    Args:
        length: tokens a row of the program.
        cores: physical cores of a logical core.
        masked: whether rows may be shorter than the program.
        requested: whether the kernel is requested by name.
    """
    for row in STRATEGY:
        fits = row.cores == min(cores, 2) and row.masked == masked
        if fits and row.at_least <= length < row.below and (requested or not row.requested):
            return (NONE if length % row.multiple else row.form), row
    return NONE, None


ATTENTION_KERNEL = "attention_isa_kernel"
_FORM = "CausalAttentionMMSoftmaxMMWithoutSwap"
# The head dimension is laid across the rows of the engine's array.
_LARGEST_HEAD = 128


def match_attention(
    op: Op, prepared: PreparedValues, settings: NativeSettings
) -> NativeMatch | NoMatch:
    """Causal attention of a prompt over itself, of the lengths that the strategy table has."""
    why = _why_other(op) or _why_not_causal(op, prepared)
    if why is not None:
        return why
    batch, length, heads, depth = op.operands[0].type.dims
    if depth > _LARGEST_HEAD:
        what = f"heads of {depth}: the kernel takes {_LARGEST_HEAD} at most"
        return no_match(what, op.operands[0], depth=7)
    form, row = attention_strategy(length, settings.cores, True, "attention" in settings.requested)
    if form == NONE:
        rule = f"the rule is for {row.text}" if row else "no rule is for so few"
        what = f"{length} tokens on logical cores of {settings.cores}: {rule}"
        return no_match(what, op.operands[0], depth=8)
    turned = tensor(bf16, (batch * heads, depth, length))
    types = [turned, turned, tensor(bf16, (batch * heads, length, depth))]
    found = NativeMatch("attention", [op], _operands(op), _meaning, _finish(op), (turned,))
    arguments = {"kernel_name": _FORM, "scale": 1.0}
    return with_artifact(found, settings, ATTENTION_KERNEL, types, arguments)


def _why_other(op: Op) -> NoMatch | None:
    query, key, value, mask = op.operands[:4]
    if {item.dtype for item in (query, key, value)} != {bf16}:
        return no_match(f"the kernel takes bf16, not {query.dtype} and {key.dtype}", query)
    terms = attention_terms(op.operands)
    given = [name for name, index in terms._asdict().items() if index is not None]
    if op.attrs.number("softcap"):
        given.append("softcap")
    if given:
        return no_match(f"the kernel has no {' and no '.join(given)}", query, depth=2)
    if value.type.dims[-1] != query.type.dims[-1]:
        return no_match("values are not as wide as keys", value, depth=3)
    if mask.type.rank != 3:
        return no_match("the mask differs from head to head", mask, depth=4)
    return None


def _why_not_causal(op: Op, prepared: PreparedValues) -> NoMatch | None:
    """Require a prompt from its first token on: a token's position is its place in the row."""
    query, key, _, mask = op.operands[:4]
    if prepared.function.phase != "prefill":
        what = f"it is a program of the phase {prepared.function.phase}: the kernel is for prompts"
        return no_match(what, query, depth=5)
    if query.type.dims[1] != key.type.dims[1]:
        what = f"{query.type.dims[1]} tokens attend to {key.type.dims[1]} slots"
        return no_match(what, key, depth=5)
    made = mask.producer("attention_mask")
    if made is None or made.attrs.integer("window") or made.attrs.integer("chunk"):
        return no_match("the mask is not the causal one alone", mask, depth=6)
    positions, keys = made.operands
    if positions.name != "positions" or positions.op or keys.producer("key_positions") is None:
        return no_match("positions are not those of the rows' tokens", mask, depth=6)
    return None


def _operands(op: Op) -> Callable[[Builder], Mapping[str, Value]]:
    def operands(b: Builder) -> Mapping[str, Value]:
        query, key, value = op.operands[:3]
        scaled = b.multiply(b.convert(query, f32), op.attrs.number("scale"))
        heads = query.type.dims[2]
        return {
            "query": _turned(b, b.convert(scaled, bf16), (0, 2, 3, 1)),
            "key": _turned(b, _repeated(b, key, heads), (0, 2, 3, 1)),
            "value": _turned(b, _repeated(b, value, heads), (0, 2, 1, 3)),
        }

    return operands


def _turned(b: Builder, x: Value, permutation: Sequence[int]) -> Value:
    """[B,S,H,d] with the heads at the front, and those of all rows in one dimension."""
    turned = b.transpose(x, permutation)
    batch, heads, *rest = turned.type.dims
    return b.reshape(turned, (batch * heads, *rest))


def _repeated(b: Builder, x: Value, heads: int) -> Value:
    """Keys or values [B,S,K,d] for each of the query heads that share one: [B,S,H,d]."""
    batch, length, kept, depth = x.type.dims
    if kept == heads:
        return x
    wide = b.broadcast_in_dim(x, (batch, length, kept, heads // kept, depth), [0, 1, 2, 4])
    return b.reshape(wide, (batch, length, heads, depth))


def _meaning(b: Builder, x: Sequence[Value]) -> Sequence[Value]:
    """Softmax of the scores of keys up to each query, times the values: [B*H,d,S]."""
    query, key, value = x
    scores = b.dot_general(query, key, ([1], [1]), ([0], [0]), f32)
    rows, columns = (b.iota(s32, scores.shape, i) for i in (1, 2))
    low = b.full(float("-inf"), scores.type)
    kept = b.select(b.compare(columns, rows, "LE"), scores, low)
    weights = b.convert(b.softmax(kept, 2), value.dtype)
    mixed = b.dot_general(weights, value, ([2], [1]), ([0], [0]), f32)
    return [b.transpose(b.convert(mixed, query.dtype), (0, 2, 1))]


def _finish(op: Op) -> Callable[[Builder, Sequence[Value]], Sequence[Value]]:
    batch, length, heads, depth = op.operands[0].type.dims

    def finish(b: Builder, values: Sequence[Value]) -> Sequence[Value]:
        whole = b.reshape(values[0], (batch, heads, depth, length))
        return [b.transpose(whole, (0, 3, 1, 2))]

    return finish
