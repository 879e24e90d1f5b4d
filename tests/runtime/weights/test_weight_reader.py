"""The end of a reader leaves out what no thread has begun to read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import CancelledError
from io import BufferedReader
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from graphgen.atomic_write import open_readable
from graphgen.runtime.weights import weight_reader
from graphgen.runtime.weights.aligned_safetensors import write_aligned
from graphgen.runtime.weights.weight_reader import WeightReader


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """One thread, which reads once this is set."""
    released = Event()

    def opened(root: Path, path: Path) -> BufferedReader:
        released.wait()
        return open_readable(root, path)

    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setattr(weight_reader, "open_readable", opened)
    yield released
    released.set()


def test_tensors_that_no_thread_has_begun_are_not_read_at_the_end(tmp_path: Path, held: Event):
    arrays = {name: np.arange(size, dtype=np.float32) for name, size in (("a", 8), ("b", 4))}
    path = tmp_path / "rank.safetensors"
    write_aligned(path, arrays, iter(arrays.values()))
    with WeightReader({path: None}) as reader:
        pass
    held.set()
    with pytest.raises(CancelledError):
        reader.arrays()
