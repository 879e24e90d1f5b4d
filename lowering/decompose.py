"""Batch norms of HLO and StableHLO as the ops they are made of.

Formulas: Ioffe and Szegedy, "Batch normalization" (2015), as XLA's BatchNormExpander has them.
Numbers of 16 bits and less are computed in f32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from graphgen.ir import AttrValue, Literal, TensorType, Value
from graphgen.ir.dtype import DTYPES, f32
from graphgen.ops.opdef import require


class Emit(Protocol):
    """Appends an op of one result."""

    def __call__(self, name: str, operands: Sequence[Value], **attrs: AttrValue) -> Value:
        """The result of the op ``name``."""
        ...


def keeps_negative_zero(init: Value, kind: str) -> bool:
    """True for a sum from a start that may be -0.0, which the IR's ``reduce`` has no word for.

    The IR's starts from +0.0, and a start that is combined in afterwards makes +0.0 of it: only
    -0.0 is the neutral element of IEEE 754's addition.
    """
    if kind != "add" or not (init.dtype.is_float or init.dtype.is_complex):
        return False
    constant = init.producer("constant")
    if constant is None:
        return True
    literal = constant.attrs.literal("value")
    numbers = literal.complex_values() if init.dtype.is_complex else literal.values()
    return any(
        part == 0 and math.copysign(1, part) < 0
        for number in numbers
        for part in (complex(number).real, complex(number).imag)
    )


def total_order_key(emit: Emit, x: Value) -> Value:
    """Map floats to integers of the same order: the bits, inverted below a set sign."""
    kind = DTYPES[f"s{x.dtype.bits}"]

    def full(number: int) -> Value:
        scalar = emit("constant", [], value=Literal.of(kind, number))
        if not x.type.rank:
            return scalar
        return emit("broadcast_in_dim", [scalar], shape=x.shape, dimensions=())

    bits = emit("bitcast_convert", [x], dtype=kind)
    negative = emit("compare", [bits, full(0)], direction="LT")
    turned = emit("xor", [bits, full((1 << (kind.bits - 1)) - 1)])
    return emit("select", [negative, turned, bits])


@dataclass(frozen=True, slots=True)
class BatchNorm:
    """Writer of one batch norm.

    Attributes:
        emit: appends an op of one result.
        operand: type of what is normalized.
        feature: the dimension of the features, each of which has its own mean and variance.
        epsilon: added to variances.
    """

    emit: Emit
    operand: TensorType
    feature: int
    epsilon: float

    def training(self, operand: Value, scale: Value, offset: Value) -> list[Value]:
        """The normalized operand, and mean and variance of each feature."""
        x, scale, offset = (self._wide(value) for value in (operand, scale, offset))
        mean = self._mean(x)
        centered = self._two("subtract", x, self._spread(mean))
        variance = self._mean(self._two("multiply", centered, centered))
        normal = self._scaled(centered, variance, scale, offset)
        return [self._narrow(value) for value in (normal, mean, variance)]

    def inference(
        self, operand: Value, scale: Value, offset: Value, mean: Value, variance: Value
    ) -> list[Value]:
        """The operand normalized by mean and variance of other values."""
        given = (operand, scale, offset, mean, variance)
        x, scale, offset, mean, variance = (self._wide(value) for value in given)
        centered = self._two("subtract", x, self._spread(mean))
        return [self._narrow(self._scaled(centered, variance, scale, offset))]

    def grad(
        self, operand: Value, scale: Value, mean: Value, variance: Value, above: Value
    ) -> list[Value]:
        """The gradients of the operand, of the scale and of the offset."""
        given = (operand, scale, mean, variance, above)
        x, scale, mean, variance, above = (self._wide(value) for value in given)
        centered = self._two("subtract", x, self._spread(mean))
        moved = self._sum(self._two("multiply", above, centered))
        total, unit = self._sum(above), self._unit(variance)
        # n above - sum(above) - centered sum(above centered) / (variance + epsilon)
        along = self._two("multiply", moved, self._two("multiply", unit, unit))
        rest = self._two("multiply", centered, self._spread(along))
        most = self._two("multiply", above, self._full(self._count, above.type))
        inner = self._two("subtract", self._two("subtract", most, self._spread(total)), rest)
        share = self._full(1 / max(self._count, 1), scale.type)
        factor = self._two("multiply", self._two("multiply", scale, unit), share)
        made = self._two("multiply", inner, self._spread(factor))
        return [self._narrow(value) for value in (made, self._two("multiply", moved, unit), total)]

    def read(self, name: str, operands: Sequence[Value]) -> list[Value]:
        """The results of the batch norm called ``training``, ``inference`` or ``grad``.

        Raises:
            InferError: there are too few operands, or they do not fit.
        """
        count = 3 if name == "training" else 5
        require(len(operands) == count, f"takes {count} operands, got {len(operands)}")
        rank = self.operand.rank
        require(0 <= self.feature < rank, f"feature {self.feature} of {self.operand.text}")
        if name == "training":
            return self.training(*operands[:3])
        first, *rest = operands
        return (self.inference if name == "inference" else self.grad)(first, *rest)

    @property
    def _over(self) -> tuple[int, ...]:
        return tuple([dim for dim in range(self.operand.rank) if dim != self.feature])

    @property
    def _count(self) -> int:
        return math.prod(self.operand.dims[dim] for dim in self._over)

    def _two(self, name: str, x: Value, y: Value) -> Value:
        return self.emit(name, [x, y])

    def _full(self, number: float, type_: TensorType) -> Value:
        scalar = self.emit("constant", [], value=Literal.of(type_.dtype, float(number)))
        return self.emit("broadcast_in_dim", [scalar], shape=type_.shape, dimensions=())

    def _wide(self, x: Value) -> Value:
        return self.emit("convert", [x], dtype=f32) if x.dtype.bits < 32 else x

    def _narrow(self, x: Value) -> Value:
        same = x.dtype is self.operand.dtype
        return x if same else self.emit("convert", [x], dtype=self.operand.dtype)

    def _spread(self, x: Value) -> Value:
        """A number a feature, along all other dimensions."""
        shape = self.operand.shape
        return self.emit("broadcast_in_dim", [x], shape=shape, dimensions=(self.feature,))

    def _sum(self, x: Value) -> Value:
        return self.emit("reduce", [x], dimensions=self._over, kind="add")

    def _mean(self, x: Value) -> Value:
        total = self._sum(x)
        return self._two("divide", total, self._full(self._count, total.type))

    def _unit(self, variance: Value) -> Value:
        shifted = self._two("add", variance, self._full(self.epsilon, variance.type))
        return self.emit("rsqrt", [shifted])

    def _scaled(self, centered: Value, variance: Value, scale: Value, offset: Value) -> Value:
        factor = self._two("multiply", self._unit(variance), scale)
        made = self._two("multiply", centered, self._spread(factor))
        return self._two("add", made, self._spread(offset))


def with_positions(emit: Emit, indices: Value, vector: int, dims: Sequence[int]) -> Value:
    """Prepend to each index vector its own positions along ``dims``.

    Args:
        emit: appends ops.
        indices: the index vectors.
        vector: the dimension along which a vector is; one past the last for scalars.
        dims: dimensions of ``indices``, which count the dimension ``vector``.
    """
    shape = (*indices.shape[:vector], 1, *indices.shape[vector + 1 :])
    if vector == indices.type.rank:
        indices = emit("reshape", [indices], shape=shape)
    counts = [emit("iota", [], dtype=indices.dtype, shape=shape, dimension=d) for d in dims]
    return emit("concatenate", [*counts, indices], dimension=vector)
