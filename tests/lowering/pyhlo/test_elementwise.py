"""Ops of PyHLO that work element by element, or move elements, against plain NumPy and XLA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphgen.lowering.pyhlo import compile_py_func
from graphgen.lowering.pyhlo.dialect import BY_NAME, ELEMENTWISE_ROWS
from tests.lowering.pyhlo.test_pyhlo import both

Function = Callable[..., Any]
X = np.array([[-2.5, -1.0, -0.5, 0.0], [0.25, 1.0, 1.5, 3.0]], np.float32)
Y = np.array([[2.0, -0.75, 1.25, 4.0], [-3.0, 1.0, 0.5, 2.5]], np.float32)
POSITIVE = np.abs(X) + np.float32(0.125)
INTEGERS = np.array([[-7, -1, 0, 3], [5, 8, 100, -100]], np.int32)
DIVISORS = np.array([[2, -3, 5, -2], [4, 3, -7, 9]], np.int32)
SHIFTS = np.array([[0, 1, 2, 3], [4, 5, 30, 31]], np.int32)
FLAGS = np.array([[True, True, False, False], [True, False, True, False]])
OTHERS = np.array([[True, False, True, False], [True, True, False, False]])

NUMBERS = np.asarray(X + 1j * Y, np.complex64)


def erf(x: Any) -> Any:
    from math import erf as one

    return np.vectorize(one)(x)


def truncated(x: Any, y: Any) -> Any:
    return np.trunc(x / y).astype(x.dtype)


def away_from_zero(x: Any) -> Any:
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


def bits(x: Any) -> Any:
    return np.vectorize(lambda item: bin(int(item) & 0xFFFFFFFF).count("1"))(x)


def leading_zeros(x: Any) -> Any:
    return np.vectorize(lambda item: 32 - (int(item) & 0xFFFFFFFF).bit_length())(x)


# Name of the op: what NumPy calls it, and operands.
CASES: list[tuple[str, Function, tuple[Any, ...]]] = [
    ("Add", np.add, (X, Y)),
    ("Subtract", np.subtract, (X, Y)),
    ("Multiply", np.multiply, (X, Y)),
    ("Divide", np.divide, (X, Y)),
    ("Divide", truncated, (INTEGERS, DIVISORS)),
    ("Maximum", np.maximum, (X, Y)),
    ("Minimum", np.minimum, (X, Y)),
    ("Remainder", np.fmod, (X, Y)),
    ("Remainder", np.fmod, (INTEGERS, DIVISORS)),
    ("Power", np.power, (POSITIVE, Y)),
    ("Atan2", np.arctan2, (X, Y)),
    ("And", np.logical_and, (FLAGS, OTHERS)),
    ("And", np.bitwise_and, (INTEGERS, DIVISORS)),
    ("Or", np.logical_or, (FLAGS, OTHERS)),
    ("Or", np.bitwise_or, (INTEGERS, DIVISORS)),
    ("Xor", np.bitwise_xor, (INTEGERS, DIVISORS)),
    ("ShiftLeft", np.left_shift, (INTEGERS, SHIFTS)),
    ("ShiftRightArithmetic", np.right_shift, (INTEGERS, SHIFTS)),
    (
        "ShiftRightLogical",
        lambda x, y: (x.astype(np.uint32) >> y.astype(np.uint32)).astype(np.int32),
        (INTEGERS, SHIFTS),
    ),
    ("Abs", np.abs, (X,)),
    ("Negate", np.negative, (X,)),
    ("Sign", np.sign, (X,)),
    ("Exp", np.exp, (X,)),
    ("Expm1", np.expm1, (X,)),
    ("Log", np.log, (POSITIVE,)),
    ("Log1p", np.log1p, (POSITIVE,)),
    ("Sqrt", np.sqrt, (POSITIVE,)),
    ("Rsqrt", lambda x: 1 / np.sqrt(x), (POSITIVE,)),
    ("Cbrt", np.cbrt, (X,)),
    ("Sin", np.sin, (X,)),
    ("Cos", np.cos, (X,)),
    ("Tan", np.tan, (X,)),
    ("Tanh", np.tanh, (X,)),
    ("Erf", erf, (X,)),
    ("Logistic", lambda x: 1 / (1 + np.exp(-x)), (X,)),
    ("Floor", np.floor, (X,)),
    ("Ceil", np.ceil, (X,)),
    ("RoundNearestEven", np.rint, (X,)),
    ("RoundNearestAfz", away_from_zero, (X,)),
    ("IsFinite", np.isfinite, (np.array([[1, np.inf, np.nan, -np.inf]], np.float32),)),
    ("Not", np.logical_not, (FLAGS,)),
    ("Not", np.invert, (INTEGERS,)),
    ("Popcnt", bits, (INTEGERS,)),
    ("CountLeadingZeros", leading_zeros, (INTEGERS,)),
    ("Complex", lambda x, y: x + np.complex64(1j) * y, (X, Y)),
    ("Real", np.real, (NUMBERS,)),
    ("Imag", np.imag, (NUMBERS,)),
    ("Select", np.where, (FLAGS, X, Y)),
    ("Clamp", lambda low, x, high: np.clip(x, low, high), (X - 1, Y, X + 1)),
]
KINDS = {"float32": "f32", "int32": "s32", "uint32": "u32", "bool": "pred", "complex64": "c64"}


def result_of(function: Callable[[Any, list[Any]], Any], *arrays: Any) -> Any:
    """What XLA and NumPy make of a function of a scribe and its parameters."""

    def program(scribe: Any) -> Any:
        values = [
            shaped(scribe, array).Parameter(parameter_number=i) for i, array in enumerate(arrays)
        ]
        return function(scribe, values)

    (found,) = both(compile_py_func(program), *arrays)
    return found


def shaped(scribe: Any, array: Any) -> Any:
    kind = getattr(scribe, KINDS[str(array.dtype)])
    return kind[tuple(array.shape)] if array.shape else kind


@pytest.mark.parametrize(("name", "numpy", "operands"), CASES)
def test_element_by_element(name: str, numpy: Function, operands: tuple[Any, ...]):
    wanted = np.asarray(numpy(*operands))
    if wanted.dtype not in (np.float32, np.complex64, np.bool_):
        wanted = wanted.astype(operands[-1].dtype)

    found = result_of(lambda s, x: getattr(shaped(s, wanted), name)(*x), *operands)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_what_is_not_element_by_element_is_tested_elsewhere():
    import inspect

    from tests.lowering.pyhlo import test_control, test_pyhlo

    here, there = (
        inspect.getsource(inspect.getmodule(shaped) or shaped),
        inspect.getsource(test_pyhlo) + inspect.getsource(test_control),
    )
    plain = {row.name for row in ELEMENTWISE_ROWS}
    assert plain <= {name for name, _, _ in CASES}
    missing = [n for n in BY_NAME if n not in plain and f".{n}(" not in here + there]
    assert [name for name in missing if name != "Select"] == []


@pytest.mark.parametrize(
    ("direction", "numpy"),
    [
        ("EQ", np.equal),
        ("NE", np.not_equal),
        ("LT", np.less),
        ("LE", np.less_equal),
        ("GT", np.greater),
        ("GE", np.greater_equal),
    ],
)
def test_comparisons(direction: str, numpy: Function):
    found = result_of(
        lambda s, x: s.pred[2, 4].Compare(*x, comparison_direction=direction), INTEGERS, DIVISORS
    )
    np.testing.assert_array_equal(found, numpy(INTEGERS, DIVISORS))


def test_what_moves_elements():
    joined = result_of(lambda s, x: s.f32[4, 4].Concatenate(*x, dimensions=[0]), X, Y)
    np.testing.assert_array_equal(joined, np.concatenate([X, Y]))
    turned = result_of(lambda s, x: s.f32[2, 4].Reverse(*x, dimensions=[1]), X)
    np.testing.assert_array_equal(turned, X[:, ::-1])
    same = result_of(lambda s, x: s.s32[2, 4].BitcastConvert(*x), X)
    np.testing.assert_array_equal(same, X.view(np.int32))


@pytest.mark.parametrize("start", [(0, 0), (1, 2), (-5, 3), (7, 9)])
def test_places_that_are_computed_lie_inside(start: tuple[int, int]):
    numbers = [np.asarray(number, np.int32) for number in start]
    row, column = (min(max(n, 0), m) for n, m in zip(start, (1, 2), strict=True))
    found = result_of(
        lambda s, x: s.f32[1, 2].DynamicSlice(*x, dynamic_slice_sizes=[1, 2]), X, *numbers
    )
    np.testing.assert_array_equal(found, X[row : row + 1, column : column + 2])
    update = np.array([[70, 80]], np.float32)
    found = result_of(lambda s, x: s.f32[2, 4].DynamicUpdateSlice(*x), X, update, *numbers)
    wanted = X.copy()
    wanted[row : row + 1, column : column + 2] = update
    np.testing.assert_array_equal(found, wanted)
