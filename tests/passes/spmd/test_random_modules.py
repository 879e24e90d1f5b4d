"""Random graphs with random layouts: all ranks together compute what one does, whatever was asked.

Arguments are inputs, weights and states; some of them, of the outputs and of the values in between
are asked to lie in some way over a mesh of up to eight ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

import graphgen.passes.pipelines  # noqa: F401
from graphgen.eval import MEANING
from graphgen.exec.session import Outcome, Runner, Workload
from graphgen.ir import Module, Role, Sharding, TensorType, entry, sharding
from graphgen.ops import verify
from graphgen.passes.core import run_pipeline
from graphgen.passes.equiv.deviation import compare
from graphgen.passes.sharding.mesh import Mesh, fits
from graphgen.passes.spmd.partition import Partition
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse, print_module
from tests.oracles.layouts import Exhaustive, sent
from tests.passes.test_random_graphs import Grower

MESHES: tuple[dict[str, int], ...] = (
    {"tp": 2},
    {"tp": 4},
    {"tp": 8},
    {"dp": 2, "tp": 2},
    {"dp": 2, "tp": 4},
    {"dp": 4, "tp": 2},
)
SIZES = (2, 4, 8, 8)
OPS = st.integers(1, 6)


def random_layout(random: Random, mesh: Mesh, type_: TensorType) -> Sharding | None:
    """A layout that divides, or that nobody has said any."""
    for _ in range(4):
        dims: list[list[str]] = [[] for _ in type_.shape]
        for axis in random.sample(list(mesh.axes), len(mesh.axes)):
            if dims and random.random() < 0.7:
                random.choice(dims).append(axis)
        made = sharding([tuple(axes) for axes in dims])
        if fits(mesh, type_, made):
            return None if made.replicated else made
    return None


ROLES = (Role.INPUT, Role.INPUT, Role.WEIGHT, Role.STATE)


def random_module(
    random: Random,
    axes: dict[str, int],
    ops: int,
    roles: Sequence[Role] = ROLES,
    within: float = 0.15,
) -> Module:
    """A program over random inputs, weights and states, with random layouts.

    Values in between are asked to lie in some way with the probability ``within``.
    """
    grower = Grower(random, SIZES, args=4)
    grower.grow(ops)
    module, function = grower.module, grower.function
    module.level, module.mesh, function.phase = "canonical", dict(axes), "decode"
    mesh = Mesh(axes)
    outputs = list(function.outputs)
    for value in function.args:
        role = random.choice(roles)
        row = entry(role, value.name or "", value.type)
        module.interface[row.name] = row
        if role is Role.STATE:
            same = [v for v in grower.values if v.type is value.type]
            outputs.append((row.name, random.choice(same)))
    for name, value in outputs:
        module.interface.setdefault(name, entry(Role.OUTPUT, name, value.type))
    function.outputs = outputs
    annotate_randomly(random, module, mesh, within)
    return module


def annotate_randomly(random: Random, module: Module, mesh: Mesh, within: float) -> None:
    for name, row in list(module.interface.items()):
        layout = random_layout(random, mesh, row.logical)
        if layout is not None and random.random() < 0.6:
            module.interface[name] = replace(row, sharding=layout)
    for function in module.programs():
        for op in function.block:
            for value in op.results:
                if random.random() < within:
                    value.sharding = random_layout(random, mesh, value.type)


def outcomes(module: Module, workload: Workload) -> list[Outcome]:
    return Runner(module, workload, arithmetic=MEANING).outcomes()


SEEDS = st.integers(0, 1 << 30)


AXES, MANY_OPS = st.sampled_from(MESHES), st.integers(1, 12)


@settings(
    max_examples=100, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate]
)
@given(seed=SEEDS, axes=AXES, ops=MANY_OPS)
# An index of a dimension that ranks divide: a part of it has other special indices than the whole.
@example(seed=6670371, axes={"dp": 2, "tp": 2}, ops=6)
def test_all_ranks_together_compute_what_one_does(seed: int, axes: dict[str, int], ops: int):
    assert_ranks_compute_the_same(seed, axes, ops)


@pytest.mark.slow
@settings(max_examples=300, deadline=None, derandomize=True, phases=[Phase.generate])
@given(seed=SEEDS, axes=AXES, ops=MANY_OPS)
def test_of_more_modules_too(seed: int, axes: dict[str, int], ops: int):
    assert_ranks_compute_the_same(seed, axes, ops)


def assert_ranks_compute_the_same(seed: int, axes: dict[str, int], ops: int) -> None:
    module = random_module(Random(seed), axes, ops)
    verify(module)
    text = print_module(module)
    whole = parse(text)
    whole.mesh = {}
    run_pipeline(module, [Partition()])
    # Special integers follow from the uses, which partitioning changes: both run the same calls.
    workload = make_workload(whole, seed % 100)
    found = compare(outcomes(whole, workload), outcomes(module, workload))
    assert found.relative <= 1e-9, f"{text}\n{print_module(module)}"


@pytest.mark.parametrize("latency", [0, 64])
@pytest.mark.one_in(2)
def test_little_more_is_sent_than_in_the_best_of_all_programs(latency: int):
    found = [
        beside_the_best(random, {"tp": random.choice([2, 4])}, random.randint(1, 6), latency)
        for random in map(Random, range(150))
    ]
    assert sum(size > 0 for size in found) > 50


@pytest.mark.parametrize("latency", [0, 64])
@pytest.mark.parametrize(
    "seeds", [range(10), pytest.param(range(10, 40), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_the_same_over_two_axes(seeds: range, latency: int):
    for random in map(Random, seeds):
        beside_the_best(random, {"dp": 2, "tp": random.choice([2, 4])}, 2, latency)


def beside_the_best(random: Random, axes: dict[str, int], ops: int, latency: int) -> int:
    """How much is sent in the partitioned program, which must be near the least possible."""
    module = random_module(random, axes, ops, (Role.INPUT, Role.STATE), within=0.1)
    text = print_module(module)
    run_pipeline(module, [Partition(latency=latency, memory=0)])
    ours = sent(module, module.programs()[0], latency)
    # Whether any program sends less than ours by more than the sixth that is allowed.
    limit = -(-ours * 5 // 6)
    best = Exhaustive(parse(text), latency, limit).run()
    assert best == limit, f"{ours} instead of {best}\n{text}\n{print_module(module)}"
    return ours
