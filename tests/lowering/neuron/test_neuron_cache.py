"""The cache of compilations: right after a kill at any moment, and readable by AWS's rules."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from graphgen.lowering.compile_cache.cache_entry import CacheRecord, read_entry
from graphgen.lowering.compile_cache.file_lock import file_lock, is_locked, lock_if_free
from graphgen.lowering.compile_cache.neuron_cache import CacheKey, NeuronCache
from graphgen.lowering.compile_cache.shared_cache import open_cache
from graphgen.lowering.neuron import describe
from tests.lowering.neuron.small_neff import small_neff

ROOT = Path(__file__).parents[3]
KEY = CacheKey("2.27.5334.0+abc", "ab" * 32, ("--lnc=2", "-O1"))
FILES = ["compile_flags.json", "graphgen.json", "model.done", "model.hlo_module.pb", "model.neff"]


def keep(root: Path, key: CacheKey = KEY, *, failure: bool = False, lifetime: float = 60.0):
    """Keep a compilation, as the driver does."""
    cache = NeuronCache(root / "cache")
    (root / "hlo").write_bytes(b"hlo")
    (root / "neff").write_bytes(small_neff())
    with cache.locked(key, lambda: None):
        if failure:
            record = CacheRecord("p", failure={"program": "p"}, expires=time.time() + lifetime)
            return cache.put_failure(key, root / "hlo", "ERROR", record)
        return cache.put(key, root / "hlo", root / "neff", CacheRecord("p", seconds=1.0))


# Children that stop themselves at the n-th event of the interpreter that opens, makes, renames or
# removes a file; the number of the first that ended by itself is printed.
SCRIPT = """
import os, signal, sys
from pathlib import Path
from tests.lowering.neuron.test_neuron_cache import keep

def run(folder, left):
    def watch(event, args):
        nonlocal left
        if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"):
            # Names inside of the cache are relative to the descriptors of its folders.
            if str(args[0]).startswith(f"{folder}/cache") or str(args[0])[0] != "/":
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(watch)
    keep(folder, failure=len(sys.argv) > 2)
    os._exit(0)

for moment in range(1000):
    folder = Path(sys.argv[1]) / str(moment)
    folder.mkdir()
    child = os.fork()
    if not child:
        run(folder, moment)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == 0:
        print(moment)
        break
    assert status == -signal.SIGKILL
