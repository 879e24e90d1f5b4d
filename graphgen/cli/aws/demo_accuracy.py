"""The accuracy check of ``inference_demo``, against transformers or a file of expected outputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from graphgen.cli.console import write_stdout
from graphgen.runtime.accuracy.accuracy_check import (
    AccuracyReport,
    LayerSearch,
    check_logits,
    check_tokens,
)
from graphgen.runtime.accuracy.expected_outputs import ExpectedOutputs, expect, read_expected
from graphgen.runtime.accuracy.graph_layers import GraphLayers
from graphgen.runtime.accuracy.hugging_face_model import HuggingFaceModel, load_hugging_face
from graphgen.runtime.accuracy.step_model import LayerModel, SessionModel
from graphgen.runtime.accuracy.tolerances import (
    DIVERGENCE_DIFFERENCE_TOL,
    default_tolerances,
    parse_tolerance_map,
)
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.generation import generate

if TYPE_CHECKING:
    from graphgen.cli.aws.demo_run import Demo

_SKIP, _TOKENS = "skip-accuracy-check", "token-matching"


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
    reference = None if path is not None else load_hugging_face(_checkpoint(demo))
    expected = _expected(demo, reference, with_logits=mode != _TOKENS)
    search = None if reference is None else _layer_search(demo, reference)
    check = _check_tokens if mode == _TOKENS else _check_logits
    report = check(demo, expected, search)
    report.require_passed(lambda token: demo.tokenizer.decode([token]))
    steps = max(len(row) for row in expected.tokens)
    write_stdout(f"The accuracy check passed: {mode} of {steps} tokens\n")


def _checkpoint(demo: Demo) -> Path:
    return locate(demo.app.model_path, plain_names=True) or Path(demo.app.model_path)


def _expected(
    demo: Demo, reference: HuggingFaceModel | None, *, with_logits: bool
) -> ExpectedOutputs:
    """The outputs of the file, or those of the reference."""
    most = cast("int | None", demo.given.get("--num-tokens-to-check"))
    if reference is None:
        found = read_expected(Path(str(demo.given.get("--expected-outputs-path"))))
        return found if most is None else found.first(most)
    config, prompts = demo.app.neuron_config, demo.prompts
    room = cast(int, config.value("max_length")) - max(map(len, prompts))
    steps = most or cast("int | None", config.value("max_new_tokens")) or room
    return expect(reference, prompts, min(steps, room), with_logits=with_logits)


def _layer_search(demo: Demo, reference: HuggingFaceModel) -> LayerSearch:
    """The comparison of layers after a failure."""
    app, model = demo.app, demo.app.running().model

    def both() -> tuple[LayerModel, LayerModel]:
        checkpoint = app.checkpoint(model.module)
        return reference, GraphLayers(app.model_config(), model.settings, checkpoint, app.progress)

    return LayerSearch(both, model.settings.dtype)


def _check_tokens(
    demo: Demo, expected: ExpectedOutputs, search: LayerSearch | None
) -> AccuracyReport:
    steps = max(len(row) for row in expected.tokens)
    request = demo.request(greedy=True, most=steps)
    made, _ = generate(demo.app.running().session, expected.prompts, request)
    return check_tokens(expected, [completion.tokens for completion in made], layers=search)


def _check_logits(
    demo: Demo, expected: ExpectedOutputs, search: LayerSearch | None
) -> AccuracyReport:
    given, dtype = demo.given, demo.app.running().model.settings.dtype
    text = given.get("--tol-map")
    tolerances = default_tolerances(dtype) if text is None else parse_tolerance_map(str(text))
    gap = given.get("--divergence-difference-tol", DIVERGENCE_DIFFERENCE_TOL)
    auto = "auto" in cast("list[object]", given.get("--capture-indices", []))
    return check_logits(
        SessionModel(demo.app.running().session),
        expected,
        tolerances,
        cast(float, gap),
        search,
        demo.captures() if auto else None,
    )
