"""A target with quantized weights and a draft without, side by side: both load and generate."""

from __future__ import annotations

from pathlib import Path

from graphgen.config.compile_config import CompileConfig
from graphgen.ir.dtype import bf16, f8e4m3fn
from graphgen.passes.quantization.schemes import scheme_of_text
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.engine import Engine, EngineOptions, open_engine
from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.progress import Silent
from graphgen.runtime.quantization.quantize_checkpoint import (
    QuantizationRequest,
    quantize_checkpoint,
)
from tests.oracles.small_gguf import write_small_model


def opened(path: Path) -> Engine:
    options = EngineOptions(CompileConfig.of(dtype="bf16"), max_len=64)
    return open_engine(
        str(path), options, lambda tokenizer: [tokenizer.encode("The llama")], 8, Silent()
    )[0]


def tokens(engine: Engine) -> list[int]:
    prompt = engine.tokenizer.encode("The llama")
    return engine.generate([prompt], GenerationRequest(8)).completions[0].tokens


def test_a_target_in_f8_and_a_draft_in_bf16_load_side_by_side(tmp_path: Path):
    source = tmp_path / "small.gguf"
    write_small_model(source)
    request = QuantizationRequest(scheme_of_text("f8e4m3"))
    quantize_checkpoint(open_checkpoint(source), tmp_path / "target", request, Silent())
    target, draft = opened(tmp_path / "target"), opened(source)
    kinds = [
        {row.physical.dtype for row in engine.model.module.interface.values()}
        for engine in (target, draft)
    ]
    assert f8e4m3fn in kinds[0]
    assert f8e4m3fn not in kinds[1]
    assert bf16 in kinds[1]
    # In turns, as a draft proposes and a target verifies: neither disturbs the other.
    first, second = tokens(target), tokens(draft)
    assert (tokens(target), tokens(draft)) == (first, second)
    assert len(first) == len(second) == 8
