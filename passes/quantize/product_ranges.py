"""Return the absolute maximum of the left operands of products as outputs, for static scales."""

from __future__ import annotations

from graphgen.build import Builder
from graphgen.ir import Module, Op, Value
from graphgen.ir.dtype import f32
from graphgen.passes.quantize.quantizable_products import QuantizableProducts
from graphgen.passes.weights.derived import PreparedValues
from graphgen.passes.weights.materialization import widened

PREFIX = "range."


def add_range_outputs(module: Module) -> dict[str, str]:
    """Return the largest magnitude of the left operand of products, too.

    The output ``range.W`` is f32 [B] for an operand [B,...], padding included: the largest of each
    row, or f32 [1] of all where matrices of experts multiply tokens in buffers. Products of one
    operand share one. Weights that are narrow already count too, such as those of a quantized
    checkpoint.

    Args:
        module: canonical.

    Returns:
        The output of each weight, by its name in the checkpoint.
    """
    products = QuantizableProducts(module, (), copies=True)
    outputs: dict[str, str] = {}
    for prepared in products.programs:
        found: dict[Value, str] = {}
        for op in list(prepared.function.block):
            weight = _weight(op, prepared, products)
            if weight is None:
                continue
            names, x = prepared.sources(weight), op.operands[0]
            if x not in found:
                found[x] = f"{PREFIX}{names[0]}"
                _return_largest(Builder(prepared.function, module), op, found[x])
            outputs |= dict.fromkeys(names, found[x])
    return outputs


def _weight(op: Op, prepared: PreparedValues, products: QuantizableProducts) -> Value | None:
    """The weight of a product that is narrow or can be; ``None`` for other ops."""
    if op.name != "dot_general":
        return None
    wide = widened(op)
    if wide is not None and prepared.of_weights(wide.operands[0]):
        return None if op.operands[0] in prepared else wide.operands[0]
    return products.weight(op, prepared).value if products.why_not(op, prepared) is None else None


def _return_largest(b: Builder, product: Op, name: str) -> None:
    x, several = product.operands[0], bool(product.attrs.integers("lhs_batch_dims"))
    with b:
        kept = b.reduce(
            b.convert(b.abs(x), f32), list(range(0 if several else 1, x.type.rank)), "maximum"
        )
        b.output(name, b.reshape(kept, (1,)) if several else kept)