"""


def check_recovery(folder: Path) -> None:
    """Whatever a killed writer left, it is whole or does not count, and the next one mends it."""
    cache = NeuronCache(folder / "cache")
    found = cache.find(KEY)
    assert found is None or found.state == "failed" or not found.damage()
    states = [entry.state for entry in cache.entries()]
    assert states in ([], ["empty"], ["unfinished"], ["done"], ["failed"])
    assert keep(folder).state == "done"
    found = cache.find(KEY)
    assert found is not None
    assert sorted(item.name for item in found.folder.iterdir()) == FILES


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("failure",)])
def test_a_kill_between_any_two_writes(words: tuple[str, ...], tmp_path: Path):
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    moments = int(ran.stdout)
    # Files are opened, written beside, renamed, and the lock is removed.
    assert moments > 15
    for moment in range(moments + 1):
        check_recovery(tmp_path / str(moment))


class StopsError(Exception):
    """In the place of a kill, for a quick test of every moment in one process."""


def test_an_end_between_any_two_replacements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for moment in range(5):
        folder, left = tmp_path / str(moment), moment
        folder.mkdir()
        move = os.replace

        def stop(*names: str, move: Callable[..., None] = move, **folders: int) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise StopsError
            move(*names, **folders)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", stop)
            with pytest.raises(StopsError):
                keep(folder)
        assert NeuronCache(folder / "cache").find(KEY) is None
        check_recovery(folder)


def test_an_entry_is_what_the_published_reader_takes(tmp_path: Path):
    folder = keep(tmp_path).folder
    # By the contract: names of the folders and files, an empty mark, flags as a list of strings.
    assert folder.parent.name == "neuronxcc-2.27.5334.0+abc"
    assert folder.name.startswith("MODULE_abab")
    assert len(folder.name.partition("+")[2]) == 8
    assert (folder / "model.done").read_bytes() == b""
    assert json.loads((folder / "compile_flags.json").read_text()) == ["--lnc=2", "-O1"]
    assert (folder / "model.hlo_module.pb").read_bytes() == b"hlo"
    # The end of an empty text's MD5 stands for no options.
    assert KEY.name().endswith("+" + KEY.name().partition("+")[2])
    assert replace(KEY, flags=()).name().endswith("+d41d8cd9")
    (program,) = describe(tmp_path / "cache").programs
    assert (program.state, program.flags) == ("done", ("--lnc=2", "-O1"))
    keep(tmp_path, failure=True)
    (program,) = describe(tmp_path / "cache").programs
    assert program.state == "failed"


def test_a_damaged_entry_does_not_count(tmp_path: Path):
    cache, folder = NeuronCache(tmp_path / "cache"), keep(tmp_path).folder
    assert cache.find(KEY) is not None
    whole = (folder / "model.neff").read_bytes()
    (folder / "model.neff").write_bytes(whole[:-1] + b"x")
    assert cache.find(KEY) is None
    assert read_entry(folder).damage() == "model.neff is not the file that was written"
    (folder / "model.neff").unlink()
    assert read_entry(folder).damage() == "model.neff is missing"
    (folder / "graphgen.json").write_text("not json")
    (folder / "model.neff").write_bytes(whole)
    assert cache.find(KEY) is not None, "an entry without a record is one of another tool"
    (folder / "model.neff").write_bytes(whole[:1100])
    assert cache.find(KEY) is None


@pytest.mark.parametrize("failure", [False, True])
def test_an_entry_under_the_name_of_another_does_not_count(failure: bool, tmp_path: Path):
    cache, made = NeuronCache(tmp_path / "cache"), keep(tmp_path, failure=failure)
    for other in (replace(KEY, module="cd" * 32), replace(KEY, version="2.28")):
        moved = cache.folder(other)
        shutil.copytree(made.folder, moved)
        assert cache.find(KEY) is not None
        assert cache.find(other) is None
        assert read_entry(moved).damage() == f"it was written as {made.name}"
        kept = keep(tmp_path, other, failure=failure)
        assert (kept.folder, kept.is_bound) == (moved, True)
        assert cache.find(other) is not None


def test_failures_expire(tmp_path: Path):
    cache = NeuronCache(tmp_path / "cache")
    found = keep(tmp_path, failure=True)
    assert found.state == "failed"
    assert cache.find(KEY) == found
    keep(tmp_path, failure=True, lifetime=-1)
    assert read_entry(found.folder).state == "expired"
    assert cache.find(KEY) is None
    # One of another tool has the time of its file.
    (found.folder / "graphgen.json").unlink()
    assert read_entry(found.folder).state == "failed"
    os.utime(found.folder / "model.log", (0, 0))
    assert read_entry(found.folder).state == "expired"


def test_options_whose_hashes_begin_alike_are_two_entries(tmp_path: Path):
    cache = NeuronCache(tmp_path / "cache")
    first = keep(tmp_path).folder
    (first / "compile_flags.json").write_text('["--other"]')
    assert cache.find(KEY) is None
    second = keep(tmp_path).folder
    assert second.name.startswith(first.name)
    assert len(second.name) == len(first.name) + 24
    assert cache.find(KEY) is not None


def test_a_lock_ends_with_its_holder(tmp_path: Path):
    path = tmp_path / "entry" / "lock"
    with file_lock(tmp_path, path, lambda: None):
        assert is_locked(path)
        with lock_if_free(tmp_path, path) as free:
            assert not free
    assert not path.exists()
    path.touch()
    # Left by a killed process: nobody holds it.
    assert not is_locked(path)
    with lock_if_free(tmp_path, path) as free:
        assert free


def test_the_place_of_the_cache():
    assert open_cache("/a", "/b").root == Path("/a")
    assert open_cache("", "/b").root == Path("/b")
    assert open_cache("").root == Path("/var/tmp/neuron-compile-cache")
