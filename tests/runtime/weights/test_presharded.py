"""Prepared weights in files: read as they are, refused where they do not fit, never half there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
from safetensors.numpy import load_file

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.model import BuiltModel, build_model
from graphgen.runtime.progress import Silent
from graphgen.runtime.weights.presharded import (
    MANIFEST,
    layout_hash,
    rank_file,
    read_shards,
    shard_weights,
)
from graphgen.runtime.weights.rank_weights import RankWeights, program_weights, read_weight
from tests.runtime.test_tp import write_mini


def built(folder: Path, tp: int = 2, dtype: str = "f32", max_len: int = 64) -> BuiltModel:
    return build_model(
        open_checkpoint(folder).config,
        CompileConfig(dtype=dtype, tp=tp).serving(batch=1, max_len=max_len),
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a model and of its shards, to be copied."""
    folder = tmp_path_factory.mktemp("written")
    (folder / "model").mkdir()
    write_mini(folder / "model")
    source = open_checkpoint(folder / "model")
    shard_weights(folder / "shards", built(folder / "model").module, source, Silent())
    return folder


@pytest.fixture
def checkpoint(tmp_path: Path, written: Path) -> Path:
    return copytree(written / "model", tmp_path / "model")


@pytest.fixture
def shards(tmp_path: Path, written: Path) -> Path:
    return copytree(written / "shards", tmp_path / "shards")


def test_files_hold_what_preparation_gives(checkpoint: Path, shards: Path):
    module = built(checkpoint).module
    source = open_checkpoint(checkpoint)
    weights = RankWeights(module, lambda row: read_weight(source, row))
    read = read_shards(shards, module, source)
    for rank in range(2):
        # Any reader of safetensors opens them.
        stored = load_file(rank_file(shards, rank))
        for row in program_weights(module):
            made = weights.on_rank(row, rank).array()
            np.testing.assert_array_equal(read[rank][row.name], made)
            np.testing.assert_array_equal(stored[row.name], made)


def test_programs_of_other_sizes_read_the_same_files(checkpoint: Path, shards: Path):
    other = built(checkpoint, max_len=512).module
    assert layout_hash(other) == layout_hash(built(checkpoint).module)
    read_shards(shards, other, open_checkpoint(checkpoint))


def test_a_layout_is_more_than_its_shapes(checkpoint: Path, shards: Path):
    module = built(checkpoint).module
    function = module.functions["weights.rank"]
    pair = next(
        (a, b)
        for index, (_, a) in enumerate(function.outputs)
        for _, b in function.outputs[index + 1 :]
        if a.type is b.type
    )
    swapped = {pair[0]: pair[1], pair[1]: pair[0]}
    function.outputs = [(name, swapped.get(value, value)) for name, value in function.outputs]
    with pytest.raises(GraphgenError, match=r"have layout [0-9a-f]{12}, the programs read"):
        read_shards(shards, module, open_checkpoint(checkpoint))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: built(folder, tp=1), "are for tp 2, the programs are for tp 1"),
        (
            lambda folder: built(folder, dtype="bf16"),
            r"have f32\[[\d,]+\] as .*, the programs read bf16\[",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_both_sides(
    checkpoint: Path, shards: Path, change: Callable[[Path], BuiltModel], message: str
):
    with pytest.raises(GraphgenError, match=message) as caught:
        read_shards(shards, change(checkpoint).module, open_checkpoint(checkpoint))
    assert caught.value.code == "GG0703"


def test_weights_of_another_checkpoint_are_refused(checkpoint: Path, shards: Path, tmp_path: Path):
    other = tmp_path / "other"
    other.mkdir()
    write_mini(other, rms_norm_eps=1e-3)
    message = "come from checkpoint [0-9a-f]{12}, this is [0-9a-f]{12}"
    with pytest.raises(GraphgenError, match=message):
        read_shards(shards, built(other).module, open_checkpoint(other))


def test_a_changed_file_is_refused(checkpoint: Path, shards: Path):
    file = rank_file(shards, 1)
    data = bytearray(file.read_bytes())
    data[-200] ^= 1
    file.write_bytes(data)
    message = r"tp1_sharded_checkpoint.safetensors is damaged: the tensor lm_head\.\S+ was changed"
    with pytest.raises(GraphgenError, match=message):
        read_shards(shards, built(checkpoint).module, open_checkpoint(checkpoint))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"tp": 2}'])
def test_a_damaged_manifest_is_refused(checkpoint: Path, shards: Path, text: str):
    (shards / MANIFEST).write_text(text)
    with pytest.raises(GraphgenError, match="cannot be read") as caught:
        read_shards(shards, built(checkpoint).module, open_checkpoint(checkpoint))
    assert caught.value.code == "GG0703"


def test_an_occupied_folder_is_left_alone(checkpoint: Path, shards: Path):
    before = json.loads((shards / MANIFEST).read_text())
    with pytest.raises(GraphgenError, match="exists"):
        shard_weights(shards, built(checkpoint).module, open_checkpoint(checkpoint), Silent())
    assert json.loads((shards / MANIFEST).read_text()) == before


KILLED = """
import os, signal, sys
from pathlib import Path
from graphgen.runtime.weights import aligned_safetensors
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.config.compile_config import CompileConfig
from graphgen.runtime.model import build_model
from graphgen.runtime.weights import presharded
from graphgen.runtime.progress import Silent

left = int(sys.argv[3])
def fsync(number):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
os.fsync = fsync
source = open_checkpoint(Path(sys.argv[1]))
module = build_model(source.config, CompileConfig(tp=2).serving(batch=1, max_len=64)).module
presharded.shard_weights(Path(sys.argv[2]), module, source, Silent())
"""


@pytest.mark.parametrize("syncs", [*[pytest.param(n, marks=pytest.mark.slow) for n in (0, 1)], 2])
def test_a_kill_leaves_nothing_that_is_ever_read(checkpoint: Path, tmp_path: Path, syncs: int):
    """Killed as each file is flushed: two ranks' and the manifest."""
    target = tmp_path / "killed"
    command = [sys.executable, "-c", KILLED, str(checkpoint), str(target), str(syncs)]
    ran = subprocess.run(command, env=dict(os.environ), check=False)
    assert ran.returncode == -signal.SIGKILL
    assert not target.exists()
    with pytest.raises(GraphgenError, match="cannot be read"):
        read_shards(target, built(checkpoint).module, open_checkpoint(checkpoint))
