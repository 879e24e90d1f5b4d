"""Rank groups of flash decoding: each group shares key-value heads and divides their slots."""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module
from graphgen.passes.gqa.head_map import ZERO, HeadMap, binned, check


def slot_ranks(module: Module, tp: int, asked: int = 0) -> int:
    """The ranks that hold the slots of one cache row together.

    As few as hold each key-value head once: ``tp / gcd(tp, KV)``, which is ``tp / KV`` where KV
    divides the ranks.

    Args:
        module: with ``attention`` over caches of key-value heads.
        tp: ranks.
        asked: their number, if it is given.

    Raises:
        GraphgenError: GG0304 for caches of latent vectors, and for a number that does not leave
            each group whole key-value heads.
    """
    of_keys, of_caches = _kv_heads(module.programs())
    if of_caches - of_keys:
        raise GraphgenError(
            "GG0304",
            f"flash decoding: caches of {min(of_caches - of_keys)} heads are read as "
            f"{min(of_keys, default=0)}: latent vectors, of which keys are made",
            help="leave out flash_decoding (--flash-decoding) for latent attention",
        )
    together = gcd(*of_keys) if of_keys else tp
    if not asked:
        return tp // gcd(tp, together)
    if tp % asked or together % (tp // asked):
        fitting = [n for n in range(1, tp + 1) if tp % n == 0 and together % (tp // n) == 0]
        raise GraphgenError(
            "GG0304",
            f"flash decoding: {tp} ranks in groups of {asked} cannot share {together} key-value "
            "heads evenly",
            help=f"flash_decoding_ranks may be {', '.join(map(str, fitting))}",
        )
    return asked


def _kv_heads(programs: list[Function]) -> tuple[set[int], set[int]]:
    """The numbers of key-value heads of attention, and those of caches."""
    keys: set[int] = set()
    caches: set[int] = set()
    for function in programs:
        for op in function.block:
            if op.name == "attention":
                keys.add(op.operands[1].type.dims[2])
            elif op.name == "kv_update":
                caches.add(op.operands[0].type.dims[2])
    return keys, caches


def grouped_map(tp: int, slots: int, heads: int, kv_heads: int) -> HeadMap:
    """The heads over ``tp / slots`` groups of ranks: each key-value head once.

    The ranks of a group divide its query heads, which are filled up with zero heads until they do.

    Args:
        tp: ranks.
        slots: ranks of a group.
        heads, kv_heads: of the model.
    """
    groups = tp // slots
    own = kv_heads // groups
    size = heads // kv_heads
    while own * size % slots:
        size += 1
    found = binned(groups, heads, kv_heads, size)
    zeros = found.q_map.count(ZERO)
    why = (
        f"flash decoding: {kv_heads} key-value heads once, over {groups} groups of {slots} ranks, "
        f"which divide their slots, and {len(found.q_map)} query heads ({zeros} zero)"
    )
    return check(replace(found, strategy="flash decoding", why=why))
