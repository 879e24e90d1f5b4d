"""How much validation of one mini evaluates: counts, which no machine and no load changes."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

import pytest

from graphgen.eval import Columns
from graphgen.exec.backend import NumpyBackend, RankArrays
from graphgen.ir import Function, Module, Op, dtype
from graphgen.models import build, known_shape
from graphgen.models.twins import twin_buckets
from graphgen.passes.pipelines import parse
from graphgen.runtime.accuracy.validate_model import validate_module

# Programs that are run, and ops that are evaluated in these and in windows of rewrites.
PROGRAMS, OPS = 260, 48_000


def test_validation_of_a_mini_runs_no_more_programs_and_ops(monkeypatch: pytest.MonkeyPatch):
    counts = Counter[str]()
    run = NumpyBackend.__call__
    evaluation = sys.modules["graphgen.eval.evaluate"]
    evaluated = evaluation._results

    def program(
        self: NumpyBackend, module: Module, function: Function, inputs: RankArrays, *donated: object
    ) -> object:
        counts["programs"] += 1
        return run(self, module, function, inputs, *donated)  # pyright: ignore[reportArgumentType]

    def results(op: Op, given: Columns, ranks: Sequence[int], machine: object) -> Columns:
        counts["ops"] += 1
        return evaluated(op, given, ranks, machine)

    monkeypatch.setattr(NumpyBackend, "__call__", program)
    monkeypatch.setattr(evaluation, "_results", results)
    module = build(known_shape("llama-3.1-8b"), dtype("bf16"), mini=True)
    found = validate_module(module, parse("default", twin_buckets("mini")))
    assert found.passed
    assert PROGRAMS // 2 < counts["programs"] <= PROGRAMS
    assert OPS // 2 < counts["ops"] <= OPS
