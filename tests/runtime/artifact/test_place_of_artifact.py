"""The place of a new artifact is looked at before long work, and two processes do not share it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime import engine
from graphgen.runtime.artifact import is_artifact, require_place
from graphgen.runtime.folders import new_folder
from tests.oracles.small_gguf import write_small_model
from tests.runtime.artifact.test_artifact_folder import start

WORDS = ("the artifact", "it is taken")


def test_a_place_that_cannot_be_made_is_refused_before_a_model_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write_small_model(tmp_path / "small.gguf")
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(engine, "_built", lambda *_: pytest.fail("the model is built"))
    for place in (tmp_path / "file" / "a" / "b", tmp_path / "file"):
        with pytest.raises(GraphgenError) as caught:
            start(tmp_path / "small.gguf", place)
        assert caught.value.code == "GG0704"
        assert str(place) in caught.value.what


def test_a_place_that_can_be_made_is_left_as_it_was(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "a" / "b" / "c", tmp_path / "d", tmp_path / "empty"):
        require_place(place)
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_a_second_writer_learns_of_the_first(tmp_path: Path):
    place = tmp_path / "artifact"
    with new_folder(place, *WORDS) as first:
        (first / "f").write_text("of the first")
        for _ in range(2):
            with (
                pytest.raises(GraphgenError, match="another process writes it") as caught,
                new_folder(place, *WORDS),
            ):
                pytest.fail("both write")
            assert caught.value.code == "GG0704"
        with pytest.raises(GraphgenError, match="another process writes it"):
            require_place(place)
    assert (place / "f").read_text() == "of the first"


def test_a_writer_that_comes_last_leaves_the_folder_of_the_first(tmp_path: Path):
    place = tmp_path / "artifact"

    def write() -> None:
        with new_folder(place, *WORDS) as mine:
            (mine / "f").write_text("of the last")
            # Made by a process that began at the same moment.
            place.mkdir()
            (place / "f").write_text("of the first")

    with pytest.raises(GraphgenError, match="another process has written it") as caught:
        write()
    assert caught.value.code == "GG0704"
    assert "run the command again" in str(caught.value)
    assert (place / "f").read_text() == "of the first"
    assert [path.name for path in tmp_path.iterdir()] == ["artifact"]


def test_what_a_killed_writer_left_is_not_in_the_way(tmp_path: Path):
    place = tmp_path / "artifact"
    with new_folder(place, *WORDS) as first:
        # No lock is held on it, as after a kill.
        shutil.copytree(first, tmp_path / ".artifact.partial-000000000000")
        (first / "f").touch()
    shutil.rmtree(place)
    with new_folder(place, *WORDS) as second:
        (second / "f").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["artifact"]
    assert not is_artifact(place)
