"""Checkpoints whose activations have fixed scales: their numbers, and products in 8 bits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.ir import Role, dtype
from graphgen.models import build
from graphgen.passes.core import run_pipeline
from graphgen.passes.quantization.quantize_activations import QuantizeActivations
from graphgen.passes.quantization.stored_readings import read_quantized
from graphgen.runtime.accuracy.perplexity import every_token_session, window_logits
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.progress import Silent
from tests.runtime.checkpoint.test_quantized_checkpoints import (
    CONFIG,
    Stored,
    compressed,
    compressed_float8,
    compressed_int8,
    is_quantized,
    logical,
    random,
)

FIXED = {"num_bits": 8, "dynamic": False, "strategy": "tensor", "symmetric": True}
Make = Callable[[tuple[int, int]], Stored]
CASES: dict[str, tuple[Make, dict[str, object]]] = {
    "compressed int8": (
        compressed_int8,
        compressed("int-quantized", FIXED, num_bits=8, type="int", strategy="channel"),
    ),
    "compressed float8": (
        compressed_float8,
        compressed("float-quantized", FIXED, num_bits=8, type="float", strategy="tensor"),
    ),
    # As vLLM reads them: no blocks.
    "fp8": (compressed_float8, {"quant_method": "fp8", "activation_scheme": "static"}),
}
TOKENS = [[3, 1, 4, 1, 5, 9, 2, 6]]


def write(folder: Path, case: str, scale: float, ends: tuple[int, ...] = (1,)) -> None:
    """A mini checkpoint whose inputs all have this scale."""
    make, stated = CASES[case]
    tensors: dict[str, Array] = {}
    for row in build(CONFIG, dtype("f32")).entries(Role.WEIGHT):
        if is_quantized(row.name):
            rows, columns = row.logical.dims
            base = row.name.removesuffix(".weight")
            stored = dict(make((rows, columns))[0])
            stored["input_scale"] = np.full(ends, scale, np.float32)
            tensors |= {f"{base}.{last}": array for last, array in stored.items()}
        else:
            size = 0.1 * random(*row.logical.dims) + ("norm" in row.name)
            tensors[row.name] = size.astype(np.float32)
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, "quantization_config": stated}))
    save_file(tensors, folder / "model.safetensors")


def logits(folder: Path, activations: str = "none") -> Array:
    settings = CompileConfig(activation_quantization_type=activations)
    session = every_token_session(open_checkpoint(folder), len(TOKENS[0]), settings, Silent())
    (found,) = window_logits(session, TOKENS, Silent())
    return found


@pytest.mark.parametrize(
    ("case", "ends"),
    [("compressed float8", ()), pytest.param("fp8", (1,), marks=pytest.mark.slow)],
)
def test_fitting_scales_change_little_and_small_ones_much(
    case: str, ends: tuple[int, ...], tmp_path: Path
):
    gaps: dict[float, float] = {}
    for span in (8.0, 0.08):
        write(tmp_path, case, span / 448, ends)
        wide = logits(tmp_path)
        gaps[span] = float(np.linalg.norm(logits(tmp_path, "static") - wide))
    # The inputs are a few units: a hundredth of that clamps them.
    assert 0 < gaps[8.0] < gaps[0.08] / 2


def test_products_are_of_narrow_numbers(tmp_path: Path):
    write(tmp_path, "compressed int8", 0.5)
    checkpoint = open_checkpoint(tmp_path)
    module = logical(checkpoint)
    run_pipeline(module, [QuantizeActivations(("s8",), scale="static")])
    for function in module.programs():
        kinds = [op.operands[0].dtype.name for op in function.ops if op.name == "dot_general"]
        # Seven products a layer, but one that the checkpoint left, and the head.
        assert kinds.count("s8") == 7 * 2 - 1


def test_the_remark_is_for_wide_activations_alone(tmp_path: Path):
    write(tmp_path, "compressed int8", 0.5)
    config = open_checkpoint(tmp_path).config
    assert "a fixed scale for the inputs" in read_quantized(build(CONFIG, dtype("f32")), config)
    again = build(CONFIG, dtype("f32"))
    assert read_quantized(again, config, "cpu", "static") == ""


def test_a_checkpoint_without_scales_names_the_calibration(tmp_path: Path):
    write(tmp_path, "compressed int8", 0.5)
    stated = compressed("int-quantized", num_bits=8, type="int", strategy="channel")
    config = {**CONFIG, "quantization_config": stated}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(GraphgenError, match="the checkpoint has scales of no input") as caught:
        logits(tmp_path, "static")
    assert caught.value.code == "GG0304"
