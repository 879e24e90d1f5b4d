"""Temporary files and folders of writers that are killed (really: SIGKILL), and of living ones."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from graphgen.atomic_write import write_whole
from graphgen.errors import GraphgenError
from graphgen.runtime.folders import new_folder, scratch_folder

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys
from pathlib import Path
from graphgen.runtime.folders import new_folder
from graphgen.atomic_write import write_whole
target = Path(sys.argv[2])
def wait(*_):
    print("writing", flush=True)
    sys.stdin.read()
if sys.argv[1] == "file":
    write_whole(target, lambda file: (file.write(b"half"), wait()))
else:
    with new_folder(target, "the folder", "taken") as folder:
        (folder / "deep").mkdir()
        (folder / "deep" / "half").write_text("half")
        wait()
"""


@contextmanager
def writer(kind: str, target: Path) -> Generator[subprocess.Popen[str]]:
    """A process in the middle of writing."""
    command = [sys.executable, "-c", SCRIPT, kind, str(target)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        try:
            yield process
        finally:
            process.kill()


def write(kind: str, target: Path) -> None:
    if kind == "file":
        write_whole(target, b"whole")
    else:
        with new_folder(target, "the folder", "taken") as folder:
            (folder / "whole").write_text("whole")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_the_next_writer_removes_what_a_killed_one_left(kind: str, tmp_path: Path):
    target = tmp_path / "a[1]"
    with writer(kind, target) as process:
        process.kill()
        assert process.wait() == -signal.SIGKILL
    (left,) = names(tmp_path)
    assert left.startswith(".graphgen-" if kind == "file" else ".a[1].partial-")
    write(kind, target)
    assert names(tmp_path) == ["a[1]"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_living_writer_has_stays(kind: str, tmp_path: Path):
    target = tmp_path / "target"
    with writer(kind, target) as process:
        (theirs,) = names(tmp_path)
        if kind == "file":
            write(kind, target)
            assert names(tmp_path) == [theirs, "target"]
        else:
            with pytest.raises(GraphgenError, match="another process writes it"):
                write(kind, target)
            assert names(tmp_path) == [theirs]
        # The other one ends as if it were alone.
        process.communicate("")
        assert process.returncode == 0
    assert names(tmp_path) == ["target"]


def test_writers_of_one_process_leave_each_other_alone(tmp_path: Path):
    with scratch_folder(tmp_path, ".weights-") as first:
        with scratch_folder(tmp_path, ".weights-") as second:
            assert names(tmp_path) == sorted([first.name, second.name])
        assert names(tmp_path) == [first.name]
    assert names(tmp_path) == []


def test_other_files_stay(tmp_path: Path):
    for name in (".graphgen-notes", "x.part", ".target.partial"):
        (tmp_path / name).write_text("mine")
    write("file", tmp_path / "target")
    assert names(tmp_path) == [".graphgen-notes", ".target.partial", "target", "x.part"]


def test_a_failed_write_leaves_nothing(tmp_path: Path):
    def fail(_: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(GraphgenError, match="No space left on device"):
        write_whole(tmp_path / "target", fail)
    assert names(tmp_path) == []
