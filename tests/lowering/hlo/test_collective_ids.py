"""Ids of collectives: which groups are of ranks, by channel, counts and attributes."""

from __future__ import annotations

import pytest

from graphgen.lowering.hlo import read_hlo
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text

TEXT = """
HloModule m, replica_count={replicas}, num_partitions={partitions}
%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}}
ENTRY %main (x: f32[4]) -> f32[4] {{
  %x = f32[4] parameter(0)
  ROOT %y = f32[4] {op}(%x), {attributes}
}}
"""
REDUCE = "replica_groups={{0,1}}, to_apply=%add"
SEND = "source_target_pairs={{0,1}}"
CHANNEL, DEVICES = ", channel_id=1", ", use_global_device_ids=true"


@pytest.mark.parametrize(
    ("replicas", "partitions", "op", "attributes", "modelled"),
    [
        (1, 2, "all-reduce", REDUCE + CHANNEL + DEVICES, True),
        (1, 2, "all-reduce", REDUCE + CHANNEL, False),
        (1, 2, "all-reduce", REDUCE, False),
        (2, 1, "all-reduce", REDUCE, True),
        (2, 2, "all-reduce", REDUCE + CHANNEL + DEVICES, True),
        (1, 2, "collective-permute", SEND + CHANNEL, True),
        (1, 2, "collective-permute", SEND, False),
        (2, 2, "collective-permute", SEND + CHANNEL, False),
        (2, 1, "collective-permute", SEND, True),
    ],
)
def test_groups_are_of_ranks_where_ids_are_those_of_devices(
    replicas: int, partitions: int, op: str, attributes: str, modelled: bool
):
    text = TEXT.format(replicas=replicas, partitions=partitions, op=op, attributes=attributes)
    module = read_hlo(parse_hlo_text(text))
    (function,) = module.programs()
    names = [one.name for one in function.ops]
    assert names == [op.replace("-", "_") if modelled else "hlo.opaque"]


@pytest.mark.parametrize(("replicas", "partitions"), [(1, 2), (2, 1)])
def test_a_group_of_all_ranks_has_as_many_as_the_module(replicas: int, partitions: int):
    attributes = "replica_groups={}, to_apply=%add" + CHANNEL + DEVICES
    if partitions == 1:
        attributes = "replica_groups={}, to_apply=%add"
    text = TEXT.format(
        replicas=replicas, partitions=partitions, op="all-reduce", attributes=attributes
    )
    (op,) = read_hlo(parse_hlo_text(text)).programs()[0].ops
    assert op.attrs.groups("replica_groups") == ((0, 1),)
