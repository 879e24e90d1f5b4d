"""Attention with combinations of its optional terms, on arrays in which some rows are empty."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphgen.build import Builder
from graphgen.eval import Array, numpy_dtype
from graphgen.ir import Attrs, DType, Function, TensorType, Value, attrs_of, tensor
from graphgen.ir.dtype import f32, pred


@dataclass(frozen=True)
class AttentionCase:
    """Sizes and terms of one attention.

    Attributes:
        rows, active, attended: B, S and C.
        heads, kv_heads, size, width: H, K, D and W.
        per_head: the mask differs from head to head.
        terms: some of ``slopes``, ``bias`` and ``sinks``.
        softcap: of the scores; 0 for none.
    """

    rows: int = 2
    active: int = 3
    attended: int = 11
    heads: int = 4
    kv_heads: int = 2
    size: int = 4
    width: int = 6
    per_head: bool = False
    terms: tuple[str, ...] = ()
    softcap: float = 0.0
    dtype: DType = f32

    @property
    def attrs(self) -> Attrs:
        """Those of the op."""
        return attrs_of({"scale": 0.7, "softcap": self.softcap})

    @property
    def types(self) -> list[TensorType]:
        """Of the operands."""
        b, s, c, h = self.rows, self.active, self.attended, self.heads
        over = (b, h, s, c) if self.per_head else (b, s, c)
        found = [
            tensor(self.dtype, (b, s, h, self.size)),
            tensor(self.dtype, (b, c, self.kv_heads, self.size)),
            tensor(self.dtype, (b, c, self.kv_heads, self.width)),
            tensor(pred, over),
        ]
        if "slopes" in self.terms:
            found += [tensor(f32, (h,)), tensor(f32, (b, s, c))]
        if "bias" in self.terms:
            found.append(tensor(f32, (b, h, s, c)))
        if "sinks" in self.terms:
            found.append(tensor(f32, (h,)))
        return found

    def arrays(self, seed: int) -> dict[str, Array]:
        """Operands a0, a1, ...; the first token of the first row reads nothing."""
        random = np.random.default_rng(seed)
        found: dict[str, Array] = {}
        for index, kind in enumerate(self.types):
            if kind.dtype is pred:
                array = random.random(kind.dims) < 0.4
                array[0, ..., 0, :] = False
            else:
                array = (3 * random.standard_normal(kind.dims)).astype(numpy_dtype(kind.dtype))
            found[f"a{index}"] = array
        return found

    def function(self) -> tuple[Function, Builder, list[Value]]:
        """A function with the operands for arguments, its builder, and the arguments."""
        function = Function("f")
        args = [function.block.add_arg(kind, f"a{i}") for i, kind in enumerate(self.types)]
        return function, Builder(function), args

    def whole(self) -> Function:
        """The attention as one op."""
        function, b, args = self.function()
        function.outputs = [("y", b.emit("attention", args, dict(self.attrs)).result)]
        return function


CASES = {
    "plain": AttentionCase(),
    "one token": AttentionCase(active=1, heads=6, kv_heads=2),
    "one key-value head": AttentionCase(kv_heads=1, per_head=True, softcap=2.0),
    "linear biases": AttentionCase(terms=("slopes",), kv_heads=4),
    "biases": AttentionCase(terms=("bias",), width=2),
    "sinks": AttentionCase(terms=("sinks",), softcap=1.5),
    "all": AttentionCase(terms=("slopes", "bias", "sinks"), per_head=True, softcap=5.0),
}
