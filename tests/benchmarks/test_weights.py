"""The benchmark of weights measures what it says."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import jax
import numpy as np
import pytest

from benchmarks.weights import CONFIG, SIDES, TP, How, measure, write_checkpoint
from graphgen.lowering.cpu import DeviceValue
from graphgen.lowering.cpu.pjrt import configure

SMALL: dict[str, object] = {
    **CONFIG,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "vocab_size": 96,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    configure(TP)
    path = tmp_path_factory.mktemp("checkpoint")
    write_checkpoint(path, SMALL)
    return path


def bits(array: jax.Array) -> bytes:
    return np.asarray(array).tobytes()


def test_both_sides_end_with_the_same_bytes_on_each_device(folder: Path):
    ours = cast("dict[str, DeviceValue]", SIDES["ours"](folder)())
    theirs = cast("list[list[jax.Array]]", SIDES["get_slice"](folder)())
    for rank, held in enumerate(theirs):
        mine = [
            bits(value.addressable_shards[rank].data)
            for name, value in ours.items()
            if name != "rank"
        ]
        assert sorted(mine) == sorted(map(bits, held))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("side", SIDES)
def test_every_side_is_measured(side: str, folder: Path):
    found = measure(side, folder, How(cold=True))
    assert found["seconds"] > 0
    assert set(found) == {"seconds", "cpu_s", "anonymous_mb"}
