"""``graphgen inspect`` says how a checkpoint is quantized, and how large its 8-bit floats are."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from graphgen.eval import Array
from graphgen.runtime.checkpoint import stored_range
from graphgen.runtime.checkpoint.hf_folder import FolderCheckpoint
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.checkpoint.stored_range import stored_report
from tests.graphgen.cli.conftest import facts, graphgen
from tests.oracles.small_gguf import write_small_model
from tests.runtime.checkpoint.test_quantized_checkpoints import CONFIG, write

F8 = ml_dtypes.float8_e4m3fn
WEIGHT = "model.layers.1.mlp.down_proj.weight"


def with_numbers(folder: Path, *numbers: float) -> None:
    """Put these numbers at the end of one weight, and nothing larger than 2 elsewhere."""
    stored = FolderCheckpoint(folder)
    tensors: dict[str, Array] = {name: stored.read(name).copy() for name in stored.tensors()}
    for name, array in tensors.items():
        if array.dtype == F8:
            tensors[name] = np.clip(array.astype(np.float32), -2, 2).astype(F8)
    flat = tensors[WEIGHT].reshape(-1)
    flat[-len(numbers) :] = np.array(numbers).astype(F8)
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("numbers", "largest", "bad", "said"),
    [
        ((-448.0, 3.0), 448.0, 0, "OCP's f8e4m3fn, which ends at 448"),
        ((-240.0, 0.0), 240.0, 0, "within Neuron's 240"),
        ((256.0, float("nan")), 256.0, 1, "OCP's f8e4m3fn, which ends at 448"),
    ],
)
@pytest.mark.parametrize("piece", [1 << 24, 7])
def test_the_range_is_that_of_every_number(
    numbers: tuple[float, ...],
    largest: float,
    bad: int,
    said: str,
    piece: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    write(tmp_path, "fp8")
    with_numbers(tmp_path, *numbers)
    monkeypatch.setattr(stored_range, "_PIECE", piece)
    report = stored_report(open_checkpoint(tmp_path))
    assert report is not None
    (found,) = report.ranges
    assert (found.dtype, found.tensors, found.largest, found.not_finite) == (
        "f8e4m3fn",
        13,
        largest,
        bad,
    )
    assert found.fits_neuron is (largest <= 240)
    assert said in found.text
    assert report.forms == ("fp8: 13 weights in f8e4m3fn, a scale a 32 x 20",)
    assert report.rescaled


def test_inspect_shows_scheme_range_and_rescale(tmp_path: Path):
    write(tmp_path, "fbgemm")
    out = graphgen("inspect", tmp_path).stdout
    assert "quantization: fbgemm_fp8: 13 weights in f8e4m3fn, a scale a row" in out
    assert "range: max |w| " in out
    assert "on Neuron: loading divides numbers by 448 / 240" in out
    found = facts("inspect", tmp_path)["quantization"]
    assert found["rescaled_on_neuron"] is True
    assert [item["tensors"] for item in found["ranges"]] == [13]


def test_integers_have_no_range(tmp_path: Path):
    write(tmp_path, "gptq")
    found = facts("inspect", tmp_path)["quantization"]
    form = "gptq: 13 weights in u4, a scale and a zero point a 1 x 16"
    assert found == {"forms": [form], "ranges": [], "rescaled_on_neuron": False}


def test_a_scheme_that_is_not_read_is_listed_all_the_same(tmp_path: Path):
    write(tmp_path, "gptq")
    stated = {**CONFIG, "quantization_config": {"quant_method": "quanto"}}
    (tmp_path / "config.json").write_text(json.dumps(stated))
    out = graphgen("inspect", tmp_path)
    assert out.exit_code == 0
    assert "quantization: not read: quantization_config: quant_method 'quanto'" in out.stdout
    assert "model.layers.0-1.self_attn" in out.stdout or "q_proj" in out.stdout


def test_weights_in_floats_have_no_quantization(tmp_path: Path):
    write_small_model(tmp_path / "small.gguf")
    assert facts("inspect", tmp_path / "small.gguf")["quantization"] is None
    assert "quantization" not in graphgen("inspect", tmp_path / "small.gguf").stdout
