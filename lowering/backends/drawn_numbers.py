"""Inputs that show faults of compilers: small places, whole ranges of integers, ends of ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from graphgen.eval import Array
from graphgen.eval.element_kinds import NumberSource, drawn
from graphgen.ir import DType, Entry, Module
from graphgen.ir.dtype import highest, lowest, pred
from graphgen.passes.validate.edge_values import integer_edges

# Results of these are not specified for some integers.
_UNSPECIFIED = ("divide", "remainder", "shift_left", "shift_right_logical", "power")
# Of places in small arrays, some of them outside.
_PLACES = (-3, 13)
_EDGES = (0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, -2.5, 3.0, 100.0)

Draw = Callable[[np.random.Generator], NumberSource]


def draws(module: Module, rows: Sequence[Entry], seed: int) -> Iterator[dict[str, Array]]:
    """Arrays for these rows, several times; those with a domain are left out.

    Args:
        module: of the program; where ops have results for some integers only, others are drawn.
        rows: of the interface.
        seed: any whole number.
    """
    free = [row for row in rows if row.domain is None]
    if not free:
        return
    ways = (_counts, _counts) if _has_unspecified(module) else (_small, _wide, _edges, _small)
    for number, way in enumerate(ways):
        source = way(np.random.default_rng([seed, number]))
        yield {row.name: drawn(source, row.logical.dtype, row.logical.dims) for row in free}


def _has_unspecified(module: Module) -> bool:
    for op in [op for function in module.functions.values() for op in function.block]:
        if op.name in _UNSPECIFIED and op.result.dtype.is_integer:
            return True
    return False


def _within(kind: DType, low: int, high: int) -> tuple[int, int]:
    return max(low, int(lowest(kind))), min(high, int(highest(kind)) + 1)


def _integers(
    generator: np.random.Generator, low: int, high: int
) -> Callable[[DType, tuple[int, ...]], Array]:
    def whole(kind: DType, dims: tuple[int, ...]) -> Array:
        ends = (0, 2) if kind is pred else _within(kind, low, high)
        return generator.integers(*ends, dims)

    return whole


def _counts(generator: np.random.Generator) -> NumberSource:
    return NumberSource(lambda dims: generator.standard_normal(dims), _integers(generator, 1, 7))


def _small(generator: np.random.Generator) -> NumberSource:
    return NumberSource(
        lambda dims: generator.standard_normal(dims), _integers(generator, *_PLACES)
    )


def _wide(generator: np.random.Generator) -> NumberSource:
    ends = -(2**62), 2**62
    return NumberSource(
        lambda dims: generator.standard_normal(dims) * 8, _integers(generator, *ends)
    )


def _edges(generator: np.random.Generator) -> NumberSource:
    def whole(kind: DType, dims: tuple[int, ...]) -> Array:
        edges = [x for x in integer_edges(kind, ()) if x < 2**63]
        return generator.choice(np.array(edges), dims)

    return NumberSource(lambda dims: generator.choice(np.array(_EDGES), dims), whole)
