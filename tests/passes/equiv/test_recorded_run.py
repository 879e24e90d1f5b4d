"""Validation of programs that choose tokens: they are those that the logits imply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.config.compile_config import CompileConfig
from graphgen.eval import MEANING
from graphgen.exec.decode_steps import STEPS
from graphgen.exec.session import ProgramCall, Workload
from graphgen.ir import Function, Module, Op, TensorType, Value, dtype, tensor
from graphgen.ir.dtype import f32, s32
from graphgen.models import build, known_shape
from graphgen.passes.core import Pass, Rewriter, parse_pipeline, run_pipeline
from graphgen.passes.core.relation import OutputChanges
from graphgen.passes.equiv.equiv import equivalent
from graphgen.passes.equiv.recorded_run import record
from graphgen.passes.inspect.result_json import verdict_json
from graphgen.passes.pipelines import default
from graphgen.passes.pipelines import parse as pipeline
from graphgen.passes.programs.on_device_sampling import OnDeviceSampling
from graphgen.passes.programs.token_rule import TOKENS
from graphgen.passes.validate import validate
from graphgen.passes.validate.verdict_text import verdict_faults
from graphgen.passes.workload.make_workload import make_workload, workload_for
from tests.matrix.axes import AXES
from tests.matrix.cells import cell_run

CONFIG = CompileConfig(batch=(3,), context=(8,), tokens=(8, 16))
SIMPLE = "specialize{batch=[3],context=[8],tokens=[8,16]},legalize"
Rewrite = Callable[[Builder, Op], Sequence[Value]]


@dataclass(frozen=True)
class Planted(Pass):
    """Rebuilds each op of a kind in a way of its own."""

    name = "planted"
    root: str = "top_k"
    form: Rewrite = lambda b, op: b.emit(op.name, op.operands, dict(op.attrs)).results

    def run(self, module: Module, rewriter: Rewriter) -> None:
        for function in module.programs():
            for op in list(function.block):
                if op.name == self.root and not rewriter.exhausted:
                    b = rewriter.before(function, op)
                    with b:
                        made = self.form(b, op)
                    rewriter.replace(function, op, made, rule="planted")

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class WrongSampling(OnDeviceSampling):
    """Chooses tokens, with another form of one kind of op."""

    root: str = ""
    form: Rewrite = lambda b, op: op.results

    def run(self, module: Module, rewriter: Rewriter) -> None:
        super().run(module, rewriter)
        Planted(self.root, self.form).run(module, rewriter)

    def __str__(self) -> str:
        return self.name


@cache
def mini(element: str = "f32") -> Module:
    return build_mini(element)


def build_mini(element: str = "f32") -> Module:
    return build(known_shape("llama-3.1-8b"), dtype(element), mini=True)


@cache
def script(element: str = "f32") -> Workload:
    """Calls with every kind of setting, and numbers near the ends of [0, 1)."""
    workload = make_workload(mini(element), seed=2)
    rng, calls = np.random.default_rng(1), list[ProgramCall]()
    for call in workload.calls:
        rows = call.inputs["lengths"].size
        settings = [
            rng.choice([0, 3, 10], rows),
            rng.choice([0.3, 0.8, 0.97, 2], rows),
            rng.choice([0.3, 1, 1.7], rows),
        ]
        inputs = {
            "sampling_params": np.stack(settings, 1).astype(np.float32),
            "random": rng.random(rows).astype(np.float32),
            "top_p_min_tokens": rng.integers(1, 4, rows).astype(np.int32),
        }
        calls.append(replace(call, inputs={**call.inputs, **inputs}))
    return replace(workload, calls=tuple(calls))


@pytest.mark.parametrize("options", ["", "{do_sample=true}"])
@pytest.mark.parametrize("tp", [1, 2, 3])
@pytest.mark.one_in(6)
def test_sampling_is_validated_through_the_default_pipeline(options: str, tp: int):
    passes = pipeline(f"canonicalize,on-device-sampling{options},default{{tp={tp}}}", CONFIG)
    verdicts = validate(mini(), passes, script())
    assert [(v.pass_text, v.state) for v in verdicts if not v.ok] == []
    sampling = next(v for v in verdicts if "sampling" in v.pass_text)
    # Eleven rows matter, of four calls.
    assert sampling.choices.compared == sampling.rounded_choices.compared == 11
    assert all(not v.choices.wrong and not v.rounded_choices.wrong for v in verdicts)


@pytest.mark.parametrize(
    "options",
    [
        "do_sample=true,top_p_min_tokens=true",
        "do_sample=true,deterministic=true",
        "do_sample=true,global_topk=5,output_logits=true",
        "output_logits=true",
    ],
)
def test_every_option_is_validated(options: str):
    passes = pipeline(f"canonicalize,on-device-sampling{{{options}}},{SIMPLE}")
    verdicts = validate(mini(), passes, script())
    assert [(v.pass_text, v.state) for v in verdicts if not v.ok] == []


def test_scores_are_kept_of_calls_beside_launches_of_several_steps():
    """A flip that a later top-k of parts cannot replay is settled by them."""
    cell = {axis: values[0] for axis, values in AXES.items()}
    cell |= {"sampling": "best", "launches": "several steps"}
    run = cell_run(cell, one_layer=True)
    *plain, several = run.workload.calls
    assert several.phase == STEPS
    scores = record(run.module, run.workload, MEANING).records[TOKENS].scores
    active = [int((call.inputs["lengths"] > 0).sum()) for call in plain]
    assert [len(rows) for rows in scores] == [*active, 0]


# ---- wrong samplers ------------------------------------------------------------------------------


def second_best(b: Builder, op: Op) -> Sequence[Value]:
    k = op.attrs.integer("k")
    made = b.top_k(op.operands[0], k + 1)
    return [b.slice_dim(value, 1, 1, k + 1) for value in made]


def warmer(b: Builder, op: Op) -> Sequence[Value]:
    return [b.binary("divide", op.operands[0], b.binary("add", op.operands[1], 0.25))]


def colder(b: Builder, op: Op) -> Sequence[Value]:
    return [op.operands[0]]


def reached_too(b: Builder, op: Op) -> Sequence[Value]:
    """Of the comparisons the one with top_p: the token that crosses it goes."""
    if op.attrs["direction"] == "LT" and op.operands[0].dtype.is_float:
        shares = op.operands[0].producer("dot_general")
        if shares is not None:
            inside = b.binary("add", op.operands[0], shares.operands[0])
            return [b.compare(inside, op.operands[1], "LT")]
    return b.emit(op.name, op.operands, dict(op.attrs)).results


def last_of_equals(b: Builder, op: Op) -> Sequence[Value]:
    x = op.operands[0]
    values, places = b.top_k(b.op("reverse", x, dimensions=(1,)), op.attrs.integer("k"))
    size = x.shape[1]
    assert isinstance(size, int)
    return [values, b.binary("subtract", b.full(size - 1, places.type), places)]


@pytest.mark.parametrize(
    ("root", "form"),
    [("top_k", second_best), ("divide", colder), ("divide", warmer), ("compare", reached_too)],
    ids=["second best", "no temperature", "warmer", "top_p one short"],
)
def test_a_sampler_that_is_wrong_is_caught(root: str, form: Rewrite):
    item = WrongSampling(do_sample=True, global_topk=16, root=root, form=form)
    (verdict,) = validate(mini(), [item], script())
    assert verdict.state == "WRONG", verdict
    assert verdict.meaning.name == "next_tokens"
    assert verdict.choices.wrong > 0


def test_a_greedy_choice_of_the_second_best_is_caught():
    (verdict,) = validate(mini(), [WrongSampling(root="top_k", form=second_best)], script())
    assert verdict.state == "WRONG"
    later = validate(mini(), [OnDeviceSampling(), Planted(form=second_best)], script())
    assert [v.state for v in later] == ["ok", "WRONG"]


# ---- ties ----------------------------------------------------------------------------------------


def with_equal_scores() -> tuple[Module, Workload]:
    """Scores that come in equal pairs."""
    module = Module("m")
    with Builder(module.add(Function("f", phase="decode")), module) as b:
        x, weight = b.input("x", f32, (3, 8)), b.weight("w", f32, (16, 8))
        b.output("logits", b.dot(x, weight))
    rng = np.random.default_rng(4)
    w = np.repeat(rng.standard_normal((8, 8)), 2, axis=0).astype(np.float32)
    call = ProgramCall("decode", {}, {"x": rng.standard_normal((3, 8)).astype(np.float32)})
    return module, Workload({"w": w}, (call,))


def test_the_last_of_equal_scores_is_wrong_though_nothing_is_between_them():
    module, workload = with_equal_scores()
    sampled = WrongSampling(root="top_k", form=last_of_equals)
    assert [v.state for v in validate(module, [sampled], workload)] == ["WRONG"]
    later = [OnDeviceSampling(), Planted(form=last_of_equals)]
    assert [v.state for v in validate(module, later, workload)] == ["ok", "WRONG"]
    # Without equal scores the two are the same.
    assert all(v.ok for v in validate(mini(), later, script()))


# ---- flips ---------------------------------------------------------------------------------------


def a_little_off(b: Builder, op: Op) -> Sequence[Value]:
    """Odd columns are larger by 2e-10, so that the second of two equal ones comes first."""
    made = b.emit(op.name, op.operands, dict(op.attrs)).results[0]
    odd = b.binary("and", b.iota(s32, made.shape, 1), b.full(1, s32_of(made)))
    return [made + b.convert(odd, f32) * b.full(2e-10, made.type)]


def s32_of(value: Value) -> TensorType:
    return tensor(s32, value.shape)


def test_a_flip_within_the_margin_is_counted_and_right():
    module, workload = with_equal_scores()
    passes = [OnDeviceSampling(), Planted("dot_general", a_little_off)]
    verdict = validate(module, passes, workload)[-1]
    assert verdict.ok
    assert verdict.choices.replayed > 0
    assert verdict.choices.wrong == 0


def test_a_module_that_chose_before_is_compared_by_its_own_scores():
    module, workload = with_equal_scores()
    run_pipeline(module, [OnDeviceSampling()])
    assert validate(module, [Planted("dot_general", a_little_off)], workload)[0].ok
    assert not validate(module, [Planted(form=second_best)], workload)[0].ok


def test_an_output_that_is_dropped_without_a_word_is_an_error():
    class Silent(OnDeviceSampling):
        """Drops the logits, and does not say so."""

        name = "silent"

        def output_changes(self) -> OutputChanges:
            return OutputChanges({})

    (verdict,) = validate(mini(), [Silent()], script())
    assert verdict.raised is not None
    assert "does not declare it" in str(verdict.raised)


# ---- equiv ---------------------------------------------------------------------------------------


def test_a_module_that_chooses_is_the_one_that_gives_the_logits():
    chooses, wrong = build_mini(), build_mini()
    run_pipeline(chooses, [OnDeviceSampling()])
    run_pipeline(wrong, [WrongSampling(root="top_k", form=second_best)])
    assert equivalent(mini(), chooses).equal
    assert equivalent(chooses, mini()).equal
    found = equivalent(mini(), wrong)
    assert not found.equal
    assert found.difference.name == "next_tokens"


def test_flips_are_told_and_written():
    module, workload = with_equal_scores()
    passes = [OnDeviceSampling(), Planted("dot_general", a_little_off)]
    verdict = validate(module, passes, workload)[-1]
    (line,) = verdict_faults([verdict])
    assert "choices flipped within 1e-09, replayed" in line
    assert verdict_json(verdict)["choices"]


def test_ranks_that_choose_for_some_of_the_rows_are_compared():
    module = build(known_shape("llama-3.1-8b"), f32, mini=True)
    strategy = CompileConfig(
        batch=(4,), context=(8,), tokens=(8, 16), tp=2, heads="SHARD_OVER_BATCH"
    )
    passes = [*parse_pipeline("canonicalize,on-device-sampling"), *default(strategy)]
    verdicts = validate(module, passes, workload_for(module, passes))
    assert [verdict.state for verdict in verdicts if not verdict.ok] == []
