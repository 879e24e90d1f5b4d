"""AWS's start_rank_id, local_ranks_size and world_size are accepted where they are true."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.served_override import StatedRanks
from graphgen.runtime.distributed.process_group import LaunchPlace
from tests.oracles.small_gguf import write_small_model
from tests.runtime.distributed.launches import two_nodes


def place(index: int) -> LaunchPlace:
    """A process of a launch of two machines with two processes each."""
    return LaunchPlace("a:1", 4, index, 2, 6.0, 120)


@pytest.mark.parametrize(
    ("index", "stated"),
    [
        (0, StatedRanks(8, 0, 4)),
        (1, StatedRanks(8, 0, 4)),
        (3, StatedRanks(first=4)),
        (3, StatedRanks(count=4)),
        # Of each process, in place of each machine.
        (3, StatedRanks(count=2)),
        (3, StatedRanks(8, 6, 2)),
        (2, StatedRanks()),
        (None, StatedRanks(8, 0, 8)),
        (None, StatedRanks(first=0)),
    ],
)
def test_ranks_of_the_machine_are_accepted(index: int | None, stated: StatedRanks):
    stated.check(8, None if index is None else place(index))


@pytest.mark.parametrize(
    ("index", "stated", "what", "help"),
    [
        (2, StatedRanks(8, 0, 4), "machine 1 of 2 has 4 of 8 ranks, from 4 on", "give 4 and 4"),
        (0, StatedRanks(count=8), "local_ranks_size = 8, but machine 0", "give 0 and 4"),
        # Those of process 2.
        (
            3,
            StatedRanks(8, 4, 2),
            "start_rank_id = 4 and local_ranks_size = 2, but",
            "give 4 and 4",
        ),
        (0, StatedRanks(16), "world_size = 16, but the ranks of all stages are 8", "leave it out"),
        (None, StatedRanks(8, 4, 4), "the only process has 8 of 8 ranks", "launch --nnodes N"),
    ],
)
def test_other_ranks_are_refused_with_those_that_fit(
    index: int | None, stated: StatedRanks, what: str, help: str
):
    with pytest.raises(GraphgenError, match=what) as caught:
        stated.check(8, None if index is None else place(index))
    assert caught.value.code == "GG0705"
    assert help in (caught.value.help or "")


@pytest.mark.slow
def test_a_machine_with_the_configuration_of_another_ends_both(tmp_path: Path):
    model = tmp_path / "small.gguf"
    write_small_model(model, {"llama.context_length": 512}, tied=False)
    override = '{"world_size": 2, "start_rank_id": 0, "local_ranks_size": 1}'
    words = ["serve", str(model), "-tp", "2", "--port", "0", "--override-neuron-config", override]
    first, second = two_nodes(tmp_path, [words, words])
    assert (first.status, second.status) == (1, 1)
    assert "machine 1 of 2 has 1 of 2 ranks, from 1 on" in second.err
    assert "process 1 of 2 is lost: it ended with GG0705, start_rank_id = 0" in first.err
