"""Group ops into layers: by source scope, or by repetition.

A layer is a scope up to its first number: ``model.layers.17.self_attn`` is of layer
``model.layers.17``. In a program without scopes, such as an imported dump,
layers are the repetitions of a run of ops.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from graphgen.ir import Function, Op

_NUMBERED = re.compile(r"(?:[^.]+\.)*?\d+(?=\.|$)")
# The minimal length of a repeated run of ops.
_SHORTEST = 4


def scope_of(op: Op) -> str:
    """The layer in the scope of an op, empty for none."""
    found = _NUMBERED.match(op.loc.scope)
    return found.group() if found else ""


def layers_of(function: Function) -> dict[str, list[Op]]:
    """Ops by layer, in order of first appearance, without ops outside of layers."""
    found: dict[str, list[Op]] = {}
    for op in function.block:
        scope = scope_of(op)
        if scope:
            found.setdefault(scope, []).append(op)
    return found or _repeated(list(function.block))


def _repeated(ops: Sequence[Op]) -> dict[str, list[Op]]:
    """Find the period of repeated ops that covers most of a program.

    Ops are equal if name, attributes and result types are. For each distance between equal ops,
    measure the longest run in which the program equals itself shifted by that distance; the
    distance with the longest run, the shortest of equals, is the length of a layer.
    """
    keys = [(op.name, op.attrs, tuple(result.type for result in op.results)) for op in ops]
    best_cover, best_period, best_start = 0, 0, 0
    for period in _distances(keys):
        start, cover = _longest_run(keys, period)
        total = cover + period
        if cover >= period and total > best_cover:
            best_cover, best_period, best_start = total, period, start
    if not best_period:
        return {}
    count = best_cover // best_period
    return {
        f"layer.{i}": list(ops[best_start + i * best_period : best_start + (i + 1) * best_period])
        for i in range(count)
    }


def _distances(keys: Sequence[object]) -> list[int]:
    """The distances between consecutive equal ops, sorted."""
    last: dict[object, int] = {}
    found: set[int] = set()
    for place, key in enumerate(keys):
        if key in last and place - last[key] >= _SHORTEST:
            found.add(place - last[key])
        last[key] = place
    return sorted(found)


def _longest_run(keys: Sequence[object], period: int) -> tuple[int, int]:
    """Start and length of the longest run with ``keys[i] == keys[i + period]``."""
    best = (0, 0)
    start = 0
    for place in range(len(keys) - period + 1):
        same = place < len(keys) - period and keys[place] == keys[place + period]
        if not same:
            if place - start > best[1]:
                best = (start, place - start)
            start = place + 1
    return best
