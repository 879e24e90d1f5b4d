"""Decomposition of ``experts``, and the parts that its dispatched forms share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

from graphgen.build import Builder
from graphgen.composites.basics import gelu, silu
from graphgen.composites.drawing import prefix_sums
from graphgen.composites.registry import decomposition
from graphgen.ir import Attrs, Dim, DType, Value, attrs_of
from graphgen.ir.attrs import EMPTY
from graphgen.ir.dims import product
from graphgen.ir.dtype import f32, s32
from graphgen.ops.experts import expert_operands

# The low-rank term of a product, from the inputs of the product.
Term = Callable[[Value], Value]


@dataclass(frozen=True, slots=True)
class ExpertAdapters:
    """The adapters of tokens that experts compute.

    Attributes:
        mask: f32 [...,L], 1 for the slot of each token, else 0.
        matrices: a and b of gate, up and down: [L,E,r,H], [L,E,I,r] twice, [L,E,r,I], [L,E,H,r];
            without E where one expert computes all tokens.
    """

    mask: Value
    matrices: Sequence[Value]

    def of_all(self, b: Builder, at: int) -> tuple[Term, Term, Term]:
        """Terms f32 of gate, up and down for every expert.

        Inputs are [T,in], or have their experts in dimension ``at``, as what is returned for gate
        and up has; that for down is [E,T,H].
        """

        def first(place: int) -> Term:
            def term(x: Value) -> Value:
                made = self._of_experts(b, x, place, at if x.type.rank == 3 else None)
                return b.transpose(made, [1, 0, 2]) if at else made

            return term

        return first(0), first(2), lambda x: self._of_experts(b, x, 4, at)

    def of_one(self, b: Builder) -> tuple[Term, Term, Term]:
        """Terms f32 [T,out] of gate, up and down for tokens [T,in] of one expert."""
        gate, up, down = (partial(self._of_expert, b, place) for place in (0, 2, 4))
        return gate, up, down

    def _of_experts(self, b: Builder, x: Value, place: int, at: int | None) -> Value:
        """``b (mask a x)`` f32 [E,T,out] of x [T,in], or with its experts in dimension ``at``."""
        lora_a, lora_b = self.matrices[place : place + 2]
        batch: tuple[list[int], list[int]] = ([], []) if at is None else ([at], [1])
        low = b.dot_general(x, lora_a, ([x.type.rank - 1], [3]), batch, f32)
        # [T,L,E,r], or [E,T,L,r].
        experts, slots = (2, 1) if at is None else (0, 2)
        own = list(range(slots + 1))[-self.mask.type.rank :]
        chosen = low * b.broadcast_in_dim(self.mask, low.shape, own)
        sides = [slots, 3], [0, 3]
        return b.dot_general(b.convert(chosen, x.dtype), lora_b, sides, ([experts], [1]), f32)

    def _of_expert(self, b: Builder, place: int, x: Value) -> Value:
        lora_a, lora_b = self.matrices[place : place + 2]
        low = b.dot_general(x, lora_a, ([1], [2]), dtype=f32)
        chosen = low * b.broadcast_in_dim(self.mask, low.shape, [0, 1])
        return b.dot_general(b.convert(chosen, x.dtype), lora_b, ([1, 2], [0, 2]), dtype=f32)


def slot_mask(b: Builder, slots: Value, count: Dim) -> Value:
    """f32 [...,L] of ``slots`` s32 [...]: 1 for the slot of each token, else 0."""
    shape = (*slots.shape, count)
    own = b.broadcast_in_dim(slots, shape, list(range(slots.type.rank)))
    return b.convert(b.compare(own, b.iota(own.dtype, shape, slots.type.rank), "EQ"), f32)


@dataclass(frozen=True, slots=True)
class ExpertCall:
    """One use of ``experts``, its tokens in one dimension.

    Attributes:
        x: [T,H].
        indices: s32 [T,K].
        weights: f32 [T,K].
        gate, up: [E,I,H].
        down: [E,H,I].
        gate_bias, up_bias: [E,I], or none.
        down_bias: [E,H], or none.
        attrs: those of the op.
        slots: s32 [T], the adapter of each token; ``None`` without adapters.
        low_rank: the matrices of adapters, [L,E,...], in the order of the op.
    """

    x: Value
    indices: Value
    weights: Value
    gate: Value
    up: Value
    down: Value
    gate_bias: Value | None = None
    up_bias: Value | None = None
    down_bias: Value | None = None
    attrs: Attrs = EMPTY
    slots: Value | None = None
    low_rank: Sequence[Value] = ()

    @property
    def count(self) -> Dim:
        """E."""
        return self.gate.shape[0]

    @property
    def early(self) -> bool:
        """True if weights multiply the inputs, not the results."""
        return self.attrs.text("modulate") == "input"

    @property
    def capacity(self) -> int:
        """The most tokens of an expert; 0 for no limit."""
        return self.attrs.integer("capacity")


def expert_call(b: Builder, operands: Sequence[Value], attrs: Attrs) -> ExpertCall:
    """The operands of an op ``experts`` with x, indices and weights reshaped to rows of tokens."""
    tokens = product(operands[0].shape[:-1])
    x, indices, weights = (b.reshape(v, (tokens, v.shape[-1])) for v in operands[:3])
    plain, low_rank = expert_operands(operands)
    gate, up, down, *given = plain[3:]
    biases = given or [None, None, None]
    slots = b.reshape(low_rank[0], (tokens,)) if low_rank else None
    held = (x, indices, weights, gate, up, down, *biases)
    return ExpertCall(*held, attrs=attrs, slots=slots, low_rank=tuple(low_rank[1:]))


def adapters_of(b: Builder, call: ExpertCall) -> ExpertAdapters | None:
    """The adapters of the tokens of a call, if it has some."""
    if call.slots is None:
        return None
    return ExpertAdapters(slot_mask(b, call.slots, call.low_rank[0].shape[0]), call.low_rank)


@decomposition
def experts(b: Builder, operands: Sequence[Value], attrs: Attrs) -> Sequence[Value]:
    """Run every expert on every token and sum the results of the chosen ones."""
    call = expert_call(b, operands, attrs)
    shares, chosen = (b.transpose(value, [1, 0]) for value in shares_by_expert(b, call))
    if call.early:
        shape = (call.count, *call.x.shape)
        wide = b.broadcast_in_dim(call.x, shape, [1, 2])
        inputs = scaled(b, wide, shares)
        at, contracting, batch = 0, ([2], [2]), ((0,), (0,))
    else:
        inputs, at, contracting, batch = call.x, 1, ([1], [2]), ((), ())
    adapters = adapters_of(b, call)
    terms = (None, None, None) if adapters is None else adapters.of_all(b, at)

    def product(weight: Value, bias: Value | None, term: Term | None) -> Value:
        y = b.dot_general(inputs, weight, contracting, batch, f32)
        return plus_bias(b, y if term is None else y + term(inputs), bias, [at, 2])

    gate = product(call.gate, call.gate_bias, terms[0])
    up = product(call.up, call.up_bias, terms[1])
    hidden = gated(b, gate, up, attrs, call.x.dtype)
    y = b.dot_general(hidden, call.down, ([2], [2]), ([at], [0]), f32)
    if terms[2] is not None:
        y = y + terms[2](hidden)
    y = plus_bias(b, y, call.down_bias, [0, 2])
    if not call.early:
        y = y * b.broadcast_in_dim(shares, y.shape, [0, 1])
    kept = b.select(b.broadcast_in_dim(chosen, y.shape, [0, 1]), y, b.full(0.0, y.type))
    return [result_of(b, b.reduce(kept, [0], "add"), operands[0], attrs)]


def shares_by_expert(b: Builder, call: ExpertCall) -> tuple[Value, Value]:
    """The weight f32 [T,E] of each expert for each token, and whether it computes the token."""
    shape = (*call.indices.shape, call.count)
    experts = b.iota(s32, shape, 2)
    same = b.compare(b.broadcast_in_dim(call.indices, shape, [0, 1]), experts, "EQ")
    wide = b.broadcast_in_dim(call.weights, shape, [0, 1])
    shares = b.reduce(b.select(same, wide, b.full(0.0, wide.type)), [1], "add")
    chosen = b.reduce(same, [1], "or")
    if not call.capacity:
        return shares, chosen
    before = tokens_before(b, chosen)
    within = b.compare(before, b.full(call.capacity, before.type), "LT")
    return shares, b.binary("and", chosen, within)


def tokens_before(b: Builder, chosen: Value) -> Value:
    """The number s32 [T,E] of tokens of an expert before each, of pred [T,E]."""
    counted = b.transpose(b.convert(chosen, f32), [1, 0])
    return b.transpose(b.convert(prefix_sums(b, counted, inclusive=False), s32), [1, 0])


def scaled(b: Builder, x: Value, shares: Value) -> Value:
    """``x * shares`` of x [...,H] and f32 [...], rounded once to the type of x."""
    wide = b.convert(x, f32)
    return b.convert(
        wide * b.broadcast_in_dim(shares, x.shape, list(range(len(x.shape) - 1))), x.dtype
    )


def plus_bias(b: Builder, y: Value, bias: Value | None, dimensions: Sequence[int]) -> Value:
    """``y + bias`` in f32, where there is one."""
    if bias is None:
        return y
    return y + b.broadcast_in_dim(b.convert(bias, f32), y.shape, dimensions)


def gated(b: Builder, gate: Value, up: Value, attrs: Attrs, dtype: DType) -> Value:
    """The hidden features of gate and up f32, rounded once to ``dtype``."""
    gate = _clamped(b, gate, attrs.number("gate_lower"), attrs.number("gate_upper"))
    up = _clamped(b, up, attrs.number("up_lower"), attrs.number("up_upper"))
    scale, offset = attrs.number("activation_scale"), attrs.number("up_offset")
    active = _ACTIVATIONS[attrs.text("activation")](b, gate * scale if scale != 1.0 else gate)
    if attrs.text("glu") == "swiglu":
        active = gate * active
    return b.convert(active * (up + offset if offset else up), dtype)


def result_of(b: Builder, y: Value, x: Value, attrs: Attrs) -> Value:
    """The sums f32 [T,H] as the op has them: tokens in the dimensions of x [...,H]."""
    return b.reshape(b.convert(y, attrs.element("dtype")), (*x.shape[:-1], y.shape[1]))


def _clamped(b: Builder, x: Value, low: float, high: float) -> Value:
    x = b.binary("minimum", x, b.full(high, x.type)) if high < inf else x
    return b.binary("maximum", x, b.full(low, x.type)) if low > -inf else x


def _gelu(approximate: str) -> Callable[[Builder, Value], Value]:
    return lambda b, x: gelu(b, [x], attrs_of({"approximate": approximate}))[0]


# Simple ops: a decomposition has no composites.
_ACTIVATIONS: Mapping[str, Callable[[Builder, Value], Value]] = {
    "silu": lambda b, x: silu(b, [x], EMPTY)[0],
    "gelu": _gelu("none"),
    "gelu_pytorch_tanh": _gelu("tanh"),
    "quick_gelu": _gelu("sigmoid"),
    "relu": lambda b, x: b.binary("maximum", x, b.full(0.0, x.type)),
    "sigmoid": lambda b, x: b.unary("logistic", x),
}
