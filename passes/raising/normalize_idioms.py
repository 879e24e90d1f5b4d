"""Normalize idioms of other frameworks to the forms that raising rules match.

PyTorch writes squares as powers and roots as quotients, merges rows and tokens of a product (or
rows and heads) into one dimension, and transposes weights; Neuron's kernels compute norms.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build import Builder
from graphgen.ir import Dim, Op, Value
from graphgen.ir.dims import product
from graphgen.passes.core import NoMatch, no_match, rule
from graphgen.passes.legalize.cpu_decompositions import kernel_by_ops
from graphgen.pattern.see_through import plain, scalar, spread


@rule("power")
def power_by_ops(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``x ** 2 = x * x``; for a sum ``s``, ``s ** -0.5 = rsqrt(s)`` and ``s ** 0.5 = sqrt(s)``.

    The root of -inf is NaN and that of -0 is -0, where the power is +inf and +0: a norm's sum with
    epsilon is neither.
    """
    x, exponent = op.operands
    number = scalar(exponent)
    if number == 2:
        return [b.multiply(x, x)]
    if number not in (0.5, -0.5):
        return no_match("the exponent is neither 2 nor a half", exponent)
    if plain(x).producer("add") is None:
        return no_match("the power is not that of a sum", x)
    return [b.op("sqrt" if number > 0 else "rsqrt", x)]


@rule("divide")
def quotient_of_root(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """``x / sqrt(y + epsilon)`` is ``x * rsqrt(y + epsilon)``."""
    x, divisor = op.operands
    source, dims = spread(divisor)
    root = source.producer("sqrt")
    if root is None or plain(root.operands[0]).producer("add") is None:
        return no_match("the divisor is not the root of a sum", divisor)
    inverse = b.op("rsqrt", root.operands[0])
    if source is not divisor:
        inverse = b.broadcast_in_dim(inverse, divisor.shape, dims)
    return [inverse if scalar(x) == 1 else b.multiply(x, inverse)]


@rule("dot_general")
def product_of_transpose(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """A product with a matrix turned around is one along its other dimension."""
    lhs, rhs = op.operands
    turned = rhs.producer("transpose")
    if turned is None or rhs.type.rank != 2 or op.attrs.integers("rhs_batch_dims"):
        return no_match("the right operand is not a transposed matrix", rhs)
    (summed,) = op.attrs.integers("rhs_contracting_dims") or (-1,)
    if summed < 0:
        return no_match("nothing is summed", rhs, depth=2)
    attrs = {**op.attrs, "rhs_contracting_dims": (1 - summed,)}
    return [b.emit("dot_general", (lhs, turned.operands[0]), attrs).result]


@rule("dot_general")
def product_of_merged(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """A product of rows and tokens in one dimension is one of rows and tokens."""
    lhs, rhs = op.operands
    merged = lhs.producer("reshape")
    if merged is None or lhs.type.rank != 2 or rhs.type.rank != 2:
        return no_match("the left operand is not a reshaped matrix", lhs)
    if op.attrs.integers("lhs_contracting_dims") != (1,):
        return no_match("it is not summed along the last dimension", lhs, depth=2)
    (x,) = merged.operands
    places = [p for p in range(2, x.type.rank) if product(x.shape[:p]) == lhs.shape[0]]
    if not places:
        return no_match("its rows were not several dimensions", x, depth=3)
    x = b.reshape(x, (*x.shape[: places[0]], lhs.shape[1]))
    attrs = {**op.attrs, "lhs_contracting_dims": (x.type.rank - 1,)}
    made = b.emit("dot_general", (x, rhs), attrs).result
    return [b.reshape(made, op.result.shape)]


@rule("dot_general")
def product_of_merged_batch(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """A product for each of rows times heads is one for each row and each head."""
    batch = tuple(op.attrs.integers(f"{side}_batch_dims") for side in ("lhs", "rhs"))
    if batch != ((0,), (0,)) or {v.type.rank for v in op.operands} != {3}:
        return no_match("it is not a product of one leading batch dimension", op.result)
    outer = _merged(op.operands[0]) or _merged(op.operands[1])
    if outer is None:
        return no_match("no operand had two batch dimensions before", op.operands[0], depth=2)
    operands = [b.reshape(v, (*outer, *v.shape[1:])) for v in op.operands]
    attrs = dict(op.attrs)
    for side in ("lhs", "rhs"):
        attrs[f"{side}_batch_dims"] = (0, 1)
        (summed,) = op.attrs.integers(f"{side}_contracting_dims")
        attrs[f"{side}_contracting_dims"] = (summed + 1,)
    return [b.reshape(b.emit("dot_general", operands, attrs).result, op.result.shape)]


def _merged(value: Value) -> tuple[Dim, Dim] | None:
    """Match a reshape [B,H,S,D] to [B*H,S,D]: (B, H)."""
    op = value.producer("reshape")
    if op is None or op.operands[0].type.rank != 4:
        return None
    shape = op.operands[0].shape
    fits = shape[2:] == value.shape[1:] and product(shape[:2]) == value.shape[0]
    return (shape[0], shape[1]) if fits else None


@rule("add", "multiply", "divide")
def scores_of_merged_batch(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """A step on the scores of rows times heads is one on those of each row and each head."""
    for index, value in enumerate(op.operands):
        shape = _merged(value)
        merged = value.producer("reshape")
        if shape is None or merged is None or not _from_product(merged.operands[0]):
            continue
        (scores,) = merged.operands
        other = op.operands[1 - index]
        number = spread(other)[0]
        if number.type.rank:
            other = b.reshape(other, scores.shape)
        else:
            other = b.broadcast_in_dim(number, scores.shape, [])
        made = b.binary(op.name, *((scores, other) if index == 0 else (other, scores)))
        return [b.reshape(made, op.result.shape)]
    return no_match("no operand had two batch dimensions before", op.result)


def _from_product(value: Value) -> bool:
    """Test whether ``value`` is a product, or steps on one."""
    op = value.op
    while op is not None and op.name in ("add", "multiply", "divide"):
        op = op.operands[0].op
    return op is not None and op.name == "dot_general"


@rule("custom_call")
def kernel_of_neuron(op: Op, b: Builder) -> Sequence[Value] | NoMatch:
    """A kernel of Neuron's compiler is the ops that it means."""
    if op.attrs.text("target") == "AwsNeuronTopK":
        return no_match("the largest are not looked for", op.results[0])
    found = kernel_by_ops.apply(op, b)
    assert isinstance(found, NoMatch | Sequence)
    return found


IDIOMS = (
    power_by_ops,
    quotient_of_root,
    product_of_transpose,
    product_of_merged,
    product_of_merged_batch,
    scores_of_merged_batch,
    kernel_of_neuron,
)
