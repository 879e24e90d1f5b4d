"""Match attention with the reads of the caches before it.

    state -> [cache_read -> [bitcast_convert ->]] attention

The kernel reads keys and values where they lie in the cache, by row and slot.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import bf16, f16, f32, s32
from graphgen.ops.attention import attention_terms
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.kernels.kernel_call import KernelCalls, appending, present
from graphgen.passes.weights.derived import PreparedValues

# Ops between the read of a cache of 8 bits and an attention.
_WIDENING = ("convert", "bitcast_convert")


@dataclass(slots=True)
class AttentionMatch:
    """The ops that one call of the kernel ``attention`` computes.

    Attributes:
        attention: the composite.
        before: the reads of the caches, in order.
        key, value: caches [R, M, K, D] and [R, M, K, W], or what the attention reads itself.
        rows: the row of the caches for each row of the call; ``None`` for the same rows.
    """

    attention: Op
    before: list[Op] = field(default_factory=list[Op])
    key: Value = field(init=False)
    value: Value = field(init=False)
    rows: Value | None = None

    def __post_init__(self) -> None:
        self.key, self.value = self.attention.operands[1:3]

    @property
    def ops(self) -> list[Op]:
        """All ops, in an order in which they can run."""
        return [*self.before, self.attention]

    @property
    def sinks(self) -> Value | None:
        """The operand with a score per head of a slot without a value."""
        index = attention_terms(self.attention.operands).sinks
        return None if index is None else self.attention.operands[index]

    @property
    def attended(self) -> int:
        """Slots that the attention reads of each row."""
        return self.attention.operands[1].type.dims[1]

    def call(self, b: Builder, calls: KernelCalls) -> Op:
        """Insert the call; ``b`` has nothing to add."""
        operands = present(
            query=self.attention.operands[0],
            key=self.key,
            value=self.value,
            mask=self.attention.operands[3],
            rows=self.rows,
            sinks=self.sinks,
        )
        body, cloner = calls.body(operands)
        if self.before and self.rows is None:
            # Reads of the rows of the call itself need no numbers of rows: the meaning counts them.
            seq_ids = self.before[0].operands[1]
            cloner.mapping[seq_ids] = appending(body).iota(s32, seq_ids.shape, 0)
        config = {
            "scale": self.attention.attrs.number("scale"),
            "softcap": self.attention.attrs.number("softcap"),
            "attended": self.attended,
            "rows": self.rows is not None,
            "sinks": self.sinks is not None,
        }
        return calls.call("attention", config, body, cloner, operands, self.ops)


def match_attention(op: Op, prepared: PreparedValues) -> AttentionMatch | NoMatch:
    """The largest group of ops that end in the attention ``op`` and that the kernel computes.

    Args:
        op: the composite.
        prepared: of no use here: no operand has to be made of weights.
    """
    query, key, value, mask = op.operands[:4]
    terms = attention_terms(op.operands)
    if query.dtype not in (bf16, f16, f32) or key.dtype is not query.dtype:
        return no_match(f"the kernel has no attention of {query.dtype}", query)
    if value.dtype is not query.dtype:
        return no_match(f"the values are {value.dtype}, the queries {query.dtype}", value)
    for read in (key, value):
        narrow = _narrow_cache(read)
        if narrow is not None:
            return no_match(f"the kernel reads no caches of {narrow.dtype}", narrow)
    if mask.type.rank != 3:
        return no_match("the mask differs from head to head", mask, depth=2)
    if terms.bias is not None or terms.slopes is not None:
        return no_match("the scores have a bias", query, depth=3)
    if not all((*query.type.dims, *key.type.dims, *value.type.dims)):
        return no_match("it has no elements", query, depth=4)
    found = AttentionMatch(op)
    keys, values = _reads(key), _reads(value)
    if keys and values and _same_slots(keys[0], values[0]):
        found.before = [*keys, *values]
        found.key, found.value = keys[0].operands[0], values[0].operands[0]
        if keys[0].attrs.text("rows") != "in_place":
            found.rows = keys[0].operands[1]
    return found


def _narrow_cache(value: Value) -> Value | None:
    """The cache of 8-bit numbers that a value is widened from; ``None`` for others."""
    while value.op is not None and value.op.name in _WIDENING:
        value = value.op.operands[0]
    read = value.producer("cache_read")
    return read.operands[0] if read is not None and read.result.dtype.bits == 8 else None


def _reads(value: Value) -> list[Op]:
    """The ``cache_read`` of a value, and the conversion of bits after it; empty without one."""
    bits = value.producer("bitcast_convert")
    inner = value if bits is None else bits.operands[0]
    read = inner.producer("cache_read")
    if read is None or inner.dtype.bits != value.dtype.bits:
        return []
    return [read] if bits is None else [read, bits]


def _same_slots(one: Op, other: Op) -> bool:
    """True where two reads are of the same rows and slots of caches of one shape."""
    shapes = [read.operands[0].type.dims[:3] for read in (one, other)]
    return (
        one.attrs == other.attrs and one.operands[1] is other.operands[1] and shapes[0] == shapes[1]
    )
