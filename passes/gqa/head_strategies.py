"""Head assignment strategies by name: the default, and the strategies of AWS's two libraries.

``CONVERT_TO_MHA`` and ``REPLICATE_TO_TP_DEGREE`` are NxD Inference's, ``SHARD_OVER_HEADS``,
``SHARD_OVER_BATCH``, ``REPLICATED_HEADS`` and ``ALL_GATHER_HEADS`` transformers-neuronx's. Each
returns its head map, or the reason why it does not apply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil

from graphgen.errors import GraphgenError
from graphgen.passes.gqa.head_map import ZERO, HeadMap, binned, check, least

AUTO = "auto"
# The pass ``gather-heads`` completes it after partition.
GATHERED = "ALL_GATHER_HEADS"
# The pass ``shard`` completes it, with caches divided by rows.
BY_ROWS = "SHARD_OVER_BATCH"
# Compatible with no other implementation.
NONE = "none"


@dataclass(frozen=True, slots=True)
class Heads:
    """The sizes of one attention and its rank count.

    Attributes:
        tp: ranks.
        heads, kv_heads: query and key-value heads of the model; the second divides the first.
        head_dim: size of a head; 0 if unknown.
        batch: rows of a call; 0 if unknown.
    """

    tp: int
    heads: int
    kv_heads: int
    head_dim: int = 0
    batch: int = 0

    @property
    def text(self) -> str:
        """The sizes as text."""
        return f"{self.heads} query and {self.kv_heads} key-value heads over {self.tp} ranks"


# The head map, or the reason why there is none.
Strategy = Callable[[Heads], HeadMap | str]


def _bins(sizes: Heads, size: int, copies: int = 0) -> HeadMap:
    return binned(sizes.tp, sizes.heads, sizes.kv_heads, size, copies)


def _group(sizes: Heads) -> int:
    return sizes.heads // sizes.kv_heads


def _auto(sizes: Heads) -> HeadMap | str:
    return least(sizes.tp, sizes.heads, sizes.kv_heads)


def _convert(sizes: Heads) -> HeadMap | str:
    """A key-value head for each query head; zero heads at the end."""
    return _bins(sizes, 1)


def _replicate(sizes: Heads) -> HeadMap | str:
    """As many key-value heads as ranks: tp/KV copies of each, its query heads dealt to them."""
    copies, rest = divmod(sizes.tp, sizes.kv_heads)
    if rest:
        return f"{sizes.tp} ranks are not a multiple of {sizes.kv_heads} key-value heads"
    return _bins(sizes, ceil(_group(sizes) / copies), copies)


def _shard(sizes: Heads) -> HeadMap | str:
    """Each key-value head on one rank, with all of its query heads."""
    idle = sizes.tp - sizes.kv_heads
    if idle > 0:
        return f"{idle} of {sizes.tp} ranks would have no key-value head"
    return _bins(sizes, _group(sizes))


def _replicated(sizes: Heads) -> HeadMap | str:
    """Copy each key-value head tp/KV times, or once a query head, or not at all if Q'/tp = G.

    The head counts of ``get_qkv_padding`` in transformers-neuronx. Where each query head has its
    key-value head, those beside zero heads are zero heads.
    """
    tp, kv_heads, group = sizes.tp, sizes.kv_heads, _group(sizes)
    if group > 1 and kv_heads < tp and tp % kv_heads == 0:
        found = _bins(sizes, ceil(group / (tp // kv_heads)), tp // kv_heads)
    else:
        # Each rank may get exactly the query heads of one key-value head.
        found = _bins(sizes, group if ceil(sizes.heads / tp) == group else 1)
    if found.group > 1:
        return found
    beside = zip(found.q_map, found.kv_map, strict=True)
    return replace(found, kv_map=tuple([ZERO if q == ZERO else kv for q, kv in beside]))


def _gather(sizes: Heads) -> HeadMap | str:
    """Copies as for REPLICATE_TO_TP_DEGREE, but each made by its ranks together."""
    if sizes.kv_heads % sizes.tp == 0:
        return _bins(sizes, _group(sizes))
    found = _replicate(sizes)
    if isinstance(found, str):
        return f"{found}, nor the other way round"
    ranks = sizes.tp // sizes.kv_heads
    if sizes.head_dim % ranks:
        return f"{ranks} ranks would share a head of {sizes.head_dim} features"
    return replace(found, gathered=ranks)


def _batch(sizes: Heads) -> HeadMap | str:
    """All heads on each rank, and its part of the rows; the projections divide their features."""
    if sizes.batch % sizes.tp:
        return f"a batch of {sizes.batch} rows does not divide by {sizes.tp} ranks"
    features = sizes.head_dim * sizes.kv_heads
    if features % sizes.tp:
        return f"{features} features of keys do not divide by {sizes.tp} ranks"
    q_map, kv_map = tuple(range(sizes.heads)), tuple(range(sizes.kv_heads))
    return HeadMap(sizes.tp, sizes.heads, sizes.kv_heads, "", q_map, kv_map, over="rows")


def _convert_nxdi(sizes: Heads) -> HeadMap | str:
    """NxD Inference names it so, and copies nothing, where the ranks divide the KV heads."""
    return _bins(sizes, _group(sizes)) if sizes.kv_heads % sizes.tp == 0 else _convert(sizes)


def _shard_tnx(sizes: Heads) -> HeadMap | str:
    """Only multi-head attention is padded."""
    if sizes.heads != sizes.kv_heads and sizes.kv_heads % sizes.tp:
        return f"{sizes.kv_heads} key-value heads do not divide by {sizes.tp} ranks"
    return _bins(sizes, _group(sizes))


def _auto_nxdi(sizes: Heads) -> str:
    return "CONVERT_TO_MHA" if sizes.tp % sizes.kv_heads else "REPLICATE_TO_TP_DEGREE"


def _auto_tnx(sizes: Heads) -> str:
    return "REPLICATED_HEADS" if isinstance(_shard_tnx(sizes), str) else "SHARD_OVER_HEADS"


STRATEGIES: Mapping[str, Strategy] = {
    AUTO: _auto,
    "CONVERT_TO_MHA": _convert,
    "REPLICATE_TO_TP_DEGREE": _replicate,
    "SHARD_OVER_HEADS": _shard,
    BY_ROWS: _batch,
    "REPLICATED_HEADS": _replicated,
    GATHERED: _gather,
}
# Whose layouts to make: the strategies there are, and which of them ``auto`` is.
_NXDI: Mapping[str, Strategy] = {
    "CONVERT_TO_MHA": _convert_nxdi,
    "REPLICATE_TO_TP_DEGREE": _replicate,
}
_TNX: Mapping[str, Strategy] = {
    "SHARD_OVER_HEADS": _shard_tnx,
    BY_ROWS: _batch,
    "REPLICATED_HEADS": _replicated,
    GATHERED: _gather,
}
COMPAT: Mapping[str, tuple[Mapping[str, Strategy], Callable[[Heads], str]]] = {
    NONE: (STRATEGIES, lambda sizes: AUTO),
    "nxdi": (_NXDI, _auto_nxdi),
    "tnx": (_TNX, _auto_tnx),
}


@lru_cache(maxsize=1024)
def head_map(sizes: Heads, strategy: str = AUTO, compat: str = NONE) -> HeadMap:
    """The layout of the heads, proved right.

    Args:
        sizes: heads and ranks.
        strategy: a key of :data:`STRATEGIES`; ``auto`` keeps the fewest key-value heads.
        compat: ``nxdi`` or ``tnx`` for the layouts of NxD Inference or transformers-neuronx, bit
            for bit, with ``auto`` choosing as they choose; ``none`` for our own.

    Raises:
        GraphgenError: GG0302 for an unknown strategy or compat, or heads that make no sense;
            GG0304 when the strategy cannot serve, naming those that can.
    """
    if min(sizes.tp, sizes.heads, sizes.kv_heads) < 1 or sizes.heads % sizes.kv_heads:
        raise GraphgenError("GG0302", f"heads: {sizes.text} make no grouped attention")
    known, choose = _of_compat(compat)
    if strategy not in (AUTO, *known):
        raise GraphgenError(
            "GG0302",
            f"heads: strategy={strategy} is unknown"
            + (f" to compat={compat}" if compat != NONE else ""),
            help=f"one of {', '.join(dict.fromkeys((AUTO, *known)))}",
        )
    name = choose(sizes) if strategy == AUTO else strategy
    found = known[name](sizes)
    if isinstance(found, str):
        raise GraphgenError(
            "GG0304",
            f"heads: {name} cannot serve {sizes.text}: {found}",
            help=f"these can: {', '.join(serving(sizes, compat))}",
        )
    found = replace(found, strategy=name)
    return check(replace(found, why=_why(found, strategy, compat)))


def serving(sizes: Heads, compat: str = NONE) -> list[str]:
    """The strategies that can serve, ``auto`` first."""
    known, _ = _of_compat(compat)
    return [AUTO] + [
        name
        for name, strategy in known.items()
        if name != AUTO and not isinstance(strategy(sizes), str)
    ]


def _of_compat(compat: str) -> tuple[Mapping[str, Strategy], Callable[[Heads], str]]:
    if compat not in COMPAT:
        names = ", ".join(COMPAT)
        raise GraphgenError("GG0302", f"heads: compat={compat} is unknown", help=f"one of {names}")
    return COMPAT[compat]


def _why(found: HeadMap, asked: str, compat: str) -> str:
    """The choice in one line: what was laid out, and for what reason."""
    q, kv = len(found.q_map), len(found.kv_map)
    reason = "as asked"
    if asked == AUTO:
        fewest = "the fewest key-value heads, then query heads"
        reason = fewest if compat == NONE else f"as {compat} chooses"
    if found.over == "rows":
        return (
            f"{found.strategy}: all heads on each of {found.tp} ranks, the rows divided; {reason}"
        )
    copies = [found.kv_map.count(head) for head in range(found.kv_heads)]
    each = f"{copies[0]} of each" if len(set(copies)) == 1 else f"up to {max(copies)} of each"
    parts = [
        f"{kv} key-value heads ({each}, {found.kv_map.count(ZERO)} zero)",
        f"{q} query heads ({found.q_map.count(ZERO)} zero)",
    ]
    return f"{found.strategy}: {' and '.join(parts)} over {found.tp} ranks; {reason}"
