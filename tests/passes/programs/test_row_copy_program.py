"""The program that copies a row of a cache: one meaning, whatever the states look like."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Module, Role, entry, tensor
from graphgen.ir.dtype import s32
from graphgen.ops import verify
from graphgen.passes.equiv.equiv import equivalent
from graphgen.passes.equiv.paired_run import CompareOptions
from graphgen.passes.programs.cache_programs import row_copy_module
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.model import build_model
from graphgen.runtime.session.devices import has_rows_first
from tests.oracles.llama import write_llama


def copies(folder: Path, tp: int) -> Module:
    config = CompileConfig(batch=(2,), rows=4, context=(8,), tokens=(16,), tp=tp)
    module = row_copy_module(build_model(open_checkpoint(folder).config, config).module)
    verify(module)
    return module


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Module]:
    folder = tmp_path_factory.mktemp("llama")
    write_llama(folder)
    return {tp: copies(folder, tp) for tp in (1, 2)}


@pytest.mark.parametrize(("source", "target"), [(0, 3), (2, 1), (1, 1)])
def test_one_row_becomes_another_and_the_rest_stays(
    modules: dict[int, Module], source: int, target: int
):
    rng = np.random.default_rng(0)
    states = {
        row.name: rng.normal(size=row.physical.dims).astype(np.float32)
        for row in modules[1].entries(Role.STATE)
    }
    places = {"source": np.int32(source), "target": np.int32(target)}
    made = modules[1].evaluate({**states, **places})
    for name, before in states.items():
        expected = before.copy()
        expected[target] = before[source]
        np.testing.assert_array_equal(np.asarray(made[name]), expected)


def test_caches_over_two_ranks_mean_the_same(modules: dict[int, Module]):
    found = equivalent(modules[1], modules[2])
    assert found.equal
    assert not found.empty


def test_a_copy_of_the_wrong_row_is_found(modules: dict[int, Module]):
    from graphgen.text import parse, print_module

    text = print_module(modules[2], locs=False)
    wrong = parse(text.replace("k_cache, %source,", "k_cache, %target,", 1))
    rows = {"source": np.array(1, np.int32), "target": np.array(0, np.int32)}
    assert not equivalent(modules[1], wrong, CompareOptions(inputs=rows)).equal


def test_rows_of_blocks_are_not_copied(tmp_path: Path):
    write_llama(tmp_path)
    config = CompileConfig(batch=(2,), rows=2, context=(8,), tokens=(16,))
    plain = build_model(open_checkpoint(tmp_path).config, config).module
    assert has_rows_first(plain, 2)
    table = entry(Role.LAYOUT, "block_table", tensor(s32, (2, 1)))
    plain.interface[table.name] = table
    assert not has_rows_first(plain, 2)
