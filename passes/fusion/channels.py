"""What follows a product channel by channel: biases, scales and conversions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.passes.fusion.prepared import PreparedValues

# What may follow a part of a product, or several products joined, just as well.
_SCALES = ("add", "multiply")


@dataclass(frozen=True, slots=True)
class Step:
    """One op behind a product: with what spreads its bias or scale, or a conversion.

    Attributes:
        op: ``add``, ``multiply`` or ``convert``.
        spread: the broadcast of the bias or scale, ``None`` for a conversion.
        side: which operand of ``op`` the product is.
    """

    op: Op
    spread: Op | None
    side: int

    @property
    def kind(self) -> tuple[object, ...]:
        """What must be the same in all siblings for the step to be fused."""
        return self.op.name, self.op.attrs, self.side

    def vector(self, b: Builder) -> Value:
        """The [N] biases or scales of the channels, also where one number is that of all."""
        assert self.spread is not None
        (given,) = self.spread.operands
        return (
            given if given.shape else b.broadcast_in_dim(given, self.spread.result.shape[-1:], [])
        )


def steps_behind(dot: Op, prepared: PreparedValues) -> Iterator[Step]:
    """The ops behind ``dot`` that work channel by channel."""
    value = dot.result
    while (op := prepared.only_reader(value)) is not None:
        side = 0 if op.operands[0] is value else 1
        if op.name == "convert":
            yield Step(op, None, side)
        elif op.name in _SCALES and (spread := _spread(op.operands[1 - side], value, prepared)):
            yield Step(op, spread, side)
        else:
            return
        value = op.result


def _spread(other: Value, value: Value, prepared: PreparedValues) -> Op | None:
    """The broadcast that brings a weight [N], or one number, to every row of ``value`` [..., N]."""
    spread = other.producer("broadcast_in_dim")
    if spread is None or prepared.only_reader(other) is None:
        return None
    (vector,) = spread.operands
    along = spread.attrs.integers("dimensions") == (value.type.rank - 1,)
    fits = along and vector.shape == value.shape[-1:]
    alone = prepared.of_weights(vector) and prepared.readers(vector) == 1
    return spread if alone and (fits or not vector.shape) else None
