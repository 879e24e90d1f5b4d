"""Element types in proofs: whatever is proved is equal to the last bit in NumPy."""

from __future__ import annotations

from collections import Counter
from functools import cache
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.eval import Array, evaluate, numpy_dtype
from graphgen.ir import DType, Function, Module, Value, dtype, tensor
from graphgen.ir.dtype import DTYPES
from graphgen.passes.proof.floats import PLAIN, keeps
from graphgen.passes.proof.pass_proof import Status
from graphgen.passes.proof.prove_equal import prove_values

REALS = [kind for kind in DTYPES.values() if not kind.is_complex]
FLOATS = [kind for kind in REALS if kind.is_float]
COMMON = [dtype(name) for name in ("f64", "f32", "bf16", "f16", "f8e5m2", "f8e4m3fn", "s32")]
SPECIAL = [0.0, 1.0, 0.5, 1.5, 2.5, 3.0, 255.0, 257.0, 2049.0, 65504.0, 65520.0, 16777217.0]
SPECIAL += [2.0**31, 2.0**63, 3.4e38, 1e300, 1e-7, 1e-40, 1e-310, 5e-324, float("inf")]


@cache
def values(kind: DType) -> Array:
    """All values of a narrow type, of a wide one special and random ones."""
    held = numpy_dtype(kind)
    if kind.bits <= 8:
        signs = [-1, 1] if kind.name[0] != "u" else [1]
        if kind.is_integer and kind.bits < 8:
            ends = ml_dtypes.iinfo(held)
            return np.arange(ends.min, ends.max + 1).astype(held)
        if kind.name == "pred":
            return np.array([False, True])
        if kind.bits < 8:
            halves = [sign * n / 8 for n in range(240) for sign in signs]
            return np.array(halves, np.float32).astype(held)
        return np.arange(256, dtype=np.uint8).view(held)
    if kind.bits == 16:
        # One in 31, so that all exponents and both ends of the mantissa are among them.
        return np.arange(0, 1 << 16, 31, dtype=np.uint16).view(held)
    rng = np.random.default_rng(7)
    bits = rng.integers(0, 1 << 63, 2000, dtype=np.uint64) << np.uint64(1)
    drawn = bits.view(held)
    if kind.is_integer:
        ends = np.iinfo(held)
        near = [ends.min, ends.min + 1, ends.max - 1, ends.max, 0, 1, 2, 16777217, 33554435]
        whole = [n for k in range(kind.bits - 1) for n in ((1 << k) - 1, (1 << k) + 1)]
        below = [-n for n in whole] if ends.min else []
        return np.concatenate([np.array([*near, *whole, *below], held), drawn])
    with np.errstate(all="ignore"):
        special = np.array([s * x for x in [*SPECIAL, np.nan] for s in (1, -1)], held)
        return np.concatenate([special, drawn, rng.normal(0, 100, 500).astype(held)])


def same(a: Array, b: Array, *, signed: bool) -> bool:
    """True for equal numbers, with equal signs of zero; every NaN is one number."""
    if a.dtype != b.dtype:
        return False
    if a.dtype.kind in "iub" or a.dtype.name.startswith(("int", "uint")):
        return bool(np.array_equal(a, b))
    with np.errstate(all="ignore"):
        x, y = a.astype(np.float64), b.astype(np.float64)
        signs = (np.signbit(x) == np.signbit(y)) | (not signed)
    alike = ((x == y) & signs) | (np.isnan(x) & np.isnan(y))
    return bool(alike.all())


class Pairs:
    """Pairs of values of one function, and what is proved of each."""

    def __init__(self, *kinds: DType) -> None:
        self.module = Module("m")
        self.function = self.module.add(Function("f"))
        self.b = Builder(self.function)
        sizes = [len(values(kind)) for kind in kinds]
        count = max(sizes)
        rng = np.random.default_rng(11)
        self.given = {
            f"x{n}": np.resize(values(kind), count) if n == 0 else rng.choice(values(kind), count)
            for n, kind in enumerate(kinds)
        }
        self.args = [
            self.function.block.add_arg(tensor(kind, [count]), f"x{n}")
            for n, kind in enumerate(kinds)
        ]
        self.pairs: list[tuple[str, Value, Value]] = []

    def add(self, name: str, left: Value, right: Value) -> None:
        if left.type is right.type:
            self.pairs.append((name, left, right))

    def proved(self) -> dict[str, Status]:
        """The level of each pair; a proved one has been compared in NumPy."""
        found = {name: prove_values(self.function, [(a, b)]) for name, a, b in self.pairs}
        kept = [pair for pair in self.pairs if found[pair[0]] is Status.PROVED]
        outputs = [(f"{s} {n}", v) for n, *pair in kept for s, v in zip("ab", pair, strict=True)]
        self.function.outputs = outputs
        with np.errstate(all="ignore"):
            results = evaluate(self.function, self.given)
        for name, status in found.items():
            if status is Status.PROVED:
                # The larger one of two zeros is either, as a processor has it.
                signed = not name.startswith(("maximum", "minimum"))
                assert same(results[f"a {name}"], results[f"b {name}"], signed=signed), name
        return found


def common_first(kinds: list[DType]) -> list[Any]:
    """Parameters of a test: less common types are slow."""
    marks = {False: [pytest.mark.slow], True: []}
    return [pytest.param(kind, id=kind.name, marks=marks[kind in COMMON]) for kind in kinds]


