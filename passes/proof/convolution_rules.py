"""Element rule of convolutions: a sum over the places of the kernel and the input features."""

from __future__ import annotations

from graphgen.ir import Dim, Op
from graphgen.ir.attrs import EMPTY
from graphgen.ir.dtype import f32, f64
from graphgen.passes.proof.arithmetic_rules import sum_of, sum_of_products
from graphgen.passes.proof.elements import Elements, Index, element_rule
from graphgen.passes.proof.floats import ProofLevel
from graphgen.passes.proof.integers import at_most_zero, both, choose
from graphgen.passes.proof.rebuild import flat_function
from graphgen.passes.proof.sums import zero_of
from graphgen.passes.proof.terms import Node, Term


@element_rule("convolution", deep=True)
def _convolution(e: Elements, op: Op, index: Index) -> Term | None:
    lhs, kernel = op.operands
    if not (lhs.dtype.is_float and kernel.dtype.is_float) or not _plain(op):
        return None
    of_lhs, rest = op.attrs.text("dim_labels").split("_")
    of_kernel, of_result = rest.split("->")
    out = dict(zip(of_result, index, strict=True))
    spatial = [label for label in of_result if label.isdigit()]
    count = len(spatial)
    strides = op.attrs.integers("window_strides") or (1,) * count
    dilations = op.attrs.integers("rhs_dilation") or (1,) * count
    low = op.attrs.integers("low") or (0,) * count
    sizes = dict(zip(of_kernel, kernel.shape, strict=True))
    # The input features, then the places of the kernel.
    labels = ["i", *spatial]
    summed = {label: e.summed(op, k, sizes[label]) for k, label in enumerate(labels)}
    place: dict[str, Dim] = {"b": out["b"], "f": summed["i"]}
    inside: bool | Node = True
    extents = dict(zip(of_lhs, lhs.shape, strict=True))
    for label in spatial:
        axis = int(label)
        at = out[label] * strides[axis] + summed[label] * dilations[axis] + -low[axis]
        place[label] = at
        inside = both(e.terms, inside, at_most_zero(e.terms, at * -1))
        inside = both(e.terms, inside, at_most_zero(e.terms, at + extents[label] * -1 + 1))
    if inside is False:
        return None
    factors = [
        e.at(lhs, tuple(place[label] for label in of_lhs)),
        e.at(kernel, tuple({**summed, "o": out["f"]}[label] for label in of_kernel)),
    ]
    ranges = [(summed[label], sizes[label]) for label in labels]
    if e.level is ProofLevel.EXACT:
        product: Term = e.terms.node("fn", "product", None, EMPTY, *factors)
        return sum_of(e, op, ranges, choose(e.terms, inside, product, zero_of(e.terms)), index)
    result = op.results[0].dtype
    to = e.rounding(result if result in (f32, f64) else f32)
    product = e.made_by(flat_function(e.terms, "multiply", to, EMPTY, factors), op)
    return sum_of_products(e, op, ranges, choose(e.terms, inside, product, zero_of(e.terms)), to)


def _plain(op: Op) -> bool:
    """True without groups, zeros between the elements of lhs, and kernels read backward."""
    attrs = op.attrs
    groups = attrs.integer("feature_group_count") * attrs.integer("batch_group_count")
    apart = set(attrs.integers("lhs_dilation")) - {1}
    return groups == 1 and not apart and not any(attrs.integers("window_reversal"))
