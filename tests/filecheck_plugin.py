"""Tests of passes as text: ``tests/filecheck/<pass>/<case>.gg``, checked as by LLVM's FileCheck.

A file is IR text whose comments at the beginning of a line are commands and checks::

    # RUN: opt %s -p 'cse,dce'
    # CHECK-LABEL: func @f {
    # CHECK-NEXT: arg %x : f32[4]
    # CHECK-NOT: negate

Each ``RUN`` is a graphgen command, run in this process, and a test of its own; ``%s`` is the file.
``not`` before the command wants exit status 1 and checks stderr too. Checks are those of
``FileCheck --match-full-lines``: a CHECK-NOT matches any part of a line, the others a whole line.
The comment after an op, which says where it comes from, need not be checked. Checks may hold
``{{regex}}``, ``[[NAME:regex]]`` and ``[[NAME]]``; a run of blanks matches any other.

Reference: https://llvm.org/docs/CommandGuide/FileCheck.html
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

KINDS = ("CHECK", "CHECK-NEXT", "CHECK-DAG", "CHECK-NOT", "CHECK-LABEL")
_COMMENT = re.compile(r"^#\s*(RUN|CHECK[\w-]*):(.*)$")
_PART = re.compile(r"\{\{(.*?)\}\}(?!\})|\[\[([A-Za-z_]\w*)(?::(.*?))?\]\](?!\])|[ \t]+")


class CheckError(Exception):
    """A check failed, or a file cannot be checked; the text names the line."""


@dataclass(frozen=True)
class Check:
    """One check: its kind, its text and the number of its line in the file."""

    kind: str
    text: str
    line: int


@dataclass
class Scan:
    """Match checks against an output, front to back.

    Attributes:
        output: what the command printed.
        at: end of the last match; -1 before the first.
        names: texts of the variables bound so far.
    """

    output: str
    at: int = -1

    def __post_init__(self) -> None:
        self.names: dict[str, str] = {}
        self.group: list[re.Match[str]] = []
        self.since = 0

    def run(self, checks: Iterable[Check]) -> None:
        """Raise CheckError for the first check that does not hold."""
        checks = list(checks)
        labels = self._labels([item for item in checks if item.kind == "CHECK-LABEL"])
        starts = [*(match.start() for match in labels[1:]), len(self.output)]
        limit = labels[0].start() if labels else len(self.output)
        absent: list[Check] = []
        for item in checks:
            if item.kind == "CHECK-NOT":
                absent.append(item)
                self.group = []
                continue
            if item.kind == "CHECK-LABEL":
                match, limit = labels.pop(0), starts.pop(0)
            else:
                match = self._next(item, limit)
            self._refuse(absent, match.start())
            self.at, absent = max(self.at, match.end()), []
        self._refuse(absent, limit)

    def _labels(self, labels: list[Check]) -> list[re.Match[str]]:
        found: list[re.Match[str]] = []
        for item in labels:
            start = found[-1].end() if found else 0
            found.append(self._need(item, self._find(item, start, len(self.output)), start))
        return found

    def _next(self, item: Check, limit: int) -> re.Match[str]:
        start = max(self.at, 0)
        if item.kind != "CHECK-DAG":
            self.group = []
        if item.kind == "CHECK-NEXT":
            if self.at < 0:
                raise CheckError(f"line {item.line}: CHECK-NEXT before any CHECK")
            start = min(self.at + 1, limit)
            end = self.output.find("\n", start, limit)
            limit = end if end >= 0 else limit
        elif item.kind == "CHECK-DAG":
            self.since = self.since if self.group else start
            start = self.since
        match = self._find(item, start, limit)
        while match and any(match.start() == old.start() for old in self.group):
            match = self._find(item, match.end(), limit)
        found = self._need(item, match, start)
        if item.kind == "CHECK-DAG":
            self.group.append(found)
        return found

    def _find(self, item: Check, start: int, end: int) -> re.Match[str] | None:
        pattern = _regex(item.text, self.names)
        if item.kind != "CHECK-NOT":
            pattern = rf"^[ \t]*(?:{pattern})[ \t]*(?:  #.*)?$"
        match = re.compile(pattern, re.MULTILINE).search(self.output, start, end)
        if match:
            self.names.update(match.groupdict())
        return match

    def _need(self, item: Check, match: re.Match[str] | None, start: int) -> re.Match[str]:
        if match is None:
            raise CheckError(self._report(item, "not found", start))
        return match

    def _refuse(self, absent: Iterable[Check], end: int) -> None:
        for item in absent:
            if match := self._find(item, max(self.at, 0), end):
                raise CheckError(
                    self._report(item, "found, which must not be there", match.start())
                )

    def _report(self, item: Check, what: str, at: int) -> str:
        here = self.output.count("\n", 0, at + (self.output[at : at + 1] == "\n"))
        shown = [
            f"{'>' if index == here else ' '}{index + 1:4} | {line}"
            for index, line in enumerate(self.output.splitlines())
        ]
        where = f"from line {here + 1} of the output, marked with >:"
        bound = "".join(f"\n  with {name} = {text}" for name, text in self.names.items())
        return "\n".join(
            [f"line {item.line}: {item.kind}: {item.text}{bound}\n{what} {where}", *shown]
        )


def _regex(text: str, names: dict[str, str]) -> str:
    """The regular expression of a check's text."""
    out, at, bound = "", 0, set[str]()
    for part in _PART.finditer(text):
        out += re.escape(text[at : part.start()])
        at = part.end()
        plain, name, regex = part.groups()
        if plain is not None:
            out += f"(?:{plain})"
        elif name is None:
            out += r"[ \t]+"
        elif regex is not None:
            out += f"(?P<{name}>{regex})"
            bound.add(name)
        elif name not in bound and name not in names:
            raise CheckError(f"the variable {name} is used before it is bound: {text}")
        else:
            out += f"(?P={name})" if name in bound else re.escape(names[name])
    return out + re.escape(text[at:])


