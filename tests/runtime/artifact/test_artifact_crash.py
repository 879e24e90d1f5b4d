"""Writing an artifact and being stopped: nothing half-written is ever taken for a whole one."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.artifact import is_artifact
from tests.oracles.small_gguf import write_small_model
from tests.runtime.artifact.test_artifact_folder import answer, made, start

ROOT = Path(__file__).parents[3]
# Stops itself at the n-th event of the interpreter that opens, makes, renames or removes a file.
SCRIPT = """
import os, resource, signal, sys
from pathlib import Path
from tests.runtime.artifact.test_artifact_folder import answer, start
left = int(sys.argv[2])
folder = sys.argv[1]
def watch(event, args):
    global left
    if event not in ("open", "os.mkdir", "os.rename", "os.chmod", "os.remove"):
        return
    if not str(args[0]).startswith(folder) or ".gguf" in str(args[0]):
        return
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(watch)
if len(sys.argv) > 3:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)
answer(start(Path(folder) / "small.gguf", Path(folder) / "artifact"))
print("done")
"""


def check_recovery(folder: Path) -> None:
    """Whatever is left behind, the next run answers and the one after it starts from a folder."""
    kept = folder / "artifact"
    whole = is_artifact(kept)
    assert whole or not kept.exists()
    for expected in (whole, True):
        engine = start(folder / "small.gguf", kept)
        assert engine.from_artifact is expected
        assert answer(engine) == made()[1]
    if not whole:
        # What the killed writer left is gone.
        assert sorted(path.name for path in folder.iterdir()) == ["artifact", "small.gguf"]
        hidden = [path.name for path in kept.rglob(".*")]
        assert not hidden, hidden


@pytest.mark.slow
def test_a_kill_at_any_moment(tmp_path: Path):
    finished = False
    for moment in (0, 1, 2, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 18, 100):
        folder = tmp_path / str(moment)
        folder.mkdir()
        write_small_model(folder / "small.gguf")
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(folder), str(moment)],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
        )
        finished = "done" in run.stdout
        assert finished or run.returncode == -signal.SIGKILL, run.stderr
        check_recovery(folder)
    assert finished


class FullDisk:
    """Lets a number of writing calls through and fails the others as a full disk does."""

    def __init__(self, left: int) -> None:
        self.left = left

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return function(*args, **kwargs)

        return run


@pytest.mark.one_in(2)
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 100])
def test_a_full_disk_at_any_call(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    model, kept = tmp_path / "small.gguf", tmp_path / "artifact"
    write_small_model(model)
    disk = FullDisk(count)
    with monkeypatch.context() as patch:
        for name in ("fsync", "replace", "mkdir"):
            patch.setattr(os, name, disk.around(getattr(os, name)))
        patch.setattr(Path, "write_text", disk.around(Path.write_text))
        if count == 100:
            start(model, kept)
        else:
            with pytest.raises(GraphgenError) as caught:
                start(model, kept)
            assert str(caught.value) == (
                f"error[GG0704]: cannot write the artifact {kept}: No space left on device\n"
                "  help: nothing was written; free some space or choose another folder"
            )
            assert [path.name for path in tmp_path.iterdir()] == ["small.gguf"]
    check_recovery(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0, 100, 5_000, 60_000, 100_000])
def test_a_file_that_may_not_grow(limit: int, tmp_path: Path):
    # The operating system itself refuses in the middle of a write.
    write_small_model(tmp_path / "small.gguf")

    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), "100000", str(limit)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert "GG0704" in run.stderr, run.stderr
    assert "done" not in run.stdout
    check_recovery(tmp_path)
