"""One description of each stored format: what is written is the inverse of what is read."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, Array, evaluate, numpy_dtype
from graphgen.ir import DType, Function
from graphgen.ir.dtype import f4e2m1fn, f8e4m3fn, f32, s4, s8
from graphgen.passes.quantization.compressed_formats import (
    StoredQuantization,
    compressed_config,
    fp8_config,
    read_compressed,
    read_fp8,
)
from graphgen.passes.quantization.read_config import stored_quantization
from graphgen.passes.quantization.scheme_table import SCHEMES
from graphgen.passes.quantization.stored_scheme import StoredForm
from tests.runtime.checkpoint.test_quantized_checkpoints import compressed

ROWS, COLUMNS = 6, 32
NUMBERS = [
    ("compressed-tensors", s8),
    ("compressed-tensors", f8e4m3fn),
    ("pack-quantized", s4),
    ("pack-quantized", s8),
    ("mxfp4", f4e2m1fn),
]
BLOCKS = [(0, 0), (1, 0), (1, 16), (3, 8)]


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize(("scheme", "element"), NUMBERS)
def test_a_configuration_that_is_written_is_read(
    scheme: str, element: DType, block: tuple[int, int], zero: bool
):
    found = StoredQuantization(SCHEMES[scheme], StoredForm(element, block, zero))
    stated = compressed_config(found, ["lm_head"])
    assert read_compressed(stated) == found
    assert stated["ignore"] == ["lm_head"]


def test_the_configuration_of_fp8_is_read():
    found = read_fp8({"weight_block_size": [64, 32]})
    stated = fp8_config(found, [])
    assert stated["weight_block_size"] == [64, 32]
    assert read_fp8(stated) == found
    assert stored_quantization({"quantization_config": stated}) == found


def numbers_of(element: DType, seed: int) -> Array:
    """Numbers of the whole range, 4-bit integers as int8."""
    rng = np.random.default_rng(seed)
    if element in (s4, s8):
        half = 1 << (element.bits - 1)
        return rng.integers(-half, half, (ROWS, COLUMNS)).astype(np.int8)
    return (4 * rng.standard_normal((ROWS, COLUMNS))).astype(numpy_dtype(element))


@pytest.mark.parametrize(
    ("scheme", "element"), [*NUMBERS, ("fp8", f8e4m3fn), ("aws", s8), ("fbgemm_fp8", f8e4m3fn)]
)
@pytest.mark.parametrize("block", BLOCKS)
def test_packing_is_the_inverse_of_widening(scheme: str, element: DType, block: tuple[int, int]):
    found, form = SCHEMES[scheme], StoredForm(element, block)
    numbers = numbers_of(element, 3)
    exponents = np.random.default_rng(4).integers(-6, 6, form.counts(numbers.shape))
    scale = np.exp2(exponents).astype(np.float32)
    assert found.pack is not None
    stored = found.pack(form, numbers, scale)
    function = Function("f")
    b = Builder(function)
    types = found.parts(form, (ROWS, COLUMNS))
    assert list(stored) == list(types)
    parts = {last: function.block.add_arg(type_, last) for last, type_ in types.items()}
    function.outputs = [("w", found.widen(b, form, parts, (ROWS, COLUMNS), f32))]
    given = {last: array.reshape(types[last].dims) for last, array in stored.items()}
    assert all(given[last].dtype == numpy_dtype(type_.dtype) for last, type_ in types.items())
    high, wide = form.sizes((ROWS, COLUMNS))
    spread = np.repeat(np.repeat(scale, high, 0), wide, 1)[:ROWS, :COLUMNS]
    wanted = numbers.astype(np.float64) * spread
    np.testing.assert_array_equal(evaluate(function, given, MEANING)["w"], wanted)


@pytest.mark.parametrize(
    ("form", "kind", "bits"),
    [
        ("int-quantized", "float", 8),
        ("int-quantized", "int", 4),
        ("float-quantized", "int", 8),
        ("pack-quantized", "float", 4),
        ("pack-quantized", "int", 2),
        ("mxfp4-pack-quantized", "int", 4),
        ("naive-quantized", "float", 16),
    ],
)
def test_a_combination_that_no_row_lists_is_refused(form: str, kind: str, bits: int):
    stated = compressed(form, num_bits=bits, type=kind, strategy="channel")
    with pytest.raises(GraphgenError, match="is not read") as caught:
        stored_quantization({"quantization_config": stated})
    assert caught.value.code == "GG0502"
    assert f"compressed-tensors of {kind} {bits} bits in {form}" in caught.value.what
