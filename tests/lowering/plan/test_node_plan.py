"""Models on several nodes: what each layout takes, and the command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.lowering.plan.node_plan import NodeLayout, node_plan
from graphgen.models import known_shape
from graphgen.targets import accelerator
from tests.graphgen.cli.conftest import done, error, facts

DEMAND = CompileConfig(dtype="bf16", batch=(1,), context=(256,), tokens=(256,), slots=256, tp=4)
TRN2 = accelerator("trn2")


@pytest.fixture(scope="module")
def found() -> dict[str, NodeLayout]:
    config = known_shape("llama-3.2-1b")
    return {row.layout: row for row in node_plan(config, TRN2, DEMAND, 2)}


def test_one_mesh_over_nodes_sends_over_the_network_and_holds_less(found: dict[str, NodeLayout]):
    assert list(found) == ["tp 4", "tp 8", "pp 2 x tp 4", "dp 2 x tp 4"]
    assert not any(row.why_not for row in found.values())
    one, two = found["tp 4"], found["tp 8"]
    assert one.node_bytes == 0 < two.node_bytes
    assert one.core_bytes > two.core_bytes
    # 33 sums and more wait for 15 us each.
    assert two.step_s > 33 * 15e-6


def test_stages_hand_on_a_hidden_state(found: dict[str, NodeLayout]):
    one, stages, models = (found[name] for name in ("tp 4", "pp 2 x tp 4", "dp 2 x tp 4"))
    # In f32, from each rank to the same one of the next node.
    assert stages.node_bytes == 4 * 4 * 2048
    sent = 15e-6 + stages.node_bytes / 400e9
    # Each stage has masks and rotations of its own.
    assert stages.step_s == pytest.approx(one.step_s + sent, rel=1e-2)
    assert stages.step_s > one.step_s + sent
    # Two requests in flight, of which the slower stage has each in turn: it has the head.
    assert 1.7 / stages.step_s < stages.tokens_per_second < 2 / stages.step_s
    # 8 of 16 layers, beside the embedding or the head.
    assert one.core_bytes / 2 < stages.core_bytes < one.core_bytes
    assert replace(models, nodes=1, layout="tp 4", tokens_per_second=one.tokens_per_second) == one


def test_stages_of_sums_take_less_than_rings(found: dict[str, NodeLayout]):
    assert [name for name, row in found.items() if row.flat or row.staged] == ["tp 8"]
    row = found["tp 8"]
    assert row.flat is not None
    assert row.staged is not None
    # A mesh of two nodes of 4 ranks sends 4 times the least; small sums stay one.
    assert row.node_bytes < row.staged.node_bytes < row.flat.node_bytes <= 4 * row.node_bytes
    assert row.prefill_s <= row.staged.prefill_s < row.flat.prefill_s
    assert row.step_s <= row.staged.step_s <= row.flat.step_s


@pytest.mark.slow
def test_a_model_that_fits_no_node():
    small = replace(TRN2, hbm_bytes=320_000_000)
    found = node_plan(known_shape("llama-3.2-1b"), small, replace(DEMAND, tp=8), 4)
    assert [row.layout for row in found if row.nodes != 2] == [
        *("tp 8", "tp 32", "pp 4 x tp 8", "dp 4 x tp 8")
    ]
    assert [bool(row.why_not) for row in found if row.nodes < 4] == [True, False, False, True]
    assert found[0].why_not == "needs 0.4 GB of 0.3 GB a core"


PLAN = ("plan", "llama-3.2-1b", "--target", "trn2", "--nodes", 2, "--tp", 4, "--seq", 256)


def test_the_numbers_of_the_command():
    said = facts(*PLAN)
    assert [row["layout"] for row in said["layouts"]] == [
        *("tp 4", "tp 8", "pp 2 x tp 4", "dp 2 x tp 4")
    ]
    assert said["levels"][1]["hop_seconds"] == 15e-6
    assert "EFAv3" in said["sources"]["levels"]


@pytest.mark.slow
def test_the_table_of_the_command():
    shown = done(*PLAN).stdout
    assert "links of the network: 400 GB/s of each node of 4 ranks" in shown
    assert "pp 2 x tp 4" in shown
    assert "tp 8 " in shown.partition("in the stages of --nodes")[2]


def test_the_cost_of_a_program_over_nodes(tmp_path: Path):
    file = tmp_path / "m.gg"
    body = "  arg %x : f32[64]\n  %y = all_reduce(%x) kind=add replica_groups=[[0,1]] : f32[64]\n"
    text = f"module @m level=target mesh=tp:2 {{\n}}\n\nfunc @f {{\n{body}  return y = %y\n}}\n"
    file.write_text(text)
    shown = done("cost", file, "--nodes", 2).stdout
    assert "links of the network: 400 GB/s of each node of 1 ranks" in shown
    assert "0.000 MB over links, 0.000 MB of a node to others" in shown
    (program,) = facts("cost", file, "--nodes", 2)["programs"]
    assert program["total"]["node_bytes"] == 256
    (program,) = facts("cost", file, "--nodes", 2, "--collectives", "flat")["programs"]
    assert program["total"]["node_bytes"] == 256
    assert error("cost", file, "--nodes", 3).startswith("error[GG0705]: 3 nodes of 64 logical")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--instance", "trn2.48xlarge", "--search", "--tp", "2"],
            "--instance has no meaning with --search",
        ),
        (["--nodes", "2", "--rules", "aws"], "--rules aws has no meaning with --nodes"),
        (["--nodes", "2", "--lora-rank", "8"], "--lora-rank has no meaning with --nodes"),
    ],
)
def test_flags_that_exclude_each_other(words: list[str], message: str):
    assert error("plan", "llama-3.2-1b", *words).startswith(f"error[GG0705]: {message}")
