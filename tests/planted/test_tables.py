"""The tables of planted faults: how many there are, their names and their reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.planted import faults_of, kinds
from tests.planted.faults import REPORT

KINDS = kinds()
# Tests of faults that are planted in language models, with a script of calls.
IN_MODELS = {"long_bugs", "unseen_bugs"}


def test_there_are_at_least_sixty_and_fifteen_of_public_reports():
    rows = [row for kind in KINDS for row in faults_of(kind)]
    assert len(rows) >= 60
    assert len({row.report for row in rows if row.report}) >= 15


@pytest.mark.parametrize("kind", KINDS)
def test_names_differ_and_reports_have_a_repository_and_a_number(kind: str):
    rows = faults_of(kind)
    assert len(rows) >= 3
    assert len({row.name for row in rows}) == len(rows)
    assert [row.report for row in rows if row.report and not REPORT.fullmatch(row.report)] == []


def test_every_file_is_a_kind():
    names = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    assert names - set(KINDS) == {*IN_MODELS, Path(__file__).stem.removeprefix("test_")}
