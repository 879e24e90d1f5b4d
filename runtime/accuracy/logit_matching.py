"""Logit matching: errors of the logits of each step, with the reference's tokens fed to both sides.

The reference's token is fed after each step, whatever the tested model would choose: while both
choose the same token nothing is forced, and after a divergence the check goes on with equal inputs.
A row never depends on another row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.json_value import Json, json_number
from graphgen.runtime.accuracy.expected_outputs import ExpectedOutputs
from graphgen.runtime.accuracy.step_model import StepModel
from graphgen.runtime.accuracy.tolerances import (
    DIVERGENCE_DIFFERENCE_TOL,
    Tolerance,
    ToleranceMap,
)

_Wide = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TopKError:
    """The largest error among the top k expected logits of one step.

    Attributes:
        tolerance: the accepted error.
        error: max|actual - expected|, in logits; infinite if an actual logit is not a number.
        scale: max|expected| over the same entries.
    """

    tolerance: Tolerance
    error: float
    scale: float

    @property
    def relative(self) -> float:
        """The error in units of :attr:`scale`."""
        return self.error / self.scale if self.scale else self.error

    @property
    def allowed(self) -> float:
        """The largest error that passes."""
        return self.tolerance.atol + self.tolerance.rtol * self.scale

    @property
    def passed(self) -> bool:
        """True if the error is within the tolerance."""
        return self.error <= self.allowed


@dataclass(frozen=True, slots=True)
class StepLogitsCheck:
    """The comparison of one row's logits at one step.

    Attributes:
        row: index of the prompt.
        step: 0 for the logits after the prompt.
        expected_token: the best token of the expected logits.
        actual_token: the best token of the actual logits.
        divergence_difference: how much lower the tested model rates the expected token than its
            own, in logits; 0 if they are the same.
        divergence_difference_tol: the largest difference that passes.
        shift: mean of actual - expected, removed before errors are taken.
        errors: one for each k.
    """

    row: int
    step: int
    expected_token: int
    actual_token: int
    divergence_difference: float
    divergence_difference_tol: float
    shift: float
    errors: tuple[TopKError, ...]

    @property
    def diverged(self) -> bool:
        """True if the best tokens differ."""
        return self.expected_token != self.actual_token

    @property
    def passed(self) -> bool:
        """True if all errors are within their tolerances, and so is a divergence."""
        close = self.divergence_difference <= self.divergence_difference_tol
        return close and all(error.passed for error in self.errors)

    @property
    def worst(self) -> TopKError:
        """The error that is largest relative to its tolerance."""
        return max(self.errors, key=lambda one: one.error / one.allowed if one.allowed else 0.0)

    def to_json(self) -> dict[str, Json]:
        """All attributes; errors relative, by k. A number that JSON lacks is a text."""
        return {
            "row": self.row,
            "step": self.step,
            "passed": self.passed,
            "expected_token": self.expected_token,
            "actual_token": self.actual_token,
            "divergence_difference": json_number(self.divergence_difference),
            "shift": json_number(self.shift),
            "errors": {one.tolerance.key: json_number(one.relative) for one in self.errors},
        }


@dataclass(frozen=True, slots=True)
class LogitMatch:
    """The result of logit matching.

    Attributes:
        tolerances: the accepted errors.
        steps: one comparison per step and row, in the order of steps.
    """

    tolerances: ToleranceMap
    steps: list[StepLogitsCheck]

    @property
    def passed(self) -> bool:
        """True if every comparison passed."""
        return self.first is None

    @property
    def first(self) -> StepLogitsCheck | None:
        """The earliest comparison that failed, the first row of its step."""
        return next((check for check in self.steps if not check.passed), None)

    def get_divergence_index(self) -> int:
        """The earliest step that failed, -1 if none did: the step to capture inputs of."""
        return -1 if self.first is None else self.first.step

    def largest(self) -> dict[str, StepLogitsCheck]:
        """For each k the comparison with the largest relative error."""
        keys = [one.key for one in self.tolerances.entries]
        return {
            key: max(self.steps, key=lambda check: check.errors[index].relative)
            for index, key in enumerate(keys)
        }

    def to_json(self) -> dict[str, Json]:
        """``passed``, ``divergence_index``, the tolerances and every comparison."""
        return {
            "mode": "logit-matching",
            "passed": self.passed,
            "divergence_index": self.get_divergence_index(),
            "tolerances": {key: list(pair) for key, pair in self.tolerances.to_json().items()},
            "steps": [check.to_json() for check in self.steps],
        }


def match_logits(
    model: StepModel,
    expected: ExpectedOutputs,
    tolerances: ToleranceMap,
    divergence_difference_tol: float = DIVERGENCE_DIFFERENCE_TOL,
) -> LogitMatch:
    """Run a model over the reference's tokens and compare the logits of every step.

    Args:
        model: the model under test.
        expected: with logits (GG0705 without).
        tolerances: accepted errors.
        divergence_difference_tol: accepted gap between the best and the expected token, in logits.

    Raises:
        GraphgenError: GG0701 if the model has too few slots, GG0705 for another vocabulary or for
            expected logits that are not numbers.
    """
    if expected.logits is None:
        raise GraphgenError(
            "GG0705",
            "logit matching needs the expected logits, and the file has tokens only",
            help="write .npz or .safetensors by --save-expected, or match tokens",
        )
    checks: list[StepLogitsCheck] = []
    for step, actual in enumerate(forced_logits(model, expected)):
        wanted = expected.logits[step]
        if actual.shape != wanted.shape:
            raise GraphgenError(
                "GG0705",
                f"the model gives {actual.shape[-1]} logits, the reference {wanted.shape[-1]}",
                help="both sides must have one vocabulary",
            )
        checks += [
            compare_logits(
                actual[row], wanted[row], tolerances, divergence_difference_tol, row, step
            )
            for row in range(len(wanted))
        ]
    return LogitMatch(tolerances, checks)


def forced_logits(
    model: StepModel, expected: ExpectedOutputs, last: int | None = None
) -> Iterator[npt.NDArray[np.float32]]:
    """The model's logits f32 [N,V] of each step up to ``last``, fed the expected tokens."""
    steps = min(len(row) for row in expected.tokens)
    yield model.start(expected.prompts)
    for step in range(1, steps if last is None else last + 1):
        yield model.step([_fed(row, step) for row in expected.tokens])


