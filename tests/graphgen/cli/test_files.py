"""Files are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import pytest

from graphgen.cli.files import check_output, make_folder, write_file, write_text
from graphgen.errors import GraphgenError


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path):
    path = tmp_path / "out"
    path.write_text("old")

    def fail(file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(GraphgenError) as caught:
        write_file(str(path), fail)
    assert caught.value.code == "GG0704"
    assert caught.value.what == f"cannot write '{path}': No space left on device"
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out"]


def test_a_defect_of_the_writer_is_not_hidden(tmp_path: Path):
    def fail(file: BinaryIO) -> None:
        raise ValueError("a defect")

    with pytest.raises(ValueError, match="a defect"):
        write_file(str(tmp_path / "out"), fail)
    assert os.listdir(tmp_path) == []


def test_a_link_is_followed(tmp_path: Path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_text(str(tmp_path / "link"), "neu: \u00fc")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text(encoding="utf-8") == "neu: \u00fc"


def test_a_pipe_is_written_and_not_replaced(tmp_path: Path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    write_text(str(path), "text")
    assert os.read(reader, 10) == b"text"
    os.close(reader)
    assert path.is_fifo()


def test_a_new_file_has_ordinary_permissions(tmp_path: Path):
    write_text(str(tmp_path / "new"), "text")
    (tmp_path / "usual").write_text("text")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.parametrize(
    ("name", "expected"),
    [("", "it is a folder"), ("no/file", "there is no folder"), ("file/x", "there is no folder")],
)
def test_hopeless_outputs_are_refused_at_once(tmp_path: Path, name: str, expected: str):
    (tmp_path / "file").write_text("")
    with pytest.raises(GraphgenError) as caught:
        check_output(str(tmp_path / name))
    assert caught.value.code == "GG0704"
    assert expected in caught.value.what


def test_a_folder_that_is_a_file(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(GraphgenError, match="it is a file"):
        make_folder(str(tmp_path / "file"))
    assert make_folder(str(tmp_path / "new")).is_dir()
