"""Caches at URLs: whole after an end between any two writes, and however two writers interleave."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from graphgen.errors import GraphgenError
from graphgen.lowering.compile_cache.cache_entry import CacheRecord
from graphgen.lowering.compile_cache.cache_store import CacheStore
from graphgen.lowering.compile_cache.neuron_cache import NeuronCache
from graphgen.lowering.compile_cache.shared_cache import SharedCache, open_cache
from graphgen.lowering.neuronx_cc.driver import CompileDriver
from graphgen.lowering.neuronx_cc.program_plan import PlannedProgram
from tests.fake_compiler.fake_neuron import FakeNeuron
from tests.lowering.neuron.small_neff import small_neff
from tests.lowering.neuron.test_neuron_cache import KEY

URL = "faulty://bucket/cache"


class FaultySystem(MemoryFileSystem):
    """A store in memory whose n-th change is preceded by an event."""

    protocol = ("faulty", "memory")
    store: dict[str, object] = {}  # noqa: RUF012 - as its base has it
    pseudo_dirs: list[str] = [""]  # noqa: RUF012
    left = -1
    events: list[Callable[[], None]] = []  # noqa: RUF012

    def _step(self) -> None:
        cls = type(self)
        cls.left -= 1
        if cls.left == -1 and cls.events:
            cls.events.pop()()

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: object):
        self._step()
        super().pipe_file(path, value, mode, **kwargs)

    def rm_file(self, path: str):
        self._step()
        super().rm_file(path)

    def mv(self, path1: str, path2: str, *args: Any, **kwargs: Any):
        self._step()
        super().mv(path1, path2, *args, **kwargs)


class RenamingSystem(FaultySystem):
    """The same store, whose files are not there at once."""

    protocol = "renaming"


@pytest.fixture(autouse=True)
def store() -> Iterator[None]:
    fsspec.register_implementation("faulty", FaultySystem, clobber=True)
    fsspec.register_implementation("renaming", RenamingSystem, clobber=True)
    for system in (FaultySystem, RenamingSystem):
        system.left = -1
    FaultySystem.store.clear()
    FaultySystem.pseudo_dirs[:] = [""]
    yield
    FaultySystem.store.clear()


def shared(mirror: Path, url: str = URL) -> SharedCache:
    return SharedCache(CacheStore(url), mirror)


def keep(root: Path, text: bytes = b"one", url: str = URL) -> None:
    """Keep a compilation as a machine with an empty mirror does."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "hlo").write_bytes(b"hlo of " + text)
    (root / "neff").write_bytes(small_neff(text))
    cache = shared(root / "mirror", url)
    with cache.locked(KEY, lambda: None):
        cache.put(KEY, root / "hlo", root / "neff", CacheRecord("p", seconds=1.0))


def test_another_machine_finds_a_compilation(tmp_path: Path):
    keep(tmp_path / "a")
    found = shared(tmp_path / "b").find(KEY)
    assert found is not None
    assert (found.folder / "model.neff").read_bytes() == small_neff(b"one")
    names = sorted(name.rpartition("/")[2] for name in FaultySystem.store)
    assert names == [
        *("compile_flags.json", "graphgen.json"),
        *("model.done", "model.hlo_module.pb", "model.neff"),
    ]
    # The store's own files are compared with their checksums.
    path = next(name for name in FaultySystem.store if name.endswith("model.neff"))
    FaultySystem().pipe_file(path, small_neff(b"other"))
    assert shared(tmp_path / "c").find(KEY) is None
    keep(tmp_path / "d", b"two")
    found = shared(tmp_path / "e").find(KEY)
    assert found is not None
    assert (found.folder / "model.neff").read_bytes() == small_neff(b"two")


def test_failures_are_shared_and_give_way_to_programs(tmp_path: Path):
    (tmp_path / "hlo").write_bytes(b"hlo")
    record = CacheRecord("p", failure={"program": "p"}, expires=4e9)
    shared(tmp_path / "a").put_failure(KEY, tmp_path / "hlo", "ERROR", record)
    found = shared(tmp_path / "b").find(KEY)
    assert found is not None
    assert found.state == "failed"
    assert (found.folder / "model.log").read_text() == "ERROR"
    keep(tmp_path / "c")
    found = shared(tmp_path / "d").find(KEY)
    assert found is not None
    assert found.state == "done"
    # A machine that failed later does not take the program away.
    shared(tmp_path / "e").put_failure(KEY, tmp_path / "hlo", "ERROR", record)
    found = shared(tmp_path / "f").find(KEY)
    assert found is not None
    assert found.state == "done"


