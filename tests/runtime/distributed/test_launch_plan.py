"""The processes of a launch follow from flags, from torchrun's variables and from AWS's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphgen.errors import GraphgenError
from graphgen.lowering.cpu.processes import local_ranks
from graphgen.runtime.distributed.agreement import require_agreement
from graphgen.runtime.distributed.launch_plan import LaunchFlags, launch_plan

NONE = LaunchFlags(None, None, None, None, None, 6.0, 120)


def test_one_process_without_flags_or_variables():
    plan = launch_plan(NONE, {})
    assert (plan.nodes, plan.per_node, plan.node, plan.host) == (1, 1, 0, "127.0.0.1")
    assert plan.port > 0


def test_variables_of_aws_are_defaults_and_exports():
    env = {"NEURON_RT_ROOT_COMM_ID": "10.0.0.1:63423", "NEURON_RANK_ID": "1", "WORLD_SIZE": "4"}
    plan = launch_plan(replace(NONE, per_node=2), env)
    assert (plan.nodes, plan.node, plan.host, plan.port) == (2, 1, "10.0.0.1", 63423)
    assert plan.local == range(2, 4)
    made = plan.variables(3)
    assert (made["RANK"], made["LOCAL_RANK"], made["WORLD_SIZE"]) == ("3", "1", "4")
    assert made["CPU_COMM_ID"] == "10.0.0.1:63424"
    assert made["NEURON_RANK_ID"] == "1"


def test_variables_of_torchrun_go_before_those_of_aws_and_flags_before_both():
    env = {"MASTER_ADDR": "a", "MASTER_PORT": "5", "NEURON_RT_ROOT_COMM_ID": "b:6", "RANK": "3"}
    plan = launch_plan(replace(NONE, nodes=2, per_node=2), env)
    assert (plan.host, plan.port, plan.node) == ("a", 5, 1)
    plan = launch_plan(replace(NONE, nodes=2, per_node=2, host="c", port=7, node=0), env)
    assert (plan.host, plan.port, plan.node) == ("c", 7, 0)


@pytest.mark.parametrize(
    ("flags", "env", "what"),
    [
        (NONE, {"WORLD_SIZE": "two"}, "WORLD_SIZE=two is no number"),
        (replace(NONE, per_node=2), {"WORLD_SIZE": "3"}, "WORLD_SIZE=3 is no multiple of 2"),
        (replace(NONE, nodes=2), {}, "2 nodes need the address of node 0"),
        (replace(NONE, nodes=2, node=2), {}, "node 2 of 2 does not exist"),
    ],
)
def test_what_makes_no_launch_is_refused(flags: LaunchFlags, env: dict[str, str], what: str):
    with pytest.raises(GraphgenError, match=what) as caught:
        launch_plan(flags, env)
    assert caught.value.code == "GG0705"


def test_one_process_has_all_ranks():
    assert local_ranks(3) == range(3)


def test_the_first_differences_are_named_with_their_processes():
    same = {"a": "1", "b": "x" * 50, "c": "3"}
    require_agreement([same, same])
    with pytest.raises(GraphgenError) as caught:
        require_agreement([same, {**same, "a": "2"}, {"a": "2", "b": "y" * 50}])
    text = str(caught.value)
    assert "a: 1 in process 0, 2 in process 1, 2" in text
    assert "b: sha256 " in text
    assert "c: 3 in process 0, missing in process 2" in text
