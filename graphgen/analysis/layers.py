"""Which ops belong to which layer: by the scopes they were written in, or by what repeats.

A layer is what a scope says up to its first number: ``model.layers.17.self_attn`` is of layer
``model.layers.17``. A program without scopes, such as one read from a dump, is looked through for
runs of ops that repeat.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from graphgen.ir import Function, Op, Value

_NUMBERED = re.compile(r"(?:[^.]+\.)*?\d+(?=\.|$)")
# A run of ops shorter than this is no layer.
_SHORTEST = 4


def scope_of(op: Op) -> str:
    """The layer an op was written in, empty for none."""
    found = _NUMBERED.match(op.loc.scope)
    return found.group() if found else ""


def layers_of(function: Function) -> dict[str, list[Op]]:
    """Ops by layer, in order of first appearance; what is in none is left out."""
    found: dict[str, list[Op]] = {}
    for op in function.block:
        scope = scope_of(op)
        if scope:
            found.setdefault(scope, []).append(op)
    return found or _repeated(list(function.block))


def identical_layers(layers: Mapping[str, Sequence[Op]]) -> dict[str, str]:
    """Each layer with the first one that is like it, op for op, whatever values are called."""
    first: dict[object, str] = {}
    return {name: first.setdefault(_structure(ops), name) for name, ops in layers.items()}


def _structure(ops: Sequence[Op]) -> tuple[object, ...]:
    """What is equal for two layers that are alike: values are numbered as they are met."""
    numbers: dict[Value, int] = {}
    out: list[object] = []
    for op in ops:
        reads = [
            (numbers.setdefault(value, len(numbers)), value.type, value.op is None)
            for value in op.operands
        ]
        for result in op.results:
            numbers.setdefault(result, len(numbers))
        out.append((op.name, op.attrs, tuple(reads), *[result.type for result in op.results]))
    return tuple(out)


def _repeated(ops: Sequence[Op]) -> dict[str, list[Op]]:
    """The longest stretch of a program that is some run of ops over and over.

    Ops are alike when they have the same name, attributes and types. For each distance between two
    ops that are alike, the stretch over which the program equals itself at that distance is
    measured; the distance that covers most, the shortest of equals, is the length of a layer.
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
    """Distances between neighbors among ops that are alike, each once, in order."""
    last: dict[object, int] = {}
    found: set[int] = set()
    for place, key in enumerate(keys):
        if key in last and place - last[key] >= _SHORTEST:
            found.add(place - last[key])
        last[key] = place
    return sorted(found)


def _longest_run(keys: Sequence[object], period: int) -> tuple[int, int]:
    """Start and length of the longest stretch in which every op is like the one a period later."""
    best = (0, 0)
    start = 0
    for place in range(len(keys) - period + 1):
        same = place < len(keys) - period and keys[place] == keys[place + period]
        if not same:
            if place - start > best[1]:
                best = (start, place - start)
            start = place + 1
    return best
