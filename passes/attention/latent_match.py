"""Match multi-head latent attention (MLA): keys and values are products of one cached vector."""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.build import Builder
from graphgen.ir import Op, Value
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.weights.materialization import only_enlarges
from graphgen.passes.weights.scale_blocks import BlockScaled


@dataclass(frozen=True, slots=True)
class LatentProjection:
    """A product of the latent vector with a weight, split into heads.

    Attributes:
        value: [B,C,H,N].
        latent: [B,C,L].
        weight: [H*N,L].
        scale: of the rows of a quantized weight, [H*N] or a scalar; ``None`` for none.
        product: the op of the product.
    """

    value: Value
    latent: Value
    weight: Value
    scale: Value | None
    product: Op

    @property
    def heads(self) -> int:
        """H."""
        return self.value.type.dims[2]

    @property
    def size(self) -> int:
        """N."""
        return self.value.type.dims[3]

    def stacked(self, b: Builder) -> Value:
        """The weight [H,N,L]; narrow numbers are reshaped before they are widened."""
        shape = (self.heads, self.size, self.latent.type.dims[2])
        made = self.weight.op
        if made is not None and made.name == "convert" and only_enlarges(made):
            return b.convert(b.reshape(made.operands[0], shape), self.weight.dtype)
        if made is None or made.name != "dequantize":
            return b.reshape(self.weight, shape)
        scaled = BlockScaled.of(made)
        if not scaled.one_for_all(0):
            scaled = scaled.finer(b, 0, self.size)
        rows, row = scaled.facts[0].type.dims[0], scaled.block[0]
        split = (1, 1) if scaled.one_for_all(0) else (self.heads, rows // self.heads)
        block = (*(shape[:2] if scaled.one_for_all(0) else (1, row)), scaled.block[1])
        facts = [b.reshape(fact, (*split, *fact.shape[1:])) for fact in scaled.facts]
        values = b.reshape(scaled.values, shape)
        return BlockScaled(values, tuple(facts), block).emit(b, made)

    def scales(self, b: Builder, like: Value) -> Value | None:
        """The scales as ``like`` [B,S,H,N], whose elements they multiply."""
        if self.scale is None or not self.scale.shape:
            return None if self.scale is None else b.broadcast_in_dim(self.scale, like.shape, ())
        rows = b.reshape(self.scale, (self.heads, self.size))
        return b.broadcast_in_dim(rows, like.shape, (2, 3))


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """One ``attention`` over keys and values of a latent vector.

    Attributes:
        op: the attention.
        keys: the first elements of a key.
        shared: the others, [B,C,1,R], which all heads have in common.
        values: the values.
    """

    op: Op
    keys: LatentProjection
    shared: Value
    values: LatentProjection

    def cached(self, b: Builder) -> Value:
        """The latent vector and the shared key, [B,C,1,L+R]."""
        vector = self.vector(b)
        parts = [value.producer("slice") for value in (vector, self.shared)]
        sources = [part.operands[0] for part in parts if part is not None]
        together = len(sources) == 2 and sources[0] is sources[1]
        wanted = vector.type.dims[3] + self.shared.type.dims[3]
        if together and sources[0].shape == (*vector.shape[:3], wanted):
            # Slices of these sizes are whole in one order alone.
            first = parts[0].attrs.dims("start_indices") if parts[0] is not None else ()
            if not any(first):
                return sources[0]
        return b.concatenate([vector, self.shared], 3)

    def vector(self, b: Builder) -> Value:
        """The latent vector as one head, [B,C,1,L]."""
        latent = self.keys.latent
        shape = (*latent.shape[:2], 1, latent.shape[2])
        made = latent.producer("reshape")
        if made is not None and made.operands[0].shape == shape:
            return made.operands[0]
        return b.reshape(latent, shape)


def match_latent(op: Op) -> LatentAttention | NoMatch:
    """The parts of ``op``, an ``attention``, if its keys and values are of one latent vector."""
    # Attention may be in another type than the model.
    key, value = [_unconverted(operand) for operand in op.operands[1:3]]
    joined = key.producer("concatenate")
    if joined is None or len(joined.operands) != 2 or joined.attrs.integer("dimension") != 3:
        return no_match("its keys are not two parts side by side", key)
    spread = joined.operands[1].producer("broadcast_in_dim")
    if spread is None or not _over_heads(spread):
        return no_match("the heads share no part of a key", joined.operands[1], depth=2)
    keys = _projection(joined.operands[0])
    values = _projection(value)
    for found, made in ((keys, joined.operands[0]), (values, value)):
        if isinstance(found, str):
            return no_match(found, made, depth=3)
    assert isinstance(keys, LatentProjection)
    assert isinstance(values, LatentProjection)
    if keys.latent is not values.latent:
        return no_match("keys and values are made of two vectors", values.latent, depth=4)
    if op.operands[0].shape[2] != keys.heads:
        return no_match("several queries share a key", op.operands[0], depth=5)
    return LatentAttention(op, keys, spread.operands[0], values)


def _unconverted(value: Value) -> Value:
    made = value.producer("convert")
    return value if made is None else made.operands[0]


def _over_heads(spread: Op) -> bool:
    """True for a broadcast [B,C,1,R] -> [B,C,H,R]."""
    source, dims = spread.operands[0], spread.attrs.integers("dimensions")
    return dims == (0, 1, 2, 3) and source.shape[2] == 1


def _projection(value: Value) -> LatentProjection | str:
    """The product that ``value`` is, or why it is none."""
    split = value.producer("reshape")
    if split is None or split.operands[0].type.rank != 3 or value.type.rank != 4:
        return "it is not split into heads"
    found, scale = split.operands[0], None
    rounded = found.producer("convert")
    scaled = (rounded.operands[0] if rounded is not None else found).producer("multiply")
    if scaled is not None:
        spread = scaled.operands[1].producer("broadcast_in_dim")
        if spread is None or spread.attrs.integers("dimensions") not in ((), (2,)):
            return "it is scaled otherwise than by rows of a weight"
        found, scale = scaled.operands[0], spread.operands[0]
    product = found.producer("dot_general")
    if product is None:
        return "it is not a product"
    latent, weight = product.operands
    summed = [product.attrs.integers(f"{side}_contracting_dims") for side in ("lhs", "rhs")]
    if summed != [(2,), (1,)] or latent.type.rank != 3 or weight.type.rank != 2:
        return "it is not a product of a vector and rows of a weight"
    return LatentProjection(value, latent, weight, scale, product)