def moments(url: str, tmp_path: Path, event: Callable[[Path], None]) -> Iterator[Path]:
    """A folder for each change of a writer, which ``event`` preceded."""
    system = RenamingSystem if url.startswith("renaming") else FaultySystem
    for moment in range(100):
        FaultySystem.store.clear()
        folder = tmp_path / str(moment)
        system.left, system.events[:] = moment, [lambda folder=folder: event(folder)]
        with suppress(GraphgenError):
            keep(folder / "first", url=url)
        happened = system.left < 0
        system.left = -1
        if not happened:
            assert moment > 4
            return
        yield folder
    pytest.fail("a writer that never ends")


@pytest.mark.parametrize(
    "url", [URL, pytest.param("renaming://bucket/cache", marks=pytest.mark.slow)]
)
def test_an_end_between_any_two_writes(url: str, tmp_path: Path):
    def fail(folder: Path) -> None:
        raise OSError("the network is gone")

    for folder in moments(url, tmp_path, fail):
        found = shared(folder / "reader", url).find(KEY)
        assert found is None or not found.damage()
        keep(folder / "second", b"two", url)
        found = shared(folder / "later", url).find(KEY)
        assert found is not None
        assert not found.damage()


@pytest.mark.parametrize(
    "url", [URL, pytest.param("renaming://bucket/cache", marks=pytest.mark.slow)]
)
def test_two_writers_in_any_order(url: str, tmp_path: Path):
    # The second one writes all of its files between two writes of the first.
    for folder in moments(url, tmp_path, lambda folder: keep(folder / "other", b"two", url)):
        found = shared(folder / "reader", url).find(KEY)
        if url == URL:
            assert found is not None, folder
        # Without conditional writes they may disagree: no reader takes that.
        assert found is None or not found.damage()
        keep(folder / "third", b"three", url)
        assert shared(folder / "last", url).find(KEY) is not None


def test_the_cache_of_a_url_is_looked_after(tmp_path: Path):
    keep(tmp_path / "a")
    cache = shared(tmp_path / "b")
    (entry,) = cache.entries()
    assert (entry.state, entry.version) == ("done", "2.27.5334.0+abc")
    assert entry.nbytes > 1000
    assert not entry.folder.exists(), "a listing copies no NEFF"
    assert not entry.damage()
    assert cache.unused_days(entry) < 1
    local = NeuronCache(tmp_path / "local")
    assert local.take(entry)
    assert not local.take(entry)
    FaultySystem.store.clear()
    (kept,) = local.entries()
    assert cache.take(kept)
    assert not cache.take(kept)
    (entry,) = cache.entries()
    assert cache.remove_if_free(entry)
    assert not [*cache.entries()]
    assert cache.find(KEY) is None


def test_a_driver_uses_the_store_and_does_without_it(
    tmp_path: Path,
    fake: FakeNeuron,
    driver: Callable[..., CompileDriver],
    planned: Callable[..., list[PlannedProgram]],
):
    programs = planned(tmp_path / "out", only="prefill")

    def run(mirror: str) -> tuple[str, list[str]]:
        notes: list[tuple[str, str, str]] = []
        made = driver(notes=notes)
        made.cache = shared(tmp_path / mirror)
        (result,) = made.run(programs)
        return result.origin, [text for _, state, text in notes if state == "note"]

    assert run("a") == ("compiled", [])
    assert run("b") == ("cache", [])

    def fail() -> None:
        raise OSError("no credentials")

    FaultySystem.store.clear()
    FaultySystem.left, FaultySystem.events[:] = 0, [fail]
    origin, notes = run("c")
    assert origin == "compiled"
    assert "not kept in the cache: cannot write 'faulty://bucket/cache" in notes[0]
    assert "no credentials" in notes[0]


def test_urls_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert open_cache("memory://cache").root.is_relative_to(tmp_path)
    assert open_cache(f"file://{tmp_path}/x").root == tmp_path / "x"
    with pytest.raises(GraphgenError, match="cannot be opened") as caught:
        open_cache("nonsense://x")
    assert caught.value.code == "GG0705"
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(GraphgenError, match="fsspec is not installed") as caught:
        open_cache("s3://bucket/x")
    assert caught.value.help == "pip install 'graphgen-compiler[cache]'"
