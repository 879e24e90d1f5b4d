"""Element types: their bytes are NumPy's and ml_dtypes' bytes."""

from __future__ import annotations

import math
import struct

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphgen.errors import GraphgenError
from graphgen.eval import numpy_dtype
from graphgen.ir import DType, Literal, dtype
from graphgen.ir.dtype import (
    DTYPES,
    bf16,
    complex_of,
    decode,
    encode,
    f32,
    has_infinity,
    highest,
    lowest,
    part_of,
)

FLOATS = [kind for kind in DTYPES.values() if kind.is_float]
INTEGERS = [kind for kind in DTYPES.values() if kind.is_integer]


def from_bits(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<I", bits))[0]


@pytest.mark.parametrize("kind", DTYPES.values(), ids=str)
def test_size_and_kind_are_those_of_numpy(kind: DType):
    theirs = numpy_dtype(kind)
    assert theirs.itemsize == kind.bytes
    assert kind.is_float == kind.name.startswith(("f", "bf"))
    assert kind.is_integer == kind.name.startswith(("s", "u"))
    if theirs.kind != "V":
        assert kind.is_float == (theirs.kind == "f")
        assert kind.is_integer == (theirs.kind in "iu")


@given(st.integers(0, 2**32 - 1))
def test_bf16_rounds_to_nearest_even_for_any_f32(bits: int):
    value = from_bits(bits)
    theirs = np.float32(value).astype(ml_dtypes.bfloat16)
    if math.isnan(value):
        (ours,) = decode(bf16, encode(bf16, value))
        assert math.isnan(ours)
    else:
        assert encode(bf16, value) == theirs.tobytes()


@pytest.mark.parametrize(
    "bits",
    # A tie to even below, a tie to even above, just over a tie, overflow to infinity, subnormals.
    [
        0x3F808000,
        0x3F818000,
        0x3F808001,
        0x7F7FFFFF,
        0x00000001,
        0x00008000,
        0x80018000,
        0xFF800000,
    ],
)
def test_bf16_ties_and_ends(bits: int):
    value = from_bits(bits)
    assert encode(bf16, value) == np.float32(value).astype(ml_dtypes.bfloat16).tobytes()


def is_held(kind: DType, value: float) -> bool:
    """Whether a float rounds to a number of the type; ml_dtypes clips what is beyond an end."""
    if math.isinf(value):
        return has_infinity(kind)
    rounded = float(np.asarray(value).astype(numpy_dtype(kind)).astype(np.float64))
    if kind.bits < 8 and abs(rounded) == highest(kind):
        step = highest(kind) - max(v for v in every_value(kind) if v < highest(kind))
        # The highest code is odd, so that a tie is beyond it.
        return abs(value) < highest(kind) + step / 2
    return math.isfinite(rounded)


def every_value(kind: DType) -> list[float]:
    codes = np.arange(1 << kind.bits, dtype=np.uint8)
    return [float(value) for value in codes.view(numpy_dtype(kind)).astype(np.float64)]


@pytest.mark.parametrize("kind", FLOATS, ids=str)
@given(value=st.floats(allow_nan=False, width=16))
def test_floats_have_numpy_bytes_and_come_back(kind: DType, value: float):
    if not is_held(kind, value):
        with pytest.raises(GraphgenError, match="is not a value of"):
            encode(kind, value)
        return
    data = encode(kind, value)
    assert data == np.asarray(value, numpy_dtype(kind)).tobytes()
    (back,) = decode(kind, data)
    assert encode(kind, back) == data


@pytest.mark.parametrize("kind", [k for k in FLOATS if k.bits <= 8], ids=str)
def test_every_code_of_a_small_float(kind: DType):
    codes = np.arange(1 << kind.bits, dtype=np.uint8)
    theirs = np.array(every_value(kind))
    np.testing.assert_array_equal(decode(kind, codes.tobytes()), theirs)
    for code, value in zip(codes, theirs, strict=True):
        if not math.isnan(value):
            assert encode(kind, float(value))[0] == code
    if not np.isnan(theirs).any():
        with pytest.raises(GraphgenError, match="nan is not a value of"):
            encode(kind, math.nan)
        return
    (back,) = decode(kind, encode(kind, math.nan))
    assert math.isnan(back)
    finite = theirs[np.isfinite(theirs)]
    assert (lowest(kind), highest(kind)) == (finite.min(), finite.max())
    assert has_infinity(kind) == bool(np.isinf(theirs).any())


@pytest.mark.parametrize("kind", [k for k in FLOATS if k.bits <= 8], ids=str)
@given(bits=st.integers(0, 2**31 - 1), scale=st.integers(-14, 17))
def test_small_floats_round_as_ml_dtypes(kind: DType, bits: int, scale: int):
    value = math.ldexp(1 + (bits & 0xFFFF) / 2**16, scale) * (-1 if bits & 0x10000 else 1)
    # A tie, and just beside it, as well.
    for number in (value, math.ldexp(round(math.ldexp(value, 5 - scale)), scale - 5)):
        theirs = np.float64(number).astype(numpy_dtype(kind))
        if is_held(kind, number):
            assert encode(kind, number) == theirs.tobytes()
        else:
            with pytest.raises(GraphgenError, match="is not a value of"):
                encode(kind, number)


@pytest.mark.parametrize(("name", "part"), [("c64", "f32"), ("c128", "f64")])
def test_a_complex_number_is_two_floats(name: str, part: str):
    kind = dtype(name)
    value = complex(0.1, -2.5)
    data = encode(kind, value)
    assert data == np.asarray(value, numpy_dtype(kind)).tobytes()
    assert kind.bytes == 2 * dtype(part).bytes
    assert Literal.of(kind, [value, 1]).complex_values() == [
        *np.frombuffer(data, numpy_dtype(kind)).tolist(),
        1,
    ]
    assert (part_of(kind), complex_of(dtype(part))) == (dtype(part), kind)
    for use in (lambda: encode(dtype(part), value), lambda: decode(kind, data)):
        with pytest.raises(GraphgenError) as caught:
            use()
        assert caught.value.code == "GG0104"
    with pytest.raises(GraphgenError, match="no complex number is made of bf16"):
        complex_of(bf16)


@pytest.mark.parametrize("kind", INTEGERS, ids=str)
def test_integers_hold_their_ends_and_nothing_beyond(kind: DType):
    info = ml_dtypes.iinfo(numpy_dtype(kind))
    ends = [int(info.min), 0, int(info.max)]
    data = b"".join(encode(kind, value) for value in ends)
    assert data == np.asarray(ends, numpy_dtype(kind)).tobytes()
    assert decode(kind, data) == ends
    for beyond in (int(info.min) - 1, int(info.max) + 1, 0.5):
        with pytest.raises(GraphgenError, match=f"is not a value of {kind.name}") as caught:
            encode(kind, beyond)
        assert caught.value.code == "GG0104"


def test_pred_is_one_byte():
    dtype_ = dtype("pred")
    assert encode(dtype_, True) + encode(dtype_, False) == b"\1\0"
    assert decode(dtype_, b"\1\0") == [True, False]
    with pytest.raises(GraphgenError, match=r"2 is not a value of pred"):
        encode(dtype_, 2)


@pytest.mark.parametrize(("name", "value"), [("f16", 70000.0), ("f32", 1e39), ("bf16", 1e39)])
def test_a_float_out_of_range_is_refused(name: str, value: float):
    with pytest.raises(GraphgenError, match=f"is not a value of {name}"):
        encode(dtype(name), value)


@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_lowest_float_is_the_most_negative_finite_one(kind: DType):
    theirs = ml_dtypes.finfo(numpy_dtype(kind)).min
    (ours,) = decode(kind, encode(kind, lowest(kind)))
    assert ours == float(theirs)
    assert math.isfinite(ours)


@pytest.mark.parametrize("kind", INTEGERS, ids=str)
def test_lowest_integer(kind: DType):
    assert lowest(kind) == ml_dtypes.iinfo(numpy_dtype(kind)).min


def test_lookup_by_name():
    assert dtype("f32") is f32
    assert dtype(f32) is f32
    with pytest.raises(GraphgenError) as caught:
        dtype("f31")
    assert caught.value.code == "GG0101"
    assert str(caught.value) == (
        "error[GG0101]: unknown dtype 'f31'\n"
        "  help: known: pred, c64, c128, s2, s4, s8, s16, s32, s64, u2, u4, u8, u16, u32, u64, "
        "f4e2m1fn, f6e2m3fn, f6e3m2fn, f8e3m4, f8e4m3b11fnuz, f8e4m3fnuz, f8e5m2fnuz, f8e8m0fnu, "
        "f8e4m3, f8e4m3fn, f8e5m2, f16, bf16, f32, f64"
    )


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("float32", "f32"), ("torch.bfloat16", "bf16"), ("int8", "s8"), ("uint8", "u8"),
        ("i64", "s64"),
        ("bool", "pred"), ("half", "f16"), ("F32", "f32"), ("fp16", "f16"), ("float8_e4m3", ""),
    ],
)  # fmt: skip
def test_names_that_others_use_are_translated(name: str, ours: str):
    with pytest.raises(GraphgenError) as caught:
        dtype(name)
    wanted = f"did you mean {ours}?" if ours else "known: pred"
    assert caught.value.help.startswith(wanted)


def test_literals_are_row_major():
    literal = Literal.of(dtype("s16"), [[1, 2, 3], [4, 5, 6]])
    assert literal.shape == (2, 3)
    assert literal.data == np.asarray([[1, 2, 3], [4, 5, 6]], np.int16).tobytes()
    assert literal.values() == [1, 2, 3, 4, 5, 6]
    assert Literal.of(f32, 0.5).shape == ()
    assert Literal.of(f32, []).shape == (0,)


@pytest.mark.parametrize("value", [[[1], [1, 2]], [1, [2]], [[1], 2], "x", [None]])
def test_a_literal_that_is_no_array_of_numbers_is_refused(value: object):
    with pytest.raises(GraphgenError) as caught:
        Literal.of(f32, value)
    assert caught.value.code == "GG0104"
