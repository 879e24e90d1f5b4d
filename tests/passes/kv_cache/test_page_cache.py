"""Caches in blocks: what programs compute over default, permuted, shared and sparse tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.exec.session import ProgramCall, Runner, Workload
from graphgen.exec.weights import default_layouts
from graphgen.ir import Module, Role, dtype
from graphgen.models import SHAPES, build, known_shape
from graphgen.models.registry import BUILT_IN, FAMILIES
from graphgen.passes.core import run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.equiv.deviation import compare
from graphgen.passes.equiv.equiv import equivalent
from graphgen.passes.kv_cache.page_cache import PageCache
from graphgen.passes.kv_cache.paged_layout import BLOCK_TABLE
from graphgen.passes.pipelines import parse as pipeline
from graphgen.passes.validate import validate
from graphgen.passes.workload.layout_tables import permuted
from graphgen.passes.workload.make_workload import WorkloadSizes, make_workload
from graphgen.text import parse, print_module

SIZES = "batch=[3],context=[8],tokens=[8,16]"
SHAPE_OF = {str(known_shape(name)["model_type"]): name for name in reversed(list(SHAPES))}


def model(name: str = "llama-3.1-8b", kind: str = "f32") -> Module:
    return build(known_shape(name), dtype(kind), mini=True)


def specialized(name: str = "llama-3.1-8b", options: str = SIZES) -> Module:
    module = model(name)
    run_pipeline(module, pipeline(f"canonicalize,specialize{{{options}}}"))
    return module


def wrong(module: Module, passes: str, script: Workload) -> list[str]:
    """The passes of a pipeline that change what the module computes."""
    verdicts = validate(module, pipeline(passes), script)
    assert any(verdict.pass_text.startswith(PageCache.name) for verdict in verdicts)
    return [verdict.pass_text for verdict in verdicts if not verdict.passed]


@pytest.mark.parametrize("tp", [1, 2, 3])
@pytest.mark.parametrize("family", [name for name in FAMILIES if name in BUILT_IN])
@pytest.mark.one_in(55)
def test_every_family_on_any_ranks(family: str, tp: int):
    module = model(SHAPE_OF[family])
    script = make_workload(module, 3, WorkloadSizes(3, 8, 8, 16))
    options = f"tp={tp},{SIZES},page_cache={(4, 5, 16)[tp - 1]}"
    assert wrong(module, f"default{{{options}}}", script) == []


FULL = {
    "an accelerator": "default{tp=2,target=trn1,page_cache=4,%s}",
    "a 16-bit type": "default{page_cache=4,%s}",
    "gathered heads": "default{tp=4,heads=ALL_GATHER_HEADS,page_cache=4,%s}",
    "outlined": "default{outline=true,page_cache=4,%s}",
    "prompts in parts": "default{chunk=[4],page_cache=4,%s}",
}


@pytest.mark.parametrize("features", FULL)
@pytest.mark.one_in(3)
def test_the_way_to_a_target(features: str):
    module = model(kind="bf16" if features == "a 16-bit type" else "f32")
    script = make_workload(module, 7, WorkloadSizes(3, 8, 8, 16))
    assert wrong(module, FULL[features] % SIZES, script) == []


@pytest.mark.parametrize("rows", ["in_place=true", "in_place=false"])
def test_rows_of_a_call_are_rows_of_the_cache_or_are_looked_up(rows: str):
    module = specialized(options=f"{SIZES},{rows}")
    script = make_workload(module, 5, WorkloadSizes(3, 8, 8, 16), shuffled=True)
    assert wrong(module, "page-cache{block=4}", script) == []


def test_states_are_blocks_and_the_table_is_an_input():
    module = specialized()
    run_pipeline(module, [PageCache(block=4)])
    for row in module.entries(Role.STATE):
        assert row.physical.dims[:2] == (12, 4)
        assert row.logical.dims[:2] == (3, 16)
    (table,) = module.entries(Role.LAYOUT)
    assert table.logical.text == "s32[3,4]"
    assert default_layouts(module)[BLOCK_TABLE].tolist() == np.arange(12).reshape(3, 4).tolist()
    assert all(function.arg(BLOCK_TABLE) is not None for function in module.programs())
    text = print_module(module)
    assert print_module(parse(text)) == text


def feed(phase: str, spans: Sequence[tuple[int, int]], tokens: Array, attended: int) -> ProgramCall:
    """A call in which row b gets ``tokens[b]`` at the positions ``spans[b]``; idle where empty."""
    rows, width = len(spans), tokens.shape[1]
    positions = np.full((rows, width), -1, np.int32)
    for row, (start, stop) in enumerate(spans):
        positions[row, : stop - start] = np.arange(start, stop)
    on = [stop > start for start, stop in spans]
    inputs: dict[str, Array] = {
        "tokens": tokens.astype(np.int32),
        "positions": positions,
        "lengths": np.where(on, [stop for _, stop in spans], 0).astype(np.int32),
        "seq_ids": np.where(on, np.arange(rows), rows).astype(np.int32),
    }
    dims = {"R": rows, "M": 16, "B": rows, "S": width, "C": attended}
    return ProgramCall(phase, dims, inputs, tuple(row for row in range(rows) if on[row]))


def prompts(shared: int) -> tuple[ProgramCall, ...]:
    """Rows 0 and 2 have the same first tokens; then each goes on alone, row 1 is idle at times."""
    rng = np.random.default_rng(3)
    tokens = rng.integers(0, 257, (3, 8))
    tokens[2, :shared] = tokens[0, :shared]
    calls = [feed("prefill", [(0, 7), (0, 2), (0, 6)], tokens, 8)]
    for step in range(3):
        spans = [(7 + step, 8 + step), (2, 3) if step == 1 else (0, 0), (6 + step, 7 + step)]
        calls.append(feed("decode", spans, rng.integers(0, 257, (3, 1)), 16))
    return tuple(calls)


# Blocks of four slots for rows of 10, 3 and 9 positions; -1 where a row is never that long.
TABLES: Mapping[str, tuple[int, Sequence[Sequence[int]]]] = {
    "permuted": (12, [[7, 2, 11, 0], [3, 9, 1, 5], [10, 4, 8, 6]]),
    "sparse": (12, [[7, 2, 11, -1], [3, -1, -1, -1], [10, 4, 8, -1]]),
    "oversubscribed": (7, [[6, 2, 0, -1], [3, -1, -1, -1], [1, 5, 4, -1]]),
    "shared": (6, [[5, 2, 0, -1], [3, -1, -1, -1], [5, 1, 4, -1]]),
}


def run_with(table: str) -> tuple[Workload, Module, Module]:
    blocks, rows = TABLES[table]
    module = specialized()
    weights = make_workload(module, 9).weights
    layouts = {BLOCK_TABLE: np.array(rows, np.int32)}
    script = Workload(weights, prompts(shared=4), {"R": 3, "M": 16}, {}, layouts)
    paged = parse(print_module(module))
    run_pipeline(paged, [PageCache(block=4, blocks=blocks)])
    return script, module, paged


@pytest.mark.parametrize("table", TABLES)
def test_outputs_and_states_do_not_depend_on_the_table(table: str):
    script, module, paged = run_with(table)
    plain, found = (Runner(each, script).outcomes() for each in (module, paged))
    assert compare(plain, found).relative < 1e-12
    state = found[-1][module.entries(Role.STATE)[0].name]
    missing = np.repeat(script.layouts[BLOCK_TABLE] < 0, 4, axis=1)
    assert (np.ma.getmaskarray(state)[..., 0, 0] == missing).all()


def test_a_state_given_is_packed_by_the_table():
    script, module, paged = run_with("sparse")
    rng = np.random.default_rng(4)
    states = {
        row.name: rng.standard_normal(row.logical.bind({"R": 3, "M": 16}).dims)
        for row in module.entries(Role.STATE)
    }
    script = replace(script, states=states, calls=script.calls[1:])
    plain, found = (Runner(each, script).outcomes() for each in (module, paged))
    assert compare(plain, found).relative < 1e-12


def test_rows_that_share_a_block_and_differ_are_found():
    script, module, paged = run_with("shared")
    script = replace(script, calls=prompts(shared=3))
    plain, found = (Runner(each, script).outcomes() for each in (module, paged))
    assert compare(plain, found).relative > 1e-3


def test_fewer_blocks_than_all_rows_need_serve_all_rows_alike():
    module = specialized()
    run_pipeline(module, [PageCache(block=4, blocks=8)])
    assert default_layouts(module)[BLOCK_TABLE].tolist() == [
        [0, 3, -1, -1],
        [1, 4, -1, -1],
        [2, 5, -1, -1],
    ]


# A block of another row is read, or written; the slot in the block is that of another position.
PLANTED = {
    "read": ("divide(%positions, ", "add(%positions, "),
    "the interface": ("dimension=0 : s32[3,4]", "dimension=1 : s32[3,4]"),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_modules_are_equivalent_and_one_with_a_mistake_is_not(planted: str):
    module, paged = specialized(), specialized()
    run_pipeline(paged, [PageCache(block=4)])
    assert equivalent(module, paged).equal
    text, (right, mistaken) = print_module(paged), PLANTED[planted]
    assert right in text
    assert not equivalent(module, parse(text.replace(right, mistaken))).equal


def test_validation_permutes_tables_and_leaves_out_blocks_that_no_call_needs():
    module = specialized()
    script = replace(make_workload(module, 9), calls=prompts(shared=0))
    assert permuted(module, script) is None
    run_pipeline(module, [PageCache(block=4)])
    other = permuted(module, script)
    assert other is not None
    table = other.layouts[BLOCK_TABLE]
    assert (table >= 0).sum(1).tolist() == [3, 1, 3]
    used = table[table >= 0].tolist()
    assert len(set(used)) == 7
    assert used != sorted(used)


def test_a_cache_that_is_read_otherwise_stays_as_it_is():
    module = specialized()
    text = print_module(module)
    name = module.entries(Role.STATE)[0].name
    text = text.replace(
        "  return logits", f"  %z = negate(%{name}) : f32[3,16,2,8]\n  return logits"
    )
    module = parse(text)
    run_pipeline(module, [PageCache(block=4)], journal=(journal := Journal()))
    plain = [row.name for row in module.entries(Role.STATE) if row.physical is row.logical]
    assert plain == [name]
    miss = journal.nearest("page-state")
    assert miss is not None
    assert miss.why.reason == "negate reads it as plain rows"


REFUSED = {
    "mistral-7b": ("roll-window-cache,page-cache{block=4}", "is a ring of 6 slots"),
    "llama-3.1-8b": ("page-cache{block=0}", "block=0, blocks=0"),
    "qwen3-8b": ("page-cache{block=4,blocks=2}", "2 blocks for 3 rows"),
    "gpt2": ("page-cache,page-cache", "there is a block_table already"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_paged_is_refused_by_name(name: str):
    passes, words = REFUSED[name]
    with pytest.raises(GraphgenError, match=words):
        run_pipeline(specialized(name), pipeline(passes))


def test_rows_divided_among_ranks_are_refused():
    passes = "default{tp=2,heads=SHARD_OVER_BATCH,batch=[4],context=[8],tokens=[8],page_cache=4}"
    with pytest.raises(GraphgenError, match="are divided among ranks"):
        run_pipeline(model("mistral-7b"), pipeline(passes))
