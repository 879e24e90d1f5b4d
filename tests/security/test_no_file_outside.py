"""Nothing outside of a folder that came from elsewhere is written, or read as its content."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.artifact import MANIFEST
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.tokenizer.tokenizer_folder import copy_other_files
from tests.oracles.llama import write_llama
from tests.runtime.artifact.test_artifact_folder import answer, made, start

pytestmark = pytest.mark.usefixtures("optimized_code")

PAGE = Path(__file__).parents[2] / "docs" / "security.md"


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder that has to be as it was."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "file").write_text("of this machine")
    yield folder
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"file": "of this machine"}


def members() -> list[str]:
    """Every file and folder of an artifact."""
    folder = made()[0] / "artifact"
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.parametrize("target", ["file", "new", "."])
def test_each_member_of_an_artifact_as_a_link(outside: Path, target: str):
    for member in members():
        artifact = outside.parent / "artifact"
        shutil.copytree(made()[0] / "artifact", artifact)
        path = artifact / member
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        path.symlink_to(outside / target)
        with pytest.raises(GraphgenError) as caught:
            answer(start(artifact, None))
        # Without its manifest a folder is none of an artifact.
        codes = ("GG0703", "GG0601") if member == MANIFEST else ("GG0703",)
        assert caught.value.code in codes, member
        assert "of this machine" not in str(caught.value)
        shutil.rmtree(artifact)


def test_files_of_a_checkpoint_that_are_links_out_of_it_are_not_copied(
    outside: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    write_llama(tmp_path / "model")
    (tmp_path / "model" / "mine.txt").write_text("of the checkpoint")
    (tmp_path / "model" / "notes.txt").symlink_to(outside / "file")
    (tmp_path / "model" / "loop.txt").symlink_to("loop.txt")
    (tmp_path / "new").mkdir()
    copy_other_files(open_checkpoint(tmp_path / "model"), tmp_path / "new")
    assert "'notes.txt'" in capsys.readouterr().err
    assert (tmp_path / "new" / "mine.txt").read_text() == "of the checkpoint"
    assert {path.name for path in (tmp_path / "new").iterdir()}.isdisjoint(
        ("notes.txt", "loop.txt")
    )


def test_weights_and_configuration_of_a_checkpoint_are_read_through_links(tmp_path: Path):
    write_llama(tmp_path / "model")
    wanted = open_checkpoint(tmp_path / "model").fingerprint()
    (tmp_path / "linked").mkdir()
    for path in (tmp_path / "model").iterdir():
        (tmp_path / "linked" / path.name).symlink_to(os.path.relpath(path, tmp_path / "linked"))
    assert open_checkpoint(tmp_path / "linked").fingerprint() == wanted


def test_tests_that_the_page_names_are_there():
    named = re.findall(r"`(tests/[^`]+)`", PAGE.read_text(encoding="utf-8"))
    assert len(named) > 8
    for name in named:
        assert (PAGE.parents[1] / name.partition("::")[0]).exists(), name
