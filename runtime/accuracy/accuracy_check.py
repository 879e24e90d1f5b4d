"""The accuracy check: match tokens or logits, then find the layer and capture the inputs.

A check that fails compares the hidden states of both sides over the failing row's tokens, so that
the report names step, token and layer, and captures the inputs of the failing step if wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.runtime.accuracy.expected_outputs import ExpectedOutputs
from graphgen.runtime.accuracy.input_capture import Captured, InputCapture
from graphgen.runtime.accuracy.layer_comparison import LayerComparison, compare_layers
from graphgen.runtime.accuracy.logit_matching import LogitMatch, forced_logits, match_logits
from graphgen.runtime.accuracy.step_model import LayerModel, SessionModel, StepModel
from graphgen.runtime.accuracy.token_matching import TokenMatch, match_tokens
from graphgen.runtime.accuracy.tolerances import DIVERGENCE_DIFFERENCE_TOL, ToleranceMap

# Makes the reference and the tested model; called when layers are compared only.
MakeLayerModels = Callable[[], tuple[LayerModel, LayerModel]]
# The text of a token, for messages.
Spell = Callable[[int], str]


@dataclass(frozen=True, slots=True)
class LayerSearch:
    """The comparison of layers that follows a failure.

    Attributes:
        models: makes both sides.
        dtype: the coarsest element type that the tested model rounds to.
        always: compare the layers of the first row even if the check passes.
    """

    models: MakeLayerModels
    dtype: str
    always: bool = False


@dataclass(frozen=True, slots=True)
class AccuracyReport:
    """The result of a check.

    Attributes:
        match: tokens or logits, step by step.
        layers: the errors between layers; ``None`` where they were not compared.
        captured: captures of the failing step's inputs.
    """

    match: TokenMatch | LogitMatch
    layers: LayerComparison | None = None
    captured: tuple[Captured, ...] = ()

    @property
    def passed(self) -> bool:
        """True if the outputs match and no compared layer is wrong."""
        return self.match.passed and (self.layers is None or self.layers.first is None)

    def get_divergence_index(self) -> int:
        """The earliest failing step, -1 without one."""
        return self.match.get_divergence_index()

    def to_json(self) -> dict[str, Json]:
        """The match, with ``layers`` and ``captured``."""
        return {
            **self.match.to_json(),
            "passed": self.passed,
            "layers": None if self.layers is None else self.layers.to_json(),
            "captured": [one.file for one in self.captured],
        }

    def require_passed(self, spell: Spell = str) -> None:
        """Raise an :class:`AccuracyError` (GG0907) unless the check passed."""
        if not self.passed:
            raise AccuracyError(self, spell)


class AccuracyError(GraphgenError):
    """A failed check (GG0907), naming the step, the token and the layer.

    Args:
        report: the result.
        spell: the text of a token.

    Attributes:
        report: the result.
    """

    def __init__(self, report: AccuracyReport, spell: Spell = str) -> None:
        self.report = report
        files = ", ".join(one.file for one in report.captured)
        super().__init__(
            "GG0907",
            describe_failure(report, spell),
            help=f"inputs were captured: {files}" if files else "",
        )

    def get_divergence_index(self) -> int:
        """The earliest failing step, -1 if only a layer is wrong."""
        return self.report.get_divergence_index()


def describe_failure(report: AccuracyReport, spell: Spell = str) -> str:
    """The first failure in a sentence: row, step, tokens, the error of logits, and the layer."""
    match, layers = report.match, report.layers
    if match.first is None:
        what = "the outputs match, but layers differ"
    elif isinstance(match, TokenMatch):
        what = _token_failure(match, spell)
    else:
        what = _logit_failure(match, spell)
    return what if layers is None else f"{what}; the first wrong place is {layers.place}"


def _token_failure(match: TokenMatch, spell: Spell) -> str:
    row = match.first
    assert row is not None
    wanted, got = (row.token(side, row.step) for side in (row.expected, row.actual))
    return (
        f"tokens differ at row {row.row}, step {row.step}: expected {token_text(wanted, spell)}, "
        f"got {token_text(got, spell)}"
    )


def _logit_failure(match: LogitMatch, spell: Spell) -> str:
    check = match.first
    assert check is not None
    tokens = f"token {token_text(check.expected_token, spell)}"
    if check.diverged:
        tokens = f"expected {tokens}, got {token_text(check.actual_token, spell)}"
    worst = check.worst
    reason = (
        f"error {worst.error:.2e} in {worst.tolerance.name}, {worst.allowed:.2e} allowed"
        if not worst.passed
        else f"the expected token is {check.divergence_difference:.2e} below the best, "
        f"{check.divergence_difference_tol:.2e} allowed"
    )
    return f"logits differ at row {check.row}, step {check.step}, {tokens}: {reason}"


def token_text(token: int | None, spell: Spell) -> str:
    """A token's number and its text, where there is one; ``None`` is the end of a row."""
    if token is None:
        return "the end"
    text = spell(token)
    return str(token) if text == str(token) else f"{token} {text!r}"