def read_checks(text: str) -> tuple[list[str], list[Check]]:
    """The commands and the checks of a file."""
    runs: list[str] = []
    checks: list[Check] = []
    for number, line in enumerate(text.splitlines(), 1):
        found = _COMMENT.match(line)
        if found is None:
            continue
        kind, rest = found[1], found[2].strip()
        if kind == "RUN":
            runs.append(rest)
        elif kind in KINDS and rest:
            checks.append(Check(kind, rest, number))
        else:
            raise CheckError(f"line {number}: not a check: {line}")
    if not runs or all(item.kind == "CHECK-NOT" for item in checks):
        raise CheckError("a file needs a RUN and a check other than CHECK-NOT")
    return runs, checks


def output_of(run: str, path: Path) -> str:
    """What the command prints, which must end as it should."""
    from typer.testing import CliRunner

    from graphgen.cli.main import app

    words = [word.replace("%s", str(path)) for word in shlex.split(run)]
    fails = words[0] == "not"
    result = CliRunner().invoke(app, words[fails:])
    if result.exit_code != int(fails):
        raise CheckError(f"RUN: {run}: exit status {result.exit_code}\n{result.output}")
    return result.output if fails else result.stdout


class CheckFile(pytest.File):
    """A file of ``tests/filecheck``."""

    def collect(self) -> Iterator[pytest.Item]:
        """Give a test for each RUN line."""
        try:
            runs, checks = read_checks(self.path.read_text(encoding="utf-8"))
        except CheckError as error:
            raise self.CollectError(f"{self.path}: {error}") from error
        for run in runs:
            yield CheckItem.from_parent(self, name=run, run=run, checks=checks)


class CheckItem(pytest.Item):
    """A command and the checks of its output."""

    def __init__(self, *, run: str, checks: list[Check], **more: object) -> None:
        super().__init__(**more)  # pyright: ignore[reportArgumentType]
        self.run, self.checks = run, checks

    def runtest(self) -> None:
        """Run the command and check what it prints."""
        Scan(output_of(self.run, self.path)).run(self.checks)

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None
    ) -> str:
        """Show the check instead of a traceback."""
        if isinstance(excinfo.value, CheckError):
            return f"{self.path}: {excinfo.value}"
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        """The file and the command."""
        return self.path, 0, self.name


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> CheckFile | None:
    """Collect the files of ``tests/filecheck``."""
    if file_path.suffix == ".gg" and "filecheck" in file_path.parts:
        return CheckFile.from_parent(parent, path=file_path)
    return None
