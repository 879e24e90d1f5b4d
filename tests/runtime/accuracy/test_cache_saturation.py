"""Saturated numbers of quantized caches are counted, on request."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Role
from graphgen.passes.quantization.cache_ranges import write_ranges
from graphgen.runtime.accuracy.cache_saturation import CacheSaturation, cache_saturation
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.engine import EngineOptions, open_engine
from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.progress import Silent
from graphgen.runtime.quantization.calibration import calibrate_caches
from graphgen.runtime.session.session import Session
from tests.graphgen.cli.conftest import done, facts
from tests.oracles.small_gguf import CORPUS, write_small_model

TEXT = " ".join(CORPUS)[:120]


def small_model(folder: Path, share: float) -> tuple[Path, Path]:
    """The model, and ranges that are a share of what its caches hold over the text."""
    model, ranges = folder / "small.gguf", folder / "ranges.json"
    write_small_model(model)
    found = calibrate_caches(open_checkpoint(model), TEXT, 8, Silent()).ranges
    write_ranges(ranges, {name: (np.array(x) * share).tolist() for name, x in found.items()})
    return model, ranges


def generated(model: Path, **requested: object) -> tuple[Session, CompileConfig]:
    """A session after 2 prompts and 3 new tokens each, and its settings."""
    options = EngineOptions(CompileConfig.of(**{"kv_cache_quant": True, **requested}))
    engine, prompts = open_engine(
        str(model),
        options,
        lambda tokenizer: [tokenizer.encode(t) for t in CORPUS[:2]],
        3,
        Silent(),
    )
    engine.generate(prompts, GenerationRequest(3, frozenset()))
    return engine.session, engine.model.settings


def counted(model: Path, **requested: object) -> CacheSaturation:
    found = cache_saturation(*generated(model, **requested))
    assert found is not None
    return found


@pytest.mark.parametrize("dtype", ["f8e4m3", "f8e5m2", "int8"])
def test_the_count_is_that_of_the_stored_numbers_at_the_ends(tmp_path: Path, dtype: str):
    model, ranges = small_model(tmp_path, 0.5)
    given = {"kv_cache_dtype": dtype, "kv_cache_scale": "per_key", "kv_cache_ranges": str(ranges)}
    session, settings = generated(model, **given)
    saturated = numbers = 0
    stored, end = {
        "f8e4m3": (ml_dtypes.float8_e4m3, 240),
        "f8e5m2": (ml_dtypes.float8_e5m2, 57344),
        "int8": (np.int8, 127),
    }[dtype]
    for row in session.module.entries(Role.STATE):
        held = np.asarray(session.state(row.name)).view(stored).astype(np.float32)
        saturated += int((np.abs(held) == end).sum())
        numbers += sum(session.lengths) * held.shape[2] * held.shape[3]
    assert cache_saturation(session, settings) == CacheSaturation(saturated, numbers)
    assert 0 < saturated < numbers / 2


def test_what_is_beyond_a_row_is_not_counted(tmp_path: Path):
    """A server's rows hold the rest of earlier texts, which were longer."""
    model, ranges = small_model(tmp_path, 0.01)
    session, settings = generated(model, kv_cache_scale="per_key", kv_cache_ranges=str(ranges))
    whole = cache_saturation(session, settings)
    session.lengths[:] = 0
    session.lengths[1] = 2
    short = cache_saturation(session, settings)
    assert whole is not None
    assert short is not None
    assert 0 < short.saturated <= short.numbers < whole.saturated
    session.lengths[1] = 0
    assert cache_saturation(session, settings) == CacheSaturation(0, 0)


@pytest.mark.parametrize("layout", [{"tp": 2}, {"page_cache": 4}, {"tp": 2, "page_cache": 4}])
@pytest.mark.one_in(4)
def test_ranks_and_blocks_hold_as_many(tmp_path: Path, layout: dict[str, object]):
    model, ranges = small_model(tmp_path, 0.5)
    given = {"kv_cache_scale": "per_channel", "kv_cache_ranges": str(ranges)}
    plain, other = counted(model, **given), counted(model, **given, **layout)
    assert other.numbers == plain.numbers
    # Sums over ranks are rounded otherwise, which moves numbers over the end.
    assert other.saturated == pytest.approx(plain.saturated, rel=0.05)
    assert plain.saturated > 0


def test_a_cast_of_small_numbers_clamps_nothing(tmp_path: Path):
    model, _ = small_model(tmp_path, 1)
    found = counted(model)
    assert (found.saturated, found.numbers > 0) == (0, True)


@pytest.mark.parametrize("options", [{"kv_cache_quant": False}, {"kv_cache_dtype": "int8"}])
def test_nothing_is_clamped_where_scales_fit(tmp_path: Path, options: dict[str, object]):
    model, _ = small_model(tmp_path, 1)
    assert cache_saturation(*generated(model, **options)) is None


def test_the_commands_report_it(tmp_path: Path):
    model, ranges = small_model(tmp_path, 0.1)
    (tmp_path / "text").write_text(TEXT)
    narrow = ("--kv-cache-quant", "--kv-cache-scale", "per_tensor", "--kv-cache-ranges", ranges)
    measure = ("perplexity", model, "--text", tmp_path / "text", "--window", 8)
    answer = ("generate", model, "--prompt", CORPUS[0], "--max-new-tokens", 2)
    for command in (measure, answer):
        found = facts(*command, *narrow)["kv_cache"]
        assert 0 < found["saturated"] < found["numbers"]
        assert "kv_cache" not in facts(*command)
    assert "caches saturated" in done(*measure, *narrow).stdout
    assert "caches saturated" in done(*answer, *narrow, "--summary").stderr
