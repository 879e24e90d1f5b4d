"""Written checkpoints: the files bit for bit, and the memory that writing takes."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.ir import dtype
from graphgen.models import build
from graphgen.passes.quantization.schemes import scheme_of_text
from graphgen.runtime.checkpoint.interfaces import Checkpoint, TensorInfo
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.progress import Silent
from graphgen.runtime.quantization.checkpoint_format import (
    check_shape,
    contents,
    stored_tensors,
)
from graphgen.runtime.quantization.quantize_checkpoint import (
    QuantizationRequest,
    quantize_checkpoint,
)
from graphgen.runtime.quantization.rounding import QuantizedWeight, quantize_to_nearest
from tests.graphgen.cli.conftest import done, error, facts
from tests.oracles.llama import write_llama
from tests.oracles.small_gguf import CORPUS, write_small_model
from tests.runtime.checkpoint.test_quantized_checkpoints import logical, prefill

DOWN = "model.layers.1.mlp.down_proj"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    path = tmp_path_factory.mktemp("source") / "small.gguf"
    write_small_model(path)
    return open_checkpoint(path)


def written(
    source: Checkpoint, folder: Path, text: str, form: str = "huggingface"
) -> tuple[dict[str, torch.Tensor], Mapping[str, object]]:
    """The tensors and the config of a folder, read by the safetensors package."""
    request = QuantizationRequest(scheme_of_text(text), form=form)
    made = quantize_checkpoint(source, folder / "out", request, Silent())
    assert (made.quantized, made.kept) == (14, ())
    config = json.loads((folder / "out" / "config.json").read_text())
    return load_file(folder / "out" / "model.safetensors"), config


@pytest.mark.parametrize(("value", "what"), [(np.nan, "NaN"), (np.inf, "an infinite value")])
def test_weights_that_are_not_finite_are_refused(tmp_path: Path, value: float, what: str):
    write_llama(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    tensors[f"{DOWN}.weight"][2, 3] = value
    save_file(tensors, file)
    request = QuantizationRequest(scheme_of_text("int8"))
    with pytest.raises(GraphgenError, match=rf"'{DOWN}.weight' holds {what}; .* is at \[2, 3\]"):
        quantize_checkpoint(open_checkpoint(tmp_path), tmp_path / "out", request, Silent())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "suffix", "shape"),
    [
        ("int8", "weight_scale", (32, 1)),
        ("int8:per_tensor_symmetric", "weight_scale", (1,)),
        ("f8e4m3", "weight_scale", (32, 1)),
        ("f8e4m3:blockwise", "weight_scale_inv", (1, 1)),
    ],
)
def test_eight_bits(
    source: Checkpoint, tmp_path: Path, text: str, suffix: str, shape: tuple[int, ...]
):
    tensors, _ = written(source, tmp_path, text)
    values, scale = tensors[f"{DOWN}.weight"], tensors[f"{DOWN}.{suffix}"]
    assert tuple(scale.shape) == shape
    assert scale.dtype == torch.float32
    back = values.float().numpy() * scale.numpy()
    wanted = source.read(f"{DOWN}.weight").astype(np.float32)
    step = np.abs(wanted).max() / (127 if "int8" in text else 15)
    assert np.abs(back - wanted).max() <= step * 0.5001
    # Weights outside of products stay bit for bit.
    for name in ("model.embed_tokens.weight", "model.norm.weight"):
        np.testing.assert_array_equal(tensors[name].numpy(), source.read(name))


def test_int4_as_compressed_tensors_packs_it(source: Checkpoint, tmp_path: Path):
    tensors, config = written(source, tmp_path, "int4:group:16")
    packed, scale = tensors[f"{DOWN}.weight_packed"], tensors[f"{DOWN}.weight_scale"]
    assert tensors[f"{DOWN}.weight_shape"].tolist() == [32, 64]
    assert (packed.dtype, packed.shape, scale.shape) == (torch.int32, (32, 8), (32, 4))
    shifts = torch.arange(0, 32, 4, dtype=torch.int32)
    values = ((packed[:, :, None] >> shifts) & 15).reshape(32, 64) - 8
    back = values.float() * scale.repeat_interleave(16, 1)
    wanted = torch.tensor(source.read(f"{DOWN}.weight").astype(np.float32))
    assert ((back - wanted).abs() <= scale.repeat_interleave(16, 1) * 0.5001).all()
    stated = config["quantization_config"]
    assert isinstance(stated, dict)
    assert stated["config_groups"]["group_0"]["weights"] == {
        "num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "dynamic": False,
        "group_size": 16,
    }  # fmt: skip
    assert stated["ignore"] == ["lm_head"]


def test_rows_that_do_not_fill_a_word():
    values = np.arange(-8, 5, dtype=np.int8)[None]
    made = QuantizedWeight(scheme_of_text("int4:group:16"), values, np.ones((1, 1), np.float32))
    packed = contents("huggingface", made)[0]
    assert packed.shape == (1, 2)
    first, second = (int(word) & 0xFFFFFFFF for word in packed[0])
    assert (first, second) == (0x76543210, 0x000CBA98)


def test_mxfp4_codes_of_the_format(source: Checkpoint, tmp_path: Path):
    values = np.array([[0.5, 1, 1.5, 2, 3, 4, 6, -6]], np.float32)
    numbers, unit = values.astype(ml_dtypes.float4_e2m1fn), np.ones((1, 1), np.float32)
    made = QuantizedWeight(scheme_of_text("mxfp4"), numbers, unit)
    codes = contents("huggingface", made)[0]
    assert codes.tolist() == [[0x21, 0x43, 0x65, 0xF7]]
    tensors, config = written(source, tmp_path, "mxfp4")
    scale = tensors[f"{DOWN}.weight_scale"]
    made = quantize_to_nearest(source.read(f"{DOWN}.weight"), scheme_of_text("mxfp4"))
    np.testing.assert_array_equal(2.0 ** (scale.numpy().astype(float) - 127), made.scale)
    assert "mxfp4-pack-quantized" in json.dumps(config)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("int8", "huggingface"),
        ("f8e4m3:per_tensor_symmetric", "huggingface"),
        ("f8e4m3:blockwise", "huggingface"),
        ("int4:group:16", "huggingface"),
        ("mxfp4", "huggingface"),
        ("f8e5m2", "nxdi"),
        ("int8:per_tensor_symmetric", "nxdi"),
    ],
)
def test_what_is_written_is_read(source: Checkpoint, tmp_path: Path, text: str, form: str):
    scheme = scheme_of_text(text)
    quantize_checkpoint(source, tmp_path / "out", QuantizationRequest(scheme, form=form), Silent())

    def dense(name: str) -> Array:
        array = source.read(name)
        kept = "_proj" not in name
        return array if kept else quantize_to_nearest(array, scheme).dequantized()

    made = open_checkpoint(tmp_path / "out")
    wanted = prefill(build(source.config, dtype("f32")), dense)
    ours = prefill(logical(made), made.read)
    np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())


def test_the_names_of_aws(source: Checkpoint, tmp_path: Path):
    tensors, config = written(source, tmp_path, "f8e5m2", "nxdi")
    assert tensors[f"{DOWN}.weight"].dtype == torch.float8_e5m2
    assert tensors[f"{DOWN}.scale"].shape == (32, 1)
    assert "quantization_config" not in config


class Wide:
    """A checkpoint with weights of some megabytes, made when they are read."""

    def __init__(self, base: Checkpoint) -> None:
        self.path, self.base = base.path, base
        self.config = {**base.config, "intermediate_size": 40_000}

    def tensors(self) -> Mapping[str, TensorInfo]:
        return {name: self._wide(info) for name, info in self.base.tensors().items()}

    @staticmethod
    def _wide(info: TensorInfo) -> TensorInfo:
        shape = tuple(40_000 if size == 64 else size for size in info.shape)
        return replace(info, shape=shape)

    def read(self, name: str) -> Array:
        return np.ones(self.tensors()[name].shape, np.float32)

    def fingerprint(self) -> str:
        return self.base.fingerprint()


@pytest.mark.parametrize("text", ["int8", "int4:group:32", "f8e4m3:per_tensor_symmetric"])
def test_two_tensors_are_in_memory_at_most(source: Checkpoint, tmp_path: Path, text: str):
    wide = Wide(source)
    request = QuantizationRequest(scheme_of_text(text))
    quantize_checkpoint(source, tmp_path / "first", request, Silent())
    tracemalloc.start()
    quantize_checkpoint(wide, tmp_path / "out", request, Silent())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # 40,000 x 32 elements of 4 bytes; the file has 6 of them, and each slab is widened.
    assert peak < 2.5 * 40_000 * 32 * 4 + 4 * (4 << 20)
    with safe_open(tmp_path / "out" / "model.safetensors", "np") as file:
        assert len(list(file.keys())) > 20


def test_nothing_is_left_of_a_failure(source: Checkpoint, tmp_path: Path):
    class Torn(Wide):
        def read(self, name: str) -> Array:
            if name.startswith(DOWN):
                raise OSError("torn")
            return self.base.read(name)

        @staticmethod
        def _wide(info: TensorInfo) -> TensorInfo:
            return info

    torn = Torn(source)
    torn.config = dict(source.config)
    request = QuantizationRequest(scheme_of_text("int8"))
    with pytest.raises(GraphgenError, match="torn") as caught:
        quantize_checkpoint(torn, tmp_path / "out", request, Silent())
    assert caught.value.code == "GG0704"
    assert list(tmp_path.iterdir()) == []


def test_the_sizes_of_all_tensors_are_those_of_the_scheme():
    for text in ("int8", "f8e4m3:blockwise", "int4:group:64", "mxfp4"):
        scheme = scheme_of_text(text)
        total = sum(
            int(np.prod(stored.shape)) * stored.dtype.itemsize
            for stored in stored_tensors("huggingface", scheme, (256, 512))
        )
        assert total >= 256 * 512 * scheme.bits // 8


def test_mxfp4_has_no_short_group():
    """48 inputs are a group of 32 and a half: no other size of a group could be given."""
    check_shape("model.up_proj.weight", (48, 64), scheme_of_text("mxfp4"))
    with pytest.raises(GraphgenError) as caught:
        check_shape("model.down_proj.weight", (8, 48), scheme_of_text("mxfp4"))
    assert caught.value.code == "GG0705"
    assert "the 48 inputs of 'model.down_proj.weight' are not divided by groups of 32" in str(
        caught.value
    )
    assert caught.value.help == "--modules-to-not-convert model.down_proj"


def test_the_command(source: Checkpoint, tmp_path: Path):
    (tmp_path / "text").write_text(" ".join(CORPUS)[:120])
    out = tmp_path / "out"
    told = facts(
        "quantize", source.path, "-o", out, "--quantization-dtype", "int4", "--group-size", "16",
        "--calibrate", tmp_path / "text", "--window", 16,
        "--modules-to-not-convert", "layers.0.mlp",
    )  # fmt: skip
    assert (told["quantized"], told["scheme"]) == (11, "int4:group:16")
    assert told["bytes"] == (out / "model.safetensors").stat().st_size
    assert sorted(told["kept"]) == [f"model.layers.0.mlp.{x}_proj" for x in ("down", "gate", "up")]
    names = {path.name for path in out.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert "is there already" in error("quantize", source.path, "-o", out)
    shown = done("quantize", source.path, "-o", tmp_path / "int8").stderr
    assert "14 weights in int8:per_channel_symmetric" in shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--quantization-dtype", "int3"], "dtype int3 is unknown"),
        (["--quantization-dtype", "f8e5m2"], "no format of transformers has f8e5m2"),
        (["--quantization-type", "blockwise"], "no format of transformers has blocks of int8"),
        (["--quantization-dtype", "int4", "--format", "nxdi"], "--format nxdi has no int4"),
        (["--quantization-dtype", "int4"], "inputs of 'model.layers.0.self_attn.q_proj.weight'"),
        (
            ["--quantization-dtype", "int4", "--group-size", "12"],
            "inputs of 'model.layers.0.self_attn.q_proj.weight'",
        ),
        (["--modules-to-not-convert", "layers.7"], "layers.7 names no weight"),
        (["--modules-to-not-convert", "layers"], "no weight is left"),
        (["--window", "16"], "--window has no effect"),
        (["--calibrate", "nothing"], "cannot read 'nothing'"),
    ],
)
def test_what_is_refused(source: Checkpoint, tmp_path: Path, options: list[str], message: str):
    assert message in error("quantize", source.path, "-o", tmp_path / "out", *options)
    assert not (tmp_path / "out").exists()
