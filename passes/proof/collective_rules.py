"""Element rules of collectives: elements of other ranks, and sums over ranks."""

from __future__ import annotations

from graphgen.ir import Dim, Op
from graphgen.passes.proof.elements import Elements, Index, element_rule
from graphgen.passes.proof.floats import CHOOSING, ProofLevel
from graphgen.passes.proof.integers import choose, div, is_zero, mod
from graphgen.passes.proof.sums import in_order, summed, variable_name
from graphgen.passes.proof.terms import Node, Term, Terms

Groups = tuple[tuple[int, ...], ...]


class RankGroup:
    """Groups of ranks with one distance between neighbors: ``first + place * stride``.

    Attributes:
        size: ranks of a group.
        stride: between neighbors.
    """

    def __init__(self, groups: Groups) -> None:
        self.size = len(groups[0])
        self.stride = groups[0][1] - groups[0][0] if self.size > 1 else 1

    def place(self, terms: Terms, rank: Dim) -> Dim:
        """The place of a rank in its group."""
        return mod(terms, div(terms, rank, self.stride), self.size)

    def member(self, terms: Terms, rank: Dim, place: Dim) -> Dim:
        """The rank at a place of the group of a rank."""
        return rank + (place + self.place(terms, rank) * -1) * self.stride


def rank_group(groups: Groups, ranks: int) -> RankGroup | None:
    """The form of groups that cover all ranks; ``None`` for those without one."""
    sizes = {len(group) for group in groups}
    if len(sizes) != 1 or sum(map(len, groups)) != ranks:
        return None
    found, terms = RankGroup(groups), Terms()
    if found.stride < 1:
        return None
    for group in groups:
        for place, rank in enumerate(group):
            if found.place(terms, rank) != place or found.member(terms, group[0], place) != rank:
                return None
    return found


def _group(e: Elements, op: Op) -> RankGroup | None:
    return rank_group(op.attrs.groups("replica_groups"), e.ranks.count)


def _over_ranks(e: Elements, op: Op, group: RankGroup, index: Index) -> Term | None:
    """The sum of an element over the ranks of a group."""
    operand, kind = op.operands[0], op.attrs.text("kind")
    if not operand.dtype.is_float:
        return None
    place = e.summed(op, 0, group.size)
    rank = group.member(e.terms, e.ranks.rank, place)
    body = e.on_rank(operand, index, rank)
    if isinstance(place, int):
        return body
    ranges: list[tuple[str, Dim]] = [(variable_name(place), group.size)]
    if e.level is ProofLevel.EXACT:
        order = (op.name, group.size, group.stride)
        made: Term = in_order(e.terms, kind, operand.dtype, order, ranges, body)
    else:
        chosen = kind in CHOOSING and e.is_plain(operand.dtype)
        to = None if chosen else e.rounding(operand.dtype)
        made = summed(e.terms, kind, to, ranges, body)
    return e.made_by(made, op) if isinstance(made, Node) else made


@element_rule("all_reduce", deep=True)
def _all_reduce(e: Elements, op: Op, index: Index) -> Term | None:
    group = _group(e, op)
    return None if group is None else _over_ranks(e, op, group, index)


@element_rule("reduce_scatter", deep=True)
def _reduce_scatter(e: Elements, op: Op, index: Index) -> Term | None:
    group, dim = _group(e, op), op.attrs.integer("dimension")
    if group is None:
        return None
    start = group.place(e.terms, e.ranks.rank) * op.results[0].shape[dim]
    return _over_ranks(e, op, group, (*index[:dim], index[dim] + start, *index[dim + 1 :]))


@element_rule("all_gather", deep=True)
def _all_gather(e: Elements, op: Op, index: Index) -> Term | None:
    group, dim = _group(e, op), op.attrs.integer("dimension")
    size = op.operands[0].shape[dim]
    if group is None or not isinstance(size, int):
        return None
    place = div(e.terms, index[dim], size)
    within = (*index[:dim], index[dim] + place * -size, *index[dim + 1 :])
    return e.on_rank(op.operands[0], within, group.member(e.terms, e.ranks.rank, place))


@element_rule("all_to_all", deep=True)
def _all_to_all(e: Elements, op: Op, index: Index) -> Term | None:
    group = _group(e, op)
    split, concat = op.attrs.integer("split_dimension"), op.attrs.integer("concat_dimension")
    if group is None:
        return None
    part = op.operands[0].shape[split]
    width = op.operands[0].shape[concat]
    if not isinstance(part, int) or not isinstance(width, int):
        return None
    part //= group.size
    width = width // group.size if split == concat else width
    place = div(e.terms, index[concat], width)
    found = list(index)
    found[concat] = index[concat] + place * -width
    found[split] = found[split] + group.place(e.terms, e.ranks.rank) * part
    member = group.member(e.terms, e.ranks.rank, place)
    return e.on_rank(op.operands[0], tuple(found), member)


@element_rule("collective_permute", deep=True)
def _collective_permute(e: Elements, op: Op, index: Index) -> Term | None:
    if not op.operands[0].dtype.is_float:
        return None
    out: Term = e.terms.node("const", repr(0.0))
    for source, target in op.attrs.groups("source_target_pairs"):
        here = is_zero(e.terms, e.ranks.rank + -target)
        if here is False:
            continue
        out = choose(e.terms, here, e.on_rank(op.operands[0], index, source), out)
    return out
