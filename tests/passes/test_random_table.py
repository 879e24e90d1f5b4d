"""Random graphs over the whole op table: text, passes and XLA leave results as they are."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import graphgen.passes.canonical.simplify_shape
import graphgen.passes.pipelines  # noqa: F401
from graphgen.eval import Array, evaluate_ranks
from graphgen.lowering.cpu import compile_program
from graphgen.lowering.cpu.pjrt import configure
from graphgen.ops import verify
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.text import parse, print_module
from tests.lowering.stablehlo.test_ops import ROUNDING
from tests.oracles.random_graphs import LEFT_OUT, Grower, names_for, supported
from tests.oracles.sample import in_double

# The type whose rounding is allowed, by NumPy's name.
KINDS = {
    "float32": "f32",
    "bfloat16": "bf16",
    "float16": "f16",
    "float64": "f32",
    "complex64": "f32",
}
GRAPHS, OPS_EACH, LEAST = 500, 14, 20
# XLA takes a second to compile a graph.
COMPILED, LEAST_COMPILED = 200, 6
CLEANING = "fold-constants,unroll-loops,simplify-shape,cse,dce"


@pytest.fixture(autouse=True, scope="module")
def two_devices(optimized_code: None) -> None:
    configure(2)


def grown(seed: int) -> Grower:
    """Graph number ``seed``; each tenth is one of two ranks, with collectives."""
    ranks = 2 if seed % 10 == 0 else 1
    grower = Grower(seed, ranks)
    grower.grow(names_for(seed, OPS_EACH, ranks))
    return grower


def assert_same(ours: dict[str, Array], wanted: dict[str, Array], loose: set[str]) -> None:
    assert list(ours) == list(wanted)
    for name, array in wanted.items():
        assert (ours[name].dtype, ours[name].shape) == (array.dtype, array.shape), name
        if array.dtype.kind in "biu" or str(array.dtype) in ("int4", "uint4"):
            one, other = (np.asarray(x).astype(np.int64) for x in (ours[name], array))
            assert np.abs(one - other).max(initial=0) <= (1 if name in loose else 0), name
            continue
        with np.errstate(invalid="ignore"):  # some NaN signal when they are widened
            one, other = (in_double(np.asarray(x)) for x in (ours[name], array))
        tolerance = 4 * ROUNDING[KINDS.get(str(array.dtype), "f8e5m2")] if name in loose else 0.0
        finite = np.abs(other[np.isfinite(other)])
        scale = min(max(float(finite.max(initial=0.0)), 1.0), 100.0)
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * scale, err_msg=name)


@settings(
    max_examples=GRAPHS // 5,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(seed=st.integers(0, GRAPHS - 1))
def test_text_and_cleaning_change_nothing(seed: int):
    grower = grown(seed)
    module, function = grower.module, grower.function
    text = print_module(module)
    note(text)
    verify(module)
    read = parse(text)
    assert print_module(read) == text
    wanted = evaluate_ranks(function, grower.given, module=module)
    for ours, theirs in zip(
        evaluate_ranks(read.function("f"), grower.given, module=read), wanted, strict=True
    ):
        assert_same(ours, theirs, set())
    run_pipeline(read, parse_pipeline(CLEANING))
    for ours, theirs in zip(
        evaluate_ranks(read.function("f"), grower.given, module=read), wanted, strict=True
    ):
        assert_same(ours, theirs, set())


@pytest.mark.slow
@settings(
    max_examples=COMPILED,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(seed=st.integers(0, COMPILED - 1))
def test_xla_computes_what_numpy_does(seed: int):
    grower = grown(seed)
    note(print_module(grower.module))
    wanted = evaluate_ranks(grower.function, grower.given, module=grower.module)
    lowered = parse(print_module(grower.module))
    run_pipeline(lowered, parse_pipeline("legalize{min_rows=1}"))
    program = compile_program(lowered, lowered.function("f"))
    for ours, theirs in zip(program.run_numpy(grower.given), wanted, strict=True):
        assert_same(ours, theirs, grower.rounded)


def test_every_op_is_grown_often(capsys: pytest.CaptureFixture[str]):
    """The histogram; shown with ``pytest -s`` or when it falls short."""
    counts: Counter[str] = Counter()
    compiled: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for seed in range(GRAPHS):
        grower = grown(seed)
        counts += grower.histogram()
        compiled += grower.histogram() if seed < COMPILED else Counter()
        shapes = [value.shape for op in grower.function.block for value in op.results]
        sizes["0"] += any(0 in shape for shape in shapes)
        sizes["1"] += any(1 in shape for shape in shapes)
    with capsys.disabled():
        print("\n" + ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    assert set(counts) == supported(), LEFT_OUT
    assert {name: count for name, count in counts.items() if count < LEAST} == {}
    assert {name for name in counts if compiled[name] < LEAST_COMPILED} == set()
    assert min(sizes["0"], sizes["1"]) > 50
