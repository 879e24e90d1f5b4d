"""Bytes and steps of rings and meshes over all ranks, against what is counted by hand."""

from __future__ import annotations

import pytest

from graphgen.analysis.collective_traffic import (
    LevelTraffic,
    flat_traffic,
    level_traffic,
    mesh_traffic,
    ring_traffic,
)
from graphgen.targets import accelerator, node_levels, over_nodes
from graphgen.text import parse

# Two nodes of 8 ranks: two chips each.
LEVELS = over_nodes(accelerator("trn2"), 2, ranks=16).levels
ALL = (tuple(range(16)),)


def numbers(found: list[LevelTraffic]) -> list[tuple[int, int]]:
    return [(item.bytes, item.steps) for item in found]


def test_a_ring_leaves_each_part_once_a_step():
    # Both ways of a sum have 15 steps of 1/16; one link leaves each chip, and one each node.
    assert numbers(ring_traffic("all_reduce", 1600, ALL, LEVELS)) == [(3000, 0), (3000, 30)]
    assert numbers(ring_traffic("all_gather", 1600, ALL, LEVELS)) == [(1500, 0), (1500, 15)]


def test_rings_between_nodes_share_the_network():
    pairs = [(rank, rank + 8) for rank in range(8)]
    # Each of 8 rings hands on half, twice.
    assert numbers(ring_traffic("all_reduce", 100, pairs, LEVELS)) == [(0, 0), (8 * 100, 2)]


def test_a_mesh_sends_to_each_other_rank_at_once():
    # 8 x 8 pairs of a node, 4 x 4 of the chips of one; every pair has 1/16.
    assert numbers(mesh_traffic("all_reduce", 1600, ALL, LEVELS)) == [
        *[(2 * 16 * 100, 0), (2 * 64 * 100, 2)]
    ]


def test_the_faster_one_counts():
    small = flat_traffic("all_reduce", 1600, ALL, LEVELS)
    large = flat_traffic("all_reduce", 1 << 30, ALL, LEVELS)
    assert small == mesh_traffic("all_reduce", 1600, ALL, LEVELS)
    assert large == ring_traffic("all_reduce", 1 << 30, ALL, LEVELS)
    exchange = flat_traffic("all_to_all", 1 << 30, ALL, LEVELS)
    assert exchange == mesh_traffic("all_to_all", 1 << 30, ALL, LEVELS)


def test_ranks_of_a_chip_and_one_alone():
    (near, *_), chip = LEVELS, [tuple(range(4))]
    assert numbers(flat_traffic("all_gather", 1600, chip, [near])) == [(0, 1)]
    assert numbers(flat_traffic("all_gather", 1600, [(3,)], LEVELS)) == [(0, 0), (0, 0)]


@pytest.mark.parametrize("name", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_no_less_than_the_least(name: str):
    given, made = {
        "all_reduce": (64, 64), "all_gather": (4, 64), "reduce_scatter": (64, 4)
    }.get(name, (64, 64))  # fmt: skip
    words = {
        "all_reduce": "kind=add", "all_gather": "dimension=0",
        "reduce_scatter": "kind=add dimension=0",
    }.get(name, "split_dimension=0 concat_dimension=0")  # fmt: skip
    ranks = f"replica_groups={[[*range(16)]]}".replace(" ", "")
    body = f"  arg %x : f32[{given}]\n  %y = {name}(%x) {words} {ranks} : f32[{made}]\n"
    module = parse(
        f"module @m level=target mesh=tp:16 {{\n}}\n\nfunc @f {{\n{body}  return y = %y\n}}\n"
    )
    (op,) = module.function("f").block
    least = level_traffic(op, ALL, LEVELS)
    for flat in (flat_traffic, ring_traffic, mesh_traffic):
        if flat is ring_traffic and name == "all_to_all":
            continue
        for one, other in zip(flat(name, 256, ALL, LEVELS), least, strict=True):
            assert one.bytes >= other.bytes


def test_the_cpu_has_levels_without_rates():
    levels = node_levels("cpu", 2, ranks=4)
    assert [(level.part, level.unit) for level in levels] == [(1, 2), (2, 0)]
    assert numbers(ring_traffic("all_reduce", 400, [(0, 1, 2, 3)], levels)) == [(600, 0), (600, 6)]
