"""From one layout to another: the steps taken, what they move, and what they do to the numbers."""

from __future__ import annotations

import itertools
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.eval import Array, evaluate_ranks, rank_index
from graphgen.ir import Function, Module, Sharding, replicated, sharding, tensor
from graphgen.ir.dtype import f32, s32
from graphgen.ir.sharding import parse_sharding
from graphgen.passes.sharding.mesh import Mesh, fits, local_shape, mesh_of
from graphgen.passes.sharding.op_factors import nominal
from graphgen.passes.sharding.reshard_ops import emit_step
from graphgen.passes.sharding.reshard_planner import ReshardPlanner, bytes_of
from graphgen.text.grammar import parse_type
from tests.oracles.layouts import sent

GRID = {"dp": 2, "tp": 4}
# Type, from, to; the steps, and the bytes one rank sends.
ROUTES = [
    ("f32[8,8]", "{-,-}", "{-,-}", "", 0),
    ("f32[8,8]", "{-,-}", "{tp,-}", "slice", 0),
    ("f32[8,8]", "{-,-}", "{tp,dp}", "slice slice", 0),
    ("f32[8,8]", "{tp,-}", "{-,-}", "all-gather", 3 * 64),
    # One collective along both axes moves no more than two, and is one less.
    ("f32[8,8]", "{dp*tp,-}", "{-,-}", "all-gather", 7 * 32),
    ("f32[8,8]", "{dp*tp,-}", "{dp,-}", "all-gather", 3 * 32),
    ("f32[8,8]", "{dp*tp,-}", "{tp,-}", "collective-permute all-gather", 32 + 32),
    ("f32[8,8]", "{-,-+tp}", "{-,-}", "all-reduce", 2 * 256 * 3 // 4),
    ("f32[8,8]", "{-,-+dp+tp}", "{-,-}", "all-reduce", 2 * 256 * 7 // 8),
    ("f32[8,8]", "{-,->tp}", "{-,-}", "all-reduce", 2 * 256 * 3 // 4),
    ("f32[8,8]", "{-,-+tp}", "{-,tp}", "reduce-scatter", 256 * 3 // 4),
    ("f32[8,8]", "{-,-+dp}", "{-,tp}", "slice all-reduce", 2 * 64 // 2),
    ("f32[8,8]", "{tp,-}", "{-,tp}", "all-to-all", 64 * 3 // 4),
    ("f32[8,8]", "{dp,-}", "{-,dp}", "all-to-all", 128 // 2),
    ("f32[8,8]", "{dp*tp,-}", "{tp*dp,-}", "collective-permute", 32),
    ("f32[8,8]", "{-,-}", "{-,-+tp}", "mask", 0),
    # Half of the rows is in the same place before and after.
    ("f32[8,8]", "{dp,-}", "{dp*tp,-}", "slice", 0),
    ("f32[3,8]", "{-,tp}", "{-,dp}", "slice all-gather", 0),
]  # fmt: skip


def names(type_: str, source: str, target: str) -> tuple[str, int]:
    routes = ReshardPlanner(Mesh(GRID))
    route = routes.find(parse_type(type_), parse_sharding(source), parse_sharding(target))
    assert route is not None
    return " ".join(step.kind for step in route.steps), bytes_of(route.cost) // 8


@pytest.mark.parametrize(("type_", "source", "target", "steps", "size"), ROUTES[:-1])
def test_the_steps_and_what_they_move(type_: str, source: str, target: str, steps: str, size: int):
    assert names(type_, source, target) == (steps, size)


def test_a_dimension_that_does_not_divide_is_gone_around():
    # {dp*tp} would be the way, but 4 columns are not cut into 8 parts.
    steps, _ = names("f32[4,4]", "{tp,-}", "{-,dp}")
    assert steps in ("slice all-gather", "all-gather slice")


def test_sums_of_two_kinds_never_meet():
    routes = ReshardPlanner(Mesh(GRID))
    source, target = parse_sharding("{->tp}"), parse_sharding("{-+dp}")
    assert routes.find(tensor(f32, (8,)), source, target) is None


def any_layout(random: Random, mesh: Mesh, rank: int, *, partial: bool) -> Sharding:
    dims: list[list[str]] = [[] for _ in range(rank)]
    owed: list[str] = []
    for axis in random.sample(list(mesh.axes), len(mesh.axes)):
        place = random.randint(-1, rank)
        if place == rank and partial:
            owed.append(axis)
        elif 0 <= place < rank:
            dims[place].append(axis)
    kind = random.choice(["add", "maximum", "minimum"])
    return sharding([tuple(axes) for axes in dims], owed, kind)


def parts_of(
    mesh: Mesh, whole: Array, layout: Sharding, random: np.random.Generator
) -> list[Array]:
    """What each rank has: its box of the whole, or numbers that combine to it."""
    out: list[Array] = []
    for rank in range(mesh.ranks):
        box = []
        for size, axes in zip(whole.shape, layout.dims, strict=True):
            part = size // mesh.size(axes)
            start = mesh.place(rank, axes) * part
            box.append(slice(start, start + part))
        out.append(whole[tuple(box)].copy())
    for rank in range(mesh.ranks if layout.partial else 0):
        first = mesh.place(rank, layout.partial) == 0
        if layout.kind == "add":
            others = [r for r in range(mesh.ranks) if r != rank and together(mesh, layout, rank, r)]
            if first:
                for other in others:
                    noise = random.integers(-9, 9, out[rank].shape).astype(np.float32)
                    out[other] = noise
                    out[rank] = out[rank] - noise
        elif not first:
            worse = -50.0 if layout.kind == "maximum" else 50.0
            out[rank] = np.full_like(out[rank], worse)
    return out


def together(mesh: Mesh, layout: Sharding, one: int, other: int) -> bool:
    """Whether two ranks differ along the owed axes only."""
    rest = tuple(axis for axis in mesh.axes if axis not in layout.partial)
    return mesh.place(one, rest) == mesh.place(other, rest)


def joined(mesh: Mesh, parts: list[Array], layout: Sharding, shape: tuple[int, ...]) -> list[Array]:
    """The whole, as each set of ranks that have all of it together sees it."""
    combine = {"add": np.add, "maximum": np.maximum, "minimum": np.minimum}[layout.kind]
    spare = tuple(a for a in mesh.axes if a not in layout.axes and a not in layout.partial)
    out: list[Array] = []
    for copy in range(mesh.size(spare)):
        whole = np.full(shape, np.nan, np.float32)
        for rank, part in enumerate(parts):
            if mesh.place(rank, spare) != copy:
                continue
            box = []
            for size, axes in zip(shape, layout.dims, strict=True):
                local = size // mesh.size(axes)
                start = mesh.place(rank, axes) * local
                box.append(slice(start, start + local))
            there = whole[tuple(box)]
            whole[tuple(box)] = part if np.isnan(there).any() else combine(there, part)
        out.append(whole)
    return out


@given(
    random=st.randoms(use_true_random=False),
    axes=st.sampled_from(
        [{"tp": 4}, {"dp": 2, "tp": 2}, {"dp": 2, "tp": 4}, {"a": 2, "b": 2, "c": 2}]
    ),
)
def test_what_arrives_is_what_was_sent(random: Random, axes: dict[str, int]):
    mesh = Mesh(axes)
    type_ = tensor(f32, [random.choice([2, 4, 8]) for _ in range(random.randint(1, 3))])
    source = any_layout(random, mesh, type_.rank, partial=True)
    target = any_layout(random, mesh, type_.rank, partial=random.random() < 0.3)
    if not (fits(mesh, type_, source) and fits(mesh, type_, target)):
        return
    routes = ReshardPlanner(mesh)
    route = routes.find(type_, source, target)
    if route is None:
        assert target.partial
        assert target.kind != "add" or source.partial
        return
    module = Module("m", "sharded", axes)
    function = module.add(Function("f"))
    rank = function.block.add_arg(tensor(s32, (1,)), "rank")
    x = function.block.add_arg(tensor(f32, local_shape(mesh, type_, source)), "x")
    y, b = x, Builder(function)
    for step in route.steps:
        y = emit_step(b, mesh, rank, y, step)
        assert y.shape == local_shape(mesh, type_, step.after)
    function.outputs = [("y", y)]
    numbers = np.random.default_rng(random.randint(0, 99))
    whole = numbers.integers(-9, 9, type_.dims).astype(np.float32)
    parts = parts_of(mesh, whole, source, numbers)
    out = evaluate_ranks(
        function, [{"rank": rank_index(r), "x": part} for r, part in enumerate(parts)]
    )
    for seen in joined(mesh, [o["y"] for o in out], target, type_.dims):
        np.testing.assert_array_equal(seen, whole)
    # The price was that of the program.
    assert bytes_of(route.cost) == sent(module, function, 0)


def test_groups_and_places():
    mesh = Mesh(GRID)
    assert mesh.groups(("tp",)) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert mesh.groups(("dp",)) == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert mesh.groups(("dp", "tp")) == (tuple(range(8)),)
    # The last axis named runs fastest, whatever the order of the mesh.
    assert mesh.groups(("tp", "dp")) == ((0, 4, 1, 5, 2, 6, 3, 7),)
    for axes in itertools.chain.from_iterable(itertools.permutations(GRID, n) for n in (1, 2)):
        for group in mesh.groups(axes):
            assert [mesh.place(rank, axes) for rank in group] == list(range(len(group)))


@pytest.mark.parametrize("axes", [("dp",), ("tp",), ("dp", "tp"), ("tp", "dp")])
def test_a_rank_finds_its_place(axes: tuple[str, ...]):
    mesh = Mesh(GRID)
    function = Function("f")
    rank = function.block.add_arg(tensor(s32, (1,)), "rank")
    function.outputs = [("y", mesh.coordinate(Builder(function), rank, axes))]
    out = evaluate_ranks(function, [{"rank": rank_index(r)} for r in range(8)])
    assert [int(o["y"]) for o in out] == [mesh.place(r, axes) for r in range(8)]


def test_an_axis_has_at_least_one_rank():
    with pytest.raises(GraphgenError, match="mesh axis tp=0 must be at least 1"):
        mesh_of({"tp": 0})


def test_sizes_that_are_not_known_yet_count_as_some_number():
    type_ = parse_type("f32[B,2*S+1,4]")
    assert [nominal(size) for size in type_.shape] == [8, 17, 4]
    assert replicated(3).text == "{-,-,-}"
