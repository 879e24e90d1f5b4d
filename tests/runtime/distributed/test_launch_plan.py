"""The processes of a launch follow from flags, from torchrun's variables and from AWS's."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from graphgen.cli.launched_inputs import chosen_nodes, machines_of_stage, over_machines
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.lowering.cpu.processes import local_ranks
from graphgen.runtime.distributed.launch_plan import (
    SECRET,
    LaunchFlags,
    launch_plan,
    require_address,
)
from graphgen.runtime.distributed.process_group import PLACE, LaunchPlace, require_agreement
from graphgen.runtime.engine import EngineOptions
from graphgen.runtime.signing import VARIABLE

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
    place = LaunchPlace(*json.loads(made[PLACE]))
    assert (place.count, place.index, place.nodes, place.node) == (4, 3, 2, 1)


def test_variables_of_torchrun_go_before_those_of_aws_and_flags_before_both():
    env = {"MASTER_ADDR": "a", "MASTER_PORT": "5", "NEURON_RT_ROOT_COMM_ID": "b:6", "RANK": "3"}
    plan = launch_plan(replace(NONE, nodes=2, per_node=2), env)
    assert (plan.host, plan.port, plan.node) == ("a", 5, 1)
    plan = launch_plan(replace(NONE, nodes=2, per_node=2, host="c", port=7, node=0), env)
    assert (plan.host, plan.port, plan.node) == ("c", 7, 0)


@pytest.mark.parametrize(
    ("flags", "env", "what"),
    [
        (NONE, {"WORLD_SIZE": "two"}, "WORLD_SIZE=two is not a number"),
        (replace(NONE, per_node=2), {"WORLD_SIZE": "3"}, "WORLD_SIZE=3 is not a multiple of 2"),
        (replace(NONE, nodes=2), {}, "2 nodes need the address of node 0"),
        (replace(NONE, nodes=2, node=2), {}, "node 2 of 2 does not exist"),
    ],
)
def test_what_makes_no_launch_is_refused(flags: LaunchFlags, env: dict[str, str], what: str):
    with pytest.raises(GraphgenError, match=what) as caught:
        launch_plan(flags, env)
    assert caught.value.code == "GG0705"


@pytest.mark.parametrize(
    ("machines", "ranks", "stages", "found"),
    [
        (1, 4, 1, 1),
        (2, 4, 1, 2),
        (2, 2, 1, 1),  # A rank on each machine: nothing to do inside of it.
        (2, 3, 1, 1),
        (2, 4, 2, 1),  # A stage on each machine.
        (4, 4, 2, 2),
        (2, 2, 3, 1),  # The middle stage has a rank on each.
    ],
)
def test_machines_that_the_ranks_of_a_stage_fill(
    machines: int, ranks: int, stages: int, found: int
):
    assert machines_of_stage(machines, ranks, stages) == found


def test_a_launch_chooses_the_machines_unless_they_are_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    place = LaunchPlace("a:1", 4, 0, 2, 6.0, 120)
    model = str(tmp_path / "model.gguf")
    made = over_machines(place, model, EngineOptions(CompileConfig.of(tp=4)))
    assert made.compile.asked == {"tp": 4, "nodes": 2}
    assert "collectives over 2 machines are made in stages" in capsys.readouterr().err
    given = EngineOptions(CompileConfig.of(tp=4, nodes=1))
    assert over_machines(place, model, given) is given
    assert chosen_nodes(2, 2) == 1
    # The programs of an artifact are what they are.
    (tmp_path / "manifest.json").write_text("{}")
    plain = EngineOptions(CompileConfig.of(tp=4))
    assert over_machines(place, str(tmp_path), plain) is plain
    assert not capsys.readouterr().err


def test_a_port_in_use_and_a_host_without_address_are_refused():
    plan = launch_plan(NONE, {})
    require_address(plan)
    with socket.create_server(("", 0)) as listener:
        used = replace(plan, port=listener.getsockname()[1])
        with pytest.raises(GraphgenError, match=f"port {used.port} cannot be listened on"):
            require_address(used)
        # It is the port of node 0, which this is not.
        require_address(replace(used, nodes=2, node=1))
    # A label of more than 63 letters is not looked up.
    with pytest.raises(GraphgenError, match="has no address"):
        require_address(replace(plan, host="a" * 64))


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


def test_the_secret_of_one_machine_is_made_for_each_launch():
    plans = [launch_plan(NONE, {}) for _ in range(2)]
    assert plans[0].secret != plans[1].secret
    assert all(len(plan.secret) == 64 for plan in plans)
    assert plans[0].secret not in repr(plans[0])
    place = LaunchPlace(*json.loads(plans[0].variables(0)[PLACE]))
    assert (place.secret, place.listen) == (plans[0].secret, "127.0.0.1")
    assert place.secret not in repr(place)


def test_the_secret_of_several_machines_is_given_or_follows_from_the_key_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    two = replace(NONE, nodes=2, host="127.0.0.1", port=7)
    first, second = launch_plan(two, {}), launch_plan(replace(two, node=1), {})
    assert first.secret == second.secret
    assert launch_plan(replace(two, port=8), {}).secret != first.secret
    given = {SECRET: "the secret of all nodes"}
    assert launch_plan(two, given).secret == given[SECRET]
    (tmp_path / "secret").write_text("a secret in a file\n")
    from_file = replace(two, secret_file=tmp_path / "secret")
    assert launch_plan(from_file, given).secret == "a secret in a file"
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CONFIG_HOME", "/dev/null/nowhere")
    with pytest.raises(GraphgenError, match="2 nodes need a secret") as caught:
        launch_plan(two, {})
    assert SECRET in str(caught.value)
    assert "--secret-file" in str(caught.value)


@pytest.mark.parametrize("text", ["", "  ", "short", "with a control character \x07"])
def test_a_text_that_is_no_secret_is_refused(tmp_path: Path, text: str):
    (tmp_path / "secret").write_text(text)
    for flags, env in (
        (NONE, {SECRET: text}),
        (replace(NONE, secret_file=tmp_path / "secret"), {}),
    ):
        with pytest.raises(GraphgenError, match="has no secret of at least 16") as caught:
            launch_plan(flags, env)
        assert caught.value.code == "GG0705"


def test_a_missing_file_of_the_secret_is_refused(tmp_path: Path):
    with pytest.raises(GraphgenError, match="cannot read") as caught:
        launch_plan(replace(NONE, secret_file=tmp_path / "none"), {})
    assert caught.value.code == "GG0705"


def test_process_0_listens_at_the_given_address(monkeypatch: pytest.MonkeyPatch):
    names = {"node0": "127.0.1.1", "gateway": "192.0.2.1"}

    def found(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, 1, 6, "", (names.get(host, host), port))]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    plan = replace(launch_plan(NONE, {}), nodes=2)
    assert replace(plan, host="127.0.0.1").listen_address() == "127.0.0.1"
    # Other machines do not reach the loopback address that this one has its own name at.
    assert replace(plan, host="node0").listen_address() == ""
    assert replace(plan, host="node0", nodes=1).listen_address() == "127.0.1.1"
    # Nor is the address of a gateway one of this machine.
    assert replace(plan, host="gateway").listen_address() == ""