def _fed(tokens: Sequence[int], step: int) -> int:
    """The token before a step; a row that has ended repeats its last one."""
    return tokens[min(step, len(tokens)) - 1] if tokens else 0


def compare_logits(
    actual: npt.NDArray[np.floating],
    expected: npt.NDArray[np.floating],
    tolerances: ToleranceMap,
    divergence_difference_tol: float = DIVERGENCE_DIFFERENCE_TOL,
    row: int = 0,
    step: int = 0,
) -> StepLogitsCheck:
    """Compare the logits [V] of one row at one step.

    Entries that the reference set to -inf are left out; a k beyond the others means all of them.
    The constant that both sides may differ by, as softmax does not see it, is removed by least
    squares: it is the mean difference.

    Raises:
        GraphgenError: GG0705 for expected logits with NaN or +inf, or without a finite one.
    """
    used = ~np.isneginf(expected)
    wanted, got = expected[used].astype(np.float64), actual[used].astype(np.float64)
    if not len(wanted) or not np.isfinite(wanted).all():
        raise GraphgenError(
            "GG0705",
            f"the reference's logits of row {row}, step {step} are not numbers",
            help="the reference is wrong, not the tested model",
        )
    index = np.flatnonzero(used)
    best, chosen = int(wanted.argmax()), int(_best(got))
    finite = bool(np.isfinite(got).all())
    shift = float((got - wanted).mean()) if finite else 0.0
    errors = np.abs(got - shift - wanted) if finite else _broken(got, wanted)
    gap = 0.0 if best == chosen else float(got[chosen] - got[best])
    return StepLogitsCheck(
        row,
        step,
        int(index[best]),
        int(index[chosen]),
        gap if np.isfinite(gap) else float("inf"),
        divergence_difference_tol,
        shift,
        tuple(_top_k_errors(errors, wanted, tolerances.entries)),
    )


def _best(logits: _Wide) -> np.intp:
    """The best entry; NaN is worse than any number."""
    return np.where(np.isnan(logits), -np.inf, logits).argmax()


def _broken(got: _Wide, wanted: _Wide) -> _Wide:
    """Errors of logits with NaN or infinite ones, which count as infinitely wrong."""
    return np.where(np.isfinite(got), np.abs(np.nan_to_num(got) - wanted), np.inf)


def _top_k_errors(
    errors: _Wide, wanted: _Wide, tolerances: Sequence[Tolerance]
) -> Iterator[TopKError]:
    # Stable and descending: of equal logits the lower index comes first, as in argmax.
    order = np.argsort(-wanted, kind="stable")
    for tolerance in tolerances:
        top = order[: tolerance.top_k]
        scale = float(np.abs(wanted[top]).max())
        yield TopKError(tolerance, float(errors[top].max()), scale)
