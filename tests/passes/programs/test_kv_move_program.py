"""Programs that move slots and rows of a cache: one meaning, whatever the states look like."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Module, Role
from graphgen.ops import verify
from graphgen.passes.equiv.equiv import equivalent
from graphgen.passes.equiv.paired_run import CompareOptions
from graphgen.passes.programs.cache_programs import kv_move_module, row_order_module
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.model import build_model
from graphgen.text import parse, print_module
from tests.oracles.families import ORACLES, save

# Rows 2 and 0 take part; what is -1, or of a row that does not exist, stays.
MOVES = {
    "seq_ids": [2, 0, 4, 4],
    "from_slots": [[6, 4, -1], [5, 9, 16], [3, 3, 3], [0, 0, 0]],
    "to_slots": [[4, 5, 6], [9, -1, 3], [1, 2, 3], [1, 2, 3]],
}
GIVEN = CompareOptions(inputs={name: np.array(value, np.int32) for name, value in MOVES.items()})


def moves(folder: Path, **changes: object) -> Module:
    config = CompileConfig(batch=(2,), rows=4, context=(8,), tokens=(16,)).updated(changes)
    module = kv_move_module(build_model(open_checkpoint(folder).config, config).module, 3)
    verify(module)
    return module


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model")
    save(ORACLES["mistral"].model("a window"), made)
    return made


@pytest.fixture(scope="module")
def plain(folder: Path) -> Module:
    return moves(folder)


def test_slots_are_copied_at_once_and_the_rest_stays(plain: Module):
    rng = np.random.default_rng(0)
    states = {
        row.name: rng.normal(size=row.physical.dims).astype(np.float32)
        for row in plain.entries(Role.STATE)
    }
    made = plain.evaluate({**states, **{n: np.array(v, np.int32) for n, v in MOVES.items()}})
    for name, before in states.items():
        expected = before.copy()
        expected[2, 4], expected[2, 5], expected[0, 9] = before[2, 6], before[2, 4], before[0, 5]
        np.testing.assert_array_equal(np.asarray(made[name]), expected)


def test_caches_over_two_ranks_mean_the_same(plain: Module, folder: Path):
    found = equivalent(plain, moves(folder, tp=2), GIVEN)
    assert found.equal
    assert not found.empty


def test_a_move_of_the_wrong_slot_is_found(plain: Module):
    text = print_module(plain, locs=False)
    wrong = parse(text.replace(", %from_slots, ", ", %to_slots, ", 1))
    assert not equivalent(plain, wrong, GIVEN).equal


def test_blocks_are_found_by_their_table(plain: Module, folder: Path):
    paged = moves(folder, page_cache=4)
    rng, table = np.random.default_rng(1), np.random.default_rng(2).permutation(16).reshape(4, 4)
    rows = {
        row.name: rng.normal(size=row.logical.dims).astype(np.float32)
        for row in plain.entries(Role.STATE)
    }
    given = {name: np.array(value, np.int32) for name, value in MOVES.items()}
    blocks = dict[str, np.ndarray]()
    for name, cache in rows.items():
        blocks[name] = np.empty((16, 4, *cache.shape[2:]), np.float32)
        blocks[name][table.reshape(-1)] = cache.reshape(16, 4, *cache.shape[2:])
    expected = plain.evaluate({**rows, **given})
    made = paged.evaluate({**blocks, **given, "block_table": table.astype(np.int32)})
    for name, cache in rows.items():
        found = np.asarray(made[name])[table.reshape(-1)].reshape(cache.shape)
        np.testing.assert_array_equal(found, np.asarray(expected[name]))


def test_rings_are_turned(folder: Path):
    rolled = moves(folder, roll_window_cache=True)
    (ring,) = {row.last for row in rolled.entries(Role.STATE)}
    rng = np.random.default_rng(3)
    states = {
        row.name: rng.normal(size=row.physical.dims).astype(np.float32)
        for row in rolled.entries(Role.STATE)
    }
    made = rolled.evaluate({**states, **{n: np.array(v, np.int32) for n, v in MOVES.items()}})
    assert 2 < ring < 9
    for name, before in states.items():
        expected = before.copy()
        for row, source, target in ((2, 6, 4), (2, 4, 5), (0, 5, 9)):
            expected[row, target % ring] = before[row, source % ring]
        np.testing.assert_array_equal(np.asarray(made[name]), expected)


def test_rows_divided_among_ranks_are_refused(folder: Path):
    with pytest.raises(GraphgenError, match="are divided among ranks"):
        moves(folder, tp=2, heads="SHARD_OVER_BATCH", batch=(4,))


ORDER = np.array([2, 2, 0, 3], np.int32)


@pytest.mark.parametrize("changes", [{}, {"tp": 2}, {"roll_window_cache": True}])
def test_rows_become_others_at_once(folder: Path, changes: dict[str, object]):
    config = CompileConfig(batch=(2,), rows=4, context=(8,), tokens=(16,)).updated(changes)
    module = row_order_module(build_model(open_checkpoint(folder).config, config).module)
    verify(module)
    rng = np.random.default_rng(4)
    states = {
        row.name: rng.normal(size=row.physical.dims).astype(np.float32)
        for row in module.entries(Role.STATE)
    }
    made = module.evaluate({**states, "from_rows": ORDER})
    for name, before in states.items():
        np.testing.assert_array_equal(np.asarray(made[name]), before[ORDER])


def test_rows_keep_their_blocks(folder: Path):
    config = CompileConfig(batch=(2,), rows=4, context=(8,), tokens=(16,), page_cache=4)
    module = row_order_module(build_model(open_checkpoint(folder).config, config).module)
    rng, table = np.random.default_rng(1), np.random.default_rng(2).permutation(16).reshape(4, 4)
    states = {
        row.name: rng.normal(size=row.physical.dims).astype(np.float32)
        for row in module.entries(Role.STATE)
    }
    layout = {"from_rows": ORDER, "block_table": table.astype(np.int32)}
    made = module.evaluate({**states, **layout})
    for name, before in states.items():
        np.testing.assert_array_equal(np.asarray(made[name])[table], before[table[ORDER]])
