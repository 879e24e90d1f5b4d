"""Bytes and steps at each level, against what is counted by hand."""

from __future__ import annotations

import pytest

from graphgen.analysis.collective_traffic import groups_of, level_traffic
from graphgen.lowering.cost.roofline import roofline
from graphgen.targets import accelerator, over_nodes
from graphgen.text import parse

# Two nodes of 8 ranks: two chips each.
TWO = over_nodes(accelerator("trn2"), 2, ranks=16)


def module_of(op: str, kind: str, result: str, groups: str):
    groups = groups.replace(", ", ",")
    text = f"  arg %x : {kind}\n  %y = {op} {groups} : {result}\n  return y = %y\n"
    return parse(f"module @m level=target mesh=tp:16 {{\n}}\n\nfunc @f {{\n{text}}}\n")


def traffic(op: str, kind: str, result: str, groups: str = "") -> list[tuple[int, int]]:
    module = module_of(op, kind, result, groups or f"replica_groups=[{list(range(16))}]")
    (made,) = module.function("f").block
    found = level_traffic(made, groups_of(module, made), TWO.levels)
    return [(item.bytes, item.steps) for item in found]


def test_a_sum_over_two_nodes():
    # In a node 1/2 of the bytes to where they are summed, and as much in sums; a node likewise.
    made = traffic("all_reduce(%x) kind=add", "f32[64]", "f32[64]")
    assert made == [(2 * 256 // 2, 1), (2 * 256 // 2, 1)]


@pytest.mark.parametrize(
    ("op", "kind", "result"),
    [
        ("all_gather(%x) dimension=0", "f32[4]", "f32[64]"),
        ("reduce_scatter(%x) kind=add dimension=0", "f32[64]", "f32[4]"),
    ],
)
def test_half_of_a_sum(op: str, kind: str, result: str):
    assert traffic(op, kind, result) == [(128, 1), (128, 1)]


def test_an_exchange_sends_what_is_for_others():
    # 4 ranks of a chip send 4/16 of their bytes to the other chip, 8 of a node 8/16 to the other.
    op = "all_to_all(%x) split_dimension=0 concat_dimension=0"
    assert traffic(op, "f32[16]", "f32[16]") == [(4 * 64 * 4 // 16, 1), (8 * 64 * 8 // 16, 1)]


def test_groups_inside_of_a_node_send_nothing_to_others():
    inside = f"replica_groups=[{list(range(8))},{list(range(8, 16))}]"
    assert traffic("all_reduce(%x) kind=add", "f32[64]", "f32[64]", inside) == [(256, 1), (0, 0)]


def test_groups_of_one_rank_a_node_share_its_network():
    across = f"replica_groups={[[rank, rank + 8] for rank in range(8)]}"
    made = traffic("all_reduce(%x) kind=add", "f32[64]", "f32[64]", across)
    assert made == [(0, 0), (8 * 256, 1)]


def test_the_roofline_takes_the_slower_level_and_the_steps_of_both():
    op = "all_reduce(%x) kind=add"
    module = module_of(op, "f32[65536]", "f32[65536]", f"replica_groups=[{list(range(16))}]")
    cost = roofline(module, module.function("f"), TWO).total
    size = 4 * 65536
    assert (cost.link_bytes, cost.node_bytes) == (size, size)
    # A node sends it at 400 GB/s, a chip at 1280 GB/s; steps take 1.5 us and 15 us.
    assert cost.link_s == pytest.approx(size / 400e9 + 1.5e-6 + 15e-6)
