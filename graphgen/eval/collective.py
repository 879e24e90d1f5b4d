"""NumPy rules of collectives: all ranks at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from graphgen.eval.arithmetic import COMBINE, Array
from graphgen.eval.registry import CollectiveRule, collective_rule
from graphgen.ir import Attrs


def _grouped(exchange: Callable[[Attrs, list[Array]], list[Array]]) -> CollectiveRule:
    """Apply ``exchange`` to every replica group."""

    def run(attrs: Attrs, operands: Sequence[Array]) -> list[Array]:
        out = list(operands)
        for group in attrs.groups("replica_groups"):
            results = exchange(attrs, [operands[rank] for rank in group])
            for rank, result in zip(group, results, strict=True):
                out[rank] = result
        return out

    return run


def _total(attrs: Attrs, operands: list[Array]) -> Array:
    combine = COMBINE[attrs.text("kind")]
    total = operands[0]
    for other in operands[1:]:
        total = np.asarray(combine(total, other)).astype(total.dtype)
    return total


@collective_rule("all_reduce")
@_grouped
def _all_reduce(attrs: Attrs, operands: list[Array]) -> list[Array]:
    return [_total(attrs, operands)] * len(operands)


@collective_rule("all_gather")
@_grouped
def _all_gather(attrs: Attrs, operands: list[Array]) -> list[Array]:
    return [np.concatenate(operands, attrs.integer("dimension"))] * len(operands)


@collective_rule("reduce_scatter")
@_grouped
def _reduce_scatter(attrs: Attrs, operands: list[Array]) -> list[Array]:
    return np.split(_total(attrs, operands), len(operands), attrs.integer("dimension"))


@collective_rule("all_to_all")
@_grouped
def _all_to_all(attrs: Attrs, operands: list[Array]) -> list[Array]:
    sent = [np.split(x, len(operands), attrs.integer("split_dimension")) for x in operands]
    joined = attrs.integer("concat_dimension")
    return [np.concatenate(received, joined) for received in zip(*sent, strict=True)]


@collective_rule("collective_permute")
def _collective_permute(attrs: Attrs, operands: Sequence[Array]) -> list[Array]:
    out = [np.zeros_like(operand) for operand in operands]
    for source, target in attrs.groups("source_target_pairs"):
        out[target] = operands[source]
    return out
