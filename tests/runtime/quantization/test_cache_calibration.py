"""Ranges of caches over a text: what they are, and what caches with their scales cost."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.passes.quantization.cache_ranges import read_ranges, write_ranges
from graphgen.runtime.accuracy.perplexity import (
    every_token_session,
    read_windows,
    surprise,
    window_logits,
)
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.engine import locate_checkpoint
from graphgen.runtime.progress import Silent
from graphgen.runtime.quantization.calibration import calibrate_caches
from tests.graphgen.cli.conftest import done, error, facts
from tests.oracles.small_gguf import CORPUS, write_small_model

pytestmark = pytest.mark.usefixtures("optimized_code")

DATA = Path(__file__).parents[2] / "data"


def test_ranges_of_a_text(tmp_path: Path):
    write_small_model(tmp_path / "small.gguf")
    checkpoint = open_checkpoint(tmp_path / "small.gguf")
    text = " ".join(CORPUS)[:120]
    whole = calibrate_caches(checkpoint, text, 8, Silent()).ranges
    half = calibrate_caches(checkpoint, text[:60], 8, Silent()).ranges
    assert set(whole) == set(half)
    more = 0
    for name, found in whole.items():
        assert (np.array(found) >= np.array(half[name])).all()
        assert (np.array(half[name]) > 0).all()
        more += int((np.array(found) > np.array(half[name])).sum())
    assert more > 0


def test_the_command(tmp_path: Path):
    model, text, ranges = (tmp_path / name for name in ("small.gguf", "text", "ranges.json"))
    write_small_model(model)
    text.write_text(" ".join(CORPUS)[:120])
    written = facts("calibrate", model, "--text", text, "-o", ranges, "--window", 8)
    known = read_ranges(ranges)
    assert written["file"] == str(ranges)
    assert written["caches"] == len(known)
    assert written["beyond"] == {"f8e4m3": 0, "f8e5m2": 0, "f8e4m3fn": 0}
    again = ("calibrate", model, "--text", text, "-o", ranges, "--window", 8)
    shown = done(*again).stderr
    assert "ranges of" in shown
    assert f"cast to f8e4m3, 0 of {written['numbers']:,} numbers would be clamped" in shown
    given = ("perplexity", model, "--text", text, "--window", 8)
    narrow = (*given, "--kv-cache-quant", "--kv-cache-dtype", "int8")
    plain = facts(*given)["perplexity"]
    scaled = facts(*narrow, "--kv-cache-scale", "per_channel", "--kv-cache-ranges", ranges)
    # Random weights are confidently wrong, so that a rounding shows.
    assert scaled["perplexity"] == pytest.approx(plain, rel=5e-2)
    # The scale is that of the file: with much too small ones all is clamped.
    write_ranges(ranges, {name: (np.array(x) / 50).tolist() for name, x in known.items()})
    clamped = facts(*narrow, "--kv-cache-scale", "per_channel", "--kv-cache-ranges", ranges)
    assert abs(clamped["perplexity"] / plain - 1) > 5 * abs(scaled["perplexity"] / plain - 1)
    assert "needs the ranges" in error(*narrow, "--kv-cache-scale", "per_key")
    assert "GG0705" in error("calibrate", model, "--text", tmp_path / "none", "-o", ranges)


@cache
def _nats_of_smollm2(dtype: str, scale: str, ranges: str) -> npt.NDArray[np.float64]:
    """-log of the probability of each predicted token, nats."""
    config = CompileConfig(
        kv_cache_quant=dtype != "f32",
        kv_cache_dtype=dtype if dtype != "f32" else "f8e4m3",
        kv_cache_scale=scale,
        kv_cache_ranges=ranges,
    )
    text = (DATA / "lighthouse.txt").read_text(encoding="utf-8")
    checkpoint = locate_checkpoint("smollm2")
    windows = read_windows(checkpoint, text, 256)
    session = every_token_session(checkpoint, 256, config, Silent())
    found: list[float] = []
    for logits, window in zip(window_logits(session, windows, Silent()), windows, strict=True):
        pairs = zip(logits, window[1:], strict=False)
        found += [surprise(row[None], [0, token]) for row, token in pairs]
    return np.array(found)


def _increase(dtype: str, scale: str, ranges: str) -> tuple[float, float]:
    """Factor of the perplexity beside that of exact caches, and its standard error.

    Each token is compared with itself: which numbers are rounded up differs from one form of
    attention to another, and moves the sum over 1,283 tokens by a tenth of a percent.
    """
    added = _nats_of_smollm2(dtype, scale, ranges) - _nats_of_smollm2("f32", "auto", "")
    return float(np.exp(added.mean())), float(added.std() / np.sqrt(added.size))


@pytest.mark.slow
def test_n18_calibrated_scales_cost_half_a_percent(tmp_path: Path):
    """NxD Inference has no calibration: its scales are 1."""
    text = (DATA / "calibration.txt").read_text(encoding="utf-8")
    ranges = tmp_path / "ranges.json"
    write_ranges(ranges, calibrate_caches(locate_checkpoint("smollm2"), text, 256, Silent()).ranges)
    factor, deviation = _increase("f8e4m3", "per_key", str(ranges))
    assert factor - 2 * deviation < 1.005
    assert deviation < 5e-3


@pytest.mark.slow
def test_int8_with_a_scale_a_token_costs_a_fifth_of_a_percent():
    factor, deviation = _increase("int8", "auto", "")
    assert factor - 2 * deviation < 1.002
    assert deviation < 1.5e-3
