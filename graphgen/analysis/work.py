"""How much an op computes and moves: multiplications and additions, transcendentals, bytes.

Counts are dimensions: numbers once a program is specialized, polynomials of its symbols before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from graphgen.analysis.custom_calls import decode
from graphgen.ir import Dim, Op, TensorType
from graphgen.ir.dims import product
from graphgen.ops.control import CONTROL


@dataclass(frozen=True, slots=True)
class Work:
    """What one op, or many, cost.

    Attributes:
        flops: additions and multiplications of floats or integers; a fused pair counts as two.
        transcendentals: exponentials, roots, quotients by special function: one an element.
        bytes: read and written, as if nothing were kept between ops; what an op only looks up or
            overwrites in part counts by the part.
    """

    flops: Dim = 0
    transcendentals: Dim = 0
    bytes: Dim = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.flops + other.flops,
            self.transcendentals + other.transcendentals,
            self.bytes + other.bytes,
        )


TRANSCENDENTAL = frozenset(
    (
        *("exponential", "exponential_minus_one", "log", "log_plus_one", "tanh", "tan", "sine"),
        *("cosine", "logistic", "sqrt", "rsqrt", "cbrt", "power", "atan2", "erf"),
    )
)
# Ops that look at, or replace, only a part of their first operand.
_READS_PART = frozenset(
    ("slice", "gather", "dynamic_slice", "embedding", "cache_read", "last_token", "take")
)
_WRITES_PART = {"dynamic_update_slice": 1, "scatter": 2, "kv_update": 1}
# Ops that only say where elements go, or make them from nothing.
MOVES = _READS_PART.union(
    _WRITES_PART,
    ("constant", "iota", "broadcast_in_dim", "reshape", "transpose", "concatenate", "pad"),
    ("reverse", "convert", "bitcast_convert", "copy"),
)


def work_of(op: Op) -> Work:
    """The work of one op on one rank."""
    count = _COUNTS.get(op.name)
    size = op.results[0].type.size
    flops: Dim = 0
    transcendentals: Dim = 0
    if count is not None:
        flops, transcendentals = count(op)
    elif op.name in TRANSCENDENTAL:
        transcendentals = size
    elif op.name not in MOVES:
        flops = size
    return Work(flops, transcendentals, _traffic(op))


def total(ops: Iterable[Op]) -> Work:
    """The work of many ops together."""
    together = Work()
    for op in ops:
        together += work_of(op)
    return together


def total_of(ops: Iterable[tuple[Op, int]]) -> Work:
    """The work of ops that run so and so often each."""
    together = Work()
    for op, count in ops:
        work = work_of(op)
        together += Work(work.flops * count, work.transcendentals * count, work.bytes * count)
    return together


def size_in_bytes(type_: TensorType) -> Dim:
    """Dense size; a polynomial where the shape has symbols. Types below a byte are packed."""
    bits = type_.size * type_.dtype.bits
    return -(-bits // 8) if isinstance(bits, int) else type_.size * type_.dtype.bytes


def sum_bytes(types: Iterable[TensorType]) -> Dim:
    """Bytes of several tensors."""
    together: Dim = 0
    for type_ in types:
        together += size_in_bytes(type_)
    return together


def _traffic(op: Op) -> Dim:
    """Bytes read and written."""
    written = sum_bytes(result.type for result in op.results)
    if op.name in ("reshape", "bitcast_convert", *CONTROL):
        return 0
    if op.name in _READS_PART:
        return written + written + sum_bytes(value.type for value in op.operands[1:])
    if op.name in _WRITES_PART:
        update = size_in_bytes(op.operands[_WRITES_PART[op.name]].type)
        return update + update
    return written + sum_bytes(value.type for value in op.operands)


def _kernel(op: Op) -> tuple[Dim, Dim]:
    """What a custom call says of itself; of any other nothing is known."""
    macs = decode(op.attrs.text("target"), op.attrs.text("config")).get("mac_count")
    return (2 * macs if isinstance(macs, int) else 0), 0


def _unknown(op: Op) -> tuple[Dim, Dim]:
    return 0, 0


_Count = Callable[[Op], tuple[Dim, Dim]]


def _dot(op: Op) -> tuple[Dim, Dim]:
    shape = op.operands[0].shape
    summed = product(shape[dim] for dim in op.attrs.integers("lhs_contracting_dims"))
    return 2 * op.result.type.size * summed, 0


def _reduce(op: Op) -> tuple[Dim, Dim]:
    return op.operands[0].type.size, 0


def _attention(op: Op) -> tuple[Dim, Dim]:
    """Scores and their sum over values: 2·B·S·H·C·D each; one exponential a score."""
    rows, active, heads, size = op.operands[0].shape
    scores = rows * active * heads * op.operands[1].shape[1]
    # A linear bias is a product and a sum more.
    biased = 2 if len(op.operands) > 4 else 0
    return 4 * scores * size + (3 + biased) * scores, scores


def _rms_norm(op: Op) -> tuple[Dim, Dim]:
    rows = product(op.operands[0].shape[:-1])
    return 4 * op.operands[0].type.size, rows


def _layer_norm(op: Op) -> tuple[Dim, Dim]:
    """Two sums, a difference, a square, the quotient, weight and bias."""
    rows = product(op.operands[0].shape[:-1])
    return 7 * op.operands[0].type.size, rows


def _silu(op: Op) -> tuple[Dim, Dim]:
    return op.result.type.size, op.result.type.size


def _rope(op: Op) -> tuple[Dim, Dim]:
    return 3 * op.result.type.size, 0


def _rope_table(op: Op) -> tuple[Dim, Dim]:
    size = op.results[0].type.size
    return size, size + size


_COUNTS: dict[str, _Count] = {
    "dot_general": _dot,
    "custom_call": _kernel,
    "hlo.opaque": _unknown,
    # What they run is counted where it stands: graphgen.analysis.loops.
    **dict.fromkeys(CONTROL, _unknown),
    "reduce": _reduce,
    "attention": _attention,
    "rms_norm": _rms_norm,
    "layer_norm": _layer_norm,
    "silu": _silu,
    "gelu": _silu,
    "rope": _rope,
    "rope_table": _rope_table,
}
