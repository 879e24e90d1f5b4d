"""The kernel ``attention`` beside its meaning in NumPy: any shape, mask, type and cache."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

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

CASES = 240
KERNEL = "graphgen.attention"
BITS = {"bf16": "u16", "f16": "u16", "f32": "u32"}
# Of the largest value: a weight, a sum and the result are rounded once each.
BOUND = {"bf16": 2.0**-6, "f16": 2.0**-9, "f32": 2e-5}
NARROW = ("s8", "f8e4m3", "f8e4m3fn", "f8e5m2")
BACKEND = CpuBackend()

pytestmark = pytest.mark.skipif(
    KERNEL not in kernel_library().targets, reason=kernel_library().missing or "not there"
)


@dataclass(frozen=True)
class AttentionCase:
    """One attention.

    Attributes:
        batch, active, kv_heads, group, size, width, attended: B, S, K, H / K, D, W and C.
        rows, slots: of the caches; no rows for keys and values without a cache.
        dtype: of queries, keys and values.
        bits: whether caches hold bits as integers.
        narrow: type of 8 bits that caches are kept in; empty for ``dtype``.
        scale: of narrow keys and values: ``tensor``, ``head``, ``channel``, or ``row`` behind its
            numbers; empty for none.
        in_place: whether row b of the call is row b of the cache.
        softcap: of the scores; 0 for none.
        sinks: whether a head has a score without a value.
    """

    batch: int
    active: int
    kv_heads: int
    group: int
    size: int
    width: int
    attended: int
    dtype: str
    rows: int = 0
    slots: int = 0
    bits: bool = False
    in_place: bool = True
    softcap: float = 0.0
    sinks: bool = False
    narrow: str = ""
    scale: str = ""

    @property
    def cached(self) -> tuple[int, ...]:
        """R or B, M or C, and K."""
        if not self.rows:
            return (self.batch, self.attended, self.kv_heads)
        return (self.batch if self.in_place else self.rows, self.slots, self.kv_heads)

    @property
    def stored(self) -> str:
        """Type of the caches."""
        if self.scale == "row":
            return "u8"
        if self.narrow:
            return "u8" if self.bits and self.narrow != "s8" else self.narrow
        return BITS[self.dtype] if self.bits and self.rows else self.dtype

    def kept(self, size: int) -> int:
        """Bytes, or elements, of a row of ``size`` numbers with its scale."""
        return size + (SCALE_BYTES if self.scale == "row" else 0)

    def text(self) -> str:
        """The module as a user writes it."""
        query = (self.batch, self.active, self.kv_heads * self.group)
        stored = self.stored
        arguments = {
            "q": _type(self.dtype, *query, self.size),
            "k": _type(stored, *self.cached, self.kept(self.size)),
            "v": _type(stored, *self.cached, self.kept(self.width)),
            "m": _type("pred", self.batch, self.active, self.attended),
        }
        lines: list[str] = []
        if self.rows:
            arguments["ids"] = _type("s32", self.batch)
            for name, size in (("k", self.size), ("v", self.width)):
                lines += self._read(name, size)
                if self.scale and self.scale != "row":
                    arguments[f"s.{name}"] = _type("f32", *self._scale_dims(size))
        if self.sinks:
            arguments["sinks"] = _type("f32", query[2])
        names = ["r.k", "r.v"] if self.rows else ["k", "v"]
        more = ", %sinks" if self.sinks else ""
        cap = f" softcap={self.softcap}" if self.softcap else ""
        type_ = _type(self.dtype, *query, self.width)
        lines += [
            f"%y = attention(%q, %{names[0]}, %{names[1]}, %m{more}) scale=0.3{cap} : {type_}"
        ]
        head = ["module @a level=canonical {"]
        head += [f"  input %{name} : {kind}" for name, kind in arguments.items()]
        head += [f"  output %y : {type_}", "}", "", "func @f phase=decode {"]
        head += [f"  arg %{name} : {kind}" for name, kind in arguments.items()]
        return "\n".join([*head, *[f"  {line}" for line in lines], "  return y = %y", "}", ""])

    def _read(self, name: str, size: int) -> list[str]:
        """What reads keys or values, ``%r.name``, from their cache."""
        shape = (self.batch, self.attended, self.kv_heads, size)
        how = "rows=in_place " if self.in_place else ""
        kinds = [self.stored]
        steps = [f"cache_read(%{name}, %ids) attended={self.attended} {how}"]
        if self.scale == "row":
            read = _type(self.stored, *shape[:3], self.kept(size))
            made = f"dequantize_rows(%{name}.0) element={self.narrow} dtype={self.dtype}"
            return [
                f"%{name}.0 = {steps[0]}: {read}",
                f"%r.{name} = {made} : {_type(self.dtype, *shape)}",
            ]
        kept = self.narrow or self.dtype
        if kept != self.stored:
            kinds.append(kept)
            steps.append(f"bitcast_convert(%PREVIOUS) dtype={kept} ")
        if self.narrow:
            kinds.append("f32" if self.scale else self.dtype)
            steps.append(f"convert(%PREVIOUS) dtype={kinds[-1]} ")
        if self.scale:
            axes = {"tensor": "", "head": "2", "channel": "2,3"}[self.scale]
            dims = ",".join(map(str, shape))
            kinds += ["f32", "f32"]
            steps.append(f"broadcast_in_dim(%s.{name}) shape=[{dims}] dimensions=[{axes}] ")
            steps.append(f"multiply(%{name}.{len(steps) - 2}, %PREVIOUS) ")
            if self.dtype != "f32":
                kinds.append(self.dtype)
                steps.append(f"convert(%PREVIOUS) dtype={self.dtype} ")
        names = [*(f"{name}.{i}" for i in range(len(steps) - 1)), f"r.{name}"]
        return [
            f"%{made} = {step.replace('PREVIOUS', previous)}: {_type(kind, *shape)}"
            for made, previous, step, kind in zip(names, ["", *names], steps, kinds, strict=False)
        ]

    def _scale_dims(self, size: int) -> tuple[int, ...]:
        return {"tensor": (), "head": (self.kv_heads,), "channel": (self.kv_heads, size)}[
            self.scale
        ]

    def module(self) -> Module:
        """The module with the kernel's call."""
        module = parse(self.text())
        run_pipeline(module, parse_pipeline("select-kernels"))
        return module

    def inputs(self, random: np.random.Generator) -> dict[str, Array]:
        """Masks of every kind: causal, a window, some slots, all, none."""
        kind = numpy_dtype(dtype(self.dtype))

        def normal(*dims: int) -> Array:
            return random.standard_normal(dims).astype(kind)

        heads = self.kv_heads * self.group
        made = {"q": normal(self.batch, self.active, heads, self.size)}
        for name, size in (("k", self.size), ("v", self.width)):
            made[name] = self._cache(random, size)
            if self.scale and self.scale != "row":
                numbers = random.uniform(0.5, 2, self._scale_dims(size))
                one = 64 if self.narrow == "s8" else 1
                made[f"s.{name}"] = np.asarray(numbers / one, np.float32)
        made["m"] = np.stack([self._mask(random) for _ in range(self.batch)])
        if self.rows:
            ids = random.integers(-1, self.rows + 1, self.batch)
            made["ids"] = (np.arange(self.batch) if self.in_place else ids).astype(np.int32)
        if self.sinks:
            made["sinks"] = random.standard_normal(heads).astype(np.float32)
        return made

    def _cache(self, random: np.random.Generator, size: int) -> Array:
        """Numbers about 1 in size, integers of all 8 bits."""
        if self.scale == "row":
            return self._rows(random, size)
        if self.narrow == "s8":
            return random.integers(-128, 128, (*self.cached, size)).astype(np.int8)
        kept = numpy_dtype(dtype(self.narrow or self.dtype))
        cache = random.standard_normal((*self.cached, size)).astype(kept)
        return cache.view(numpy_dtype(dtype(self.stored)))

    def _rows(self, random: np.random.Generator, size: int) -> Array:
        """Numbers with the scale of each row after them; a row in eight is empty: all zeros."""
        numbers = replace(self, scale="")._cache(random, size).view(np.uint8)
        scale = random.uniform(0.5, 2, (*self.cached, 1)) / (64 if self.narrow == "s8" else 1)
        rows = np.concatenate([numbers, scale.astype(np.float32).view(np.uint8)], -1)
        return np.where(random.random((*self.cached, 1)) < 1 / 8, np.uint8(0), rows)

    def _mask(self, random: np.random.Generator) -> Array:
        start = int(random.integers(0, max(1, self.attended - self.active + 1)))
        at, slots = start + np.arange(self.active)[:, None], np.arange(self.attended)[None, :]
        causal = slots <= at
        window = causal & (slots > at - 5)
        some = random.random((self.active, self.attended)) < 0.5
        nothing = np.zeros_like(causal)
        return (causal, window, some, ~nothing, nothing)[int(random.integers(5))]


