"""The kernels ``rope`` and ``cache_write`` beside their meaning in NumPy."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import graphgen.passes.pipelines  # noqa: F401
from graphgen.eval import Array, numpy_dtype
from graphgen.exec.backend import NumpyBackend
from graphgen.ir import Module, dtype
from graphgen.lowering.cpu.backend import CpuBackend
from graphgen.lowering.cpu_kernels.kernel_library import kernel_library
from graphgen.ops.quantization import SCALE_BYTES
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.text import parse, print_module

CASES = 300
BACKEND = CpuBackend()
# Distance from 1 to the next number.
STEP = {"bf16": 2.0**-7, "f16": 2.0**-10, "f32": 2.0**-23}
# The same of 8 bits, and the distance from 0; the largest number that a cache is given.
NARROW = {
    "s8": (0.0, 1.0, 127.0),
    "f8e4m3": (2.0**-3, 2.0**-9, 240.0),
    "f8e4m3fn": (2.0**-3, 2.0**-9, 448.0),
    "f8e5m2": (2.0**-2, 2.0**-16, 57344.0),
}

pytestmark = pytest.mark.skipif(
    "graphgen.rope" not in kernel_library().targets, reason=kernel_library().missing or "not there"
)


@dataclass(frozen=True)
class RotationCase:
    """Heads that are cut out of a row, rotated, rounded, and perhaps written into a cache.

    Attributes:
        batch, active, heads, size: B, S, H and D.
        half: pairs that are rotated; 0 for none.
        pairs: ``halves`` or ``neighbors``.
        given: type of x.
        dtype: of the result.
        lead, trail: columns of x before and after the heads; none where x is [B,S,H,D].
        flat: whether x is [B,S,lead + H·D + trail].
        cached: whether the heads are written into a cache.
        bits: whether that holds bits as integers.
        narrow: type of 8 bits of the cache; empty for ``dtype``.
        scale: of what is narrowed: ``tensor``, ``head``, ``channel``, or ``row`` after its numbers;
            empty for none.
    """

    batch: int
    active: int
    heads: int
    size: int
    half: int
    pairs: str = "halves"
    given: str = "f32"
    dtype: str = "bf16"
    lead: int = 0
    trail: int = 0
    flat: bool = True
    cached: bool = True
    bits: bool = False
    narrow: str = ""
    scale: str = ""

    @property
    def kept(self) -> str:
        """Type of the numbers of the result."""
        return self.narrow or self.dtype

    def text(self) -> str:
        """The module as a model's layer has it."""
        outer, columns = (self.batch, self.active), self.lead + self.heads * self.size + self.trail
        heads = (*outer, self.heads, self.size)
        arguments = {"x": _type(self.given, *((*outer, columns) if self.flat else heads))}
        lines: list[str] = []
        value, kind = "x", self.given
        if self.flat:
            end = columns - self.trail
            cut = f"start_indices=[0,0,{self.lead}] limit_indices=[{outer[0]},{outer[1]},{end}]"
            lines.append(f"%s = slice(%x) {cut} : {_type(kind, *outer, end - self.lead)}")
            if not self.half and kind != self.dtype:
                kind, value = self.dtype, "n"
                lines.append(
                    f"%n = convert(%s) dtype={kind} : {_type(kind, *outer, end - self.lead)}"
                )
            shape = f"shape=[{','.join(map(str, heads))}]"
            lines.append(
                f"%h = reshape(%{'s' if value == 'x' else value}) {shape} : {_type(kind, *heads)}"
            )
            value = "h"
        if self.half:
            arguments |= {name: _type("f32", *outer, self.half) for name in ("cos", "sin")}
            lines.append(
                f"%t = rope(%{value}, %cos, %sin) pairs={self.pairs} : {_type(kind, *heads)}"
            )
            value = "t"
        if kind != self.dtype:
            lines.append(f"%c = convert(%{value}) dtype={self.dtype} : {_type(self.dtype, *heads)}")
            value = "c"
        result = _type(self.dtype, *heads)
        if self.cached:
            if self.narrow:
                value = self._narrowed(lines, arguments, value)
            as_bits = {"f32": "u32"}.get(self.dtype, "u16") if not self.narrow else "u8"
            bits = self.bits and self.narrow != "s8"
            stored = as_bits if bits else self.kept
            row_scale = self.scale == "row"
            if row_scale:
                stored = "u8"
            elif bits:
                lines.append(
                    f"%b = bitcast_convert(%{value}) dtype={stored} : {_type(stored, *heads)}"
                )
                value = "b"
            kept = self.size + (SCALE_BYTES if row_scale else 0)
            result = _type(stored, 3, 11, self.heads, kept)
            arguments |= {"cache": result, "ids": _type("s32", self.batch)}
            arguments["slots"] = _type("s32", *outer)
            lines.append(f"%w = kv_update(%cache, %{value}, %ids, %slots) : {result}")
            value = "w"
        head = ["module @a level=canonical {"]
        head += [f"  input %{name} : {type_}" for name, type_ in arguments.items()]
        head += [f"  output %y : {result}", "}", "", "func @f phase=decode {"]
        head += [f"  arg %{name} : {type_}" for name, type_ in arguments.items()]
        body = [f"  {line}" for line in lines]
        return "\n".join([*head, *body, f"  return y = %{value}", "}", ""])

    def _narrowed(self, lines: list[str], arguments: dict[str, str], value: str) -> str:
        """Append what narrows a value; returns the name of the result."""
        dims = (self.batch, self.active, self.heads, self.size)
        kind, limit = self.dtype, NARROW[self.narrow][2]
        if self.scale == "row":
            rows = _type("u8", *dims[:3], self.size + SCALE_BYTES)
            made = f"quantize_rows(%{value}) element={self.narrow} limit={limit}"
            lines.append(f"%narrow = {made} : {rows}")
            return "narrow"
        if self.scale:
            if kind != "f32":
                lines.append(f"%wide = convert(%{value}) dtype=f32 : {_type('f32', *dims)}")
                value, kind = "wide", "f32"
            axes = {"tensor": (), "head": (2,), "channel": (2, 3)}[self.scale]
            arguments["scale"] = _type("f32", *[dims[axis] for axis in axes])
            shape = f"shape=[{','.join(map(str, dims))}] dimensions=[{','.join(map(str, axes))}]"
            lines.append(f"%spread = broadcast_in_dim(%scale) {shape} : {_type('f32', *dims)}")
            lines.append(f"%over = divide(%{value}, %spread) : {_type('f32', *dims)}")
            value = "over"
        for name, end in (("low", -limit), ("high", limit)):
            lines.append(f"%{name} = constant() value={kind}[]({end}) : {kind}[]")
        lines.append(f"%within = clamp(%low, %{value}, %high) : {_type(kind, *dims)}")
        value = "within"
        if self.narrow == "s8":
            lines.append(f"%whole = round_nearest_even(%within) : {_type(kind, *dims)}")
            value = "whole"
        lines.append(
            f"%narrow = convert(%{value}) dtype={self.narrow} : {_type(self.narrow, *dims)}"
        )
        return "narrow"

    def module(self) -> Module:
        """The module with the kernel's call."""
        module = parse(self.text())
        run_pipeline(module, parse_pipeline("select-kernels"))
        return module

    def inputs(self, random: np.random.Generator) -> dict[str, Array]:
        """Numbers of each argument; places inside and outside of the cache, none twice."""
        module = self.module()
        made: dict[str, Array] = {}
        for value in module.function("f").args:
            name, kind = value.name or "", numpy_dtype(value.type.dtype)
            if name == "ids":
                made[name] = random.permutation(np.arange(-1, 4))[: self.batch].astype(np.int32)
            elif name == "slots":
                rows = [random.permutation(np.arange(-2, 14)) for _ in range(self.batch)]
                made[name] = np.stack(rows)[:, : self.active].astype(np.int32)
            elif name == "scale":
                made[name] = np.asarray(random.uniform(0.5, 2, value.type.dims), np.float32)
            elif name == "x" and self.narrow:
                size = NARROW[self.narrow][2] / 4 if self.dtype != "f16" else 50
                made[name] = (random.standard_normal(value.type.dims) * size).astype(kind)
            elif kind.kind == "u":
                most = 2**6 if kind.itemsize == 1 else 2**14
                made[name] = random.integers(0, most, value.type.dims).astype(kind)
            else:
                made[name] = random.standard_normal(value.type.dims).astype(kind)
        return made


