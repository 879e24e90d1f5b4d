"""Checkpoints that hold layers as one are written as they are stored, and read again."""

from __future__ import annotations

from pathlib import Path
from shutil import copyfile

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from graphgen.eval import Array
from graphgen.passes.quantization.schemes import scheme_of_text
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.progress import Silent
from graphgen.runtime.quantization.quantize_checkpoint import (
    QuantizationRequest,
    quantize_checkpoint,
)
from tests.graphgen.cli.conftest import error
from tests.oracles.families import ORACLES, save
from tests.runtime.checkpoint.test_quantized_checkpoints import logical, prefill

ATTENTION = "model.layers.1.self_attn."


@pytest.fixture(scope="module")
def phi3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("phi3")
    save(ORACLES["phi3"].model(), folder)
    return folder


def written(source: Path, folder: Path, text: str, form: str = "huggingface") -> dict[str, Array]:
    request = QuantizationRequest(scheme_of_text(text), form=form)
    quantize_checkpoint(open_checkpoint(source), folder, request, Silent())
    return load_file(folder / "model.safetensors")


def stored_names(source: Path) -> set[str]:
    return set(load_file(source / "model.safetensors"))


@pytest.mark.parametrize(
    ("text", "form", "scale"),
    [
        ("int8", "huggingface", "weight_scale"),
        ("int8:per_tensor_symmetric", "nxdi", "scale"),
    ],
)
def test_rows_are_quantized_together(phi3: Path, tmp_path: Path, text: str, form: str, scale: str):
    tensors = written(phi3, tmp_path / "out", text, form)
    assert {name for name in tensors if not name.endswith(f".{scale}")} == stored_names(phi3)
    name = f"{ATTENTION}qkv_proj."
    back = tensors[f"{name}weight"].astype(np.float32) * tensors[f"{name}{scale}"]
    wide = load_file(phi3 / "model.safetensors")[f"{name}weight"]
    np.testing.assert_allclose(back, wide, rtol=0, atol=np.abs(wide).max() / 15 / 2)
    # q, k and v of the written checkpoint are those rows.
    checkpoint = open_checkpoint(tmp_path / "out")
    parts = [meaning(checkpoint, f"{ATTENTION}{part}_proj", scale) for part in "qkv"]
    np.testing.assert_array_equal(np.concatenate(parts), back)


def meaning(checkpoint: Checkpoint, module: str, scale: str) -> Array:
    values = checkpoint.read(f"{module}.weight").astype(np.float32)
    return values * checkpoint.read(f"{module}.{scale}")


def test_groups_of_rows_mean_their_numbers(phi3: Path, tmp_path: Path):
    tensors = written(phi3, tmp_path / "out", "int4:group:16")
    wide: dict[str, Array] = {}
    for name, array in tensors.items():
        base, _, last = name.rpartition(".")
        if last == "weight_packed":
            places = np.arange(8, dtype=np.uint32) * 4
            numbers = (array.view(np.uint32)[..., None] >> places & 15).reshape(len(array), -1)
            scale = np.repeat(tensors[f"{base}.weight_scale"], 16, 1)
            wide[f"{base}.weight"] = (numbers.astype(np.float32) - 8) * scale
        elif last not in ("weight_scale", "weight_shape"):
            wide[name] = array
    copyfile(phi3 / "config.json", tmp_path / "config.json")
    save_file(wide, tmp_path / "model.safetensors")
    logits = [
        prefill(logical(checkpoint), checkpoint.read)
        for checkpoint in map(open_checkpoint, (tmp_path / "out", tmp_path))
    ]
    np.testing.assert_allclose(*logits, rtol=0, atol=1e-5)


def test_experts_of_one_tensor_keep_their_names(tmp_path: Path):
    save(ORACLES["granitemoe"].model(), tmp_path)
    tensors = written(tmp_path, tmp_path / "out", "int8")
    experts = {name for name in stored_names(tmp_path) if "_linear.weight" in name}
    assert len(experts) == 4
    assert {name for name in tensors if "_linear" in name} == experts


def test_refusals(phi3: Path, tmp_path: Path):
    given = ("quantize", phi3, "-o", tmp_path / "out")
    alone = error(*given, "--modules-to-not-convert", "k_proj")
    assert "'model.layers.0.self_attn.qkv_proj.weight' is one tensor, of which" in alone
    blocks = error(*given, "--quantization-dtype", "f8e4m3", "--quantization-type", "blockwise")
    assert "which are not whole blocks of 128" in blocks
