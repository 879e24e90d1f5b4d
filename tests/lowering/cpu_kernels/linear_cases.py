"""Products with weights as modules, their inputs, and how far two right results may be apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

import graphgen.passes.pipelines  # noqa: F401
from graphgen.eval import Array, numpy_dtype
from graphgen.ir import Function, Module, Op, dtype
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.text import parse

# Activation of the kernel -> the op.
ACTIVATIONS: Final = {
    "silu": "silu(%left)",
    "gelu": "gelu(%left) approximate=none",
    "gelu_tanh": "gelu(%left) approximate=tanh",
    "gelu_sigmoid": "gelu(%left) approximate=sigmoid",
}
# Distance from 1 to the next number, and from 0.
STEPS: Final = {
    "f32": (2.0**-23, 2.0**-149),
    "bf16": (2.0**-7, 2.0**-133),
    "f16": (2.0**-10, 2.0**-24),
}
SMALLEST_NORMAL: Final = 2.0**-126
EPSILON: Final = 1e-5


@dataclass(frozen=True)
class LinearCase:
    """One product.

    Attributes:
        outer: dims of the left operand before the depth; empty for a vector.
        depth: K.
        columns: N of the result.
        dtype: of the product's operands.
        narrow: type of the weight if it is widened; empty for ``dtype``.
        scale: ``column`` for one of each column, ``tensor`` for one of all; empty for none.
        group: numbers of a column that share a scale instead; 0 for none.
        zero: type of the zero points of groups; empty for none.
        x_group: numbers of a row that share a scale, rounded to integers; 0 for none.
        axis: of the weight that is contracted.
        norm: whether ``rms_norm`` stands before it.
        bias: whether one row is added to all.
        residual: whether something is added.
        offset: whether that is ``layer_norm`` instead.
        activation: of the left half of the product; empty for none.
        whole: activation of all of the product, behind the bias; empty for none.
        result: type of the result.
    """

    outer: tuple[int, ...]
    depth: int
    columns: int
    dtype: str
    axis: int = 1
    norm: bool = False
    bias: bool = False
    residual: bool = False
    activation: str = ""
    result: str = "f32"
    narrow: str = ""
    scale: str = ""
    group: int = 0
    zero: str = ""
    x_group: int = 0
    group_scale: str = "f32"
    offset: bool = False
    whole: str = ""

    @property
    def product_columns(self) -> int:
        """Columns of the weight."""
        return 2 * self.columns if self.activation else self.columns

    @property
    def scale_shape(self) -> tuple[int, ...]:
        """One scale a column, or one."""
        return (self.product_columns,) if self.scale == "column" else ()

    @property
    def group_shape(self) -> tuple[int, ...]:
        """Scales of groups, as the weight lies."""
        return (self.product_columns, -(-self.depth // self.group))[:: 1 if self.axis else -1]

    def config(self) -> dict[str, object]:
        """The settings that the kernel must be given."""
        return {
            "columns": self.columns,
            "norm": self.norm,
            "offset": self.offset,
            "epsilon": EPSILON if self.norm else 0.0,
            "scale": bool(self.scale or self.group),
            "group": min(self.group, self.depth),
            "x_group": min(self.x_group, self.depth),
            # Numbers without a sign have one: half of their range.
            "zero": bool(self.zero or (self.group and self.narrow == "u4")),
            "bias": self.bias,
            "residual": self.residual,
            "activation": self.activation or self.whole or "none",
            "gated": bool(self.activation),
        }

    def module(self) -> Module:
        """The module with the kernel's call."""
        module = parse(self.text())
        run_pipeline(module, parse_pipeline("select-kernels"))
        return module

    def text(self) -> str:
        """The module as a user writes it."""
        x_type = "f32" if self.norm else self.dtype
        shape = (self.product_columns, self.depth)[:: 1 if self.axis else -1]
        arguments = {"x": ("input", _type(x_type, *self.outer, self.depth))}
        arguments["w"] = ("weight", _type(self.narrow or self.dtype, *shape))
        if self.scale:
            arguments["s"] = ("weight", _type("f32", *self.scale_shape))
        if self.group:
            arguments["s"] = ("weight", _type(self.group_scale, *self.group_shape))
        if self.zero:
            arguments["z"] = ("weight", _type(self.zero, *self.group_shape))
        if self.norm:
            arguments["norm"] = ("weight", _type(self.dtype, self.depth))
        if self.offset:
            arguments["offset"] = ("weight", _type(self.dtype, self.depth))
        if self.bias:
            arguments["b"] = ("weight", _type("f32", self.columns))
        if self.residual:
            arguments["r"] = ("input", _type("f32", *self.outer, self.columns))
        rows = [f"  {role} %{name} : {type_}" for name, (role, type_) in arguments.items()]
        head = ["module @m level=canonical {", *rows]
        head += [f"  output %y : {_type(self.result, *self.outer, self.columns)}", "}", ""]
        body = [f"  arg %{name} : {type_}" for name, (_, type_) in arguments.items()]
        body += [f"  {line}" for line in self._ops()]
        return "\n".join([*head, "func @f phase=decode {", *body, "  return y = %y", "}", ""])

    def _ops(self) -> list[str]:
        x = "%x"
        lines: list[str] = []
        if self.norm:
            type_ = _type(self.dtype, *self.outer, self.depth)
            norm = "layer_norm(%x, %norm, %offset)" if self.offset else "rms_norm(%x, %norm)"
            lines += [f"%n = {norm} epsilon={EPSILON} : {type_}"]
            x = "%n"
        if self.x_group:
            lines += self._rounding(x)
            x = "%rounded"
        last = len(self.outer)
        after = bool(self.bias or self.residual or self.activation or self.whole)
        rounded = self.scale != "" and self.result != "f32" and not after
        made = "p" if after or rounded else "y"
        lines += self._product(x, made, "f32" if after or rounded else self.result)
        if rounded:
            type_ = _type(self.result, *self.outer, self.columns)
            lines += [f"%y = convert(%p) dtype={self.result} : {type_}"]
        type_, value = _type("f32", *self.outer, self.columns), "p"
        if self.bias:
            shape = f"shape=[{','.join(map(str, (*self.outer, self.columns)))}] dimensions=[{last}]"
            lines += [f"%rows = broadcast_in_dim(%b) {shape} : {type_}"]
            more = self.residual or self.whole
            lines += [f"%{'sum' if more else 'y'} = add(%p, %rows) : {type_}"]
            value = "sum"
        if self.whole:
            lines += self._activated(value)
        if self.residual:
            lines += [f"%y = add(%{value}, %r) : {type_}"]
        return lines + (self._gate() if self.activation else [])

    def _rounding(self, x: str) -> list[str]:
        """The left operand as integers with a scale a block, widened."""
        block = f"block=[{','.join(['1'] * len(self.outer) + [str(self.x_group)])}]"
        numbers, wide = (_type(kind, *self.outer, self.depth) for kind in ("s8", self.dtype))
        scales = _type("f32", *self.outer, -(-self.depth // self.x_group))
        return [
            f"%i, %is = quantize({x}) dtype=s8 limit=127.0 {block} : {numbers}, {scales}",
            f"%rounded = dequantize(%i, %is) {block} dtype={self.dtype} : {wide}",
        ]

    def _activated(self, value: str) -> list[str]:
        type_ = _type("f32", *self.outer, self.columns)
        made = "y" if self.result == "f32" else "wide"
        if self.whole == "relu":
            shape = type_.partition("[")[2]
            lines = ["%nought = constant() value=f32[](0.0) : f32[]"]
            lines += [f"%zeros = broadcast_in_dim(%nought) shape=[{shape} dimensions=[] : {type_}"]
            lines += [f"%{made} = maximum(%{value}, %zeros) : {type_}"]
        else:
            op = ACTIVATIONS[self.whole].replace("%left", f"%{value}")
            head, _, attrs = op.partition(" ")
            lines = [f"%{made} = {head} {attrs} : {type_}".replace("  ", " ")]
        if self.result != "f32":
            type_ = _type(self.result, *self.outer, self.columns)
            lines += [f"%y = convert(%wide) dtype={self.result} : {type_}"]
        return lines

    def _product(self, x: str, made: str, kind: str) -> list[str]:
        """The product with its scale, of type ``kind``."""
        w, last = "%w", len(self.outer)
        lines: list[str] = []
        if self.narrow:
            w = "%widened"
            lines += [f"{w} = {self._widening()}"]
        type_ = _type(kind, *self.outer, self.product_columns)
        lines += [
            f"%{'d' if self.scale else made} = dot_general({x}, {w}) lhs_contracting_dims=[{last}] "
            f"rhs_contracting_dims=[{self.axis}] dtype={kind} : {type_}"
        ]
        if not self.scale:
            return lines
        shape = type_.partition("[")[2]
        along = [last] if self.scale == "column" else []
        spread = f"%spread = broadcast_in_dim(%s) shape=[{shape} dimensions={along} : {type_}"
        return [*lines, spread, f"%{made} = multiply(%d, %spread) : {type_}"]

    def _widening(self) -> str:
        shape = (self.product_columns, self.depth)[:: 1 if self.axis else -1]
        type_ = _type(self.dtype, *shape)
        if not self.group:
            return f"convert(%w) dtype={self.dtype} : {type_}"
        block = [1, self.group] if self.axis else [self.group, 1]
        facts = "%w, %s, %z" if self.zero else "%w, %s"
        text = f"block=[{block[0]},{block[1]}] dtype={self.dtype}"
        return f"dequantize({facts}) {text} : {type_}"

    def _gate(self) -> list[str]:
        half = _type("f32", *self.outer, self.columns)
        lines: list[str] = []
        for name, start in (("left", 0), ("right", self.columns)):
            starts = [0] * len(self.outer) + [start]
            limits = [*self.outer, start + self.columns]
            lines += [f"%{name} = slice(%p) start_indices={starts} limit_indices={limits} : {half}"]
        lines += [f"%active = {ACTIVATIONS[self.activation]} : {half}"]
        made = "y" if self.result == "f32" else "wide"
        lines += [f"%{made} = multiply(%active, %right) : {half}"]
        if self.result != "f32":
            type_ = _type(self.result, *self.outer, self.columns)
            lines += [f"%y = convert(%wide) dtype={self.result} : {type_}"]
        return [line.replace(", ", ",") if "start_indices" in line else line for line in lines]

    def inputs(self, random: np.random.Generator) -> dict[str, Array]:
        """Numbers of ordinary size; sums of products are near 1."""

        def normal(kind: str, *dims: int, scale: float = 1.0) -> Array:
            return (random.standard_normal(dims) * scale).astype(numpy_dtype(dtype(kind)))

        size = float(np.exp(random.uniform(-2, 2)))
        shape = (self.product_columns, self.depth)[:: 1 if self.axis else -1]
        made = {
            "x": normal("f32" if self.norm else self.dtype, *self.outer, self.depth, scale=size),
            "w": normal(self.dtype, *shape, scale=self.depth**-0.5),
        }
        if self.narrow:
            made["w"] = narrow_numbers(random, self.narrow, shape)
        if self.scale:
            size = self.depth**-0.5 / (64 if self.narrow == "s8" else 1)
            made["s"] = np.asarray(random.uniform(0.5, 1.5, self.scale_shape) * size, np.float32)
        if self.group:
            size = self.depth**-0.5 / {"s8": 64, "s4": 4, "u4": 4}.get(self.narrow, 1)
            scales = random.uniform(0.5, 1.5, self.group_shape) * size
            made["s"] = scales.astype(numpy_dtype(dtype(self.group_scale)))
        if self.zero:
            made["z"] = random.integers(0, 17, self.group_shape).astype(
                numpy_dtype(dtype(self.zero))
            )
        if self.norm:
            made["norm"] = normal(self.dtype, self.depth)
        if self.offset:
            made["offset"] = normal(self.dtype, self.depth)
        if self.bias:
            made["b"] = normal("f32", self.columns)
        if self.residual:
            made["r"] = normal("f32", *self.outer, self.columns)
        return made


def narrow_numbers(random: np.random.Generator, kind: str, shape: tuple[int, ...]) -> Array:
    """Integers of all 8 bits, or floats about 1 in size with some below the normal ones."""
    whole = {"s8": (-128, 128), "s4": (-8, 8), "u4": (0, 16)}.get(kind)
    if whole is not None:
        return random.integers(*whole, shape).astype(np.int8).astype(numpy_dtype(dtype(kind)))
    sizes = np.exp2(random.choice([0, 0, 0, -6, -14], shape))
    return (random.standard_normal(shape) * sizes).astype(numpy_dtype(dtype(kind)))


def kernel_call(function: Function) -> Op:
    """The one call of a kernel; nothing else but the packing of the weight stands beside it."""
    (call,) = [op for op in function.block if op.name == "call"]
    others = {op.name for op in function.block if op is not call}
    packing = {"pad", "reshape", "transpose", "constant"}
    bits = {"convert", "bitcast_convert", "slice", "and", "or", "shift_left", "subtract"}
    assert others <= packing | bits | {"broadcast_in_dim"}, others
    return call


def bound(case: LinearCase, given: dict[str, Array]) -> Array:
    """How far two right results may be apart, per element.

    Sums in any order, of ``K`` roundings; a factor that falls on the other side of a tie of the
    narrow type, for some elements of a normalized row; denormals that count as zero; the rounding
    of the result.
    """
    x, w = _wide(given["x"]), _wide(given["w"])
    w = w if case.axis else w.T
    w, size = _dequantized(case, given, w) if case.group else (w, np.abs(w))
    step, denormal = STEPS[case.dtype]
    few = 6 if case.dtype != "f32" else case.depth
    ties: Any = 0.0
    least = SMALLEST_NORMAL * (np.abs(x).sum(-1, keepdims=True) + np.abs(w).sum(-1) + 1)
    if case.norm:
        norm, scale = _wide(given["norm"]), 1 / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON)
        least = least + SMALLEST_NORMAL * scale * (np.abs(w) @ np.abs(norm))
        if case.offset:
            # The mean is a sum of K roundings, which the deviations are the rest of.
            mean, size_of_x = x.mean(-1, keepdims=True), np.abs(x).max(-1, keepdims=True)
            scale = 1 / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + EPSILON)
            offset = _wide(given["offset"])
            lost = (case.depth + 8) * STEPS["f32"][0] * size_of_x * scale
            ties = (lost * np.abs(norm) * 2) @ size.T
            x = (x - mean) * scale * norm
            ties = ties + case.depth * STEPS["f32"][0] * (np.abs(x) + np.abs(offset)) @ size.T
            x = x + offset
        else:
            x = x * scale * norm
        largest = [np.abs(row * size).max(-1) for row in x.reshape(-1, case.depth)]
        ties = ties + few * step * np.reshape(largest, (*case.outer, -1))
    if case.x_group:
        x, lost = _rounded(case, x, size, few)
        ties = ties + lost
    sums = np.abs(x) @ size.T
    error = (case.depth + 4) * STEPS["f32"][0] * sums + ties + least
    if case.group:
        # The meaning rounds a weight to the type of the product.
        error = (
            error + step * (np.abs(x) @ np.abs(w).T) + denormal * np.abs(x).sum(-1, keepdims=True)
        )
    value = x @ w.T
    if case.scale:
        error = error * given["s"] + STEPS["f32"][0] * np.abs(value * given["s"])
        value = value * given["s"]
    if case.bias:
        value = value + _wide(given["b"])
        error = error + 2 * STEPS["f32"][0] * np.abs(value)
    if case.whole:
        # The slope of any is below 1.2.
        error = 1.2 * error + 16 * STEPS["f32"][0] * np.abs(value)
    if case.residual:
        value = value + _wide(given["r"])
        error = error + 2 * STEPS["f32"][0] * np.abs(value)
    if case.activation:
        error, value = _gated(case.columns, value, error)
    relative, least = STEPS[case.result]
    return error + relative * (np.abs(value) + error) + least


