"""Match attention with the reads of the caches before it.

    state -> [cache_read -> [bitcast_convert ->] [convert -> [* broadcast(scale)] ->]] attention
    state -> cache_read -> dequantize_rows -> attention

The kernel reads keys and values where they lie in the cache, by row and slot, and widens those of
8 bits itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.ir.dtype import bf16, f16, f32, s32
from graphgen.ops.attention import attention_terms
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.kernels.cpu_cache import CacheRead, match_cache_read, same_slots
from graphgen.passes.kernels.kernel_call import KernelCalls, appending, present
from graphgen.passes.weights.derived import PreparedValues


@dataclass(slots=True)
class AttentionMatch:
    """The ops that one call of the kernel ``attention`` computes.

    Attributes:
        attention: the composite.
        keys, values: the reads of the caches; ``None`` where it has keys and values of its own.
    """

    attention: Op
    keys: CacheRead | None = None
    values: CacheRead | None = None
    before: list[Op] = field(init=False)

    def __post_init__(self) -> None:
        reads = (self.keys, self.values)
        every = {op: None for read in reads if read is not None for op in read.ops}
        self.before = list(every)

    @property
    def ops(self) -> list[Op]:
        """All ops, in an order in which they can run."""
        return [*self.before, self.attention]

    @property
    def rows(self) -> Value | None:
        """The row of the caches for each row of the call; ``None`` for the same rows."""
        return None if self.keys is None else self.keys.rows

    @property
    def sinks(self) -> Value | None:
        """The operand with a score per head of a slot without a value."""
        index = attention_terms(self.attention.operands).sinks
        return None if index is None else self.attention.operands[index]

    @property
    def attended(self) -> int:
        """Slots that the attention reads of each row."""
        return self.attention.operands[1].type.dims[1]

    def call(self, b: Builder, calls: KernelCalls) -> Sequence[Value]:
        """Insert the call; ``b`` has nothing to add."""
        query, key, value, mask = self.attention.operands[:4]
        keys, values = self.keys, self.values
        scales = [None if read is None else read.scale for read in (keys, values)]
        operands = present(
            query=query,
            key=key if keys is None else keys.cache,
            value=value if values is None else values.cache,
            mask=mask,
            rows=self.rows,
            sinks=self.sinks,
            key_scale=scales[0],
            value_scale=scales[1],
        )
        body, cloner = calls.body(operands)
        if keys is not None and self.rows is None:
            # Reads of the rows of the call itself need no numbers of rows: the meaning counts them.
            seq_ids = keys.read.operands[1]
            cloner.mapping[seq_ids] = appending(body).iota(s32, seq_ids.shape, 0)
        config = {
            "scale": self.attention.attrs.number("scale"),
            "softcap": self.attention.attrs.number("softcap"),
            "attended": self.attended,
            "rows": self.rows is not None,
            "sinks": self.sinks is not None,
            "numbers": keys.narrow.name if keys is not None and keys.narrow else "",
            "key_scale": scales[0] is not None,
            "value_scale": scales[1] is not None,
            "row_scale": keys is not None and keys.row_scale,
        }
        return calls.call("attention", config, body, cloner, operands, self.ops)


def has_attention_kernel(op: Op) -> bool:
    """True for an attention that the kernel computes."""
    return op.name == "attention" and isinstance(_match(op), AttentionMatch)


def match_attention(op: Op, prepared: PreparedValues) -> AttentionMatch | NoMatch:
    """The largest group of ops that end in the attention ``op`` and that the kernel computes.

    Args:
        op: the composite.
        prepared: of no use here: no operand has to be made of weights.
    """
    return _match(op)


def _match(op: Op) -> AttentionMatch | NoMatch:
    query, key, value, mask = op.operands[:4]
    terms = attention_terms(op.operands)
    if query.dtype not in (bf16, f16, f32) or key.dtype is not query.dtype:
        return no_match(f"the kernel has no attention of {query.dtype}", query)
    if value.dtype is not query.dtype:
        return no_match(f"the values are {value.dtype}, the queries {query.dtype}", value)
    if mask.type.rank != 3:
        return no_match("the mask differs from head to head", mask, depth=2)
    if terms.bias is not None or terms.slopes is not None:
        return no_match("the scores have a bias", query, depth=3)
    if not all((*query.type.dims, *key.type.dims, *value.type.dims)):
        return no_match("it has no elements", query, depth=4)
    keys, values = match_cache_read(key), match_cache_read(value)
    for read in (keys, values):
        if isinstance(read, NoMatch):
            return read
    if isinstance(keys, CacheRead) and isinstance(values, CacheRead) and same_slots(keys, values):
        return AttentionMatch(op, keys, values)
    return AttentionMatch(op)
