"""Head maps: the query and key-value heads per rank, for any head counts and rank counts.

A *bin* is one copy of a key-value head with at most ``g`` of the query heads that read it; empty
places are zero heads. Every layout here is a number of copies of each key-value head and a ``g``:
bins are filled in order, filled up with zero bins to a multiple of the ranks, and dealt to the
ranks in order. So a rank always holds whole bins, and each real query head sits with its key-value
head; :func:`check` proves it again for every map that is handed out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from graphgen.errors import GraphgenError

# In a map: a head of zeros.
ZERO = -1


@dataclass(frozen=True, slots=True)
class HeadMap:
    """The heads of one attention as they lie over the ranks.

    Attributes:
        tp: ranks.
        heads, kv_heads: query and key-value heads of the model, Q and KV; KV divides Q.
        strategy: what was chosen.
        q_map: for each head that is laid out, Q' of them, the model's query head or -1 for zeros.
        kv_map: the same for the KV' key-value heads; a head that is there often has copies.
        over: what is divided over the ranks: ``heads``, or ``rows`` of the batch, with every rank
            holding all heads of its rows.
        gathered: ranks that share a key-value head and make its keys and values together: each a
            part of the features, which they then gather. 1 where every rank makes its own.
        why: the choice in words.
    """

    tp: int
    heads: int
    kv_heads: int
    strategy: str
    q_map: tuple[int, ...]
    kv_map: tuple[int, ...]
    over: str = "heads"
    gathered: int = 1
    why: str = ""

    @property
    def group(self) -> int:
        """Query heads to a key-value head, as laid out."""
        return len(self.q_map) // len(self.kv_map)

    @property
    def identity(self) -> bool:
        """True if the assignment is that of the model."""
        return self.q_map == tuple(range(self.heads)) and self.kv_map == tuple(range(self.kv_heads))

    @property
    def q_places(self) -> tuple[int, ...]:
        """For each of the model's query heads, where it is in ``q_map``."""
        return _places(self.q_map, self.heads)

    def on_rank(self, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The query heads and the key-value heads that one rank holds."""
        if self.over == "rows":
            return self.q_map, self.kv_map
        q, kv = len(self.q_map) // self.tp, len(self.kv_map) // self.tp
        return self.q_map[rank * q : (rank + 1) * q], self.kv_map[rank * kv : (rank + 1) * kv]


def _places(heads: Sequence[int], count: int) -> tuple[int, ...]:
    first: dict[int, int] = {}
    for place, head in enumerate(heads):
        first.setdefault(head, place)
    return tuple([first[head] for head in range(count)])


def binned(tp: int, heads: int, kv_heads: int, size: int, copies: int = 0) -> HeadMap:
    """The layout with bins of at most ``size`` query heads.

    Args:
        tp: ranks.
        heads, kv_heads: the model's.
        size: g, most query heads of a bin.
        copies: of each key-value head; by default as many as hold its query heads.
    """
    group = heads // kv_heads
    copies = copies or ceil(group / size)
    q_map: list[int] = []
    kv_map: list[int] = []
    for kv_head in range(kv_heads):
        for copy in range(copies):
            kv_map.append(kv_head)
            inside = range(copy * size, (copy + 1) * size)
            q_map += [kv_head * group + i if i < group else ZERO for i in inside]
    empty = -len(kv_map) % tp
    kv_map += [ZERO] * empty
    q_map += [ZERO] * (empty * size)
    return HeadMap(tp, heads, kv_heads, "", tuple(q_map), tuple(kv_map))


def least(tp: int, heads: int, kv_heads: int) -> HeadMap:
    """Of all bin sizes, the layout with the fewest key-value heads, then the fewest query heads.

    Key-value heads first: they are read from the cache at every step, query heads are weights.
    """
    maps = [binned(tp, heads, kv_heads, size) for size in range(1, heads // kv_heads + 1)]
    return min(maps, key=lambda found: (len(found.kv_map), len(found.q_map)))


def check(found: HeadMap) -> HeadMap:
    """Prove that the map computes the model's attention; give it back.

    Every rank holds as many heads as any other, each of the model's query heads is there exactly
    once, and the key-value head that it reads on its rank is its own.

    Raises:
        GraphgenError: GG0304 naming the head and the rank; always a defect of the map.
    """
    parts = 1 if found.over == "rows" else found.tp
    if len(found.q_map) % len(found.kv_map) or len(found.kv_map) % parts:
        raise _broken(found, f"{len(found.q_map)} and {len(found.kv_map)} heads do not divide")
    times = {head: found.q_map.count(head) for head in range(found.heads)}
    for head, count in times.items():
        if count != 1:
            raise _broken(found, f"query head {head} is there {count} times")
    model_group = found.heads // found.kv_heads
    for rank in range(found.tp):
        q_heads, kv_heads = found.on_rank(rank)
        for place, head in enumerate(q_heads):
            if head == ZERO:
                continue
            beside = kv_heads[place // found.group]
            if beside != head // model_group:
                what = f"on rank {rank} query head {head} reads key-value head {beside}"
                raise _broken(found, what)
    return found


def _broken(found: HeadMap, what: str) -> GraphgenError:
    sizes = f"{found.heads} query and {found.kv_heads} key-value heads over {found.tp} ranks"
    return GraphgenError("GG0304", f"the head map of {found.strategy} for {sizes} is wrong: {what}")
