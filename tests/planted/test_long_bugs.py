"""Bugs of programs for long contexts are caught, and the rewrite that made each is named."""

from __future__ import annotations

import pytest

from graphgen.ir.clone import clone_module
from graphgen.passes.validate import validate
from tests.oracles.planted_bugs import Bug, Planted
from tests.oracles.planted_bugs_long import LONG_BUGS, long_model, long_script
from tests.passes.validate.test_validate import apply_pass


def test_there_are_at_least_twelve():
    assert len({bug.name for bug in LONG_BUGS}) >= 12


@pytest.mark.parametrize("bug", LONG_BUGS, ids=lambda bug: bug.name)
@pytest.mark.one_in(8)
def test_a_bug_is_caught_and_the_rewrite_named(bug: Bug):
    module, item = long_model(bug), Planted(bug)
    apply_pass(clone_module(module), item)
    assert item.history.count(True) == 1
    (verdict,) = validate(module, [item], long_script(bug))
    assert not verdict.ok
    guilty = verdict.guilty
    assert guilty is not None
    number = item.history.index(True) + 1
    assert (guilty.number, guilty.rule) == (number, bug.name)
    assert (guilty.function, guilty.loc.scope) == (bug.program, bug.scope)


@pytest.mark.parametrize("bug", LONG_BUGS, ids=lambda bug: bug.name)
@pytest.mark.one_in(7)
def test_the_same_rewrites_without_the_bug_are_exact(bug: Bug):
    (verdict,) = validate(long_model(bug), [Planted(bug, harmless=True)], long_script(bug))
    assert verdict.ok
