"""The count of planted faults: its table, its status and its records."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks import planted
from tests.planted.faults import Judgement, Row


@dataclass(frozen=True)
class Said:
    """A row whose judgements are given."""

    name: str
    wrong: Judgement
    right: Judgement
    report: str = ""

    def judge(self, *, right: bool = False) -> Judgement:
        return self.right if right else self.wrong


FINE = Judgement(found=False, blamed=False, said="ok")
BLAMED = Judgement(found=True, blamed=True, said="WRONG")
FOUND = Said("found", BLAMED, FINE, "a/b#1")
LATE = Said("late", Judgement(found=True, blamed=False, said="WRONG: #2"), FINE)
MISSED = Said("missed", FINE, FINE)
ALARM = Said("alarm", BLAMED, Judgement(found=False, blamed=False, said="unknown"))


def ran(rows: Sequence[Row], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(planted, "faults_of", lambda kind: rows)
    return planted.main(["--only", "kind", *arguments])


def test_all_found_and_blamed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    assert ran([FOUND], monkeypatch) == 0
    head, kind, total = capsys.readouterr().out.splitlines()
    assert head.split() == ["kind", "faults", "reports", "found", "blamed", "alarms", "seconds"]
    assert kind.split()[:6] == ["kind", "1", "1", "1", "1", "0"]
    assert total.split()[:6] == ["all", "1", "1", "1", "1", "0"]


def test_what_is_missed_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert ran([FOUND, LATE, MISSED, ALARM], monkeypatch) == 1
    _, kind, _, *told = capsys.readouterr().out.splitlines()
    assert kind.split()[:6] == ["kind", "4", "1", "3", "2", "1"]
    assert told == [
        "not found or blamed: kind: late: WRONG: #2",
        "not found or blamed: kind: missed: ok",
        "alarm: kind: alarm: unknown",
    ]


@dataclass(frozen=True)
class Raising:
    """A row whose judgement warns, and whose right twin raises."""

    name: str = "raising"
    report: str = ""

    def judge(self, *, right: bool = False) -> Judgement:
        if right:
            raise ValueError("no number")
        warnings.warn("parts are lost", stacklevel=1)
        return BLAMED


def test_what_raises_or_warns_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert ran([Raising(), FOUND], monkeypatch) == 1
    assert capsys.readouterr().out.splitlines()[3:] == [
        "not found or blamed: kind: raising: raised UserWarning: parts are lost",
        "alarm: kind: raising: raised ValueError: no number",
    ]


def test_a_record_replaces_that_of_the_same_revision(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    file, rows = tmp_path / "planted.jsonl", tmp_path / "rows.json"
    for revision, row in (("a", MISSED), ("b", MISSED), ("b", FOUND)):
        ran([row], monkeypatch, "--record", str(file), "--revision", revision, "--json", str(rows))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["revision"], line["kind"], line["found"]) for line in lines] == [
        ("a", "kind", 0),
        ("b", "kind", 1),
    ]
    assert [row["missed"] for row in json.loads(rows.read_text())] == [[]]


def test_the_kinds_have_tables():
    assert {"integers", "masks", "page"} <= set(planted.kinds())
    assert all(planted.faults_of(kind) for kind in planted.kinds())
