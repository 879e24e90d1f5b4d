"""The accuracy check of ``inference_demo``, against transformers or a file of expected outputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from graphgen.cli.aws.demo_draft import draft_speculator, loops_to_tokens
from graphgen.cli.console import write_stdout
from graphgen.runtime.accuracy.accuracy_check import (
    AccuracyReport,
    LayerSearch,
    check_logits,
    check_tokens,
)
from graphgen.runtime.accuracy.draft_step_model import DraftStepModel
from graphgen.runtime.accuracy.expected_outputs import ExpectedOutputs, expect, read_expected
from graphgen.runtime.accuracy.graph_layers import GraphLayers
from graphgen.runtime.accuracy.hugging_face_model import HuggingFaceModel, load_hugging_face
from graphgen.runtime.accuracy.step_model import LayerModel, SessionModel, StepModel
from graphgen.runtime.accuracy.tolerances import (
    DIVERGENCE_DIFFERENCE_TOL,
    default_tolerances,
    parse_tolerance_map,
)
from graphgen.runtime.aws.application.causal_lm import NeuronBaseForCausalLM
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.speculation.draft_model import DraftModel

if TYPE_CHECKING:
    from graphgen.cli.aws.demo_run import Demo

_SKIP, _TOKENS, _DRAFT = "skip-accuracy-check", "token-matching", "draft-logit-matching"


def check_accuracy(demo: Demo) -> None:
    """Check tokens or logits as ``--check-accuracy-mode`` says.

    Raises:
        GraphgenError: GG0907 if they differ, naming step, token and layer; GG0705 without the
            packages that the reference needs.
    """
    mode = str(demo.given.get("--check-accuracy-mode", _SKIP))
    if mode == _SKIP:
        return
    path = demo.given.get("--expected-outputs-path")
    # The application whose outputs are checked.
    app = demo.app if mode != _DRAFT or demo.draft is None else demo.draft
    reference = None if path is not None else load_hugging_face(_checkpoint(app))
    expected = _expected(demo, reference, mode)
    search = None if reference is None else _layer_search(app, reference)
    check = _check_tokens if mode == _TOKENS else _check_logits
    report = check(demo, expected, search)
    report.require_passed(lambda token: demo.tokenizer.decode([token]))
    steps = max(len(row) for row in expected.tokens)
    write_stdout(f"The accuracy check passed: {mode} of {steps} tokens\n")


def _checkpoint(app: NeuronBaseForCausalLM) -> Path:
    return locate(app.model_path, plain_names=True) or Path(app.model_path)


def _expected(demo: Demo, reference: HuggingFaceModel | None, mode: str) -> ExpectedOutputs:
    """The outputs of the file, or those of the reference."""
    most = cast("int | None", demo.given.get("--num-tokens-to-check"))
    if mode == _DRAFT:
        most = most or loops_to_tokens(demo.given)
    if reference is None:
        found = read_expected(Path(str(demo.given.get("--expected-outputs-path"))))
        return found if most is None else found.first(most)
    config, prompts = demo.app.neuron_config, demo.prompts
    room = cast(int, config.value("max_length")) - max(map(len, prompts))
    steps = most or cast("int | None", config.value("max_new_tokens")) or room
    return expect(reference, prompts, min(steps, room), with_logits=mode != _TOKENS)


def _layer_search(app: NeuronBaseForCausalLM, reference: HuggingFaceModel) -> LayerSearch:
    """The comparison of layers after a failure."""
    model = app.running().model

    def both() -> tuple[LayerModel, LayerModel]:
        checkpoint = app.checkpoint(model.module)
        return reference, GraphLayers(app.model_config(), model.settings, checkpoint, app.progress)

    return LayerSearch(both, model.settings.dtype)


def _check_tokens(
    demo: Demo, expected: ExpectedOutputs, search: LayerSearch | None
) -> AccuracyReport:
    steps = max(len(row) for row in expected.tokens)
    request = demo.request(greedy=True, most=steps)
    made = demo.generated(expected.prompts, request)
    return check_tokens(expected, [completion.tokens for completion in made], layers=search)


def _check_logits(
    demo: Demo, expected: ExpectedOutputs, search: LayerSearch | None
) -> AccuracyReport:
    given = demo.given
    app, tested = _tested(demo, len(expected.prompts))
    dtype = app.running().model.settings.dtype
    text = given.get("--tol-map")
    tolerances = default_tolerances(dtype) if text is None else parse_tolerance_map(str(text))
    gap = given.get("--divergence-difference-tol", DIVERGENCE_DIFFERENCE_TOL)
    auto = "auto" in cast("list[object]", given.get("--capture-indices", []))
    return check_logits(
        tested,
        expected,
        tolerances,
        cast(float, gap),
        search,
        demo.captures() if auto else None,
    )


def _tested(demo: Demo, rows: int) -> tuple[NeuronBaseForCausalLM, StepModel]:
    """The application whose logits are checked, and its steps; a draft's are those of proposals."""
    if demo.given.get("--check-accuracy-mode") != _DRAFT or demo.draft is None:
        return demo.app, SessionModel(demo.app.running().session)
    speculator = draft_speculator(demo.app, demo.draft, rows)
    assert isinstance(speculator.proposer, DraftModel)
    return demo.draft, DraftStepModel(speculator.proposer, speculator.length - 1)
