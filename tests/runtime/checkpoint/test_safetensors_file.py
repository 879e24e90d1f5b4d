"""Safetensors checkpoints: what the safetensors package writes reads back, and damage is named."""

from __future__ import annotations

import json
import random
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors
from safetensors.numpy import save_file

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.hf_folder import FolderCheckpoint
from graphgen.runtime.checkpoint.interfaces import CONVERT, NUMPY_DTYPES, TensorInfo
from graphgen.runtime.checkpoint.mapped_file import GET_IT_AGAIN
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 6}


def write_folder(folder: Path, data: bytes | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    if data is not None:
        (folder / "model.safetensors").write_bytes(data)
    return folder


def small_file(header: dict[str, Any] | bytes, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype: str, shape: list[Any], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def small_tensors() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    values = rng.standard_normal((3, 6))
    return {
        "model.norm.weight": values.astype(np.float32),
        "a.bf16": values.astype(ml_dtypes.bfloat16),
        "b.f16": values.astype(np.float16),
        "c.f64": values,
        "d.s64": rng.integers(-(2**62), 2**62, (2, 1, 2)),
        "e.s32": np.arange(-2, 2, dtype=np.int32),
        "f.s16": np.arange(-2, 2, dtype=np.int16),
        "g.s8": np.arange(-2, 3, dtype=np.int8),
        "h.u8": np.arange(250, 256, dtype=np.uint8),
        "i.pred": np.array([True, False, True]),
        "j.scalar": np.array(1.5, np.float32),
        "k.empty": np.zeros((0, 4), np.float32),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_folder(tmp_path)
    save_file(small_tensors(), tmp_path / "model.safetensors", {"format": "pt"})
    return tmp_path


def test_every_type_reads_back(folder: Path):
    checkpoint = open_checkpoint(folder)
    wanted = small_tensors()
    infos = checkpoint.tensors()
    assert infos.keys() == wanted.keys()
    assert infos["a.bf16"] == TensorInfo("a.bf16", (3, 6), "bf16")
    for name, array in wanted.items():
        info = infos[name]
        got = checkpoint.read(name)
        assert got.dtype == array.dtype == NUMPY_DTYPES[info.dtype], name
        assert got.shape == info.shape == array.shape, name
        np.testing.assert_array_equal(got, array, err_msg=name)
    assert checkpoint.config == CONFIG
    assert checkpoint.path == folder


def test_bf16_equals_what_pytorch_writes(tmp_path: Path):
    import torch
    from safetensors.torch import save_file as save_torch

    tensor = torch.linspace(-3, 3, 24).reshape(4, 6).to(torch.bfloat16)
    write_folder(tmp_path)
    save_torch({"w": tensor}, tmp_path / "model.safetensors")
    got = open_checkpoint(tmp_path).read("w")
    assert got.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(got.astype(np.float32), tensor.float().numpy())


def test_a_tensor_that_is_not_there(folder: Path):
    with pytest.raises(GraphgenError) as caught:
        open_checkpoint(folder).read("nope")
    assert str(caught.value) == f"error[GG0602]: there is no tensor 'nope'\n  --> {folder}"


def test_fingerprint_follows_the_contents_not_the_path(folder: Path, tmp_path_factory: Any):
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    fingerprint = open_checkpoint(folder).fingerprint()
    assert open_checkpoint(copy).fingerprint() == fingerprint
    (copy / "config.json").write_text(json.dumps({**CONFIG, "hidden_size": 7}))
    assert open_checkpoint(copy).fingerprint() != fingerprint
    write_folder(copy)
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-30] ^= 1
    (copy / "model.safetensors").write_bytes(data)
    assert open_checkpoint(copy).fingerprint() != fingerprint


F32 = entry("F32", [2], 0, 8)


@pytest.mark.parametrize(
    ("data", "offset", "what"),
    [
        (
            b"\x10\0\0",
            0,
            "the safetensors file is cut off: the length of the header needs 8 bytes here, "
            "the file ends at byte 3",
        ),
        (
            small_file({})[:9],
            8,
            "the safetensors file is cut off: the header needs 2 bytes here, "
            "the file ends at byte 9",
        ),
        (
            b"\xff" * 16,
            0,
            "the header's length is 18446744073709551615 bytes; the format allows 100000000",
        ),
        (
            small_file(b'{"a":'),
            8,
            "the header is not valid JSON: Expecting value: line 1 column 6 (char 5)",
        ),
        (
            small_file(b"[" * 100_000),
            8,
            "the header is not valid JSON: it is nested too deeply: "
            "at most 200 (--limits json-depth=N) are read",
        ),
        (small_file(b'{"a":1,"a":2}'), 8, "the header is not valid JSON: 'a' is there twice"),
        (small_file(b"[]"), 8, "the header is not a JSON object"),
        (small_file({"w": 3}), None, "tensor 'w' is not described by a JSON object"),
        (
            small_file({"w": entry("F6_E3M2", [8], 0, 8)}, bytes(8)),
            None,
            "tensor 'w' has dtype 'F6_E3M2'; "
            "supported: F64, F32, F16, BF16, I64, I32, I16, I8, U8, BOOL, F8_E4M3, F8_E5M2, "
            "F8_E8M0",
        ),
        (
            small_file({"w": entry("F32", [-2], 0, 8)}, bytes(8)),
            None,
            "tensor 'w' has shape [-2], which is not a list of sizes",
        ),
        (
            small_file({"w": entry("F32", [0, 2**62], 0, 0)}),
            None,
            "tensor 'w' has shape [0, 4611686018427387904], which is not a list of sizes",
        ),
        (
            small_file({"w": {**F32, "data_offsets": [0, True]}}, bytes(8)),
            None,
            "tensor 'w' has data_offsets [0, True], which are not two offsets",
        ),
        (
            small_file({"w": entry("F32", [3], 0, 8)}, bytes(8)),
            None,
            "tensor 'w' needs 12 bytes, but its data_offsets [0, 8] hold 8",
        ),
        (
            small_file({"w": F32}, bytes(7)),
            69,
            "the safetensors file is cut off: the data of tensor 'w' needs 8 bytes here, "
            "the file ends at byte 76",
        ),
        (
            small_file({"v": F32, "w": entry("F32", [1], 4, 8)}, bytes(8)),
            134,
            "the data of tensors 'v' and 'w' overlap",
        ),
        (
            small_file({"v": F32, "w": entry("F32", [1], 12, 16)}, bytes(16)),
            140,
            "4 bytes before the data of tensor 'w' belong to no tensor",
        ),
        (
            small_file({"w": F32}, bytes(11)),
            77,
            "the last 3 bytes of the file belong to no tensor",
        ),
    ],
    ids=lambda value: "bytes" if isinstance(value, bytes) else None,
)
def test_error_text(tmp_path: Path, data: bytes, offset: int | None, what: str):
    write_folder(tmp_path, data)
    with pytest.raises(GraphgenError) as caught:
        open_checkpoint(tmp_path)
    file = "DIR/model.safetensors"
    where = file if offset is None else f"{file}, byte {offset}"
    shown = str(caught.value).replace(str(tmp_path), "DIR")
    helps = {"cut off": f"\n  help: {GET_IT_AGAIN}", "has dtype": f"\n  help: {CONVERT}"}
    help = "".join(text for word, text in helps.items() if word in what)
    assert shown == f"error[GG0601]: {what}\n  --> {where}{help}"


def refusal(folder: Path) -> GraphgenError | None:
    try:
        checkpoint = open_checkpoint(folder)
        for name, info in checkpoint.tensors().items():
            got = checkpoint.read(name)
            assert (got.shape, got.dtype) == (info.shape, NUMPY_DTYPES[info.dtype])
    except GraphgenError as error:
        return error
    return None


def test_truncated_files(folder: Path):
    path = folder / "model.safetensors"
    data = path.read_bytes()
    for size in sorted(random.Random(1).sample(range(len(data)), 200)):
        path.write_bytes(data[:size])
        refused = refusal(folder)
        assert refused is not None
        assert refused.code == "GG0601"
        assert str(path) in refused.where


def test_flipped_header_bytes(folder: Path):
    path = folder / "model.safetensors"
    small = path.read_bytes()
    header_end = 8 + int.from_bytes(small[:8], "little")
    rng = random.Random(2024)
    readable = 0
    tracemalloc.start()
    for _ in range(200):
        data = bytearray(small)
        for _ in range(rng.choice((1, 1, 4))):
            data[rng.randrange(header_end)] = rng.choice((0, 0x30, 0x39, rng.randrange(256)))
        path.write_bytes(data)
        refused = refusal(folder)
        assert refused is None or refused.code == "GG0601"
        readable += refused is None
        if refused is None:
            # What we accept, the format's own reader must accept.
            with safetensors.safe_open(path, framework="numpy") as reference:
                assert set(reference.keys()) == FolderCheckpoint(folder).tensors().keys()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 5 <= readable < 190
    assert peak < 4_000_000
