"""Quantized caches: what is written, what is refused, and that passes behind go on with them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, NATIVE, Arithmetic, Array, evaluate
from graphgen.ir import Module, Role, dtype
from graphgen.ir.dtype import f8e4m3
from graphgen.models import build, known_shape
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.pipelines import default
from graphgen.passes.quantization.cache_form import scales_of
from graphgen.passes.quantization.cache_ranges import read_ranges, write_ranges
from graphgen.passes.quantization.quantize_cache import QuantizeCache
from graphgen.text import parse

ONE_STATE = """\
module @m level=canonical {
  input %new : f32[2,1,1,4]
  input %slots : s32[2,1]
  input %seq_ids : s32[2]
  state %k : f32[2,2,1,4]
  output %r : f32[2,2,1,4]
}

func @f phase=decode {
  arg %k : f32[2,2,1,4]
  arg %new : f32[2,1,1,4]
  arg %slots : s32[2,1]
  arg %seq_ids : s32[2]
  %0 = kv_update(%k, %new, %seq_ids, %slots) : f32[2,2,1,4]
  %r = cache_read(%0, %seq_ids) attended=2 : f32[2,2,1,4]
  return k = %0
  return r = %r
}
"""


def read_back(new: list[float], passes: str, how: Arithmetic = NATIVE) -> Array:
    """What a token reads of the four numbers that it has just written."""
    module = parse(ONE_STATE)
    run_pipeline(module, parse_pipeline(passes))
    program = module.function("f")
    cache = evaluate(
        module.function(module.interface["k"].pack),
        {"whole": np.zeros((2, 2, 1, 4), np.float32), "rank": np.zeros(1, np.int32)},
        how,
    )["part"]
    given = {
        "k": cache,
        "new": np.tile(np.array(new, np.float32), (2, 1, 1, 1)),
        "slots": np.zeros((2, 1), np.int32),
        "seq_ids": np.arange(2, dtype=np.int32),
    }
    return evaluate(program, given, how)["r"][0, 0, 0]


@pytest.mark.parametrize("how", [NATIVE, MEANING])
@pytest.mark.parametrize(
    ("element", "most"), [("f8e4m3", 240.0), ("f8e5m2", 57344.0), ("f8e4m3fn", 448.0)]
)
def test_peers_n2_what_is_too_large_becomes_the_largest(element: str, most: float, how: Arithmetic):
    """NxD Inference casts without a clamp: 300 overflows Neuron's type, which ends at 240."""
    found = read_back([1e5, -1e30, 0.5, most], f"quantize-cache{{dtype={element}}}", how)
    np.testing.assert_array_equal(found, [most, -most, 0.5, most])


def test_numbers_are_rounded_to_the_nearest_that_there_is():
    found = read_back([1.06, 1.07, -3.3, 0.0], "quantize-cache")
    np.testing.assert_array_equal(found, [1.0, 1.125, -3.25, 0.0])


def test_nothing_is_rounded_in_double_precision():
    found = read_back([1.06, 1.07, -3.3, 0.0], "quantize-cache", MEANING)
    np.testing.assert_array_equal(found, np.array([1.06, 1.07, -3.3, 0.0], np.float32))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("int8", "none"), "without a scale"),
        (("int8", "per_key"), "needs the ranges"),
        (("int8", "per_token", "ranges.json"), "scale=per_token reads no ranges"),
    ],
)
def test_options_that_contradict_each_other(options: tuple[str, ...], message: str):
    with pytest.raises(GraphgenError) as caught:
        run_pipeline(parse(ONE_STATE), [QuantizeCache(*options)])
    assert caught.value.code == "GG0302"
    assert message in str(caught.value)


def test_a_scale_a_token_against_numpy():
    new = np.array([1.06, 1.07, -3.3, 0.0], np.float32)
    step = np.float32(3.3) / np.float32(127)
    found = read_back(new.tolist(), "quantize-cache{dtype=int8,scale=per_token}")
    np.testing.assert_allclose(found, np.rint(new / step) * step, rtol=1e-6)
    meant = read_back(new.tolist(), "quantize-cache{dtype=int8,scale=per_token}", MEANING)
    np.testing.assert_allclose(meant, new, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["int8", "f8e4m3", "f8e5m2"])
def test_n2_a_token_of_zeros_has_no_scale_of_zero_to_divide_by(dtype: str):
    """NxD Inference divides by the largest magnitude of a tensor, T S18 too: zeros become NaN."""
    passes = f"quantize-cache{{dtype={dtype},scale=per_token}}"
    assert read_back([0.0] * 4, passes).tolist() == [0.0] * 4


def ranges_file(folder: Path, magnitudes: list[list[float]], name: str = "k") -> Path:
    write_ranges(folder / "ranges.json", {name: magnitudes})
    return folder / "ranges.json"


# Largest magnitudes of the channels, what is written, what is read.
FIXED = [
    # In steps of 12.7 / 127; what is beyond is clamped, T S18's rounding is to nearest.
    ("int8", "per_tensor", [12.7, 1, 1, 1], [1.26, -0.07, 99, -99], [1.3, -0.1, 12.7, -12.7]),
    ("int8", "per_key", [1, 1, 12.7, 1], [1.26, -0.07, 99, -99], [1.3, -0.1, 12.7, -12.7]),
    ("int8", "per_channel", [12.7, 1.27, 0, 127], [99, 99, 3.2, -99], [12.7, 1.27, 3, -99]),
    # N2: Neuron's type ends at 240, which the largest magnitude takes.
    ("f8e4m3", "per_key", [480, 1, 1, 1], [481, -1e9, 2.2, 0], [480, -480, 2.25, 0]),
    # A channel of zeros has the scale 1.
    ("f8e4m3", "per_channel", [0, 0, 0, 0], [1.0, 241, -3.3, 0], [1, 240, -3.25, 0]),
]


