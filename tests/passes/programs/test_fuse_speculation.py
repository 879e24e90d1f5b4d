"""fuse-speculation: one launch is the draft's steps, the model's verification and acceptance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.exec.session import Runner
from graphgen.ir import Role, Value, tensor
from graphgen.ir.clone import clone_module
from graphgen.ir.dtype import f32
from graphgen.passes.core import Rewriter, run_pipeline
from graphgen.passes.fused_pipeline import split_pipeline
from graphgen.passes.programs import fuse_speculation
from graphgen.passes.programs.fuse_speculation import FuseSpeculation, SpeculativeProgram
from graphgen.passes.programs.join_modules import join_modules
from graphgen.passes.programs.threaded_calls import ThreadedCalls
from graphgen.passes.validate import validate
from tests.oracles.joined import ADAPTED, BEST, DRAWN, LENGTH, joined, to_ranks, workload_of

# Grouped queries; a window; ALiBi and layer norms; windows in turn and soft caps; parallel blocks.
FAMILIES = ("llama-3.1-8b", "mistral-7b", "bloom-560m", "gemma-3-1b", "gpt-neox-20b")


@pytest.mark.parametrize("config", [BEST, DRAWN], ids=["best", "drawn"])
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.one_in(12)
def test_every_pass_keeps_what_a_joined_module_means(name: str, config: CompileConfig):
    module = joined(name, config)
    passes, workload = split_pipeline(config).together, workload_of(module, alike=True, noise=0.2)
    verdicts = validate(module, passes, workload)
    assert [v.pass_text for v in verdicts if not v.ok] == []
    assert [v.pass_text for v in verdicts if not v.complete] == []


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.one_in(2)
def test_adapters_are_the_models_alone(tp: int):
    """Rows have slots in verification, and so do their last tokens in other programs."""
    config = replace(ADAPTED, tp=tp)
    module = joined("llama-3.1-8b", config)
    slots = {row.name for row in module.entries(Role.SLOTTED)}
    assert slots
    assert not any(name.startswith("draft.") for name in slots)
    passes, workload = split_pipeline(config).together, workload_of(module, alike=True, noise=0.2)
    verdicts = validate(module, passes, workload)
    assert [v.pass_text for v in verdicts if not v.ok or not v.complete] == []
    run_pipeline(module, passes)
    for program in module.programs():
        assert program.arg("adapter_ids") is not None


@pytest.mark.one_in(2)
@pytest.mark.parametrize("draft_tp", [2, 1])
def test_a_draft_may_be_whole_or_split(draft_tp: int):
    config = replace(BEST, tp=2)
    module = joined("llama-3.1-8b", config, "smollm2-135m", draft_tp)
    verdicts = validate(module, split_pipeline(config).together, workload_of(module, alike=False))
    assert [v.pass_text for v in verdicts if not v.ok] == []


def test_proposals_of_the_models_own_weights_are_accepted():
    module = joined("llama-3.1-8b", BEST)
    workload = workload_of(module, alike=True)
    run_pipeline(module, split_pipeline(BEST).together)
    steps = [c for c in Runner(module, workload).calls() if c.call.phase == "steps"]
    for ran in steps:
        made = ran.outcome["step_tokens"]
        stops = ran.call.inputs["stop_tokens"]
        for row, tokens in enumerate(made.tolist()):
            count = sum(token >= 0 for token in tokens)
            ended = count and tokens[count - 1] in stops[row]
            assert count == ran.call.inputs["step_counts"][row] or ended


def test_what_is_left_are_programs_of_both():
    module = joined("llama-3.1-8b", BEST)
    run_pipeline(module, [FuseSpeculation(LENGTH)])
    assert [(f.name, f.phase) for f in module.programs()] == [
        ("prefill.b3.s8", "prefill"),
        ("decode.b3.c8", "decode"),
        ("decode.b3.c16", "decode"),
        ("speculate.b3.c8.k3", "steps"),
        ("speculate.b3.c16.k3", "steps"),
    ]
    speculate = module.function("speculate.b3.c16.k3")
    called = [op.attrs.text("to_apply") for op in speculate.block if op.name == "call"]
    assert called == [*["draft.decode.b3.c16"] * 3, "target.verify.b3.s3.c16"]
    assert "draft.verify.b3.s3.c16" not in module.functions
    assert {"token_logits", "draft.logits"} & module.interface.keys() == set()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: run_pipeline(to_ranks("llama-3.1-8b", BEST), [FuseSpeculation(3)]), "no draft"),
        (lambda: run_pipeline(joined("llama-3.1-8b", BEST), [FuseSpeculation(1)]), "no token"),
        (lambda: run_pipeline(joined("llama-3.1-8b", BEST), [FuseSpeculation(4)]), "verifies 4"),
        (
            lambda: run_pipeline(
                joined("llama-3.1-8b", replace(BEST, sampling="")), [FuseSpeculation(3)]
            ),
            "chooses tokens",
        ),
        (lambda: joined("llama-3.1-8b", BEST, draft_tp=2), "2 ranks does not fit a model on 1"),
        (
            lambda: join_modules(
                to_ranks("llama-3.1-8b", BEST),
                to_ranks("llama-3.1-8b", replace(BEST, page_cache=4)),
            ),
            "second one",
        ),
        (
            lambda: run_pipeline(
                join_modules(
                    to_ranks("llama-3.1-8b", BEST),
                    to_ranks("llama-3.1-8b", replace(BEST, sampling="", tokens=(8,))),
                ),
                [FuseSpeculation(3)],
            ),
            "the draft has no decode program of B=3, S=1, C=16",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make: Callable[[], object], says: str):
    with pytest.raises(GraphgenError, match=says):
        make()


def test_draws_from_a_whole_vocabulary_are_refused():
    module = joined("llama-3.1-8b", DRAWN)
    wide = module.interface["token_logits"]
    logits = tensor(f32, (*wide.logical.shape[:2], 50_000))
    module.interface["token_logits"] = replace(wide, logical=logits)
    module.meta["global_topk"] = "0"
    with pytest.raises(GraphgenError, match="draw from 50000 tokens") as caught:
        FuseSpeculation(LENGTH).run(module, Rewriter("fuse-speculation"))
    assert "--global-topk 256" in (caught.value.help or "")


class OtherRow(SpeculativeProgram):
    """Verifies the tokens of the row before."""

    def _verified(self, tokens: list[Value]) -> Value:
        return super()._verified([rolled(self, token) for token in tokens])


class OtherSlots(SpeculativeProgram):
    """Verifies in the rows of the cache of the row before."""

    def inputs(self, number: int, active: Value, first: Any, idle: Any) -> dict[str, Value]:
        made = super().inputs(number, active, first, idle)
        return {**made, "seq_ids": rolled(self, made["seq_ids"])}


class LatePosition(SpeculativeProgram):
    """Every step of the draft after the first is one position too far."""

    def inputs(self, number: int, active: Value, first: Any, idle: Any) -> dict[str, Value]:
        made = super().inputs(number, active, first, idle)
        if not number:
            return made
        return {**made, "positions": self.b.binary("add", made["positions"], 1)}


class StaleDraft(SpeculativeProgram):
    """The draft's last step is left out, so that its cache misses a token."""

    def _proposed(self) -> Any:
        calls = self.calls
        self.calls = Forgetful(calls.builder, calls.module, calls.states, self.count - 1)
        made = super()._proposed()
        calls.states = self.calls.states
        self.calls = calls
        return made


