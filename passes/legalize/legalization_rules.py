"""The rewrite rules of ``legalize`` by name, as a target lists them in ``graphgen/targets``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.composites import Decomposition
from graphgen.composites.attention import masked_by
from graphgen.errors import GraphgenError, did_you_mean
from graphgen.ir import Op, Value
from graphgen.ir.dtype import s32
from graphgen.passes.core import NoMatch, Rule, no_match, rule
from graphgen.passes.legalize.cpu_decompositions import kernel_by_ops
from graphgen.passes.legalize.cpu_products import one_free_dimension, padded_rows, wide_dot
from graphgen.passes.legalize.neuron_all_to_all import exchange_along_the_first, exchange_of_two
from graphgen.passes.legalize.neuron_erf import erf_by_quotients
from graphgen.passes.legalize.neuron_f8 import widened_f8_dot
from graphgen.passes.legalize.neuron_gather_scatter import (
    gather_of_elements,
    gather_of_rows,
    scatter_of_rows,
)
from graphgen.passes.legalize.neuron_integers import (
    integer_dot,
    integer_extreme_over_ranks,
    integer_scatter_add,
    integer_sum_over_ranks,
    wide_shift,
)
from graphgen.passes.legalize.neuron_rank_input import rank_as_input
from graphgen.passes.legalize.neuron_sort import (
    front_of_sort,
    sort_by_kernel,
    top_k_by_kernel,
    top_k_without_sort,
)
from graphgen.targets import Target


@rule("attention_mask")
def mask_of_rows(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """Compare slot numbers with positions and lengths, instead of ``key_positions`` with 0.

    Both are the same numbers; this form has no value [B,C] that is selected first.

    Given:
        arg %positions : s32[2,1]
        arg %lengths : s32[2]
        %0 = key_positions(%lengths) attended=8 : s32[2,8]
        %y = attention_mask(%positions, %0) : pred[2,1,8]

    Result:
        arg %positions : s32[2,1]
        arg %lengths : s32[2]
        %0 = key_positions(%lengths) attended=8 : s32[2,8]
        %1 = iota() dtype=s32 shape=[2,1,8] dimension=2 : s32[2,1,8]
        %2 = broadcast_in_dim(%positions) shape=[2,1,8] dimensions=[0,1] : s32[2,1,8]
        %3 = compare(%1, %2) direction=LE : pred[2,1,8]
        %4 = broadcast_in_dim(%lengths) shape=[2,1,8] dimensions=[0] : s32[2,1,8]
        %5 = compare(%1, %4) direction=LT : pred[2,1,8]
        %y = and(%3, %5) : pred[2,1,8]
    """
    positions, keys = op.operands
    held = keys.producer("key_positions")
    if held is None:
        return no_match("its slots are not those of plain rows", keys, depth=0)
    shape = op.result.shape
    slots = b.iota(s32, shape, 2)

    def filled() -> Value:
        return b.compare(slots, b.broadcast_in_dim(held.operands[0], shape, [0]), "LT")

    return [masked_by(b, positions, slots, filled, op.attrs)]


def _by_name(*rules: Rule) -> Mapping[str, Rule]:
    return {rule.name: rule for rule in rules}


# Applied for every target, whose data does not list them.
EVERYWHERE: tuple[Rule, ...] = (mask_of_rows,)
# Applied to whole programs, before composites are inlined.
FIRST = _by_name(rank_as_input, exchange_of_two)
# Applied after those; sorts that nothing reads any more are erased.
SORTS = _by_name(front_of_sort, sort_by_kernel)
# Applied while composites are inlined, to what they are made of too.
INLINED = _by_name(
    wide_dot,
    one_free_dimension,
    kernel_by_ops,
    integer_dot,
    integer_sum_over_ranks,
    integer_extreme_over_ranks,
    integer_scatter_add,
    wide_shift,
    exchange_along_the_first,
    gather_of_elements,
    gather_of_rows,
    scatter_of_rows,
    erf_by_quotients,
    widened_f8_dot,
)
# The target's own decompositions of composites: the op, and its decomposition.
COMPOSITES: Mapping[str, tuple[str, Decomposition]] = {
    "top-k-by-kernel": ("top_k", top_k_by_kernel),
    "top-k-without-sort": ("top_k", top_k_without_sort),
}
# Takes the option ``min_rows``.
PAD_ROWS = "pad-rows"


@dataclass(frozen=True, slots=True)
class LegalizationRules:
    """The rules of one target, by when they are applied.

    Attributes:
        first: that of every target, then those of the table.
        sorts, inlined: as the tables of this module.
        composites: decompositions by op.
    """

    first: Sequence[Rule]
    sorts: Sequence[Rule]
    inlined: Sequence[Rule]
    composites: Mapping[str, Decomposition]


def rules_of(target: Target, rows: int) -> LegalizationRules:
    """The rules that ``target`` lists, in its order.

    Args:
        target: its ``rules`` are names of the tables above.
        rows: the option ``min_rows`` of :class:`graphgen.passes.legalize.legalize.Legalize`.

    Raises:
        GraphgenError: GG0302 for a name that no rule has, with the nearest ones.
    """
    inlined = {**INLINED, PAD_ROWS: padded_rows(rows)}
    known = [*FIRST, *SORTS, *inlined, *COMPOSITES]
    for name in target.rules:
        if name not in known:
            help = did_you_mean(name, known) or f"known: {', '.join(known)}"
            what = f"target '{target.name}' lists the unknown rule '{name}'"
            raise GraphgenError("GG0302", what, help=help)

    def chosen(table: Mapping[str, Rule]) -> list[Rule]:
        return [table[name] for name in target.rules if name in table]

    composites = dict(COMPOSITES[name] for name in target.rules if name in COMPOSITES)
    first = [*EVERYWHERE, *chosen(FIRST)]
    return LegalizationRules(first, chosen(SORTS), chosen(inlined), composites)
