"""Thorough validation against bugs written by someone who had not read it.

Each bug is shown by a call written by hand; validation is not given that call. It runs the
adversarial script with the ranges of trained models, and checks each rewrite alone.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from graphgen.passes.core.journal import Rewrite
from graphgen.passes.validate import Verdict
from graphgen.runtime.accuracy.validate_model import THOROUGH, validate_module
from tests.oracles.unseen_bugs import SHOWN, SHOWN_ROUNDED, Unseen
from tests.oracles.unseen_bugs_all import UNSEEN_BUGS

# Wide twins take seconds.
CASES = [
    pytest.param(
        unseen, id=unseen.name, marks=[pytest.mark.slow] if unseen.source == "wide llama" else []
    )
    for unseen in UNSEEN_BUGS
]
BUGS = pytest.mark.parametrize("unseen", CASES)


def blamed(verdict: Verdict) -> Rewrite | None:
    """The rewrite that the numbers of the calls, or else its own, find wrong."""
    alone = verdict.rewrites.wrong if verdict.rewrites else None
    return verdict.guilty or (alone.rewrite if alone else None)


def test_there_are_sixty_of_four_kinds():
    kinds = Counter(unseen.kind for unseen in UNSEEN_BUGS)
    assert kinds == dict.fromkeys(("programs", "situations", "sizes", "values"), 15)
    assert len({unseen.name for unseen in UNSEEN_BUGS}) == 60


@BUGS
@pytest.mark.one_in(6)
def test_a_call_shows_that_it_is_wrong(unseen: Unseen):
    meaning, rounding = unseen.shown()
    assert meaning > SHOWN or rounding > SHOWN_ROUNDED + 10 * unseen.bug.budget
    assert unseen.shown(harmless=True) == (0.0, 0.0)


@BUGS
@pytest.mark.one_in(12)
def test_thorough_validation_names_the_rewrite(unseen: Unseen):
    module, planted = unseen.module(), unseen.planted()
    twin = "wide" if unseen.source == "wide llama" else None
    with np.errstate(all="ignore"):
        (verdict,) = validate_module(module, [planted], THOROUGH, twin=twin).verdicts
    guilty = blamed(verdict)
    assert guilty is not None, verdict.state
    assert guilty.number == unseen.number
    assert (guilty.rule, guilty.function) == (unseen.name, unseen.bug.program)
    assert guilty.loc.scope == unseen.bug.scope
