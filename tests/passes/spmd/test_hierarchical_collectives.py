"""Collectives in stages: the same numbers on all ranks, and only where stages take less time."""

from __future__ import annotations

from collections import Counter
from math import prod

import numpy as np
import pytest
from hypothesis import given as given_values
from hypothesis import settings
from hypothesis import strategies as st

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.eval import MEANING, Array, evaluate_ranks, numpy_dtype
from graphgen.ir import Module, dtype
from graphgen.lowering.cpu import compile_program
from graphgen.models import build, known_shape
from graphgen.ops import verify
from graphgen.passes.core import run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.pipelines import default
from graphgen.passes.pipelines import parse as parse_pipelines
from graphgen.passes.spmd.hierarchical_collectives import HierarchicalCollectives
from graphgen.text import parse

# The ranks of a sum may be in any order.
MIXED = "replica_groups=[[0,4,1,5],[2,6,3,7]]"
ALL = "replica_groups=[[0,1,2,3,4,5,6,7]]"
HALVES = "replica_groups=[[0,1,4,5],[2,3,6,7]]"
OPS = {
    "sum": (f"all_reduce(%x) kind=add {ALL}", "f32[3,8]", "f32[3,8]"),
    "sum of groups": (f"all_reduce(%x) kind=maximum {HALVES}", "f32[2,3]", "f32[2,3]"),
    "sum of mixed groups": (f"all_reduce(%x) kind=add {MIXED}", "f32[2,4]", "f32[2,4]"),
    "gather": (f"all_gather(%x) dimension=1 {ALL}", "f32[3,2,5]", "f32[3,16,5]"),
    "gather of groups": (f"all_gather(%x) dimension=0 {HALVES}", "f32[3,2]", "f32[12,2]"),
    "scatter": (f"reduce_scatter(%x) kind=add dimension=1 {ALL}", "f32[3,16,2]", "f32[3,2,2]"),
    "exchange": (
        f"all_to_all(%x) split_dimension=1 concat_dimension=0 {ALL}",
        "f32[3,16]",
        "f32[24,2]",
    ),
    "exchange along one": (
        f"all_to_all(%x) split_dimension=1 concat_dimension=1 {HALVES}",
        "f32[3,8]",
        "f32[3,8]",
    ),
}

LARGE = "f32[1048576]"
# A line of a program, the types before and after it, and the ranks.
Use = tuple[str, str, str, int]


def module_of(line: str, given: str, made: str, ranks: int = 8) -> Module:
    body = f"  arg %x : {given}\n  %y = {line} : {made}\n  return y = %y\n"
    return parse(f"module @m level=sharded mesh=tp:{ranks} {{\n}}\n\nfunc @f {{\n{body}}}\n")


def values_of(module: Module, ranks: int) -> list[dict[str, Array]]:
    """Small integers, other ones for each rank: their sums are exact in every type."""
    dims = module.function("f").args[0].type.dims
    draws = [np.random.default_rng(rank).integers(-9, 9, dims) for rank in range(ranks)]
    return [{"x": drawn.astype(np.float32)} for drawn in draws]


@pytest.mark.parametrize("nodes", [2, 4])
@pytest.mark.parametrize("name", OPS)
def test_stages_give_the_same_on_every_rank(name: str, nodes: int):
    module, journal = module_of(*OPS[name]), Journal()
    given = values_of(module, 8)
    wanted = evaluate_ranks(module.function("f"), given, MEANING)
    run_pipeline(module, [HierarchicalCollectives(nodes=nodes, always=True)], journal=journal)
    assert len(journal.applications) == 1
    found = evaluate_ranks(module.function("f"), given, MEANING)
    for before, after in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(after["y"], before["y"])


@st.composite
def uses(draw: st.DrawFn) -> Use:
    """A collective over some axes of a random mesh of 4 to 12 ranks, in any order of its groups."""
    axes = draw(st.lists(st.sampled_from((2, 2, 3)), min_size=2, max_size=3))
    ranks = np.arange(prod(axes)).reshape(axes)
    over = draw(st.lists(st.integers(0, len(axes) - 1), min_size=1, unique=True))
    rest = [axis for axis in range(len(axes)) if axis not in over]
    groups = ranks.transpose([*rest, *over]).reshape(-1, prod(axes[axis] for axis in over))
    shared = groups.shape[1]
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    dim = draw(st.integers(0, len(sizes) - 1))
    kind = draw(st.sampled_from(("add", "maximum", "minimum")))
    name = draw(st.sampled_from(("all_reduce", "all_gather", "reduce_scatter", "all_to_all")))
    given, made, words = [*sizes], [*sizes], f"kind={kind}"
    if name == "all_gather":
        made[dim] *= shared
        words = f"dimension={dim}"
    elif name != "all_reduce":
        joined = draw(st.integers(0, len(sizes) - 1))
        given[dim] *= shared
        words = f"kind={kind} dimension={dim}"
        if name == "all_to_all":
            made[joined] *= shared
            words = f"split_dimension={dim} concat_dimension={joined}"
    of = draw(st.sampled_from(("f32", "bf16", "s32")))
    before, after = (f"{of}[{','.join(map(str, dims))}]" for dims in (given, made))
    text = str(groups.tolist()).replace(" ", "")
    return f"{name}(%x) {words} replica_groups={text}", before, after, ranks.size


@settings(max_examples=10, deadline=None)
@given_values(uses(), st.data())
def test_any_groups_in_stages_give_the_same(use: Use, data: st.DataObject):
    check_stages(use, data)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given_values(uses(), st.data())
def test_more_groups_in_stages_give_the_same(use: Use, data: st.DataObject):
    check_stages(use, data)


