"""Names in a kit's manifest: regular files of the kit, each with its hash."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, cast

import pytest

from graphgen.runtime.kit_runner.kit_types import Manifest
from graphgen.runtime.kit_runner.run_kit import KitError, read_manifest, require_files, write_whole


def manifest(name: str, *, hlo: str = "", data: str = "") -> Manifest:
    """A kit of one case whose ``files`` have one name, of a file with the text ``mine``."""
    tensor = {"name": "x", "dtype": "f32", "dims": [], "data": data, "rtol": 0.0, "atol": 0.0}
    case = {"name": "case", "hlo": hlo or name, "inputs": [tensor], "outputs": [tensor]}
    content: dict[str, Any] = {
        "files": {name: hashlib.sha256(b"mine").hexdigest()},
        "targets": {"trn2": {"lnc": 1, "cases": [case]}},
    }
    return cast(Manifest, content)


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    (tmp_path / "kit" / "a").mkdir(parents=True)
    for path in (tmp_path / "file", tmp_path / "kit" / "f", tmp_path / "kit" / "a" / "f"):
        path.write_text("mine")
    return tmp_path / "kit"


def test_files_of_the_kit_are_taken(kit: Path):
    require_files(kit, manifest("f", data="f"))
    require_files(kit, manifest("a/f"))


@pytest.mark.parametrize("name", ["../file", "a/../f", "./f", "a//f", "", "f\0"])
def test_other_names_are_refused(kit: Path, name: str):
    with pytest.raises(KitError, match="is not the name of a file of the kit"):
        require_files(kit, manifest(name))


def test_an_absolute_name_is_refused(kit: Path):
    with pytest.raises(KitError, match="is not the name of a file of the kit"):
        require_files(kit, manifest(str(kit.parent / "file")))


@pytest.mark.parametrize("names", [{"hlo": "../file"}, {"data": "../file"}, {"data": "a/f"}])
def test_a_case_reads_files_with_a_hash(kit: Path, names: dict[str, str]):
    with pytest.raises(KitError, match="has no hash of"):
        require_files(kit, manifest("f", **names))


def test_the_runner_does_not_wait_for_a_pipe(kit: Path):
    (kit / "f").unlink()
    os.mkfifo(kit / "f")
    os.mkfifo(kit / "manifest.json")
    with pytest.raises(KitError, match="is not a regular file"):
        require_files(kit, manifest("f"))
    with pytest.raises(KitError, match="is not a regular file"):
        read_manifest(kit)


def test_links_in_a_kit_are_not_followed(kit: Path):
    (kit / "f").unlink()
    (kit / "f").symlink_to("../file")
    (kit / "b").symlink_to("a")
    for name in ("f", "b/f"):
        with pytest.raises(KitError, match="is a symbolic link; unpack the kit again"):
            require_files(kit, manifest(name))


def test_results_are_not_written_through_a_link(tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / f".r.json.{os.getpid()}.part").symlink_to(tmp_path / "file")
    write_whole(tmp_path / "r.json", b"ours")
    assert (tmp_path / "file").read_text() == "mine"
    assert (tmp_path / "r.json").read_text() == "ours"
