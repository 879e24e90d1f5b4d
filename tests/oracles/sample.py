"""One small use of an op, with arrays for its operands; and the program of many of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from graphgen.eval import Array, numpy_dtype
from graphgen.ir import Module, TensorType
from graphgen.text import parse
from graphgen.text.grammar import parse_type

INF, NAN = float("inf"), float("nan")
LOWEST, HIGHEST = -(2**31), 2**31 - 1
FLOATS = ("f32", "bf16", "f16")
NUMBERS = (*FLOATS, "s32", "u8")
# Zeros of both signs, ties, ends and what is not a number.
AWKWARD = [0.0, -0.0, 1.0, -1.5, 0.3, -7.25, 60.0, -60.0, INF, -INF, NAN, 2.5]
# XLA starts a sum of products from +0 on some processors only, which decides between -0 and +0.
SUMS_OF_PRODUCTS = ("dot_general", "convolution")


@dataclass(frozen=True)
class Sample:
    """One use.

    Attributes:
        name: says which use it is; its op comes first.
        types: of the operands.
        attrs: as text, each preceded by a space.
        result: type of the result, the last one where there are several.
        given: arrays (as nested lists) for operands that should not be random: ``x0``, ``x1``, ...
        exact: no rounding is involved, so every execution gives the same bits (a sum of products
            that is zero may have either sign).
        before: types of the results before the last one, which no program here returns.
    """

    name: str
    op: str
    types: tuple[str, ...]
    attrs: str
    result: str
    given: Mapping[str, object] = field(default_factory=dict[str, object])
    exact: bool = True
    before: tuple[str, ...] = ()

    def arrays(self) -> list[Array]:
        """An array for each operand: the given one, or a random one that is always the same."""
        random = np.random.default_rng(sum(map(ord, self.name)))
        out: list[Array] = []
        for index, text in enumerate(self.types):
            type_ = parse_type(text)
            if (given := self.given.get(f"x{index}")) is None:
                out.append(any_array(random, type_))
            else:
                out.append(np.array(given).astype(numpy_dtype(type_.dtype)).reshape(type_.dims))
        return out


def program(samples: Sequence[Sample]) -> Module:
    """A module whose function ``@f`` takes ``i.x0, i.x1, ...`` and returns ``i`` for sample i."""
    args: list[str] = []
    ops: list[str] = []
    for i, item in enumerate(samples):
        names = [f"%{i}.x{j}" for j in range(len(item.types))]
        args += [f"  arg {name} : {type_}" for name, type_ in zip(names, item.types, strict=True)]
        results = ", ".join([*[f"%z{j}.{i}" for j in range(len(item.before))], f"%y.{i}"])
        types = ", ".join([*item.before, item.result])
        ops.append(f"  {results} = {item.op}({', '.join(names)}){item.attrs} : {types}")
    returns = [f"  return {i} = %y.{i}" for i in range(len(samples))]
    lines = ["module @m level=target {", "}", "", "func @f {", *args, *ops, *returns, "}", ""]
    return parse("\n".join(lines))


def inputs(samples: Sequence[Sample]) -> dict[str, Array]:
    """What :func:`program` takes."""
    return {
        f"{i}.x{j}": array
        for i, item in enumerate(samples)
        for j, array in enumerate(item.arrays())
    }


def any_array(random: np.random.Generator, type_: TensorType) -> Array:
    """Normal floats, small integers, both truth values."""
    kind = numpy_dtype(type_.dtype)
    if type_.dtype.name == "pred":
        return random.integers(0, 2, type_.dims).astype(kind)
    if type_.dtype.is_complex:
        parts = 2 * random.standard_normal((2, *type_.dims))
        return (parts[0] + 1j * parts[1]).astype(kind)
    if type_.dtype.is_float:
        return (2 * random.standard_normal(type_.dims)).astype(kind)
    low = 0 if type_.dtype.name.startswith("u") else -9
    return random.integers(low, 10, type_.dims).astype(kind)


def in_double(x: Array) -> Array:
    """Numbers in double precision; of complex ones the parts."""
    if x.dtype.kind == "c":
        x = np.stack([np.real(x), np.imag(x)])
    return x.astype(np.float64)


def difference(sample: Sample, ours: Array, theirs: Array, rounding: Mapping[str, float]) -> str:
    """The first difference that matters, empty without one.

    Args:
        rounding: absolute and relative difference by dtype that a sample with rounding may have.
    """
    if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
        return f"{sample.name}: {ours.dtype}{ours.shape} and {theirs.dtype}{theirs.shape}"
    tolerance = 0.0 if sample.exact else rounding[sample.result.split("[")[0]]
    wide = [in_double(np.asarray(x)) for x in (ours, theirs)]
    same = np.allclose(*wide, rtol=tolerance, atol=tolerance, equal_nan=True)
    if sample.exact and sample.op not in SUMS_OF_PRODUCTS:
        signs = np.signbit(wide[0]) == np.signbit(wide[1])
        same = same and bool(np.all(np.isnan(wide[0]) | signs))
    return "" if same else f"{sample.name}: {ours} and {theirs}"


def sample(
    name: str,
    use: str,
    result: str,
    exact: bool = True,
    given: Mapping[str, object] | None = None,
    **operands: object,
) -> Sample:
    """``use`` is ``op type... attr=value...``; operands are called x0, x1, ..."""
    op, *words = use.split()
    types = tuple(word for word in words if "=" not in word)
    attrs = "".join(f" {word}" for word in words if "=" in word)
    return Sample(name, op, types, attrs, result, {**(given or {}), **operands}, exact)
