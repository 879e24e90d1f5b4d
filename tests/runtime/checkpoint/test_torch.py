"""PyTorch files: what torch.save writes reads back without PyTorch, and nothing in them is run."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import subprocess
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.hf_folder import FolderCheckpoint
from graphgen.runtime.checkpoint.interfaces import NUMPY_DTYPES, TensorInfo
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.checkpoint.torch_file import TorchFile


def values() -> torch.Tensor:
    return torch.linspace(-3, 3, 24).reshape(4, 6)


def write(folder: Path, state: object, **how: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text('{"model_type": "nobody"}')
    torch.save(state, folder / "pytorch_model.bin", **how)
    return folder


def numpy(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype is torch.bfloat16:
        return tensor.detach().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.detach().numpy()


def every_kind() -> dict[str, torch.Tensor]:
    base = values()
    kinds = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    whole = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
    return {
        **{f"float.{kind}": base.to(kind) for kind in kinds},
        **{f"whole.{kind}": (base.abs() * 9).to(kind) for kind in whole},
        "bool": base > 0,
        "tied": base,
        "parameter": torch.nn.Parameter(base),
        "transposed": base.t(),
        "bf16 transposed": base.bfloat16().t(),
        "rows": base[1:3],
        "columns": base[:, 1:4],
        "every second": base[::2, ::3],
        "expanded": base[0].expand(3, 6),
        "scalar": torch.tensor(1.5),
        "of a vector": base[2, 3],
        "empty": torch.zeros(0, 3),
    }


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_every_tensor_reads_back(tmp_path: Path, protocol: int):
    wanted = every_kind()
    write(tmp_path, OrderedDict(wanted), pickle_protocol=protocol)
    checkpoint = open_checkpoint(tmp_path)
    infos = checkpoint.tensors()
    assert list(infos) == list(wanted)
    assert infos["bf16 transposed"] == TensorInfo("bf16 transposed", (6, 4), "bf16")
    for name, tensor in wanted.items():
        got = checkpoint.read(name)
        assert got.shape == tuple(tensor.shape) == infos[name].shape, name
        assert got.dtype == NUMPY_DTYPES[infos[name].dtype], name
        np.testing.assert_array_equal(got, numpy(tensor), err_msg=name)


def test_views_of_the_file_share_what_the_file_shares(tmp_path: Path):
    checkpoint = open_checkpoint(write(tmp_path, every_kind()))
    tied = checkpoint.read("tied")
    assert not tied.flags.writeable
    for name in ("float.torch.float32", "parameter", "transposed", "rows", "every second"):
        assert np.shares_memory(tied, checkpoint.read(name)), name
    assert not np.shares_memory(tied, checkpoint.read("float.torch.float64"))
    assert checkpoint.read("transposed").strides == (4, 24)


def test_a_module_is_read_without_torch(tmp_path: Path):
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))
    write(tmp_path, module.state_dict())
    code = (
        "import sys\nfrom graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint\n"
        f"c = open_checkpoint({str(tmp_path)!r})\n"
        "print(sorted(c.tensors()), c.read('0.weight').tolist(), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = sorted(module.state_dict())
    weight = module.state_dict()["0.weight"].tolist()
    assert done.stdout == f"{names} {weight} False\n"


def test_fingerprint_follows_the_contents(tmp_path: Path):
    one = open_checkpoint(write(tmp_path / "a", {"w": values()})).fingerprint()
    assert open_checkpoint(write(tmp_path / "b", {"w": values()})).fingerprint() == one
    assert open_checkpoint(write(tmp_path / "c", {"w": values() + 1})).fingerprint() != one
    assert open_checkpoint(write(tmp_path / "d", {"v": values()})).fingerprint() != one
    (tmp_path / "a/config.json").write_text('{"model_type": "somebody"}')
    assert open_checkpoint(tmp_path / "a").fingerprint() != one


def replace(folder: Path, name: str, data: bytes | None, compress: bool = False) -> None:
    """Writes the archive anew with one entry changed, or left out."""
    path = folder / "pytorch_model.bin"
    with zipfile.ZipFile(path) as archive:
        entries = {item.filename: archive.read(item) for item in archive.infolist()}
    key = f"pytorch_model/{name}"
    entries.pop(key, None)
    if data is not None:
        entries[key] = data
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", method) as archive:
        for entry, content in entries.items():
            archive.writestr(entry, content)


def refused(folder: Path) -> str:
    with pytest.raises(GraphgenError) as caught:
        open_checkpoint(folder)
    return str(caught.value).replace(str(folder), "DIR")


class Evil:
    def __init__(self, how: tuple[Any, ...]) -> None:
        self.how = how

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return self.how


class WithState:
    def __init__(self) -> None:
        self.a = 1


EVIL: Mapping[str, tuple[bytes, str]] = {
    "a call": (pickle.dumps({"w": Evil((os.system, ("touch HERE",)))}, 2), "'posix.system'"),
    "a call, protocol 4": (
        pickle.dumps({"w": Evil((os.system, ("touch HERE",)))}, 4),
        "'posix.system'",
    ),
    "eval": (pickle.dumps(Evil((eval, ("open('HERE', 'w')",))), 2), "'__builtin__.eval'"),
    "an object": (pickle.dumps({"w": WithState()}, 2), f"'{__name__}.WithState'"),
    "a class": (b"ccollections\nOrderedDict\n)\x81.", "the instruction NEWOBJ"),
    "an old instance": (b"(S'touch HERE'\nios\nsystem\n.", "the instruction INST"),
    "an old object": (b"(cos\nsystem\nS'touch HERE'\no.", "'os.system'"),
    "a tool of torch": (b"ctorch\nload\n(X\x01\x00\x00\x00xtR.", "'torch.load'"),
    "a word that is called": (b"ctorch\nFloatStorage\n(K\x03tR.", "'torch.FloatStorage'"),
    "a dotted name": (b"ctorch\nfloat32.__class__\n)R.", "'torch.float32.__class__'"),
    "an extension": (b"\x82\x01.", "the instruction EXT1"),
    "a state": (b"(lX\x01\x00\x00\x00ab.", "wants to set the state of an object"),
}


@pytest.mark.parametrize("case", EVIL)
def test_nothing_in_a_pickle_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str):
    monkeypatch.chdir(tmp_path)
    data, named = EVIL[case]
    folder = write(tmp_path / "model", {"w": values()})
    replace(folder, "data.pkl", data)
    text = refused(folder)
    assert text.startswith("error[GG0604]: the pickle in pytorch_model.bin "), text
    assert named in text.splitlines()[0]
    assert "\n  --> DIR/pytorch_model.bin, byte " in text
    assert "\n  help: nothing of the file was run; get the weights as safetensors" in text
    assert not (tmp_path / "HERE").exists()


def test_what_a_call_did_before_it_was_refused_is_what_pickle_would_have_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # The same bytes do run where Python's own unpickler reads them: the test above can fail.
    monkeypatch.chdir(tmp_path)
    pickle.loads(EVIL["a call"][0])
    assert (tmp_path / "HERE").exists()


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (
            {"w": values().to(torch.float8_e4m3fnuz)},
            "tensor 'w' has dtype float8_e4m3fnuz; supported: float64, float32, float16, bfloat16, "
            "int64, int32, int16, int8, uint8, bool, float8_e4m3fn, float8_e5m2",
        ),
        (
            {"w": values().to(torch.complex64)},
            "tensor 'w' has dtype torch.ComplexFloatStorage; supported: float64, ",
        ),
        ({"epoch": 3}, "'epoch' is not a tensor but of type int"),
        ({"state_dict": {"w": values()}}, "'state_dict' is not a tensor but of type dict"),
        ([values()], "the file holds no tensors by name but is of type list"),
        (values(), "the file holds no tensors by name but is of type tensor"),
    ],
)
def test_what_is_no_table_of_tensors(tmp_path: Path, state: object, text: str):
    assert refused(write(tmp_path, state)).startswith(f"error[GG0601]: {text}")


def test_a_file_from_before_archives(tmp_path: Path):
    whole = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    state = {**every_kind(), "whole": whole, "part": whole[1:, ::2], "none": torch.empty(0, 3)}
    (tmp_path / "old").mkdir()
    old = write(tmp_path / "old", state, _use_new_zipfile_serialization=False)
    checkpoint = FolderCheckpoint(old)
    assert [*checkpoint.tensors()] == [*state]
    for name, tensor in state.items():
        np.testing.assert_array_equal(checkpoint.read(name), numpy(tensor), err_msg=name)
    again = FolderCheckpoint(write(tmp_path / "old", state, _use_new_zipfile_serialization=False))
    assert again.fingerprint() == checkpoint.fingerprint()
    changed = {**state, "whole": whole + 1}
    other = FolderCheckpoint(write(tmp_path / "old", changed, _use_new_zipfile_serialization=False))
    assert other.fingerprint() != checkpoint.fingerprint()


def test_a_file_from_before_archives_runs_nothing(tmp_path: Path):
    write(tmp_path, {"w": Evil((os.system, ("touch HERE",)))}, _use_new_zipfile_serialization=False)
    assert refused(tmp_path).startswith("error[GG0604]")


def test_a_damaged_file_from_before_archives(tmp_path: Path):
    path = write(tmp_path, {"w": values()}, _use_new_zipfile_serialization=False)
    path = path / "pytorch_model.bin"
    data = path.read_bytes()
    for size in range(16, len(data), 7):
        path.write_bytes(data[:size])
        assert refused(tmp_path).startswith("error[GG0601]"), size
    path.write_bytes(data)
    assert FolderCheckpoint(tmp_path).read("w").shape == tuple(values().shape)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("archive", [True, False])
def test_quantized_tensors_are_refused_with_what_converts_them(tmp_path: Path, archive: bool):
    quantized = torch.quantize_per_tensor(values(), 0.1, 0, torch.qint8)
    write(tmp_path, {"w": quantized}, _use_new_zipfile_serialization=archive)
    text = refused(tmp_path)
    assert text.startswith(
        "error[GG0601]: pytorch_model.bin holds quantized tensors of PyTorch (qint8), which are "
        "not read"
    )
    # The command of the help does convert it.
    command = text.partition("--quantized: ")[2]
    command = command.replace("'pytorch_model.bin'", repr(str(tmp_path / "pytorch_model.bin")))
    exec(command, {})
    np.testing.assert_array_equal(
        FolderCheckpoint(tmp_path).read("w"), numpy(quantized.dequantize())
    )


def test_a_program_is_no_checkpoint(tmp_path: Path):
    write(tmp_path, {})
    replace(tmp_path, "constants.pkl", b"")
    assert "the file is a TorchScript program, not weights" in refused(tmp_path)


@pytest.mark.parametrize(
    ("name", "data", "compress", "text"),
    [
        ("data.pkl", None, False, "not a PyTorch file: the archive has no data.pkl"),
        ("data/0", None, False, "tensor 'w' is in storage '0', which is not in the file"),
        (
            "data/0",
            bytes(95),
            False,
            "tensor 'w' is in storage '0' of 96 bytes, but the file has 95 of it",
        ),
        ("byteorder", b"big", False, "its byte order is b'big'; only little-endian files"),
        ("x", b"", True, "'pytorch_model/data.pkl' is compressed, which torch.save never does"),
    ],
)
def test_a_broken_archive(tmp_path: Path, name: str, data: bytes | None, compress: bool, text: str):
    write(tmp_path, {"w": values()})
    replace(tmp_path, name, data, compress)
    assert refused(tmp_path).startswith(f"error[GG0601]: {text}")


def test_a_view_beyond_its_storage(tmp_path: Path):
    write(tmp_path, {"w": values()})
    pickled = (zipfile.ZipFile(tmp_path / "pytorch_model.bin")).read("pytorch_model/data.pkl")
    # The stride of the rows, from 6 to 7.
    assert pickled.count(b"K\x06K\x01") == 1
    replace(tmp_path, "data.pkl", pickled.replace(b"K\x06K\x01", b"K\x07K\x01"))
    assert "tensor 'w' needs 108 bytes of a storage that has 96" in refused(tmp_path)


def attempt(folder: Path) -> FolderCheckpoint | str:
    """The checkpoint, or the code of what is wrong with it."""
    try:
        return FolderCheckpoint(folder)
    except GraphgenError as error:
        return error.code


def test_damaged_files(tmp_path: Path):
    folder = write(tmp_path, every_kind())
    path = folder / "pytorch_model.bin"
    whole = path.read_bytes()
    rng = random.Random(7)
    for size in rng.sample(range(len(whole)), 60):
        path.write_bytes(whole[:size])
        assert refused(folder).startswith("error[GG0601]")
    readable = 0
    start = whole.index(b"\x80\x02")
    length = len(zipfile.ZipFile(io.BytesIO(whole)).read("pytorch_model/data.pkl"))
    for _ in range(300):
        data = bytearray(whole)
        data[start + rng.randrange(length)] = rng.randrange(256)
        path.write_bytes(data)
        opened = attempt(folder)
        if isinstance(opened, str):
            assert opened in ("GG0601", "GG0604")
            continue
        for name, info in opened.tensors().items():
            got = opened.read(name)
            assert (got.shape, got.dtype) == (info.shape, NUMPY_DTYPES[info.dtype])
        readable += 1
    assert 10 < readable < 290


def shards(folder: Path) -> Path:
    """Two files behind an index."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}")
    torch.save({"a": values(), "b": values() * 2}, folder / "pytorch_model-00001-of-00002.bin")
    torch.save({"c": values() * 3}, folder / "pytorch_model-00002-of-00002.bin")
    homes = {name: f"pytorch_model-0000{1 + (name == 'c')}-of-00002.bin" for name in "abc"}
    index = {"metadata": {"total_size": 288}, "weight_map": homes}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    return folder


