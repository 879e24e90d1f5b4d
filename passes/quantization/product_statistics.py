"""Return the Gram matrices of the left operands of products as outputs, for calibration."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from graphgen.build import Builder
from graphgen.ir import Function, Module, Op, Value
from graphgen.ir.dtype import f32
from graphgen.passes.quantization.quantizable_products import QuantizableProducts
from graphgen.passes.weights.derived import PreparedValues
from graphgen.passes.weights.materialization import widened

GRAM_PREFIX = "gram."


def add_gram_outputs(module: Module, skip: Sequence[str], only: Collection[str]) -> dict[str, str]:
    """Return the Gram matrix of the left operand of products, too.

    The output ``gram.W`` is f32 [1,K,K], the sum over all tokens of a call, padding included, of
    ``x xᵀ`` where ``x`` of size K is multiplied by the weight W; f32 [1,E,K,K] for the matrices of
    experts, whose tokens are in buffers. Products of one operand share one.

    Args:
        module: canonical, with one program.
        skip: weights that are not quantized, see ``quantize-weights``.
        only: weights to do this for.

    Returns:
        The output of each weight, by its name in the checkpoint. Weights of products whose left
        operand is not [B,S,K] have none.
    """
    products = QuantizableProducts(module, skip)
    (prepared,) = products.programs
    found: dict[Value, str] = {}
    outputs: dict[str, str] = {}
    for op in list(prepared.function.block):
        if op.name != "dot_general" or products.why_not(op, prepared) is not None:
            continue
        names = [name for name in prepared.sources(op.operands[1]) if name in only]
        x = op.operands[0]
        if not names or not _is_per_token(op):
            continue
        if x not in found:
            found[x] = f"{GRAM_PREFIX}{names[0]}"
            several = bool(op.attrs.integers("lhs_batch_dims"))
            _return_gram(module, prepared.function, x, found[x], several=several)
        outputs |= dict.fromkeys(names, found[x])
    return outputs


def _is_per_token(op: Op) -> bool:
    return op.operands[0].type.rank == 3 and op.attrs.integers("lhs_contracting_dims") == (2,)


def _return_gram(module: Module, function: Function, x: Value, name: str, *, several: bool) -> None:
    with Builder(function, module) as b:
        count, _, size = x.shape
        if several:
            gram = b.dot_general(x, x, ([1], [1]), ([0], [0]), f32)
            b.output(name, b.reshape(gram, [1, count, size, size]))
            return
        flat = b.reshape(x, [x.shape[0] * x.shape[1], size])
        # Not a product with batch dimensions, which XLA computes in plain loops on a CPU.
        gram = b.dot_general(flat, flat, ([0], [0]), dtype=f32)
        b.output(name, b.reshape(gram, [1, size, size]))


RANGE_PREFIX = "range."


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
                found[x] = f"{RANGE_PREFIX}{names[0]}"
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