class Forgetful(ThreadedCalls):
    """Drops the states of the call after ``left`` others."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given[:3])
        self.left = given[3]

    def call(self, function: Any, inputs: Any) -> dict[str, Value]:
        before = dict(self.states)
        made = super().call(function, inputs)
        self.left -= 1
        if self.left < 0:
            self.states = before
        return made


class WrongProbability(SpeculativeProgram):
    """The draft's probabilities are those of other candidates."""

    def _operands(self, tokens: Any, drafted: Any, logits: Value) -> list[Value]:
        made = super()._operands(tokens, drafted, logits)
        return [*made[:5], self.b.op("reverse", made[5], dimensions=(2,)), made[6]]


class ShiftedLogits(SpeculativeProgram):
    """A proposal is held against the logits after it, not before it."""

    def _verified(self, tokens: list[Value]) -> Value:
        b, logits = self.b, super()._verified(tokens)
        last = b.slice_dim(logits, 1, self.count - 1, self.count)
        return b.concatenate([b.slice_dim(logits, 1, 1, self.count), last], 1)


class NoLimit(SpeculativeProgram):
    """Rows take as many tokens as the program makes."""

    def _operands(self, tokens: Any, drafted: Any, logits: Value) -> list[Value]:
        made = super()._operands(tokens, drafted, logits)
        return [made[0], self.b.full(self.count, made[1].type), *made[2:]]


class OneNumber(SpeculativeProgram):
    """What replaces a refused token is drawn with the number of the acceptance."""

    def _operands(self, tokens: Any, drafted: Any, logits: Value) -> list[Value]:
        made = super()._operands(tokens, drafted, logits)
        first = self.b.slice_dim(made[6], 2, 0, 1)
        return [*made[:6], self.b.concatenate([first, first], 2)]


class PastTheEnd(SpeculativeProgram):
    """Rows go on after a token that ends them."""

    def _up_to_the_end(self, made: Value) -> Value:
        return made


def rolled(program: SpeculativeProgram, x: Value) -> Value:
    b, rows = program.b, program.rows
    return b.concatenate([b.slice_dim(x, 0, rows - 1, rows), b.slice_dim(x, 0, 0, rows - 1)], 0)


BUGS = (
    *(OtherRow, OtherSlots, LatePosition, StaleDraft, WrongProbability),
    *(ShiftedLogits, NoLimit, OneNumber, PastTheEnd),
)


@pytest.mark.parametrize("bug", BUGS, ids=[bug.__name__ for bug in BUGS])
@pytest.mark.one_in(9)
def test_planted_bugs_are_blamed_on_the_pass(
    bug: type[SpeculativeProgram], monkeypatch: pytest.MonkeyPatch
):
    module = joined("llama-3.1-8b", DRAWN)
    # Of a draft that is the model every proposal is accepted, whatever its probability.
    noise = 0.3 if bug in (WrongProbability, OneNumber) else 0.0
    workload = workload_of(module, alike=True, noise=noise)
    if bug is PastTheEnd:
        # Tokens that the programs make end rows.
        made = [c.outcome for c in Runner(module, workload).calls() if c.call.phase == "steps"]
        ends = np.full((3, 8), int(made[-1]["step_tokens"][0, 0]), np.int32)
        calls = [
            replace(c, inputs={**c.inputs, "stop_tokens": ends}) if c.phase == "steps" else c
            for c in workload.calls
        ]
        workload = replace(workload, calls=tuple(calls))
    monkeypatch.setattr(fuse_speculation, "SpeculativeProgram", bug)
    verdicts = validate(clone_module(module), split_pipeline(DRAWN).together[:2], workload)
    assert [v.pass_text for v in verdicts if not v.ok] == [f"fuse-speculation{{length={LENGTH}}}"]
    assert verdicts[0].guilty is not None
