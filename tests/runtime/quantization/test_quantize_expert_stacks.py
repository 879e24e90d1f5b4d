"""Written checkpoints of mixtures: a quantized tensor for each expert, to nearest or by GPTQ."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from graphgen.config.compile_config import CompileConfig
from graphgen.passes.quantization.schemes import scheme_of_text
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.progress import Silent
from graphgen.runtime.quantization.calibration import gram_matrices
from graphgen.runtime.quantization.quantizable import quantizable_stacks
from graphgen.runtime.quantization.quantize_checkpoint import (
    QuantizationRequest,
    quantize_checkpoint,
)
from tests.oracles.families import ORACLES, save
from tests.oracles.sessions import open_session

WINDOW = 16
CONFIG = CompileConfig(dtype="f32", batch=(1,), context=(WINDOW,), tokens=(WINDOW,))
INT8 = scheme_of_text("int8")
WINDOWS = np.random.default_rng(1).integers(0, 61, (4, WINDOW)).tolist()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mixtral")
    save(ORACLES["mixtral"].model(initializer_range=0.1), path)
    return path


def logits(path: Path, **changes: object) -> np.ndarray:
    session = open_session(path, CONFIG.updated(changes))
    return np.asarray(session.prefill([WINDOWS[0]]))


def test_experts_are_written_one_by_one_and_read_back(source: Path, tmp_path: Path):
    checkpoint = open_checkpoint(source)
    made = quantize_checkpoint(checkpoint, tmp_path / "out", QuantizationRequest(INT8), Silent())
    assert made.kept == ("lm_head",)
    before, after = (load_file(path / "model.safetensors") for path in (source, tmp_path / "out"))
    experts = [name for name in before if ".experts." in name]
    assert len(experts) > 0
    for name in experts:
        numbers, scale = after[name], after[name.replace(".weight", ".weight_scale")]
        assert (numbers.dtype, numbers.shape) == (np.int8, before[name].shape)
        assert np.abs(numbers * scale - before[name]).max() <= np.abs(before[name]).max() / 253
    # The same rounding as while a checkpoint is loaded.
    loaded = logits(
        source, quantization="quantize-weights{scheme=per_channel_symmetric,skip=[lm_head]}"
    )
    np.testing.assert_allclose(logits(tmp_path / "out"), loaded, rtol=0, atol=1e-5)


@pytest.mark.parametrize("scheme", ["int4:group:16", "mxfp4"])
def test_experts_are_written_in_4_bits_and_read_back(source: Path, tmp_path: Path, scheme: str):
    # The 48 inputs of w2 are not whole groups of 32.
    skip = ("lm_head", "w2") if scheme == "mxfp4" else ("lm_head",)
    request = QuantizationRequest(scheme_of_text(scheme), skip)
    made = quantize_checkpoint(open_checkpoint(source), tmp_path / "out", request, Silent())
    assert {name.rpartition(".")[2] for name in made.kept} == set(skip)
    before, after = (load_file(path / "model.safetensors") for path in (source, tmp_path / "out"))
    found = [name.removesuffix(".weight") for name in before if ".experts." in name]
    experts = [name for name in found if name not in made.kept]
    assert len(experts) > 0
    for name in experts:
        assert f"{name}.weight" not in after
        packed = after[f"{name}.weight_packed"]
        assert packed.nbytes * 2 == before[f"{name}.weight"].size
        if scheme != "mxfp4":
            assert after[f"{name}.weight_shape"].tolist() == [*before[f"{name}.weight"].shape]
    quantized = logits(tmp_path / "out")
    if scheme == "mxfp4":
        plain = logits(source)
        assert 0 < np.abs(quantized - plain).max() < np.abs(plain).max()
        return
    # The same rounding as while a checkpoint is loaded.
    options = "dtype=int4,scheme=group,group_size=16,skip=[lm_head]"
    loaded = logits(source, quantization=f"quantize-weights{{{options}}}")
    np.testing.assert_allclose(quantized, loaded, rtol=0, atol=1e-5)


def test_gptq_rounds_each_expert_for_its_own_tokens(source: Path, tmp_path: Path):
    checkpoint = open_checkpoint(source)
    for folder, windows in (("nearest", ()), ("gptq", WINDOWS)):
        request = QuantizationRequest(INT8, windows=windows)
        quantize_checkpoint(checkpoint, tmp_path / folder, request, Silent())
    plain, better = (open_checkpoint(tmp_path / name) for name in ("nearest", "gptq"))
    stacks = quantizable_stacks(checkpoint.config, ("lm_head",))
    ((part, grams),) = gram_matrices(checkpoint, WINDOWS, stacks, Silent())
    assert set(part) == set(grams) == set(stacks)
    for name in part:
        gram = grams[name][0] if grams[name].ndim > 3 else grams[name]
        weight = checkpoint.read(name).astype(np.float64)
        errors = []
        for each in (plain, better):
            scale = each.read(name.replace(".weight", ".weight_scale")).reshape(
                *weight.shape[:2], 1
            )
            off = each.read(name) * scale.astype(np.float64) - weight
            # What the products of all experts are off by on the text.
            errors.append(float(np.einsum("eok,ekl,eol->", off, gram, off)))
        assert errors[1] < 0.7 * errors[0]