def check_logits(
    tested: StepModel,
    expected: ExpectedOutputs,
    tolerances: ToleranceMap,
    divergence_difference_tol: float = DIVERGENCE_DIFFERENCE_TOL,
    layers: LayerSearch | None = None,
    capture: Path | None = None,
) -> AccuracyReport:
    """Match the logits of a model.

    Args:
        tested: the model under test.
        expected: with logits.
        tolerances: accepted errors.
        divergence_difference_tol: accepted gap between the best and the expected token.
        layers: how to find the layer of a failure.
        capture: folder for the inputs of the failing step; for the model of a session only.

    Raises:
        GraphgenError: as :func:`~graphgen.runtime.accuracy.logit_matching.match_logits`, GG0705 for
            ``capture`` of another model.
    """
    match = match_logits(tested, expected, tolerances, divergence_difference_tol)
    first = match.first
    place = None if first is None else (first.row, first.step)
    captured = _captured(tested, expected, match.get_divergence_index(), capture)
    return AccuracyReport(match, _searched(layers, expected, place), captured)


def check_tokens(
    expected: ExpectedOutputs,
    actual: list[list[int]],
    tested: StepModel | None = None,
    layers: LayerSearch | None = None,
    capture: Path | None = None,
) -> AccuracyReport:
    """Match the tokens that a model generated.

    Args:
        expected: tokens of each prompt.
        actual: the tested model's new tokens.
        tested: the model under test, which ``capture`` needs.
        layers: how to find the layer of a failure.
        capture: folder for the inputs of the failing step.
    """
    match = match_tokens(expected.tokens, actual)
    first = match.first
    place = None if first is None else (first.row, first.step)
    captured: tuple[Captured, ...] = ()
    if capture is not None and tested is not None:
        captured = _captured(tested, expected, match.get_divergence_index(), capture)
    return AccuracyReport(match, _searched(layers, expected, place), captured)


def _searched(
    search: LayerSearch | None, expected: ExpectedOutputs, place: tuple[int, int] | None
) -> LayerComparison | None:
    """Compare the layers over the tokens before the failing step, which are equal on both sides."""
    if search is None or (place is None and not search.always):
        return None
    row, step = place or (0, len(expected.tokens[0]) - 1)
    tokens = [*expected.prompts[row], *expected.tokens[row][:step]]
    return compare_layers(*search.models(), tokens, search.dtype)


def _captured(
    tested: StepModel, expected: ExpectedOutputs, step: int, folder: Path | None
) -> tuple[Captured, ...]:
    """Run up to the failing step again and capture its inputs."""
    if folder is None or step < 0:
        return ()
    if not isinstance(tested, SessionModel):
        raise GraphgenError(
            "GG0705", "inputs are captured of a session's programs, and this model is another one"
        )
    capture = InputCapture(folder, steps=[step])
    tested.session.observers.append(capture)
    try:
        for _ in forced_logits(tested, expected, last=step):
            pass
    finally:
        tested.session.observers.remove(capture)
    return tuple(capture.captured)
