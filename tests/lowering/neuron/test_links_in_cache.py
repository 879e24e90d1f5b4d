"""Links, pipes and owners of a cache of compilations and of output folders."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from graphgen.errors import GraphgenError
from graphgen.lowering.compile_cache import cache_store, shared_cache
from graphgen.lowering.compile_cache.cache_entry import (
    LOCK,
    MODULE,
    NEFF,
    RECORD,
    CacheEntry,
    CacheRecord,
    damage,
)
from graphgen.lowering.compile_cache.cache_store import CacheStore
from graphgen.lowering.compile_cache.neuron_cache import NeuronCache
from graphgen.lowering.compile_cache.shared_cache import open_cache
from graphgen.lowering.neuronx_cc.driver import CompileDriver
from graphgen.lowering.neuronx_cc.program_plan import COMMAND, HLO, PlannedProgram
from tests.graphgen.test_whole_file import give_away
from tests.lowering.neuron.small_neff import small_neff
from tests.lowering.neuron.test_neuron_cache import FILES, KEY, keep


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "model.done").write_text("mine")
    (tmp_path / "outside" / "file").write_text("mine")
    return tmp_path


def outside(home: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (home / "outside").iterdir()}


MINE = {"model.done": "mine", "file": "mine"}


@pytest.mark.parametrize("target", ["file", "new"])
@pytest.mark.parametrize("name", [*FILES, LOCK])
def test_an_entry_is_not_written_through_a_link(home: Path, name: str, target: str):
    folder = home / "cache" / KEY.name()
    folder.mkdir(parents=True)
    (folder / name).symlink_to(home / "outside" / target)
    if name == "model.done":
        # The mark of a finished compilation is removed first: the link itself.
        assert keep(home).state == "done"
        assert not (folder / name).is_symlink()
    else:
        with pytest.raises(GraphgenError, match="it is a symbolic link") as caught:
            keep(home)
        assert caught.value.code == "GG0703"
    assert outside(home) == MINE


@pytest.mark.parametrize("part", [KEY.name(), KEY.name().partition("/")[0]])
def test_a_linked_folder_is_not_an_entry(home: Path, part: str):
    (home / "cache" / part).parent.mkdir(parents=True, exist_ok=True)
    inner = home / "outside"
    (home / "cache" / part).symlink_to(inner)
    cache = NeuronCache(home / "cache")
    with pytest.raises(GraphgenError, match="it is a symbolic link"):
        keep(home)
    assert list(cache.entries()) == []
    entry = CacheEntry(home / "cache" / KEY.name(), "expired", None)
    with pytest.raises(GraphgenError, match="it is a symbolic link"):
        cache.remove_if_free(entry)
    assert outside(home) == MINE


def test_links_of_an_entry_are_not_exported(home: Path):
    folder = keep(home).folder
    (folder / "extra").symlink_to(home / "outside" / "file")
    (entry,) = NeuronCache(home / "cache").entries()
    other = NeuronCache(home / "other")
    assert other.take(entry)
    (taken,) = other.entries()
    assert sorted(path.name for path in taken.folder.iterdir()) == FILES


@pytest.mark.parametrize("name", ["graphgen.json", "compile_flags.json", LOCK])
def test_a_reader_does_not_wait_for_a_pipe(home: Path, name: str):
    folder = keep(home).folder
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    NeuronCache(home / "cache").find(KEY)
    assert [entry.state for entry in NeuronCache(home / "cache").entries()] == ["done"]


def test_a_record_names_files_of_the_entry(home: Path):
    (home / "model.neff").write_bytes(small_neff())
    shutil.copy(home / "model.neff", home / "outside")
    found = damage(home, CacheRecord(digests={"../outside/file": "0" * 64}))
    assert found == "'../outside/file' is not the name of a file inside of the folder"


def test_the_cache_of_another_user_is_not_used(home: Path, monkeypatch: pytest.MonkeyPatch):
    entry = keep(home)
    give_away(home / "cache", monkeypatch)
    cache = NeuronCache(home / "cache")
    (home / "hlo").write_bytes(b"hlo")
    calls: list[Callable[[], object]] = [
        lambda: cache.find(KEY),
        lambda: list(cache.entries()),
        lambda: cache.put(KEY, home / "hlo", home / "neff", CacheRecord()),
        lambda: cache.remove_if_free(entry),
        lambda: cache.take(entry),
        lambda: cache.locked(KEY, lambda: None).__enter__(),
        lambda: cache.of_other_tools(KEY.version, KEY.flags),
    ]
    for call in calls:
        with pytest.raises(GraphgenError, match="belongs to another user") as caught:
            call()
        assert caught.value.code == "GG0703"
    assert cache.measured(KEY.module) == 0


def test_links_out_of_an_entry_are_not_read(home: Path):
    entry = keep(home)
    for name in (NEFF, MODULE, RECORD):
        path = entry.folder / name
        kept = path.read_bytes()
        path.rename(home / "outside" / name)
        path.symlink_to(home / "outside" / name)
        found = NeuronCache(home / "cache").find(KEY)
        # Without its record it is as one of another tool, whose HLO is compared.
        assert found is None if name != RECORD else found is not None and not found.is_bound
        path.unlink()
        path.write_bytes(kept)
        assert NeuronCache(home / "cache").find(KEY) is not None


def test_the_default_cache_is_of_this_user_alone(home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shared_cache, "DEFAULT_ROOT", str(home / "default"))
    (home / "hlo").write_bytes(b"hlo")
    (home / "neff").write_bytes(small_neff())
    for _ in range(2):
        open_cache("").put(KEY, home / "hlo", home / "neff", CacheRecord())
    assert (home / "default").stat().st_mode & 0o777 == 0o700
    (home / "default").chmod(0o777)
    with pytest.raises(GraphgenError, match="can be written by every user") as caught:
        open_cache("").find(KEY)
    assert caught.value.code == "GG0703"
    assert "chmod o-w" in str(caught.value)


class Listing:
    """A store whose keys are any texts."""

    protocol = "s3"

    def ls(self, path: str, detail: bool = True) -> list[dict[str, object]]:
        del detail
        return [
            {"name": f"{path}/{name}", "size": 1} for name in ("a", "..", ".", "b\0", "c" * 300)
        ]

    def invalidate_cache(self, path: str | None = None) -> None:
        del path


def test_names_of_a_listing_are_plain(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cache_store, "_opened", lambda url: (Listing(), "bucket"))
    assert dict(CacheStore("s3://bucket").files("x")) == {"a": 1}


@pytest.mark.parametrize("target", ["file", "new"])
@pytest.mark.parametrize("name", [HLO, COMMAND])
def test_an_output_is_not_written_through_a_link(
    home: Path, planned: Callable[..., list[PlannedProgram]], name: str, target: str
):
    program = planned(home / "out", only="decode")[0]
    (program.folder / name).unlink()
    (program.folder / name).symlink_to(home / "outside" / target)
    with pytest.raises(GraphgenError, match="it is a symbolic link") as caught:
        planned(home / "out", only="decode")
    assert caught.value.code == "GG0703"
    assert outside(home) == MINE


def test_a_linked_folder_of_programs(home: Path, planned: Callable[..., list[PlannedProgram]]):
    (home / "out").mkdir()
    (home / "out" / "programs").symlink_to(home / "outside")
    with pytest.raises(GraphgenError, match="it is a symbolic link"):
        planned(home / "out", only="decode")
    assert outside(home) == MINE


def test_programs_are_compiled_without_the_cache_of_another_user(
    home: Path,
    planned: Callable[..., list[PlannedProgram]],
    driver: Callable[..., CompileDriver],
    monkeypatch: pytest.MonkeyPatch,
):
    (home / "cache").mkdir()
    give_away(home / "cache", monkeypatch)
    notes: list[Sequence[str]] = []
    made = driver(notes=notes).run(planned(home / "out", only="decode"))
    assert {item.origin for item in made} == {"compiled"}
    assert any("belongs to another user" in remark for _, _, remark in notes)
    assert list((home / "cache").iterdir()) == []