@pytest.mark.parametrize("start", common_first(REALS))
def test_conversions_that_are_proved_change_no_value(start: DType):
    made = Pairs(start)
    b, (x,) = made.b, made.args
    for middle in REALS:
        for end in REALS:
            twice = b.convert(b.convert(x, middle), end)
            made.add(f"by {middle} to {end}", twice, b.convert(x, end))
            there = b.convert(x, end)
            back = b.convert(b.convert(there, middle), end)
            made.add(f"at {end}, by {middle}", back, there)
    found = made.proved()
    assert sum(status is Status.PROVED for status in found.values()) > len(REALS)


UNARY = ["abs", "negate", "exponential", "floor", "sign", "sqrt", "tanh", "round_nearest_even"]
BINARY = ["add", "subtract", "multiply", "divide", "maximum", "minimum", "remainder", "power"]


def in_type(b: Builder, name: str, kind: DType, *operands: Value) -> Value:
    """An elementwise op in another type, converted back."""
    made = b.op(name, *[b.convert(x, kind) for x in operands])
    return b.convert(made, operands[0].dtype)


@pytest.mark.parametrize("start", common_first(FLOATS))
def test_ops_that_are_proved_alike_in_two_types_are(start: DType):
    made = Pairs(start, start)
    b, (x, y) = made.b, made.args
    for kind in FLOATS:
        for name in UNARY:
            made.add(f"{name} in {kind}", b.op(name, x), in_type(b, name, kind, x))
        for name in BINARY:
            made.add(f"{name} in {kind}", b.op(name, x, y), in_type(b, name, kind, x, y))
        for way in ("EQ", "LT", "GE"):
            other = b.compare(b.convert(x, kind), b.convert(y, kind), way)
            made.add(f"{way} in {kind}", b.compare(x, y, way), other)
        less = b.compare(x, y, "LT")
        chosen = b.convert(b.select(less, x, y), kind)
        made.add(
            f"select to {kind}", chosen, b.select(less, b.convert(x, kind), b.convert(y, kind))
        )
    found = made.proved()
    for kind in FLOATS:
        # An op that rounds is another one in each type, save that it is the same one.
        levels = {found[f"{name} in {kind}"] for name in ("add", "multiply", "exponential")}
        assert (Status.PROVED in levels) == (kind is start), kind
        assert (found[f"LT in {kind}"] is Status.PROVED) == keeps(kind, start), kind
        if start in PLAIN:
            assert (found[f"maximum in {kind}"] is Status.PROVED) == keeps(kind, start), kind
        assert found[f"select to {kind}"] is Status.PROVED


@pytest.mark.parametrize("start", [kind for kind in REALS if kind.is_integer], ids=str)
def test_ops_on_integers_that_are_proved_alike_in_two_types_are(start: DType):
    made = Pairs(start, start)
    b, (x, y) = made.b, made.args
    for kind in REALS:
        if kind.is_number:
            for name in ("add", "multiply", "maximum", "divide", "abs"):
                operands = (x, y)[: 1 if name == "abs" else 2]
                if name != "abs" or start.name[0] == kind.name[0] == "s":
                    made.add(
                        f"{name} in {kind}",
                        b.op(name, *operands),
                        in_type(b, name, kind, *operands),
                    )
    made.proved()


class Typed:
    """A random expression of which the element types can change."""

    def __init__(self, random: Random, depth: int) -> None:
        names = ["convert", *UNARY[:3], *BINARY[:4], "select", "floor"] if depth else ["x0", "x1"]
        self.name = random.choice(names)
        self.kind = random.choice(COMMON[:4])
        count = {"select": 3, **dict.fromkeys(BINARY, 2)}.get(self.name, 1)
        self.parts = [Typed(random, depth - 1) for _ in range(count)] if depth else []

    def made(self, b: Builder, args: list[Value], random: Random | None) -> Value:
        """The value; some types are others where ``random`` is given."""
        if not self.parts:
            return args[int(self.name[1])]
        parts = [part.made(b, args, random) for part in self.parts]
        chance = random.random() if random is not None else 1.0
        kind = self.kind
        if random is not None and chance < 0.2:
            kind = random.choice(COMMON[:4])
        elif random is not None and chance < 0.4:
            # By way of another type, or in another order.
            by = random.choice(COMMON[:4])
            parts = [b.convert(b.convert(x, by), x.dtype) for x in parts]
        elif chance < 0.5 and self.name in ("add", "multiply"):
            parts = parts[::-1]
        parts = [b.convert(x, kind) for x in parts]
        if self.name == "select":
            return b.select(b.compare(parts[0], parts[1], "LT"), parts[1], parts[2])
        return parts[0] if self.name == "convert" else b.op(self.name, *parts)


def test_random_expressions_that_are_proved_equal_are():
    counts: Counter[Status] = Counter()
    for seed in range(60):
        random = Random(seed)
        made = Pairs(*[random.choice(COMMON) for _ in range(2)])
        tree, end = Typed(random, 3), random.choice(COMMON)
        left = made.b.convert(tree.made(made.b, made.args, None), end)
        for number in range(6):
            right = made.b.convert(tree.made(made.b, made.args, random), end)
            made.add(f"{seed} {number}", left, right)
        counts += Counter(made.proved().values())
    assert min(counts[Status.PROVED], counts[Status.REAL], counts[Status.UNDECIDED]) > 20
