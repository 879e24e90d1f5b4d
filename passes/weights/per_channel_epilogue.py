"""Match the per-channel epilogue of a product: biases, scales and conversions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.passes.weights.derived import PreparedValues

# f(concat(x, y)) = concat(f(x), f(y)) for these with a vector per channel.
_SCALES = ("add", "multiply")


@dataclass(frozen=True, slots=True)
class EpilogueStep:
    """One op of an epilogue: a bias or scale with its broadcast, or a conversion.

    Attributes:
        op: ``add``, ``multiply`` or ``convert``.
        spread: the ``broadcast_in_dim`` of the bias or scale, ``None`` for a conversion.
        side: index of the operand of ``op`` that the product is.
    """

    op: Op
    spread: Op | None
    side: int

    @property
    def kind(self) -> tuple[object, ...]:
        """Key that must be equal in all siblings for the step to be fused."""
        return self.op.name, self.op.attrs, self.side

    def vector(self, b: Builder) -> Value:
        """The biases or scales as a vector [N]; a scalar is broadcast."""
        assert self.spread is not None
        (given,) = self.spread.operands
        return (
            given if given.shape else b.broadcast_in_dim(given, self.spread.result.shape[-1:], [])
        )


def steps_behind(dot: Op, prepared: PreparedValues) -> Iterator[EpilogueStep]:
    """Yield the per-channel ops that follow ``dot``, in order."""
    value = dot.result
    while (op := prepared.only_reader(value)) is not None:
        side = 0 if op.operands[0] is value else 1
        if op.name == "convert":
            yield EpilogueStep(op, None, side)
        elif op.name in _SCALES and (spread := _spread(op.operands[1 - side], value, prepared)):
            yield EpilogueStep(op, spread, side)
        else:
            return
        value = op.result


def _spread(other: Value, value: Value, prepared: PreparedValues) -> Op | None:
    """The broadcast of a weight [N], or of a scalar, to the shape of ``value`` [..., N]."""
    spread = other.producer("broadcast_in_dim")
    if spread is None or prepared.only_reader(other) is None:
        return None
    (vector,) = spread.operands
    along = spread.attrs.integers("dimensions") == (value.type.rank - 1,)
    fits = along and vector.shape == value.shape[-1:]
    alone = prepared.of_weights(vector) and prepared.readers(vector) == 1
    return spread if alone and (fits or not vector.shape) else None
