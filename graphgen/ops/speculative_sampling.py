"""Acceptance of proposed tokens, as one op."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir import Attrs, Dim, TensorType, tensor
from graphgen.ir.dtype import f32, s32
from graphgen.ops.factors import Notation
from graphgen.ops.opdef import define, rank_of, require
from graphgen.ops.traits import Trait, Types


def _cost(operands: Types, results: Types, attrs: Attrs) -> tuple[Dim, Dim]:
    """A comparison and a sum for each pair of candidates; some sums over the target's."""
    _, _, target, _, drafted, _, _ = operands
    return 2 * target.size * drafted.shape[2] + 8 * target.size, 0


@define(
    "accept",
    "proposals limits target_ids target_probabilities draft_ids draft_probabilities random",
    traits=(Trait.COMPOSITE,),
    factors=Notation("b N, b, b P K, b P K, b N D, b N D, b P Z -> b P, b"),
    cost=_cost,
)
def _accept(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The tokens s32 [B,N] that rows get of N - 1 ``proposals``, -1 beyond them, and their number.

    Speculative sampling (arXiv 2211.17192, 2302.01318). The model's candidates at each place are
    ``target_ids`` s32 [B,N,K] with probabilities p f32 that need not sum to 1, the draft's are
    ``draft_ids`` s32 [B,N-1,D] with q; a token that is not among them has probability 0. Row b gets
    at most ``limits[b]`` tokens, none for 0. A proposal x before the last of these is accepted if
    ``random[b,i,0] * q(x) < p(x)``. The first that is refused is replaced by a draw from
    ``max(p - q, 0)``, or from p where that is 0 everywhere; a draw from p comes after the last one
    if all are accepted. A draw is the first candidate at which the sum of probabilities passes
    ``random[b,i,1]`` of the whole sum.

    Example:
        %t, %n = accept(%x, %m, %i, %p, %j, %q, %r) : s32[B,3], s32[B]
    """
    proposals, limits, ids, probabilities, draft_ids, drafted, random = types
    rank_of(types, 0, 2, "the table of proposals")
    rank_of(types, 2, 3, "the table of candidates")
    rank_of(types, 4, 3, "the draft's table of candidates")
    rows, places, candidates = ids.shape
    # Proposals are looked at one after the other.
    require(isinstance(places, int) and places > 0, f"needs a number of places, got {places}", 2)
    require(candidates != 0, "needs a candidate to draw", 2)
    wanted = [
        (0, proposals, tensor(s32, (rows, places - 1))),
        (1, limits, tensor(s32, (rows,))),
        (2, ids, tensor(s32, ids.shape)),
        (3, probabilities, tensor(f32, ids.shape)),
        (4, draft_ids, tensor(s32, (rows, places - 1, draft_ids.shape[2]))),
        (5, drafted, tensor(f32, draft_ids.shape)),
        (6, random, tensor(f32, (rows, places, 2))),
    ]
    for index, given, right in wanted:
        require(given is right, f"needs {right.text}, got {given.text}", index)
    return tensor(s32, (rows, places)), tensor(s32, (rows,))
