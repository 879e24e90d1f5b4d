"""A plugin of pytest that writes down each outcome, and runs the tests of a plan in its order.

Loaded by ``-p tests.ci.recorder``; it does something where ``GRAPHGEN_CI_RUN`` names a folder.
There ``plan.json`` says what to run, and ``record.jsonl`` gets a line for each event as it happens,
so that a run that is killed has not lost what it knew:

    {"pid": 17}                                   the process that was started
    {"slow": {"tests/a/test_b.py": 4}}            tests of `make slow`, whatever is chosen here
    {"collected": ["tests/a/test_b.py::test_c"]}
    {"started": "tests/a/test_b.py::test_c"}
    {"failed": "tests/a/test_b.py::test_c", "text": "..."}
    {"ended": "tests/a/test_b.py::test_c", "outcome": "passed", "seconds": 0.2}
    {"exit": 0}
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

FOLDER = "GRAPHGEN_CI_RUN"
PLAN = "plan.json"
RECORD = "record.jsonl"
_GIVEN = "graphgen_ci"


@dataclass(frozen=True, slots=True)
class Plan:
    """What of the collected tests is run.

    Attributes:
        only: the ids of the tests; ``None`` for all.
        files: files in the order in which they are run; others come behind them.
    """

    only: Sequence[str] | None = None
    files: Sequence[str] = ()


def pytest_configure(config: pytest.Config) -> None:
    """Follow the plan, and in the process that was started record what happens."""
    given: dict[str, Any] | None = getattr(config, "workerinput", {}).get(_GIVEN)
    if given is not None:
        plan = Plan(given["only"], given["files"])
        config.pluginmanager.register(_PlannedTests(config, plan, given["crashed"]))
        return
    # Taken out of the environment: a test may start pytest itself.
    folder = os.environ.pop(FOLDER, None)
    if folder is None or hasattr(config, "workerinput"):
        return
    plan = Plan(**json.loads((Path(folder) / PLAN).read_text()))
    tests = _PlannedTests(config, plan, [])
    config.pluginmanager.register(tests)
    config.pluginmanager.register(_Recorder(Path(folder) / RECORD, plan, tests))


class _PlannedTests:
    """Chooses and orders tests, in the process that runs them."""

    def __init__(self, config: pytest.Config, plan: Plan, crashed: Sequence[str]) -> None:
        self.plan = plan
        self.crashed = frozenset(crashed)
        self.slow: dict[str, int] = {}
        if hasattr(config, "workeroutput"):
            # Sent to the process that was started when this one ends.
            config.workeroutput[_GIVEN] = self.slow  # pyright: ignore[reportAttributeAccessIssue]

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None]:
        self.slow |= Counter(_file(item.nodeid) for item in items if _is_slow(item))
        if self.plan.only is not None:
            only = frozenset(self.plan.only)
            config.hook.pytest_deselected(items=[i for i in items if i.nodeid not in only])
            items[:] = [item for item in items if item.nodeid in only]
        yield
        # After all who order them otherwise.
        places = {name: place for place, name in enumerate(self.plan.files)}
        items.sort(key=lambda item: places.get(_file(item.nodeid), len(places)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        # pytest-xdist gives the test to the next worker, which would crash as well.
        if item.nodeid in self.crashed:
            pytest.skip("a worker has crashed while it ran this test")


class _Recorder:
    """Writes the record, in the process that was started."""

    def __init__(self, path: Path, plan: Plan, tests: _PlannedTests) -> None:
        self.path = path
        self.plan = plan
        self.tests = tests
        self.crashed: list[str] = []
        self.seconds: dict[str, float] = {}
        self.outcomes: dict[str, str] = {}
        self.write(pid=os.getpid())

    def write(self, **event: object) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[_GIVEN] = {**asdict(self.plan), "crashed": self.crashed}

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        self.write(collected=list(ids))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:
            self.write(collected=[item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        # Nothing is sent by a worker that crashed.
        if slow := getattr(node, "workeroutput", {}).get(_GIVEN):
            self.write(slow=slow)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.write(failed=report.nodeid, text=_text(report))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.write(started=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = report.nodeid
        self.seconds[test] = self.seconds.get(test, 0.0) + report.duration
        # Neither set up nor called nor torn down: the worker is gone.
        crashed = report.when not in ("setup", "call", "teardown")
        if crashed:
            self.crashed.append(test)
        if report.failed:
            self.outcomes[test] = "failed"
            self.write(failed=test, text=_text(report))
        elif self.outcomes.get(test) is None:
            expected = report.skipped and hasattr(report, "wasxfail")
            if report.skipped and not expected:
                self.outcomes[test] = "skipped"
            elif report.when == "call":
                self.outcomes[test] = "passed"
        if crashed or report.when == "teardown":
            outcome = self.outcomes.get(test, "passed")
            self.write(ended=test, outcome=outcome, seconds=round(self.seconds[test], 2))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if self.tests.slow:
            self.write(slow=self.tests.slow)
        self.write(exit=int(exitstatus))


def _is_slow(item: pytest.Item) -> bool:
    marks = {mark.name for mark in item.iter_markers()}
    return "slow" in marks and "exhaustive" not in marks


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _text(report: pytest.TestReport | pytest.CollectReport) -> str:
    """What failed, and what was printed meanwhile."""
    captured = [f"{name}\n{content}" for name, content in report.sections]
    return "\n".join([report.longreprtext, *captured]).rstrip()
