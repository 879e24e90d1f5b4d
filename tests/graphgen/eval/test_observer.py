"""Observers: what they see of programs, bodies and branches, and results that they replace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from graphgen.eval import Columns, evaluate_ranks
from graphgen.ir import Function, Op
from graphgen.text import parse

TEXT = (Path(__file__).parents[2] / "data" / "control.gg").read_text()
X = np.array([1.0, 2.0, 3.0, 4.0], np.float32)


@dataclass
class Recorder:
    """Keeps what it is shown; negates the sums of loop bodies when ``negates``."""

    negates: bool = False
    entered: list[tuple[str, list[int]]] = field(default_factory=list[tuple[str, list[int]]])
    ops: list[tuple[str, int, int]] = field(default_factory=list[tuple[str, int, int]])
    branches: list[tuple[int, list[int]]] = field(default_factory=list[tuple[int, list[int]]])
    loops: list[list[int]] = field(default_factory=list[list[int]])

    def enter(self, function: Function, ranks: Sequence[int]) -> None:
        self.entered.append((function.name, list(ranks)))

    def made(self, op: Op, ranks: Sequence[int], given: Columns, results: Columns) -> Columns:
        assert all(len(column) == len(ranks) for column in (*given, *results))
        self.ops.append((op.name, len(given), len(ranks)))
        if self.negates and op.name == "add" and op.result.type.rank:
            return [[-array for array in column] for column in results]
        return results

    def branch(self, op: Op, number: int, ranks: Sequence[int]) -> None:
        self.branches.append((number, list(ranks)))

    def loop(self, op: Op, turns: Sequence[int]) -> None:
        self.loops.append(list(turns))


def run(starts: Sequence[int], seen: Recorder) -> list[dict[str, np.ndarray]]:
    module = parse(TEXT)
    inputs = [{"i": np.int32(i), "x": X} for i in starts]
    return evaluate_ranks(module.function("f"), inputs, module=module, observer=seen)


def test_an_observer_sees_every_body_branch_and_turn():
    run([0, 4, 9], seen := Recorder())
    assert seen.loops == [[5, 1, 0]]
    # Numbers 4 and 9 have no branch: they take the last.
    assert seen.branches == [(0, [0]), (1, [1, 2])]
    assert seen.entered[0] == ("f", [0, 1, 2])
    bodies = [ranks for name, ranks in seen.entered if name == "step"]
    assert bodies == [[0, 1], [0], [0], [0], [0]]
    assert ("negate", 1, 1) in seen.ops
    assert [name for name, _, _ in seen.ops].count("while") == 1


def test_the_evaluation_goes_on_with_the_results_an_observer_gives():
    (plain,) = run([3], Recorder())
    (turned,) = run([4], Recorder(negates=True))
    np.testing.assert_array_equal(plain["y"], 4 * X)
    np.testing.assert_array_equal(turned["y"], -2 * X)