def check_stages(use: Use, data: st.DataObject) -> None:
    line, before, after, count = use
    nodes = data.draw(st.sampled_from([n for n in range(2, count) if count % n == 0]))
    module = module_of(line, before, after, count)
    given = values_of(module, count)
    wanted = evaluate_ranks(module.function("f"), given, MEANING)
    run_pipeline(module, [HierarchicalCollectives(nodes=nodes, always=True)])
    verify(module)
    found = evaluate_ranks(module.function("f"), given, MEANING)
    for one, other in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(other["y"], one["y"])


@pytest.mark.parametrize("of", ["f32", "bf16", "s32"])
@pytest.mark.parametrize("name", OPS)
@pytest.mark.one_in(5)
def test_stages_on_devices(name: str, of: str):
    line, before, after = (part.replace("f32", of) for part in OPS[name])
    module = module_of(line, before, after)
    given = values_of(module, 8)
    given = [{"x": np.asarray(row["x"], numpy_dtype(dtype(of)))} for row in given]
    wanted = evaluate_ranks(module.function("f"), given)
    run_pipeline(module, [HierarchicalCollectives(nodes=2, always=True)])
    module.level = "target"
    program = compile_program(module, module.function("f"))
    for one, other in zip(wanted, program.run_numpy(given), strict=True):
        np.testing.assert_array_equal(other["y"], one["y"])


@pytest.mark.parametrize(
    ("line", "size", "why"),
    [
        (f"all_reduce(%x) kind=add {ALL}", 6, "f32[6] does not divide over 4 ranks"),
        ("all_reduce(%x) kind=add replica_groups=[[0,1,2,3],[4,5,6,7]]", 8, "all ranks of a group"),
        ("all_reduce(%x) kind=add replica_groups=[[0,4],[1,5],[2,6],[3,7]]", 8, "has one rank of"),
        (f"all_reduce(%x) kind=add {ALL}", 8, "takes 30.0 us, in stages 33.0 us"),
    ],
)
def test_a_collective_that_stays(line: str, size: int, why: str):
    module, journal = module_of(line, f"f32[{size}]", f"f32[{size}]"), Journal()
    run_pipeline(module, [HierarchicalCollectives(target="trn2")], journal=journal)
    assert not journal.applications
    assert any(why in miss.why.reason for miss in journal.misses)


def test_stages_are_cheaper_for_large_sums():
    module, journal = module_of(f"all_reduce(%x) kind=add {ALL}", LARGE, LARGE), Journal()
    run_pipeline(module, [HierarchicalCollectives(target="trn2")], journal=journal)
    assert [op.name for op in module.function("f").block] == [
        *("reduce_scatter", "all_reduce", "all_gather")
    ]


@pytest.mark.parametrize(
    ("line", "given", "made", "why"),
    [
        (OPS["exchange"][0], "f32[3,16]", "f32[24,2]", "gloo has no ring for all_to_all"),
        (OPS["scatter"][0], "f32[3,16,2]", "f32[3,2,2]", "gloo has no ring for reduce_scatter"),
        (OPS["gather"][0].replace("1,2,3,4", "4,2,1,3"), "f32[3,2]", "f32[3,16]", "as many ranks"),
    ],
)
def test_what_gloo_does_in_no_ring_stays(line: str, given: str, made: str, why: str):
    module, journal = module_of(line, given, made), Journal()
    run_pipeline(module, [HierarchicalCollectives()], journal=journal)
    assert not journal.applications
    assert any(why in miss.why.reason for miss in journal.misses)


@pytest.mark.parametrize("name", ["sum", "sum of groups", "gather"])
def test_rings_of_gloo_become_stages(name: str):
    module, journal = module_of(*OPS[name]), Journal()
    run_pipeline(module, [HierarchicalCollectives()], journal=journal)
    assert len(journal.applications) == 1


def test_options_that_mean_nothing():
    with pytest.raises(GraphgenError, match="nodes=1 is below 2"):
        run_pipeline(module_of(*OPS["sum"]), [HierarchicalCollectives(nodes=1)])
    with pytest.raises(GraphgenError, match="3 nodes cannot share 8 ranks"):
        run_pipeline(module_of(*OPS["sum"]), [HierarchicalCollectives(nodes=3)])
    with pytest.raises(GraphgenError, match=r"3 nodes .* cannot share 8 ranks"):
        run_pipeline(module_of(*OPS["sum"]), [HierarchicalCollectives(nodes=3, target="trn2")])


def compiled(options: str) -> Module:
    module = build(known_shape("llama-3.2-1b"), dtype("f32"), mini=True)
    run_pipeline(module, parse_pipelines(f"small{{{options}}}"))
    return module


def test_an_option_of_compilations():
    one, two = compiled("tp=4"), compiled("tp=4,nodes=2")
    counts = [
        Counter(op.name for function in module.programs() for op in function.block)
        for module in (one, two)
    ]
    sums = counts[0]["all_reduce"]
    assert sums > 0
    assert counts[1]["all_reduce"] == counts[1]["reduce_scatter"] == sums
    assert counts[1]["all_gather"] == counts[0]["all_gather"] * 2 + sums
    groups = {
        op.attrs.groups("replica_groups")
        for op in two.programs()[0].block
        if op.name == "all_reduce"
    }
    assert groups == {((0, 2), (1, 3))}


@pytest.mark.parametrize(("tp", "nodes"), [(4, 3), (1, 2), (4, 0)])
def test_ranks_that_machines_cannot_share(tp: int, nodes: int):
    with pytest.raises(GraphgenError, match=f"nodes={nodes} machines cannot share tp={tp} ranks"):
        default(CompileConfig(tp=tp, nodes=nodes))
