"""The checkpoint tensors that quantization is for: weights of products, as the passes see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Op, Value, dtype
from graphgen.models import build
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import phases
from graphgen.passes.quantization.quantizable_products import QuantizableProducts, mixture_weights


@dataclass(frozen=True, slots=True)
class QuantizableWeight:
    """A checkpoint tensor that is multiplied by activations, and nothing else.

    Attributes:
        name: in the checkpoint.
        shape: in the checkpoint.
        contracted: the dimension of the inputs: 1 for [out,in], 0 for [in,out]; one more of a stack
            of experts.
    """

    name: str
    shape: tuple[int, ...]
    contracted: int

    @property
    def inputs(self) -> int:
        """K, the number of inputs."""
        return self.shape[self.contracted]

    @property
    def matrices(self) -> int:
        """Number of its matrices: one, or one an expert."""
        return self.shape[0] if len(self.shape) > 2 else 1

    @property
    def layer(self) -> str:
        """The name up to the number of its layer, such as ``model.layers.3``; else the module's."""
        parts = self.name.split(".")
        for at, part in enumerate(parts):
            if part.isdigit():
                return ".".join(parts[: at + 1])
        return self.module

    @property
    def module(self) -> str:
        """The name without ``.weight``."""
        return self.name.removesuffix(".weight")


def quantizable_weights(
    config: Mapping[str, object], skip: Sequence[str]
) -> dict[str, QuantizableWeight]:
    """The matrices of a checkpoint that ``quantize-weights`` would quantize, by name.

    Args:
        config: a ``config.json``.
        skip: names or parts of names to leave out.
    """
    products = _products(config, skip)
    return _by_name(
        _of_product(op)
        for prepared in products.programs
        for op in prepared.function.block
        if op.name == "dot_general" and products.why_not(op, prepared) is None
    )


def quantizable_stacks(
    config: Mapping[str, object], skip: Sequence[str]
) -> dict[str, QuantizableWeight]:
    """The stacks of experts' matrices that ``quantize-weights`` would quantize, by name.

    Args:
        config: a ``config.json``.
        skip: names or parts of names to leave out.
    """
    products = _products(config, skip)
    return _by_name(
        _of_stack(weight)
        for prepared in products.programs
        for op in prepared.function.block
        if op.name == "experts"
        for weight in mixture_weights(op)
        if products.why_not_of_mixture(weight, prepared) is None
    )


def _by_name(weights: Iterable[QuantizableWeight | None]) -> dict[str, QuantizableWeight]:
    return {weight.name: weight for weight in weights if weight is not None}


def _products(config: Mapping[str, object], skip: Sequence[str]) -> QuantizableProducts:
    module = build(config, dtype("f32"), phases=("prefill",))
    run_pipeline(module, list(phases(CompileConfig())[0].passes))
    return QuantizableProducts(module, skip)


def _of_stack(weight: Value) -> QuantizableWeight | None:
    """The checkpoint's stack that a weight [experts,out,in] is; ``None`` if it is computed."""
    value, contracted = weight, 2
    while value.op is not None:
        if value.op.name == "transpose":
            contracted = value.op.attrs.integers("permutation")[contracted]
        elif value.op.name not in ("slice", "convert"):
            return None
        value = value.op.operands[0]
    dims = value.type.dims
    return QuantizableWeight(value.name or "", dims, contracted) if len(dims) == 3 else None


def _of_product(op: Op) -> QuantizableWeight | None:
    """The checkpoint's matrix of a product; ``None`` if it is more than a part of one."""
    weight = op.operands[1]
    source = _sliced(weight)
    if source is None or source.type.rank != 2:
        return None
    (contracted,) = op.attrs.integers("rhs_contracting_dims")
    return QuantizableWeight(source.name or "", source.type.dims, contracted)


def _sliced(value: Value) -> Value | None:
    """The argument that a value is slices of."""
    while value.op is not None:
        if value.op.name not in ("slice", "convert"):
            return None
        value = value.op.operands[0]
    return value
