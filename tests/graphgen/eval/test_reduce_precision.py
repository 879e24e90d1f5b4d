"""reduce_precision, against ml_dtypes' conversions to floats of that layout."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from graphgen.eval import NATIVE, evaluate
from graphgen.text import parse

# Exponent and mantissa bits of IEEE layouts.
LAYOUTS = {
    (5, 10): np.float16,
    (8, 7): ml_dtypes.bfloat16,
    (5, 2): ml_dtypes.float8_e5m2,
    (4, 3): ml_dtypes.float8_e4m3,
    (3, 4): ml_dtypes.float8_e3m4,
}


def reduced(x: np.ndarray, kind: str, layout: tuple[int, int]) -> np.ndarray:
    type_ = f"{kind}[{len(x)}]"
    attrs = f"exponent_bits={layout[0]} mantissa_bits={layout[1]}"
    module = parse(
        f"module @m level=logical {{\n  input %x : {type_}\n  output %y : {type_}\n}}\n\n"
        f"func @f phase=main {{\n  arg %x : {type_}\n"
        f"  %y = reduce_precision(%x) {attrs} : {type_}\n  return y = %y\n}}\n"
    )
    return evaluate(module.function("f"), {"x": x}, NATIVE)["y"]


def numbers(kind: np.dtype, least: float, most: float) -> np.ndarray:
    """Numbers of all sizes from zero to infinity, densest about the ends of a range."""
    random = np.random.default_rng(0)
    any_ = random.standard_normal(3000) * 2.0 ** random.integers(-30, 30, 3000)
    near = np.concatenate([end * np.linspace(0.4, 2.2, 300) for end in (least, most)])
    ends = [0.0, -0.0, np.inf, -np.inf, np.nan, least, most, -most, 1.0]
    with np.errstate(over="ignore"):
        return np.concatenate([any_, near, -near, ends]).astype(kind)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_it_rounds_as_the_conversion_does_and_has_no_subnormals(layout: tuple[int, int], kind: str):
    narrow = LAYOUTS[layout]
    info = ml_dtypes.finfo(narrow)
    wide = np.dtype(np.float32 if kind == "f32" else ml_dtypes.bfloat16)
    x = numbers(wide, float(info.smallest_normal), float(info.max))
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = x.astype(np.float32).astype(narrow).astype(np.float32)
    # What rounds to a normal number is one; what stays below the least is zero.
    found = reduced(x, kind, layout).astype(np.float32)
    normal = (np.abs(wanted) > float(info.smallest_normal)) | np.isnan(wanted)
    np.testing.assert_array_equal(found[normal], wanted[normal])
    if layout[0] == 8:  # as many exponent bits as before: its subnormals stay
        return
    small = np.abs(x.astype(np.float32)) < 0.9 * float(info.smallest_normal)
    assert small.sum() > 100
    np.testing.assert_array_equal(found[small], 0)
    np.testing.assert_array_equal(np.signbit(found[small]), np.signbit(x[small]))
