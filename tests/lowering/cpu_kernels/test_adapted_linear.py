"""The kernel ``linear`` with low-rank terms beside its meaning in NumPy."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

import graphgen.passes.pipelines  # noqa: F401
from graphgen.eval import Array, numpy_dtype
from graphgen.exec.backend import NumpyBackend
from graphgen.ir import Module
from graphgen.lowering.cpu.backend import CpuBackend
from graphgen.lowering.cpu_kernels.kernel_library import kernel_library
from graphgen.ops.control import kernel_of
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.text import parse, print_module

CASES = 60
BACKEND = CpuBackend()
FLOATS = ("f32", "bf16", "f16")
# Of the largest number of a result: sums of another order, what is rounded before B.
BOUNDS = {"f32": 1e-5, "bf16": 1e-2, "f16": 2e-3}
TARGET = "graphgen.adapted_linear"
PASSES = "cse,fuse-projections,join-adapters,dce,select-kernels"

pytestmark = pytest.mark.skipif(
    TARGET not in kernel_library().targets, reason=kernel_library().missing or "not there"
)


@dataclass(frozen=True)
class Case:
    """Products of one value, some with adapters.

    Attributes:
        rows, tokens: of x [rows, tokens, depth].
        depth: of x.
        columns: of each product.
        dtype: of all.
        slots, rank: of the adapters.
        targets: which of the products have adapters.
        norm: whether a norm stands before the products.
        gated: whether the first of two products gates the second.
        residual: whether something is added to the first product.
    """

    rows: int
    tokens: int
    depth: int
    columns: tuple[int, ...]
    dtype: str = "f32"
    slots: int = 3
    rank: int = 4
    targets: tuple[int, ...] = (0,)
    norm: bool = False
    gated: bool = False
    residual: bool = False

    def module(self) -> Module:
        """The module with one call of the kernel."""
        x = f"{self.dtype}[{self.rows},{self.tokens},{self.depth}]"
        made = [f"f32[{self.rows},{self.tokens},{size}]" for size in self.columns]
        weights = {
            f"w{i}.weight": f"{self.dtype}[{size},{self.depth}]"
            for i, size in enumerate(self.columns)
        }
        inputs = {"x": f"f32{x[len(self.dtype) :]}" if self.norm else x}
        if self.residual:
            inputs["r"] = made[0]
        lines = [
            f"%{name} = dot_general(%{'n' if self.norm else 'x'}, %w{i}.weight) "
            f"lhs_contracting_dims=[2] rhs_contracting_dims=[1] dtype=f32 : {made[i]}"
            for i, name in enumerate(self._products)
        ]
        if self.norm:
            weights["norm"] = f"{self.dtype}[{self.depth}]"
            lines.insert(0, f"%n = rms_norm(%x, %norm) epsilon=1e-5 : {x}")
        if self.gated:
            lines.append(f"%s = silu(%p0) : {made[0]}")
            lines.append(f"%y0 = multiply(%s, %p1) : {made[0]}")
        if self.residual:
            lines.append(f"%y0 = add(%r, %p0) : {made[0]}")
        outputs = made[:1] if self.gated else made
        text = ["module @a level=canonical {"]
        text += [f"  input %{name} : {type_}" for name, type_ in inputs.items()]
        text += [f"  weight %{name} : {type_}" for name, type_ in weights.items()]
        text += [f"  output %y{i} : {type_}" for i, type_ in enumerate(outputs)]
        text += ["}", "", "func @f phase=decode {"]
        text += [f"  arg %{name} : {type_}" for name, type_ in {**inputs, **weights}.items()]
        text += [f"  {line}" for line in lines]
        text += [f"  return y{i} = %y{i}" for i in range(len(outputs))] + ["}", ""]
        module = parse("\n".join(text))
        targets = ",".join(f"w{target}" for target in self.targets)
        lora = f"multi-lora{{max_loras={self.slots},rank={self.rank},targets=[{targets}]}}"
        run_pipeline(module, parse_pipeline(f"{lora},{PASSES}"))
        return module

    @property
    def _products(self) -> list[str]:
        names = [f"y{i}" for i in range(len(self.columns))]
        if self.gated:
            return ["p0", "p1"]
        return ["p0", *names[1:]] if self.residual else names

    def inputs(self, module: Module, random: np.random.Generator) -> dict[str, Array]:
        """Numbers of size one; slots of the rows are any, or none."""
        made: dict[str, Array] = {}
        for value in module.function("f").args:
            assert value.name is not None
            if value.name == "adapter_ids":
                made[value.name] = random.integers(-1, self.slots, self.rows).astype(np.int32)
            else:
                numbers = random.standard_normal(value.type.dims)
                made[value.name] = numbers.astype(numpy_dtype(value.dtype))
        return made


def ran(module: Module, given: dict[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    """What the kernel gives, and what its meaning does."""
    function = module.function("f")
    assert [kernel_of(op) for op in function.block if op.name == "call"] == [TARGET]
    return BACKEND(module, function, [given])[0], NumpyBackend()(module, function, [given])[0]


def check(case: Case, given: dict[str, Array], module: Module) -> dict[str, Array]:
    """Compare the two; returns what the kernel gives."""
    actual, expected = ran(module, given)
    for name, found in expected.items():
        bound = BOUNDS[case.dtype] * max(1.0, float(np.abs(found).max()))
        assert float(np.abs(actual[name] - found).max()) <= bound, (case, name)
    return actual


def drawn(index: int) -> Case:
    """Products of any size in groups, decode steps and prompts."""
    random = np.random.default_rng(index)
    gated, kind = index % 4 == 0, FLOATS[index % 3]
    count = 2 if gated else int(random.integers(1, 4))
    sizes = [int(random.choice([1, 7, 16, 24, 48, 100, 192])) for _ in range(count)]
    columns = (48, 48) if gated else tuple(sizes)
    tokens = int(random.choice([1, 1, 3, 40]))
    targets = tuple(i for i in range(count) if i == index % count or random.integers(2))
    return Case(
        int(random.integers(1, 17 if tokens == 1 else 4)),
        tokens,
        int(random.choice([1, 8, 15, 64, 100])),
        columns,
        dtype=kind,
        slots=int(random.integers(1, 9)),
        rank=int(random.choice([1, 3, 4, 16, 17, 32])),
        targets=targets,
        norm=bool(random.integers(2)),
        gated=gated,
        residual=not gated and count == 1 and bool(random.integers(2)),
    )


@pytest.mark.one_in(6)
@pytest.mark.parametrize("index", range(CASES))
def test_the_kernel_computes_its_meaning(index: int):
    case = drawn(index)
    module = case.module()
    check(case, case.inputs(module, np.random.default_rng(index)), module)


STEP = Case(4, 1, 40, (24, 8, 16), slots=3, rank=5, targets=(0, 2))


def test_rows_without_an_adapter_have_the_bits_of_the_base_model():
    """All of -1, and slots that do not exist."""
    module = STEP.module()
    given = STEP.inputs(module, np.random.default_rng(1))
    zeros = {name: np.zeros_like(each) for name, each in given.items() if "lora" in name}
    plain, _ = ran(module, {**given, **zeros})
    for ids in ([-1, -1, -1, -1], [3, -7, 99, -1]):
        found = check(STEP, {**given, "adapter_ids": np.asarray(ids, np.int32)}, module)
        for name, each in plain.items():
            np.testing.assert_array_equal(found[name], each)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_not_finite_in_a_slot_stays_with_its_rows(number: float):
    module = STEP.module()
    given = STEP.inputs(module, np.random.default_rng(2))
    given["adapter_ids"] = np.asarray([1, 0, -1, 1], np.int32)
    given["w0.lora_A"][0, 0, 0] = number
    actual, expected = ran(module, given)
    assert not np.isfinite(actual["y0"][1]).any()
    for name, found in actual.items():
        np.testing.assert_allclose(
            found[[0, 2, 3]], expected[name][[0, 2, 3]], rtol=1e-4, atol=1e-4
        )


def test_a_row_does_not_depend_on_the_rows_beside_it():
    module = STEP.module()
    given = STEP.inputs(module, np.random.default_rng(3))
    whole, _ = ran(module, given)
    alone = replace(STEP, rows=1).module()
    for row in range(STEP.rows):
        own = {name: given[name][row : row + 1] for name in ("x", "adapter_ids")}
        one, _ = ran(alone, {**given, **own})
        for name, found in one.items():
            np.testing.assert_array_equal(found[0], whole[name][row])


@pytest.mark.parametrize(
    ("instead", "message"),
    [("0,4", "an operand has another"), ("0,x", "tiles of low-rank"), ("0", "operands do not")],
)
def test_a_call_that_does_not_fit_is_refused(instead: str, message: str):
    module = STEP.module()
    given = STEP.inputs(module, np.random.default_rng(4))
    text, end = print_module(module), 'terms\\":\\"0,2'
    assert text.count(end) == 1
    wrong = parse(text.replace(end, end.replace("0,2", instead)))
    with pytest.raises(Exception, match=f"graphgen.linear: {message}"):
        BACKEND(wrong, wrong.function("f"), [given])


def test_the_cases_have_all_forms():
    cases = [drawn(index) for index in range(CASES)]
    assert {case.dtype for case in cases} == set(FLOATS)
    for form in ("norm", "gated", "residual"):
        assert {getattr(case, form) for case in cases} == {True, False}
    assert any(len(case.targets) < len(case.columns) for case in cases)
