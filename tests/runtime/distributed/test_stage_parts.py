"""Ranks, weights and messages of a pipeline in several processes, without starting any."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.eval import Array, evaluate_ranks
from graphgen.ir import Entry
from graphgen.ir.dtype import f32
from graphgen.ir.types import tensor
from graphgen.lowering.cpu import pjrt
from graphgen.lowering.cpu.processes import alone, count, in_stages, local_ranks, share_ranks
from graphgen.lowering.cpu.stage_arrays import StageArrays
from graphgen.lowering.cpu.stage_links import StageLinks, broadcast_module, edge_module
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.distributed.launch_plan import stages_of_launch
from graphgen.runtime.distributed.process_group import state_local_ranks
from graphgen.runtime.model import build_model
from graphgen.runtime.progress import Silent
from graphgen.runtime.weights.rank_weights import RankWeights, put_weights, read_weight
from tests.oracles.families import ORACLES, save


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What this process knows of a launch that it belongs to."""
    made = SimpleNamespace(count=1, index=0, stages=1, each=0, store=None, met=0)
    monkeypatch.setattr("graphgen.lowering.cpu.processes._joined", made)
    return made


@pytest.mark.parametrize(
    ("processes", "ranks", "stages", "found"),
    [
        (2, 1, 2, [[[0], []], [[], [0]]]),
        (2, 2, 3, [[[0, 1], [0], []], [[], [1], [0, 1]]]),
        (3, 2, 3, [[[0, 1], [], []], [[], [0, 1], []], [[], [], [0, 1]]]),
        (4, 2, 2, [[[0], []], [[1], []], [[], [0]], [[], [1]]]),
        (2, 4, 1, [[[0, 1]], [[2, 3]]]),
    ],
)
def test_ranks_of_each_stage_in_each_process(
    processes: int, ranks: int, stages: int, found: list[list[list[int]]], joined: SimpleNamespace
):
    joined.count = processes
    for joined.index in range(processes):
        assert share_ranks(ranks, stages) == ranks * stages // processes
        mine = [list(local_ranks(ranks, stage * ranks)) for stage in range(stages)]
        assert mine == found[joined.index]


def test_a_model_of_one_process_has_all_its_ranks(joined: SimpleNamespace):
    joined.count, joined.index = 2, 1
    share_ranks(2, 2)
    with alone():
        assert (count(), in_stages(), local_ranks(3)) == (1, False, range(3))
    assert (count(), in_stages(), local_ranks(2, 2)) == (2, True, range(2))


def test_ranks_of_stages_with_a_remainder_are_refused(joined: SimpleNamespace):
    joined.count = 4
    with pytest.raises(GraphgenError, match="4 processes cannot share 6 ranks of 3 stages equally"):
        share_ranks(2, 3)


@pytest.mark.parametrize("index", [0, 1])
def test_a_process_reads_the_weights_of_its_stages_alone(
    index: int, joined: SimpleNamespace, tmp_path: Path
):
    save(ORACLES["llama"].model(num_hidden_layers=2), tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    config = CompileConfig(dtype="f32", pp_degree=2).serving(batch=1, max_len=16)
    module = build_model(checkpoint.config, config).module
    read: set[str] = set()

    def noted(row: Entry) -> Array:
        read.add(row.name)
        return read_weight(checkpoint, row)

    joined.count, joined.index = 2, index
    share_ranks(1, 2)
    placed = put_weights(RankWeights(module, noted), Silent())
    assert {name.split(".layers.")[1][0] for name in read if ".layers." in name} == {str(index)}
    assert "model.norm.weight" in read if index else "model.norm.weight" not in read
    # Every weight has a value, as every stage is launched with all of them by name.
    held = {name for name, value in placed.items() if value.arrays}
    assert all(isinstance(value, StageArrays) for value in placed.values())
    assert 0 < len(held) < len(placed)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8])
def test_all_processes_get_the_bytes_of_one(count: int):
    sent = np.array([0, 1, 128, 255], np.uint8)
    for source in range(count):
        module = broadcast_module(4, count, source)
        given = [
            {"given": sent if rank == source else np.zeros_like(sent)} for rank in range(count)
        ]
        for found in evaluate_ranks(module.function("broadcast"), given):
            np.testing.assert_array_equal(found["sent"], sent)


def test_each_rank_of_a_stage_sends_to_one_of_the_next():
    module = edge_module(tensor(f32, (2,)), 2)
    given = [{"given": np.full(2, rank, np.float32)} for rank in range(4)]
    found = [o["sent"][0] for o in evaluate_ranks(module.function("edge"), given)]
    assert found == [0, 0, 0, 1]


def test_the_variable_of_aws_gives_the_stages():
    assert stages_of_launch(3, {}) == 3
    assert stages_of_launch(1, {"NEURON_PP_STAGES": "2"}) == 2
    assert stages_of_launch(2, {"NEURON_PP_STAGES": "2"}) == 2
    with pytest.raises(GraphgenError, match="NEURON_PP_STAGES=2, but --pp-degree is 3"):
        stages_of_launch(3, {"NEURON_PP_STAGES": "2"})


def test_the_variable_of_local_ranks_follows_each_model(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NEURON_LOCAL_TP", "")
    for ranks in (6, 2):
        state_local_ranks(None, ranks)
        assert os.environ["NEURON_LOCAL_TP"] == str(ranks)
    state_local_ranks("4", 4)
    with pytest.raises(GraphgenError, match="NEURON_LOCAL_TP=4, but this node has 2 ranks"):
        state_local_ranks("4", 2)


def test_an_output_is_shared_when_the_stages_here_have_ended(monkeypatch: pytest.MonkeyPatch):
    """XLA has a thread a core: a waiting broadcast must not hold one that a stage needs."""
    order: list[str] = []

    class Piece:
        def block_until_ready(self) -> None:
            order.append("ended")

    class Program:
        def launch(self, given: dict[str, list[Array]]) -> dict[str, list[Array]]:
            order.append("broadcast")
            return {"sent": given["given"]}

    def here(arrays: list[Array], wanted: int) -> list[Array]:
        assert wanted == count()
        return arrays

    monkeypatch.setattr(pjrt, "put_here", here)
    monkeypatch.setattr(pjrt, "on_devices", nullcontext)
    links, type_ = StageLinks(ranks=2, stages=2), tensor(f32, (3,))
    monkeypatch.setattr(links, "_broadcasts", {(1, type_.nbytes): Program()})
    links._running[0] = [Piece(), Piece()]
    assert links.share(1, type_, None).tolist() == [0, 0, 0]
    assert order == ["ended", "ended", "broadcast"]
    links.share(1, type_, None)
    assert order[3:] == ["broadcast"]
