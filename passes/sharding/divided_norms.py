"""Partition norms over a sharded dimension: all-reduce the sums of squares."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.composites.basics import rms_norm
from graphgen.ir import Module, Op, Value
from graphgen.passes.core import NoMatch, Rule, no_match, rule
from graphgen.passes.sharding.spec.requested import requested_sharding


def divided_norms(module: Module) -> Rule:
    """The rule for the programs of a module: the norm of a weight that is split is taken apart.

    ``rms_norm`` needs rows as a whole; the sum of squares in its decomposition does not, and where
    its weight is split, so are the rows: one number a row is sent in the place of the row.
    """

    @rule("rms_norm")
    def sum_of_squares(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
        """``rms_norm(x) = x / sqrt(sum(x^2) / E + epsilon) * weight``."""
        weight = op.operands[1]
        if not requested_sharding(module, weight).dims[0]:
            return no_match("its weight is whole on every rank", weight)
        return rms_norm(b, op.operands, op.attrs)

    return sum_of_squares
