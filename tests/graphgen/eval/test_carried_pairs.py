"""Numbers of 4 bits that share a byte, where all floats are computed in double precision."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, NATIVE, evaluate
from graphgen.text import parse

PACKED = """
module @m level=logical {
  input %x : f32[3,4]
  output %y : f32[4,3]
  output %bytes : u8[2,3]
}

func @f phase=decode {
  arg %x : f32[3,4]
  %narrow = convert(%x) dtype=s4 : s4[3,4]
  %pairs = reshape(%narrow) shape=[3,2,2] : s4[3,2,2]
  %bytes = bitcast_convert(%pairs) dtype=u8 : u8[3,2]
  %turned = transpose(%bytes) permutation=[1,0] : u8[2,3]
  %separate = bitcast_convert(%turned) dtype=s4 : s4[2,3,2]
  %wide = convert(%separate) dtype=f32 : f32[2,3,2]
  %y = reshape(%wide) shape=[4,3] : f32[4,3]
  return y = %y
  return bytes = %turned
}
"""


def test_two_numbers_in_a_byte_are_the_parts_of_a_complex_number():
    x = np.asarray([[-7.25, 3.5, 0.0, 6.75], [1.5, 2.5, -3.5, 4.5], [0.1, 0.2, 0.3, 0.4]])
    found = evaluate(parse(PACKED).function("f"), {"x": x}, MEANING)
    assert np.array_equal(found["y"], x.reshape(3, 2, 2).transpose(1, 0, 2).reshape(4, 3))
    assert np.array_equal(np.real(found["bytes"]), x[:, ::2].T)
    assert np.array_equal(np.imag(found["bytes"]), x[:, 1::2].T)


def test_in_its_own_types_the_first_number_is_the_low_half_of_the_byte():
    x = np.asarray([[-7, 3, 0, 6], [1, 2, -3, 4], [0, 1, 7, -8]], np.float32)
    found = evaluate(parse(PACKED).function("f"), {"x": x}, NATIVE)
    numbers = x.astype(np.int64) & 15
    assert np.array_equal(found["bytes"], (numbers[:, ::2] | numbers[:, 1::2] << 4).T)
    assert np.array_equal(found["y"], x.reshape(3, 2, 2).transpose(1, 0, 2).reshape(4, 3))


def test_more_numbers_in_one_are_refused():
    text = (
        PACKED.replace("  output %bytes : u8[2,3]\n", "")
        .replace("s4[3,2,2]", "s4[3,1,4]")
        .replace("[3,2,2]", "[3,1,4]")
    )
    text = text.partition("  %bytes")[0] + "  %bytes = bitcast_convert(%pairs) dtype=u16 : u16[3,1]"
    text = text.replace("f32[4,3]", "u16[3,1]") + "\n  return y = %bytes\n}\n"
    x = np.ones((3, 4))
    with pytest.raises(GraphgenError, match="4 numbers are joined in one") as caught:
        evaluate(parse(text).function("f"), {"x": x}, MEANING)
    assert caught.value.code == "GG0403"


def test_the_bits_of_a_pair_are_those_of_whole_numbers():
    text = PACKED.replace("  return y = %y", "  %z = not(%turned) : u8[2,3]\n  return y = %y")
    text = text.replace("return bytes = %turned", "return bytes = %z")
    x = np.asarray([[-7.25, 3.5, 0.0, 6.75], [1.5, 2.5, -3.5, 4.5], [0.1, 0.2, 0.3, 0.4]])
    function = parse(text).function("f")
    wide, own = (evaluate(function, {"x": x}, how) for how in (MEANING, NATIVE))
    assert np.array_equal(wide["bytes"], own["bytes"])
    assert np.array_equal(wide["y"], own["y"])
