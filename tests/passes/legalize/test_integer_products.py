"""Products in digits: as exact as they say, whatever the rows are like."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, Array, evaluate
from graphgen.ir import Module
from graphgen.lowering.cpu import compile_program
from graphgen.ops import verify
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.legalize.integer_products import IntegerProducts
from graphgen.text import parse

pytestmark = pytest.mark.usefixtures("optimized_code")

DOT = "lhs_contracting_dims=[{0}] rhs_contracting_dims=[{1}]"


def program(x: str, w: str, y: str, at: tuple[int, int], widened: str = "") -> Module:
    """``x @ w`` with w of 8 bits."""
    kind = x.partition("[")[0]
    wide = widened or w.replace("s8", kind)
    module = parse(
        f"module @m level=canonical {{\n  input %x : {x}\n  weight %w : {w}\n  output %y : {y}\n}}"
        f"\n\nfunc @f phase=decode {{\n  arg %x : {x}\n  arg %w : {w}\n"
        f"  %v = convert(%w) dtype={kind} : {wide}\n"
        f"  %y = dot_general(%x, %v) {DOT.format(*at)} dtype={y.partition('[')[0]} : {y}\n"
        "  return y = %y\n}\n"
    )
    verify(module)
    return module


def arrays(x: tuple[int, ...], w: tuple[int, ...], seed: int = 0) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {
        "x": random.standard_normal(x).astype(np.float32),
        "w": random.integers(-128, 128, w).astype(np.int8),
    }


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("x", "w", "at"),
    [
        ((5, 33), (7, 33), (1, 1)),
        ((5, 33), (33, 7), (1, 0)),
        ((2, 3, 33), (7, 33), (2, 1)),
        ((33,), (7, 33), (0, 1)),
    ],
)
@pytest.mark.parametrize("digits", [1, 2, 3])
def test_digits_leave_what_they_say(
    x: tuple[int, ...], w: tuple[int, ...], at: tuple[int, int], digits: int
):
    y = (*x[:-1], w[1 - at[1]])
    texts = [f"{k}[{','.join(map(str, v))}]" for k, v in (("f32", x), ("s8", w), ("f32", y))]
    module = program(texts[0], texts[1], texts[2], at)
    given = arrays(x, w)
    wanted = evaluate(module.function("f"), given, MEANING)["y"]
    run_pipeline(module, [*parse_pipeline(f"integer-products{{digits={digits}}},dce")])
    dots = [op for op in module.function("f").ops if op.name == "dot_general"]
    assert [op.operands[0].dtype.name + op.result.dtype.name for op in dots] == ["s8s32"]
    exact = evaluate(module.function("f"), given, MEANING)["y"]
    np.testing.assert_allclose(exact, wanted, rtol=1e-9, atol=1e-9)
    # Half a step of the last digit in each activation; a little for f32.
    largest = np.abs(given["x"]).max(-1, keepdims=True).astype(np.float64)
    bound = (
        largest
        * (0.5 / 127 / 254 ** (digits - 1) + 1e-6)
        * np.abs(given["w"]).sum(at[1], dtype=np.float64)
    )
    (ours,) = compile_program(module, module.function("f")).run_numpy([given])
    for found in (evaluate(module.function("f"), given)["y"], ours["y"]):
        assert (np.abs(found - wanted) <= bound).all()
        assert np.abs(found - wanted).max() > 0


def test_rows_do_not_share_a_unit():
    module = program("f32[3,8]", "s8[4,8]", "f32[3,4]", (1, 1))
    given = arrays((3, 8), (4, 8))
    given["x"] *= np.array([[1e6], [1.0], [1e-6]], np.float32)
    wanted = evaluate(module.function("f"), given)["y"]
    run_pipeline(module, [IntegerProducts()])
    np.testing.assert_allclose(evaluate(module.function("f"), given)["y"], wanted, rtol=1e-3)


def test_zeros_infinities_and_nan_stay_in_their_row():
    module = program("f32[4,8]", "s8[4,8]", "f32[4,4]", (1, 1))
    given = arrays((4, 8), (4, 8))
    wanted = evaluate(module.function("f"), given)["y"]
    run_pipeline(module, [IntegerProducts()])
    given["x"][0], given["x"][1, 3], given["x"][2, 5] = 0.0, np.inf, np.nan
    (ours,) = compile_program(module, module.function("f")).run_numpy([given])
    for found in (evaluate(module.function("f"), given)["y"], ours["y"]):
        assert (found[0] == 0).all()
        assert not np.isfinite(found[1:3]).any()
        np.testing.assert_allclose(found[3], wanted[3], rtol=1e-3, atol=1e-2)


NEAR_MISSES = {
    "its right operand is not a widened 8-bit integer": ("f32[2,4]", "f8e5m2[6,4]", "f32[2,6]"),
    "digits would lose what f64 holds": ("f64[2,4]", "s8[6,4]", "f64[2,6]"),
    "132105 products do not fit into 32 bits": ("f32[1,132105]", "s8[1,132105]", "f32[1,1]"),
}


@pytest.mark.parametrize("reason", NEAR_MISSES)
def test_other_products_stay(reason: str):
    x, w, y = NEAR_MISSES[reason]
    kind = x.partition("[")[0]
    module = program(x, w, y, (1, 1), w.replace("s8", kind).replace("f8e5m2", kind))
    run_pipeline(module, [IntegerProducts()], journal=(journal := Journal()))
    assert not journal.applications
    miss = journal.nearest("integer-product")
    assert miss is not None
    assert miss.why.reason == reason


def test_no_digits_are_refused():
    module = program("f32[2,4]", "s8[6,4]", "f32[2,6]", (1, 1))
    with pytest.raises(GraphgenError, match="digits=0 must be at least 1"):
        run_pipeline(module, parse_pipeline("integer-products{digits=0}"))
