"""Validation of a model by its name: right pipelines pass on both twins, wrong ones do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Module
from graphgen.models import known_shape
from graphgen.passes.core import Pass, Rewriter
from graphgen.passes.pipelines import parse
from graphgen.runtime.accuracy.validate_model import THOROUGH, ValidationOptions, validate_model

MINI = replace(THOROUGH, twins="mini", dtype="f32")


def canonical(sizes: CompileConfig) -> Sequence[Pass]:
    return parse("canonicalize", sizes)


def default(sizes: CompileConfig) -> Sequence[Pass]:
    return parse("default", sizes)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gemma-3-1b"])
@pytest.mark.one_in(2)
def test_the_default_pipeline_is_right_in_the_thorough_mode(name: str):
    (mini,) = validate_model(known_shape(name), default, MINI)
    assert (mini.twin, mini.passed, mini.not_run) == ("mini", True, [])
    assert all(verdict.ok and verdict.complete for verdict in mini.verdicts)
    assert any("idle" in call for call in mini.calls)


@pytest.mark.slow
@pytest.mark.parametrize("tp", [1, 2])
def test_both_twins_are_right_in_the_thorough_mode(tp: int):
    found = validate_model(
        known_shape("llama-3.1-8b"), lambda sizes: parse("default", replace(sizes, tp=tp)), THOROUGH
    )
    assert [(one.twin, one.passed) for one in found] == [("mini", True), ("wide", True)]


def test_the_wide_twin_runs_where_passes_touch_positions():
    steps: list[str] = []
    options = ValidationOptions(script="short", each_rewrite=False)

    def runs(sizes: CompileConfig) -> Sequence[Pass]:
        return parse("cse" if sizes.batch == (3,) else "dce", sizes)

    found = validate_model(known_shape("llama-3.1-8b"), runs, options, steps.append)
    # Common subexpressions of logical modules: nothing is rewritten.
    assert [one.twin for one in found] == ["mini"]
    assert steps[0] == "mini twin, the module as given"


@dataclass(frozen=True)
class Raising(Pass):
    name: ClassVar[str] = "raising"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        raise ValueError("on purpose")


def test_a_pass_that_raises_fails_the_twin():
    def passes(sizes: CompileConfig) -> Sequence[Pass]:
        return [*canonical(sizes), Raising(), *parse("cse", sizes)]

    (mini,) = validate_model(known_shape("llama-3.1-8b"), passes, MINI)
    assert not mini.passed
    assert (len(mini.verdicts), mini.not_run) == (2, ["cse"])


def test_passes_that_quantize_get_plain_values():
    def quantized(sizes: CompileConfig) -> Sequence[Pass]:
        return parse("canonicalize,quantize-weights", sizes)

    (mini,) = validate_model(known_shape("llama-3.1-8b"), quantized, MINI)
    assert (mini.values, mini.passed) == ("plain", True)