def _rounded(case: LinearCase, x: Array, size: Array, few: int) -> tuple[Array, Array]:
    """Rows as integers in blocks are, and what two ways of rounding them may lose."""
    x, steps = _in_blocks(x, case.x_group)
    # The meaning rounds the rows to the type of the product.
    lost = STEPS[case.dtype][0] * np.abs(x) @ size.T
    if case.norm:
        # A number on the other side of a tie of the integers.
        largest = [np.abs(row * size).max(-1) for row in steps.reshape(-1, case.depth)]
        lost = lost + few * np.reshape(largest, (*case.outer, -1))
    return x, lost


def _in_blocks(x: Array, block: int) -> tuple[Array, Array]:
    """Rows rounded to integers with a scale a block, and the scale of each element."""
    starts = np.arange(0, x.shape[-1], block)
    largest = np.maximum.reduceat(np.abs(x), starts, -1)
    scale = np.maximum(largest / 127, SMALLEST_NORMAL)
    steps = scale.take(np.arange(x.shape[-1]) // block, -1)
    return np.rint(x / steps) * steps, steps


def _dequantized(case: LinearCase, given: dict[str, Array], numbers: Array) -> tuple[Array, Array]:
    """The weight [N, K] and the size of what its numbers are the difference of."""

    def spread(fact: Array) -> Array:
        wide = _wide(fact) if case.axis else _wide(fact).T
        return np.repeat(wide, case.group, 1)[:, : case.depth]

    scale = spread(given["s"])
    zero = spread(given["z"]) if case.zero else np.zeros(1)
    # Without a sign a number is kept less 8.
    shift = 8 if case.narrow == "u4" else 0
    return (numbers - zero) * scale, (np.abs(numbers) + np.abs(zero) + 2 * shift) * scale


def _gated(columns: int, product: Array, error: Array) -> tuple[Array, Array]:
    """The bound and about the size of ``f(left) * right``; the slope of any f is below 1.2."""
    left, right = np.abs(product[..., :columns]), np.abs(product[..., columns:])
    d_left, d_right = error[..., :columns], error[..., columns:]
    f_error = 1.2 * d_left + 16 * STEPS["f32"][0] * left
    return f_error * (right + d_right) + (left + f_error) * d_right, left * right


def _wide(array: Array) -> Array:
    return array.astype(np.float64)


def _type(kind: str, *dims: int) -> str:
    return f"{kind}[{','.join(map(str, dims))}]"