def drawn(index: int) -> tuple[AttentionCase, np.random.Generator]:
    """A case of any form; of few and of many queries a head."""
    random = np.random.default_rng(index)
    attended = int(random.integers(1, 90))
    cached = index % 3 > 0
    case = AttentionCase(
        batch=int(random.integers(1, 4)),
        active=int(random.choice([1, 1, 2, 7, 19, 40])),
        kv_heads=int(random.integers(1, 4)),
        group=int(random.integers(1, 5)),
        size=int(random.choice([3, 8, 16, 32, 64, 80])),
        width=int(random.choice([5, 16, 24, 64, 144])),
        attended=attended,
        dtype=("bf16", "f16", "f32")[index // 3 % 3],
        rows=int(random.integers(1, 5)) if cached else 0,
        slots=attended + int(random.integers(0, 20)) if cached else 0,
        bits=bool(random.integers(2)),
        in_place=bool(random.integers(2)),
        softcap=float(random.choice([0.0, 0.0, 1.5])),
        sinks=bool(random.integers(2)),
    )
    if index < CASES // 2 or not cached:
        return case, random
    narrow = NARROW[index % len(NARROW)]
    # Integers without a scale are large: softmax of their products takes one slot.
    kinds = ["tensor", "head", "channel", "row", *([""] if narrow != "s8" else [])]
    return replace(case, narrow=narrow, scale=str(random.choice(kinds))), random


def kernel(module: Module, given: dict[str, Array]) -> Array:
    """What the kernel gives."""
    (call,) = list(module.function("f").block)
    assert call.attrs.text("kernel") == KERNEL
    return BACKEND(module, module.function("f"), [given])[0]["y"]


@pytest.mark.one_in(7)
@pytest.mark.parametrize("index", range(CASES))
def test_the_kernel_computes_its_meaning(index: int):
    case, random = drawn(index)
    module, given = case.module(), case.inputs(random)
    config = json.loads(next(iter(module.function("f").block)).attrs.text("config"))
    assert config["attended"] == case.attended
    assert config["rows"] == (bool(case.rows) and not case.in_place)
    assert config["numbers"] == case.narrow
    assert config["row_scale"] == (case.scale == "row")
    scaled = bool(case.scale) and case.scale != "row"
    assert config["key_scale"] == config["value_scale"] == scaled
    check(case, module, given)


def check(case: AttentionCase, module: Module, given: dict[str, Array]) -> None:
    """Compare the kernel with its meaning."""
    actual = kernel(module, given)
    expected = NumpyBackend()(module, module.function("f"), [given])[0]["y"]
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    assert np.isfinite(expected).all()
    assert np.abs(actual - expected).max() <= BOUND[case.dtype] * np.abs(expected).max(), case


def test_the_cases_have_all_forms():
    cases = [drawn(index)[0] for index in range(CASES)]
    for kind in BOUND:
        some = [case for case in cases if case.dtype == kind]
        assert {bool(case.rows) for case in some} == {True, False}
        assert {(case.bits, case.in_place) for case in some if case.rows} >= {
            *((True, True), (True, False), (False, True))
        }
        assert {(case.active == 1, case.sinks) for case in some} >= {(True, True), (False, False)}
        assert {case.narrow for case in some} == {"", *NARROW}
        assert {case.bits for case in some if case.narrow} == {True, False}
        assert {case.scale for case in some} == {"", "tensor", "head", "channel", "row"}


@pytest.mark.parametrize("kind", ["bf16", "f32"])
@pytest.mark.parametrize("active", [1, 9])
def test_a_row_does_not_depend_on_the_rows_beside_it(kind: str, active: int):
    case = AttentionCase(5, active, 2, 3, 32, 32, 50, kind)
    given = case.inputs(np.random.default_rng(1))
    whole = kernel(case.module(), given)
    one = replace(case, batch=1)
    for row in range(case.batch):
        alone = {name: array[row : row + 1] for name, array in given.items()}
        np.testing.assert_array_equal(kernel(one.module(), alone)[0], whole[row])


@pytest.mark.parametrize("active", [1, 9])
def test_nan_of_one_row_stays_in_it(active: int):
    case = AttentionCase(3, active, 2, 2, 16, 16, 20, "f32")
    given = case.inputs(np.random.default_rng(2))
    given["m"][:] = True
    right = kernel(case.module(), given)
    given["k"][1, 3, 0, 2] = np.nan
    found = kernel(case.module(), given)
    np.testing.assert_array_equal(found[[0, 2]], right[[0, 2]])
    assert np.isnan(found[1, :, :2]).all()
    np.testing.assert_array_equal(found[1, :, 2:], right[1, :, 2:])


@pytest.mark.parametrize(
    ("told", "instead"),
    [
        # More slots than the caches have.
        ('"attended":20', '"attended":21'),
        ('"rows":false,"sinks":true', '"rows":true,"sinks":false'),
    ],
)
def test_settings_that_do_not_fit_the_operands_are_refused(told: str, instead: str):
    case = AttentionCase(3, 2, 2, 2, 16, 16, 20, "f32", sinks=True)
    text, old, new = print_module(case.module()), *(x.replace('"', '\\"') for x in (told, instead))
    assert text.count(old) == 1
    given = case.inputs(np.random.default_rng(3))
    with pytest.raises(Exception, match=r"graphgen\.attention: an operand has another size"):
        kernel(parse(text.replace(old, new)), given)


def test_what_the_kernel_does_not_have_stays_as_it_is():
    case = AttentionCase(1, 1, 1, 2, 16, 16, 8, "f32")
    text = case.text().replace("pred[1,1,8]", "pred[1,2,1,8]")
    module = parse(text)
    run_pipeline(module, parse_pipeline("select-kernels"))
    assert [op.name for op in module.function("f").block] == ["attention"]


def _type(kind: str, *dims: int) -> str:
    return f"{kind}[{','.join(map(str, dims))}]"
