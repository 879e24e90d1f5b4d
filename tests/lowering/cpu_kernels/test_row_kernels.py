"""The kernels ``norm`` and ``top_k`` beside their meaning in NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import graphgen.passes.pipelines  # noqa: F401
from graphgen.eval import Array, numpy_dtype
from graphgen.exec.backend import NumpyBackend
from graphgen.ir import Module, dtype
from graphgen.lowering.cpu.backend import CpuBackend
from graphgen.lowering.cpu_kernels.kernel_library import kernel_library
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.text import parse, print_module

CASES = 200
BACKEND = CpuBackend()
FLOATS = ("f32", "bf16", "f16")
# Distance from 1 to the next number.
STEP = {"bf16": 2.0**-7, "f16": 2.0**-10, "f32": 2.0**-23}
INTEGER = {"f32": np.int32, "bf16": np.int16, "f16": np.int16}

pytestmark = pytest.mark.skipif(
    not {"graphgen.norm", "graphgen.top_k"} <= kernel_library().targets,
    reason=kernel_library().missing or "not there",
)


@dataclass(frozen=True)
class NormCase:
    """A norm of the last of ``dims``.

    Attributes:
        dims: of x.
        given: type of x.
        dtype: of the factors and of the result.
        offset: whether it is a layer norm.
        epsilon: below the root.
    """

    dims: tuple[int, ...]
    given: str = "f32"
    dtype: str = "bf16"
    offset: bool = False
    epsilon: float = 1e-5

    def module(self) -> Module:
        """The module with the kernel's call."""
        name = "layer_norm" if self.offset else "rms_norm"
        arguments = {"x": _type(self.given, *self.dims), "w": _type(self.dtype, self.dims[-1])}
        if self.offset:
            arguments["b"] = arguments["w"]
        operands = ", ".join(f"%{name}" for name in arguments)
        made = {"y": _type(self.dtype, *self.dims)}
        return selected(
            arguments, made, f"%y = {name}({operands}) epsilon={self.epsilon} : {made['y']}"
        )

    def inputs(self, random: np.random.Generator) -> dict[str, Array]:
        """Rows of several sizes, away from zero."""
        kind, given = numpy_dtype(dtype(self.dtype)), numpy_dtype(dtype(self.given))
        size = 10.0 ** random.uniform(-2, 2, (*self.dims[:-1], 1))
        x = (random.standard_normal(self.dims) + random.standard_normal()) * size
        made = {"x": x.astype(given), "w": random.standard_normal(self.dims[-1]).astype(kind)}
        return made | (
            {"b": random.standard_normal(self.dims[-1]).astype(kind)} if self.offset else {}
        )


@dataclass(frozen=True)
class TopKCase:
    """The ``k`` largest of the last of ``dims``."""

    dims: tuple[int, ...]
    k: int
    dtype: str = "f32"

    def module(self) -> Module:
        """The module with the kernel's call."""
        outer = self.dims[:-1]
        made = {"y": _type(self.dtype, *outer, self.k), "ids": _type("s32", *outer, self.k)}
        line = f"%y, %ids = top_k(%x) k={self.k} : {made['y']}, {made['ids']}"
        return selected({"x": _type(self.dtype, *self.dims)}, made, line)


def selected(arguments: dict[str, str], results: dict[str, str], line: str) -> Module:
    """A module of one op after the kernels are selected."""
    head = ["module @a level=canonical {"]
    head += [f"  input %{name} : {type_}" for name, type_ in arguments.items()]
    head += [f"  output %{name} : {type_}" for name, type_ in results.items()]
    body = ["}", "", "func @f phase=decode {"]
    body += [f"  arg %{name} : {type_}" for name, type_ in arguments.items()]
    body += [f"  {line}", *[f"  return {name} = %{name}" for name in results], "}", ""]
    module = parse("\n".join([*head, *body]))
    run_pipeline(module, parse_pipeline("select-kernels"))
    return module


