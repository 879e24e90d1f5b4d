"""Links, pipes and names that leave an artifact: nothing outside of it is written or compared."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.artifact import MANIFEST, open_artifact, take_weights, write_weights
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.folders import sealed
from graphgen.runtime.progress import Silent
from tests.runtime.artifact.test_artifact_folder import WEIGHTS, answer, made, start

pytestmark = pytest.mark.usefixtures("optimized_code")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A copy of the folder of an artifact, and what is outside of it."""
    shutil.copytree(made()[0], tmp_path, dirs_exist_ok=True)
    (tmp_path / "outside" / "folder").mkdir(parents=True)
    (tmp_path / "outside" / "file").write_text("mine")
    return tmp_path


def outside(place: Path) -> dict[str, bytes]:
    home = place / "outside"
    return {path.name: path.read_bytes() for path in home.rglob("*") if path.is_file()}


def programs(artifact: Path) -> list[Path]:
    return sorted((artifact / "compiled").iterdir())


def linked_programs(target: str) -> Callable[[Path], None]:
    def link(artifact: Path) -> None:
        for path in programs(artifact):
            path.unlink()
            path.symlink_to(artifact.parent / "outside" / target)

    return link


def pipes(artifact: Path) -> None:
    for path in programs(artifact):
        path.unlink()
        os.mkfifo(path)


def linked_folder(target: str) -> Callable[[Path], None]:
    def link(artifact: Path) -> None:
        shutil.rmtree(artifact / "compiled")
        (artifact / "compiled").symlink_to(artifact.parent / "outside" / target)

    return link


@pytest.mark.parametrize(
    "prepare",
    [linked_programs("file"), linked_programs("new"), linked_folder("folder"), pipes],
)
def test_a_program_is_not_written_through_a_link(place: Path, prepare: Callable[[Path], None]):
    prepare(place / "artifact")
    before = outside(place)
    with pytest.raises(GraphgenError, match=r"cannot write '.*compiled") as caught:
        answer(start(place / "artifact", None))
    assert caught.value.code == "GG0703"
    assert outside(place) == before


def in_hub_cache(folder: Path) -> Path:
    """An artifact as the hub's cache has it: each file is a link to a blob."""
    home = folder.parent / "hub"
    snapshot = home / "snapshots" / "revision"
    snapshot.parent.mkdir(parents=True)
    (home / "blobs").mkdir()
    shutil.copytree(folder, snapshot)
    files = [path for path in snapshot.rglob("*") if path.is_file()]
    for number, path in enumerate(files):
        blob = home / "blobs" / str(number)
        path.rename(blob)
        path.symlink_to(os.path.relpath(blob, path.parent))
    return snapshot


def test_an_artifact_in_the_hubs_cache_is_read(place: Path):
    engine = start(in_hub_cache(place / "artifact"), None)
    assert answer(engine) == made()[1]
    assert all(report.loaded for report in engine.programs.reports)


def test_a_whole_program_outside_is_not_read(place: Path):
    for path in programs(place / "artifact"):
        path.rename(place / "outside" / path.name)
        path.symlink_to(place / "outside" / path.name)
    with pytest.raises(GraphgenError, match=r"cannot write '.*compiled"):
        answer(start(place / "artifact", None))


MEMBERS = [MANIFEST, "module.gg", "tokenizer", "tokenizer/tokenizer.json", "weights", WEIGHTS]


@pytest.mark.parametrize("name", MEMBERS)
def test_a_right_file_outside_is_not_read(place: Path, name: str):
    path = place / "artifact" / name
    path.rename(place / "outside" / path.name)
    path.symlink_to(place / "outside" / path.name)
    with pytest.raises(GraphgenError, match="symbolic link out of its folder") as caught:
        open_artifact(place / "artifact")
    assert caught.value.code == "GG0703"


def test_a_file_that_was_added_to_the_tokenizer_is_named(place: Path):
    (place / "artifact" / "tokenizer" / ".DS_Store").touch()
    open_artifact(place / "artifact")
    (place / "artifact" / "tokenizer" / "chat_template.jinja").symlink_to(place / "outside/file")
    with pytest.raises(GraphgenError, match=r"tokenizer/chat_template.jinja was added") as caught:
        open_artifact(place / "artifact")
    assert caught.value.code == "GG0703"


@pytest.mark.parametrize("name", [MANIFEST, "weights", WEIGHTS])
def test_weights_are_not_written_through_a_link(place: Path, name: str):
    artifact = open_artifact(place / "artifact")
    path = place / "artifact" / name
    path.rename(place / "outside" / path.name)
    path.symlink_to(place / "outside" / path.name)
    before = outside(place)
    checkpoint = open_checkpoint(place / "small.gguf")
    with pytest.raises(GraphgenError, match="it is a symbolic link") as caught:
        write_weights(artifact, checkpoint, Silent())
    assert caught.value.code == "GG0703"
    assert outside(place) == before


def test_weights_of_the_hubs_cache_are_shared(place: Path):
    kept, new = in_hub_cache(place / "artifact"), place / "new"
    shutil.copytree(kept, new, ignore=shutil.ignore_patterns("weights"))
    assert not (new / MANIFEST).is_symlink()
    manifest = json.loads((new / MANIFEST).read_bytes())
    (new / MANIFEST).write_bytes(sealed({**manifest, "weights": []}))
    artifact = take_weights(open_artifact(new), open_artifact(kept))
    assert not (artifact.path / WEIGHTS).is_symlink()
    assert (artifact.path / WEIGHTS).samefile(kept / WEIGHTS)


@pytest.mark.parametrize("name", ["../outside/file", "/etc/hostname", "tokenizer/../module.gg", ""])
def test_a_manifest_names_files_of_the_artifact(place: Path, name: str):
    manifest = json.loads((place / "artifact" / MANIFEST).read_bytes())
    manifest["files"] |= {name: "0" * 64}
    (place / "artifact" / MANIFEST).write_bytes(sealed(manifest))
    with pytest.raises(GraphgenError, match="is not the name of a file inside") as caught:
        open_artifact(place / "artifact")
    assert caught.value.code == "GG0703"


@pytest.mark.parametrize("name", ["module.gg", "tokenizer/tokenizer.json", WEIGHTS])
def test_a_reader_does_not_wait_for_a_pipe(place: Path, name: str):
    (place / "artifact" / name).unlink()
    os.mkfifo(place / "artifact" / name)
    with pytest.raises(GraphgenError, match="it is not a regular file") as caught:
        open_artifact(place / "artifact")
    assert caught.value.code == "GG0703"