@pytest.mark.parametrize(("dtype", "scale", "largest", "new", "read"), FIXED)
def test_fixed_scales(
    tmp_path: Path,
    dtype: str,
    scale: str,
    largest: list[float],
    new: list[float],
    read: list[float],
):
    path = ranges_file(tmp_path, [largest])
    found = read_back(new, f"quantize-cache{{dtype={dtype},scale={scale},ranges={path}}}")
    np.testing.assert_allclose(found, read, rtol=1e-6)


def test_what_was_measured_is_never_clamped():
    for largest in np.random.default_rng(3).uniform(0.01, 99, 100).astype(np.float32).tolist():
        scale = scales_of([[largest]], "per_tensor", f8e4m3)
        assert isinstance(scale, float)
        assert np.float32(scale) == scale
        assert largest / scale <= 240


@pytest.mark.parametrize(
    ("magnitudes", "name", "message"),
    [
        ([[1.0] * 4], "v", "no state of that name"),
        ([[1.0] * 4] * 2, "k", "[2, 4]"),
    ],
)
def test_ranges_of_another_model(
    tmp_path: Path, magnitudes: list[list[float]], name: str, message: str
):
    path = ranges_file(tmp_path, magnitudes, name)
    with pytest.raises(GraphgenError) as caught:
        run_pipeline(parse(ONE_STATE), [QuantizeCache("int8", "per_key", str(path))])
    assert caught.value.code == "GG0302"
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read"),
        ("{", "it is not JSON"),
        ("[]", 'no "format": 1'),
        ('{"format": 2}', 'no "format": 1'),
        ('{"format": 1}', 'no "largest"'),
        ('{"format": 1, "largest": {"k": [[1, -1]]}}', '"k" is not a table'),
        ('{"format": 1, "largest": {"k": [[1, NaN]]}}', '"k" is not a table'),
        ('{"format": 1, "largest": {"k": [[1, true]]}}', '"k" is not a table'),
        ('{"format": 1, "largest": {"k": [[1], [1, 2]]}}', '"k" is not a table'),
        ('{"format": 1, "largest": {"k": [1]}}', '"k" is not a table'),
    ],
)
def test_files_that_are_no_ranges(tmp_path: Path, content: str | None, message: str):
    path = tmp_path / "ranges.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(GraphgenError) as caught:
        read_ranges(path)
    assert caught.value.code == "GG0705"
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("right", "wrong", "reason"),
    [
        ("cache_read(%0, %seq_ids) attended=2", "negate(%0)", "negate reads it otherwise"),
        ("return k = %0", "return k = %k", ""),
        ("return r = %r", "return r = %0", "it is another output too"),
    ],
)
def test_other_states_stay(right: str, wrong: str, reason: str):
    module = parse(ONE_STATE.replace(right, wrong))
    run_pipeline(module, [QuantizeCache()], journal=(journal := Journal()))
    assert [miss.why.reason for miss in journal.misses] == ([reason] if reason else [])
    assert bool(module.interface["k"].pack) == (not reason)


def compiled(**options: object) -> Module:
    module = build(known_shape("llama-3.1-8b"), dtype("f32"), mini=True)
    config = CompileConfig(batch=(2,), context=(8,), tokens=(8,), kv_cache_quant=True)
    run_pipeline(module, default(config.updated(options)))
    return module


def test_caches_of_ranks_in_blocks_are_narrow():
    module = compiled(tp=2, page_cache=4)
    types = {row.physical.text for row in module.entries(Role.STATE)}
    assert types == {"u8[4,4,1,8]"}


def test_a_narrow_cache_has_a_quarter_of_the_bytes():
    whole, narrow = compiled(kv_cache_quant=False), compiled()
    bytes_of = [
        sum(row.physical.size * row.physical.dtype.bytes for row in m.entries(Role.STATE))
        for m in (whole, narrow)
    ]
    assert bytes_of[0] == 4 * bytes_of[1]


def test_the_format_of_ocp_is_for_targets_that_have_it():
    """The target tables say so: trn1, inf2 and trn2 have Neuron's format alone."""
    for target in ("cpu", "trn3"):
        module = compiled(kv_cache_dtype="f8e4m3fn", target=target)
        kept = {row.physical.dtype.name for row in module.entries(Role.STATE)}
        assert kept == {"u8" if target == "cpu" else "f8e4m3fn"}
    for target in ("trn1", "inf2", "trn2"):
        with pytest.raises(GraphgenError, match=f"{target} has no f8e4m3fn") as caught:
            compiled(kv_cache_dtype="f8e4m3fn", target=target)
        assert caught.value.code == "GG0302"


def test_a_scale_a_token_takes_four_bytes_a_row():
    module = compiled(kv_cache_dtype="int8", tp=2, page_cache=4)
    types = {row.physical.text for row in module.entries(Role.STATE)}
    assert types == {"u8[4,4,1,12]"}


def test_the_kernels_read_and_write_narrow_caches():
    module = build(known_shape("llama-3.1-8b"), dtype("f32"), mini=True)
    config = CompileConfig(batch=(2,), context=(8,), tokens=(8,), kv_cache_quant=True, kernels="on")
    run_pipeline(module, default(config), journal=(journal := Journal()))
    kernels = {miss.rule for miss in journal.misses}
    assert not kernels & {"attention", "cache_write"}
    configs = [
        json.loads(op.attrs.text("config"))
        for function in module.programs()
        for op in function.block
        if op.attrs.get("kernel") in ("graphgen.attention", "graphgen.cache_write")
    ]
    # In each of two layers of two programs, keys and values are written and read.
    assert [config["numbers"] for config in configs] == ["f8e4m3"] * 12