def ran(module: Module, given: dict[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
    """What the kernel gives, and what its meaning does."""
    function = module.function("f")
    (call,) = list(function.block)
    assert call.attrs.text("kernel") in ("graphgen.norm", "graphgen.top_k")
    return BACKEND(module, function, [given])[0], NumpyBackend()(module, function, [given])[0]


def drawn_norm(index: int) -> tuple[NormCase, np.random.Generator]:
    """A norm of rows of any size, also of one element."""
    random = np.random.default_rng(index)
    kind = FLOATS[index % 3]
    case = NormCase(
        (*(int(size) for size in random.integers(1, 6, random.integers(0, 4))), *_size(random)),
        given=str(random.choice(["f32", kind])),
        dtype=kind,
        offset=bool(random.integers(2)),
        epsilon=float(random.choice([1e-6, 1e-5, 0.1])),
    )
    return case, random


def drawn_top_k(index: int) -> tuple[TopKCase, np.random.Generator]:
    """Rows of any size; one of the elements, some, or all of them."""
    random = np.random.default_rng(index)
    outer = [int(size) for size in random.integers(1, 5, random.integers(0, 3))]
    (size,) = _size(random) if index % 5 else (int(random.integers(2000, 9000)),)
    most = int(random.integers(1, size + 1))
    k = min(size, int(random.choice([1, 1, 2, 50, 256, most, size])))
    return TopKCase((*outer, size), k, FLOATS[index % 3]), random


def _size(random: np.random.Generator) -> tuple[int]:
    return (int(random.choice([1, 2, 3, 15, 16, 17, 31, 64, 100, 576, 1000])),)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("index", range(CASES))
def test_a_norm_computes_its_meaning(index: int):
    case, random = drawn_norm(index)
    given = case.inputs(random)
    actual, expected = ran(case.module(), given)
    actual, expected = (found["y"].astype(np.float64) for found in (actual, expected))
    scale = np.abs(given["w"].astype(np.float64)) + np.abs(expected)
    # Sums of another order; a quotient that they move over a middle is rounded to a neighbor.
    bound = (2.1 * STEP[case.dtype] + case.dims[-1] ** 0.5 * 2.0**-22) * scale
    if case.offset:
        # The mean cancels: its error is that of the largest element.
        wide = given["x"].astype(np.float64)
        spread = np.sqrt(wide.var(-1, keepdims=True) + case.epsilon)
        lost = np.abs(wide).max(-1, keepdims=True) / spread * 2.0**-22
        bound = (
            bound
            + lost * np.abs(given["w"].astype(np.float64))
            + STEP[case.dtype] * np.abs(given["b"].astype(np.float64))
        )
    assert (np.abs(actual - expected) <= bound).all(), case


@pytest.mark.one_in(4)
@pytest.mark.parametrize("index", range(CASES))
def test_the_largest_elements_are_those_of_the_meaning(index: int):
    case, random = drawn_top_k(index)
    # Many equal elements, so that places decide.
    rows = random.standard_normal(case.dims) * (2 if index % 2 else 1000)
    x = (np.round(rows) if index % 2 else rows).astype(numpy_dtype(dtype(case.dtype)))
    actual, expected = ran(case.module(), {"x": x})
    np.testing.assert_array_equal(actual["ids"], expected["ids"])
    np.testing.assert_array_equal(_bits(actual["y"]), _bits(expected["y"]))


def test_the_cases_have_all_forms():
    norms = [drawn_norm(index)[0] for index in range(CASES)]
    assert {(case.given, case.dtype, case.offset) for case in norms} == {
        (given, kind, offset)
        for kind in FLOATS
        for given in {"f32", kind}
        for offset in (True, False)
    }
    every = [drawn_top_k(index)[0] for index in range(CASES)]
    forms = {(case.dtype, case.k == 1, case.k == case.dims[-1]) for case in every}
    assert forms == {
        (kind, one, whole) for kind in FLOATS for one in (True, False) for whole in (True, False)
    }
    # More candidates than the kernel keeps at a time.
    assert any(1 < case.k < case.dims[-1] - 512 for case in every)


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("k", [1, 7, 40])
def test_elements_are_in_total_order(kind: str, k: int):
    random = np.random.default_rng(k)
    x = random.standard_normal((3, 40)).astype(numpy_dtype(dtype(kind)))
    special = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0]
    x[0, random.permutation(40)[:12]] = np.repeat(np.asarray(special, x.dtype), 2)
    x[1] = -np.nan
    # The least of all integers of the order is the bits of a negative NaN of all ones.
    x.view(INTEGER[kind])[2] = -1
    actual, expected = ran(TopKCase((3, 40), k, kind).module(), {"x": x})
    np.testing.assert_array_equal(actual["ids"], expected["ids"])
    np.testing.assert_array_equal(_bits(actual["y"]), _bits(expected["y"]))


@pytest.mark.parametrize("offset", [True, False])
def test_what_is_not_finite_stays_in_its_row(offset: bool):
    case = NormCase((3, 20), dtype="f32", offset=offset)
    given = case.inputs(np.random.default_rng(3))
    given["x"][1, 2] = np.nan
    given["x"][2, 0] = np.inf
    actual, expected = (found["y"] for found in ran(case.module(), given))
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    np.testing.assert_allclose(actual[0], expected[0], rtol=1e-5)


@pytest.mark.parametrize("case", [NormCase((4, 3, 48), dtype="f32"), TopKCase((4, 3, 700), 9)])
def test_a_row_does_not_depend_on_the_rows_beside_it(case: NormCase | TopKCase):
    random = np.random.default_rng(5)
    given = case.inputs(random) if isinstance(case, NormCase) else {}
    x = given["x"] = random.standard_normal(case.dims).astype(np.float32)
    whole, _ = ran(case.module(), given)
    alone = type(case)(**{**vars(case), "dims": (1, *case.dims[1:])})
    for row in range(case.dims[0]):
        one, _ = ran(alone.module(), given | {"x": x[row : row + 1]})
        for name, found in one.items():
            np.testing.assert_array_equal(found[0], whole[name][row])


@pytest.mark.parametrize(
    ("case", "told", "instead"),
    [
        (NormCase((3, 20), dtype="f32"), '"offset":false', '"offset":true'),
        (NormCase((3, 20), dtype="f32", offset=True), '"offset":true', '"offset":false'),
        (TopKCase((3, 20), 5), '"k":5', '"k":6'),
        (TopKCase((3, 20), 5), '"k":5', '"k":0'),
        (TopKCase((3, 20), 5), '"k":5', '"k":-1'),
    ],
)
def test_settings_that_do_not_fit_the_operands_are_refused(
    case: NormCase | TopKCase, told: str, instead: str
):
    text, old, new = print_module(case.module()), *(x.replace('"', '\\"') for x in (told, instead))
    assert text.count(old) == 1
    module = parse(text.replace(old, new))
    given = case.inputs(np.random.default_rng(5)) if isinstance(case, NormCase) else {}
    given.setdefault("x", np.zeros(case.dims, np.float32))
    with pytest.raises(Exception, match=r"graphgen\.(norm|top_k): (operands do not|a result has)"):
        BACKEND(module, module.function("f"), [given])


@pytest.mark.parametrize("dims", [(0, 4), (3, 0)])
def test_a_norm_without_elements_stays_as_it_is(dims: tuple[int, int]):
    module = NormCase(dims).module()
    assert [op.name for op in module.function("f").block] == ["rms_norm"]


@pytest.mark.parametrize(("dims", "k"), [((0, 4), 2), ((3, 4), 0)])
def test_no_largest_elements_are_no_call(dims: tuple[int, int], k: int):
    module = TopKCase(dims, k).module()
    assert [op.name for op in module.function("f").block] == ["top_k"]


def _bits(x: Array) -> Array:
    return x.view(np.uint8)


def _type(kind: str, *dims: int) -> str:
    return f"{kind}[{','.join(map(str, dims))}]"