def drawn(index: int) -> tuple[RotationCase, np.random.Generator]:
    """A case of any form."""
    random = np.random.default_rng(index)
    size = int(random.choice([1, 2, 3, 8, 16, 40, 64, 80]))
    half = int(random.integers(0, size // 2 + 1)) if index % 4 else size // 2
    given, kind = (str(random.choice(["f32", "bf16", "f16"])) for _ in range(2))
    cached = bool(random.integers(3))
    flat = bool(random.integers(4))
    case = RotationCase(
        batch=int(random.integers(1, 6)),
        active=int(random.choice([1, 1, 2, 5, 14])),
        heads=int(random.integers(1, 10)),
        size=size,
        half=half if cached else max(half, size // 2),
        pairs=str(random.choice(["halves", "neighbors"])),
        # A rope rounds to its own type, and the kernel only once.
        given=given if given in ("f32", kind) else "f32",
        dtype=kind,
        lead=int(random.integers(0, 30)),
        trail=int(random.integers(0, 30)),
        flat=flat,
        cached=cached,
        bits=bool(random.integers(2)),
    )
    if cached and index >= 200:
        scale = str(random.choice(["", "tensor", "head", "channel", "row"]))
        return replace(case, narrow=[*NARROW][index % 4], scale=scale), random
    return (replace(case, size=2, half=1) if not cached and not case.half else case), random


def ran(case: RotationCase, given: dict[str, Array]) -> tuple[Array, Array]:
    """What the kernel gives, and what its meaning does, as floats."""
    module = case.module()
    (call,) = list(module.function("f").block)
    kernel = "cache_write" if case.cached else "rope"
    assert call.attrs.text("kernel") == f"graphgen.{kernel}"
    assert json.loads(call.attrs.text("config"))["offset"] == (case.lead if case.flat else 0)
    results = [
        backend(module, module.function("f"), [given])[0]["y"]
        for backend in (BACKEND, NumpyBackend())
    ]
    assert results[0].shape == results[1].shape
    kind = numpy_dtype(dtype(case.kept))
    if case.scale == "row":
        actual, expected = (_widened_rows(result, kind) for result in results)
    else:
        actual, expected = (result.view(kind).astype(np.float64) for result in results)
    return actual, expected


def _widened_rows(rows: Array, kind: np.dtype[Any]) -> Array:
    """The numbers of rows in units of the scale, and the scale that follows them."""
    numbers = np.ascontiguousarray(rows[..., :-SCALE_BYTES]).view(kind).astype(np.float64)
    scale = np.ascontiguousarray(rows[..., -SCALE_BYTES:]).view(np.float32).astype(np.float64)
    return np.concatenate([numbers, scale], -1)


@pytest.mark.one_in(8)
@pytest.mark.parametrize("index", range(CASES))
def test_the_kernel_computes_its_meaning(index: int):
    case, random = drawn(index)
    actual, expected = ran(case, case.inputs(random))
    # Two products of f32, of which the compiler may keep one exact; that may round to a neighbor.
    step, least, _ = NARROW.get(case.narrow, (STEP[case.dtype], 2.0**-20, 0))
    bound = step * np.abs(expected) + least
    # Few numbers are so near to the middle of two narrow ones.
    assert not case.narrow or (actual != expected).mean() <= 0.02, case
    assert (np.abs(actual - expected) <= bound).all(), case


def test_the_cases_have_all_forms():
    cases = [drawn(index)[0] for index in range(CASES)]
    for kind in STEP:
        some = [case for case in cases if case.dtype == kind]
        assert {case.cached for case in some} == {True, False}
        assert {(case.pairs, case.flat) for case in some if case.half} == {
            (pairs, flat) for pairs in ("halves", "neighbors") for flat in (True, False)
        }
        assert {(bool(case.half), case.bits) for case in some if case.cached} == {
            (turned, bits) for turned in (True, False) for bits in (True, False)
        }
    assert {(case.narrow, case.scale == "row") for case in cases if case.scale} == {
        (narrow, row) for narrow in NARROW for row in (True, False)
    }
    assert {case.narrow for case in cases if not case.scale} == {"", *NARROW}


@pytest.mark.parametrize("cached", [True, False])
def test_what_is_not_finite_stays_where_it_is(cached: bool):
    case = RotationCase(3, 2, 3, 20, 6, lead=5, trail=1, cached=cached, dtype="f32")
    given = case.inputs(np.random.default_rng(3))
    given["x"][1, 1, 5 + 20 + 2] = np.nan
    given["x"][2, 0, 5 + 40 + 19] = np.inf
    given["x"][0, 0, 4] = np.nan
    if cached:
        given["ids"], given["slots"][1:] = np.array([2, 0, 1], np.int32), np.array([[3, 4], [0, 1]])
    actual, expected = ran(case, given)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    assert np.isnan(actual).sum() == 2
    assert np.isinf(actual).sum() == 1


@pytest.mark.parametrize("rows", [1, 400])
def test_values_are_copied_bit_for_bit(rows: int):
    case = RotationCase(1, rows, 2, 24, 0, given="f32", dtype="f32", lead=3, cached=True)
    module = parse(case.text().replace("f32[3,11,2,24]", f"f32[1,{rows},2,24]"))
    run_pipeline(module, parse_pipeline("select-kernels"))
    random = np.random.default_rng(4)
    x = random.standard_normal((1, rows, 51 + case.trail)).astype(np.float32)
    given: dict[str, Array] = {"x": x, "cache": np.zeros((1, rows, 2, 24), np.float32)}
    given["ids"], slots = np.zeros(1, np.int32), random.permutation(rows).astype(np.int32)
    given["slots"] = slots[None]
    found = BACKEND(module, module.function("f"), [given])[0]["y"]
    np.testing.assert_array_equal(found[0, slots], x[0, :, 3:].reshape(rows, 2, 24))


@pytest.mark.parametrize(
    ("told", "instead"),
    [
        ('"offset":5', '"offset":7'),
        ('"half":6', '"half":11'),
        ('"half":6', '"half":0'),
        ('"heads":3', '"heads":2'),
        ('"type":"bf16"', '"type":"f32"'),
        ('"type":"bf16"', '"type":"s8"'),
    ],
)
@pytest.mark.parametrize("cached", [True, False])
def test_settings_that_do_not_fit_the_operands_are_refused(told: str, instead: str, cached: bool):
    case = RotationCase(3, 2, 3, 20, 6, lead=5, trail=1, cached=cached)
    text, old, new = print_module(case.module()), *(x.replace('"', '\\"') for x in (told, instead))
    assert text.count(old) == 1
    module, given = parse(text.replace(old, new)), case.inputs(np.random.default_rng(5))
    with pytest.raises(Exception, match=r"graphgen\.(rope|cache_write): (an operand|the result)"):
        BACKEND(module, module.function("f"), [given])


def _type(kind: str, *dims: int) -> str:
    return f"{kind}[{','.join(map(str, dims))}]"
