"""Programs that verify several tokens of a row: their sizes, and what they compute."""

from __future__ import annotations

import pytest

import graphgen.passes.pipelines  # noqa: F401
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import VERIFY, Module, Role, dtype
from graphgen.models import PHASES, build, known_shape
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.pipelines import default
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload, workload_for
from tests.matrix.axes import AXES, config_of

SIZES = CompileConfig(batch=(3,), context=(8,), tokens=(8, 16), speculation_length=4)


def model(family: str = "") -> Module:
    config = config_of(family) if family else known_shape("llama-3.1-8b")
    return build(config, dtype("f32"), phases=(*PHASES, VERIFY), mini=True)


@pytest.mark.one_in(69)
@pytest.mark.parametrize("family", AXES["family"])
@pytest.mark.parametrize("changes", [{}, {"tp": 2}, {"roll_window_cache": True}], ids=str)
def test_every_pass_keeps_what_they_compute(family: str, changes: dict[str, object]):
    item = model(family)
    passes = default(SIZES.updated(changes))
    workload = workload_for(item, passes, seed=2)
    verified = [call for call in workload.calls if call.phase == VERIFY]
    assert {call.inputs["tokens"].shape for call in verified} == {(3, 4)}
    verdicts = validate(item, passes, workload)
    assert [verdict.pass_text for verdict in verdicts if not verdict.ok] == []


def test_a_verify_program_has_the_logits_of_each_token():
    item = model()
    assert item.interface["token_logits"].role is Role.OUTPUT
    run_pipeline(item, parse_pipeline("specialize{batch=[2],tokens=[3,8],speculation_length=4}"))
    (name,) = (f.name for f in item.programs() if f.phase == VERIFY)
    assert name == "verify.b2.s4.c8"
    outputs = dict(item.function(name).outputs)
    vocabulary = item.interface["logits"].logical.shape[-1]
    assert outputs["token_logits"].type.dims == (2, 4, vocabulary)
    assert "logits" not in outputs


def test_the_small_workload_has_them_too():
    calls = make_workload(model()).calls
    assert {call.phase for call in calls} == {*PHASES, VERIFY}


def test_further_numbers_of_tokens_have_programs_of_their_own():
    config = SIZES.updated({"verify_lengths": (2, 3), "tokens": (2, 8, 16)})
    item = model()
    verdicts = validate(item, default(config), workload_for(item, default(config), seed=2))
    assert [verdict.pass_text for verdict in verdicts if not verdict.ok] == []
    run_pipeline(item, default(config))
    sizes = [(f.dims["S"], f.dims["C"]) for f in item.programs() if f.phase == VERIFY]
    assert sizes == [(2, 2), (2, 8), (2, 16), (3, 8), (3, 16), (4, 8), (4, 16)]


@pytest.mark.parametrize("sizes", ["[1]", "[4]", "[2,2]"])
def test_further_numbers_are_less_than_the_largest(sizes: str):
    options = f"batch=[2],tokens=[8],speculation_length=4,verify_lengths={sizes}"
    with pytest.raises(GraphgenError, match=r"beside speculation_length=4"):
        run_pipeline(model(), parse_pipeline(f"specialize{{{options}}}"))


@pytest.mark.parametrize("options", ["tokens=[8]", "tokens=[3],speculation_length=4"])
def test_sizes_that_leave_no_program_are_refused(options: str):
    with pytest.raises(GraphgenError, match=r"speculation_length=[04] for programs that verify"):
        run_pipeline(model(), parse_pipeline(f"specialize{{batch=[2],{options}}}"))