def test_tensors_of_all_shards(tmp_path: Path):
    checkpoint = open_checkpoint(shards(tmp_path))
    assert list(checkpoint.tensors()) == ["a", "b", "c"]
    for factor, name in enumerate("abc", 1):
        np.testing.assert_array_equal(checkpoint.read(name), (values() * factor).numpy())
    before = checkpoint.fingerprint()
    torch.save({"c": values()}, tmp_path / "pytorch_model-00002-of-00002.bin")
    assert open_checkpoint(tmp_path).fingerprint() != before
    with pytest.raises(GraphgenError, match="there is no tensor 'd'"):
        checkpoint.read("d")


def test_the_index_decides_between_files_with_one_tensor(tmp_path: Path):
    shards(tmp_path)
    torch.save({"c": values(), "a": values() * 9}, tmp_path / "pytorch_model-00002-of-00002.bin")
    checkpoint = open_checkpoint(tmp_path)
    np.testing.assert_array_equal(checkpoint.read("a"), values().numpy())
    index = {"b": "pytorch_model-00001-of-00002.bin", "c": "pytorch_model-00002-of-00002.bin"}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": index}))
    assert "tensor 'a' is in pytorch_model-00001-of-00002.bin too" in refused(tmp_path)


@pytest.mark.parametrize(
    ("index", "text"),
    [
        ({}, "pytorch_model.bin.index.json has no weight_map of tensors and files"),
        ({"weight_map": []}, "pytorch_model.bin.index.json has no weight_map"),
        ({"weight_map": {"a": 3}}, "pytorch_model.bin.index.json says tensor 'a' is in 3, no file"),
        ({"weight_map": {"a": "../b.bin"}}, "pytorch_model.bin.index.json says tensor 'a' is in "),
        ({"weight_map": {"a": "/b.bin"}}, "pytorch_model.bin.index.json says tensor 'a' is in "),
    ],
)
def test_an_index_that_is_none(tmp_path: Path, index: object, text: str):
    shards(tmp_path)
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    assert refused(tmp_path).startswith(f"error[GG0601]: {text}")


def test_a_tensor_that_is_not_there(tmp_path: Path):
    file = TorchFile(write(tmp_path, {"w": values()}) / "pytorch_model.bin")
    with pytest.raises(GraphgenError, match="there is no tensor 'nope'"):
        file.read("nope")
