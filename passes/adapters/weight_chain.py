"""From the weight of a product back to the matrix of the checkpoint that it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from graphgen.build import Builder
from graphgen.ir import AttrValue, Dim, Op, Value
from graphgen.passes.weights.derived import PreparedValues

# Ops that only move the numbers of a matrix, or convert them.
_MOVES = ("reshape", "transpose", "slice", "convert")


@dataclass(frozen=True, slots=True)
class WeightChain:
    """The matrix of a product, and the ops that lead from it to the product's right operand.

    Attributes:
        module: the checkpoint's name of the projection: that of its weight without the last part.
        matrix: the two-dimensional value that the ops start from.
        depth: the dimension of ``matrix`` that the product sums over.
        steps: each op, with the dimension of its operand and that of its result that the product
            sums over.
    """

    module: str
    matrix: Value
    depth: int
    steps: tuple[tuple[Op, int, int], ...]

    @property
    def sizes(self) -> tuple[int, int]:
        """Inputs and outputs of the whole projection."""
        first, second = self.matrix.type.dims
        return (second, first) if self.depth else (first, second)

    def expand(self, b: Builder, lora_b: Value) -> tuple[Value, int]:
        """Apply the ops to the ``lora_B`` [slots, out, r] of the whole projection.

        The low rank r is in the place of the inputs, a dimension further right for the slots.

        Returns:
            The value, and the dimension of r.
        """
        value = lora_b if self.depth else b.transpose(lora_b, (0, 2, 1))
        for op, before, after in self.steps:
            value = _again(b, op, value, before, after)
        return value, (self.steps[-1][2] if self.steps else self.depth) + 1


def weight_chain(value: Value, depth: int, prepared: PreparedValues) -> WeightChain | None:
    """The chain of the right operand of a product; ``None`` where it is made otherwise.

    Args:
        value: the right operand.
        depth: the dimension that the product sums over.
        prepared: the values of the program that are made of weights alone.
    """
    steps: list[tuple[Op, int, int]] = []
    while value.op is not None and value.op.name in _MOVES:
        op, after = value.op, depth
        before = _operand_dim(op, after)
        if before is None:
            return None
        value, depth = op.operands[0], before
        if op.name != "convert":
            steps.append((op, before, after))
    if value.type.rank != 2 or not value.type.static or not prepared.of_weights(value):
        return None
    names = {name.rpartition(".")[0] for name in prepared.sources(value)}
    if len(names) != 1 or "" in names:
        return None
    return WeightChain(names.pop(), value, depth, tuple(reversed(steps)))


def _operand_dim(op: Op, dim: int) -> int | None:
    """The dimension of an op's operand that is ``dim`` of its result; ``None`` if none is."""
    operand, result = op.operands[0], op.result
    if op.name == "transpose":
        return op.attrs.integers("permutation")[dim]
    if op.name == "reshape":
        ahead = prod(_sizes(result.shape[:dim]))
        found = [
            place
            for place, size in enumerate(operand.shape)
            if size == result.shape[dim] and prod(_sizes(operand.shape[:place])) == ahead
        ]
        return found[0] if found else None
    return dim if operand.shape[dim] == result.shape[dim] else None


def _sizes(shape: Sequence[Dim]) -> list[int]:
    """Sizes of a weight, which no symbol stands for."""
    return [size for size in shape if isinstance(size, int)]


def _again(b: Builder, op: Op, value: Value, before: int, after: int) -> Value:
    """The same op with slots in front, and r in the place of the inputs."""
    slots, low = value.shape[0], value.shape[before + 1]
    shape = [low if dim == after else size for dim, size in enumerate(op.result.shape)]
    if op.name == "transpose":
        order = [dim + 1 for dim in op.attrs.integers("permutation")]
        return b.transpose(value, (0, *order))
    if op.name == "reshape":
        return b.reshape(value, (slots, *shape))
    starts, limits = op.attrs.dims("start_indices"), list(op.attrs.dims("limit_indices"))
    limits[before] = low
    attrs: dict[str, AttrValue] = {"start_indices": (0, *starts), "limit_indices": (slots, *limits)}
    if strides := op.attrs.integers("strides"):
        attrs["strides"] = (1, *strides)
    return b.emit("slice", (value,), attrs).result
