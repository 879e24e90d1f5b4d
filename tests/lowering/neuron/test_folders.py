"""Compiler caches, work folders and NEFF files, as Neuron's tools leave them."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from graphgen.errors import GraphgenError
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from graphgen.lowering.neuron import Member, describe, read_neff
from graphgen.lowering.open import open_module
from tests.lowering.hlo.test_text import NEURON


def cache_entry(root: Path, key: str, *files: str, flags: str = "") -> Path:
    folder = root / "neuronxcc-2.27.5334.0+abc" / key
    folder.mkdir(parents=True)
    for name in files:
        (folder / name).write_bytes(b"")
    if flags:
        (folder / "compile_flags.json").write_text(flags)
    return folder


def test_a_compiler_cache(tmp_path: Path):
    done = cache_entry(
        tmp_path, "MODULE_12+d41d8cd9", "model.hlo_module.pb", "model.neff", "model.done",
    )  # fmt: skip
    flags = '["--model-type=transformer", "-O1"]'
    cache_entry(tmp_path, "MODULE_34+0a1b2c3d", "model.hlo.pb", "model.log", flags=flags)
    cache_entry(tmp_path, "MODULE_56+0a1b2c3d", "model.hlo_module.pb", "model.hlo_module.pb.lock")
    cache_entry(tmp_path, "MODULE_78+0a1b2c3d", flags="not json")
    found = describe(tmp_path)
    assert found.kind == "compiler cache"
    assert [(p.name, p.state) for p in found.programs] == [
        ("MODULE_12+d41d8cd9", "done"),
        ("MODULE_34+0a1b2c3d", "failed"),
        ("MODULE_56+0a1b2c3d", "locked"),
        ("MODULE_78+0a1b2c3d", "empty"),
    ]
    first, second, _, last = found.programs
    assert first.module == done / "model.hlo_module.pb"
    assert first.neff == done / "model.neff"
    assert dict(first.facts) == {
        "compiler": "neuronxcc-2.27.5334.0+abc", "module hash": "12", "flags": "none were given"
    }  # fmt: skip
    assert second.flags == ("--model-type=transformer", "-O1")
    assert last.flags == ()


def test_the_work_folder_of_nxd(tmp_path: Path):
    for bucket in (0, 1):
        folder = tmp_path / "token_generation_model" / f"_tp0_bk{bucket}" / "model"
        folder.mkdir(parents=True)
        (folder / "graph.hlo").write_bytes(b"")
        (folder / "metaneff.pb").write_bytes(b"")
    (folder / "graph.neff").write_bytes(b"")
    found = describe(tmp_path)
    assert found.kind == "NxD work folder"
    assert [(p.state, dict(p.facts)["bucket"]) for p in found.programs] == [
        ("unfinished", "0"), ("done", "1")
    ]  # fmt: skip


def test_a_compilers_work_folder(tmp_path: Path):
    (tmp_path / "hlo_module.pb").write_bytes(b"")
    (tmp_path / "command.txt").write_text("neuronx-cc compile --framework XLA hlo_module.pb\n")
    (tmp_path / "log-neuron-cc.txt").write_text("ERROR: [NCC_EVRF035] int matmult\n")
    (program,) = describe(tmp_path).programs
    assert program.state == "failed"
    assert dict(program.facts)["command"].startswith("neuronx-cc compile")


def test_a_work_folder_with_one_module_is_opened_as_that(tmp_path: Path):
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "graph.hlo").write_bytes(parse_hlo_text(NEURON))
    assert open_module(folder).name == "SyncTensorsGraph.30"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "graph.hlo").write_bytes(b"")
    with pytest.raises(GraphgenError) as caught:
        open_module(tmp_path)
    assert caught.value.code == "GG0802"
    assert "holds 2 modules" in caught.value.what


def test_a_folder_of_anything_else(tmp_path: Path):
    with pytest.raises(GraphgenError) as caught:
        describe(tmp_path)
    assert caught.value.code == "GG0802"


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_neff(tmp_path: Path, mode: str):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as archive:  # pyright: ignore[reportCallIssue, reportArgumentType]
        for name, size in (("info.json", 3), ("sg00/def.json", 5)):
            item = tarfile.TarInfo(name)
            item.size = size
            archive.addfile(item, io.BytesIO(b"x" * size))
    header = (b"\2\0\0\0neuronx-cc 2.27\0graph").ljust(1024, b"\0")
    file = tmp_path / "model.neff"
    file.write_bytes(header + packed.getvalue())
    found = read_neff(file)
    assert found.members == (Member("info.json", 3), Member("sg00/def.json", 5))
    assert found.words == ("neuronx-cc 2.27", "graph")


@pytest.mark.parametrize("data", [b"", b"x" * 1024, b"x" * 2000])
def test_what_is_no_neff(tmp_path: Path, data: bytes):
    file = tmp_path / "model.neff"
    file.write_bytes(data)
    with pytest.raises(GraphgenError) as caught:
        read_neff(file)
    assert caught.value.code == "GG0802"
