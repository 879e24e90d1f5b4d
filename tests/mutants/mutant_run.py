"""One mutant in a forked process: its tests run there against the mutated module.

Nothing is written to the tree. The parent has imported what is slow and has no state (NumPy, JAX,
torch, transformers, pytest) and nothing of the packages; the child imports these fresh, one module
of them compiled from the mutated syntax tree.
"""

from __future__ import annotations

import ast
import gc
import importlib
import importlib.util
import json
import mmap
import os
import resource
import runpy
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

import pytest

from tests.mutants.belonging_tests import module_name
from tests.mutants.mutations import REACHED, ROOT, Mutation, mutated_tree, names_near, words_near

SLOW_IMPORTS = ("numpy", "ml_dtypes", "pytest", "jax", "torch", "transformers")
# Imported before pytest looks, hypothesis keeps its assertions as they are.
QUIET = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
# Bytes a mutant may allocate beyond what the parent holds: a loop that never ends also grows.
MEMORY = 8 << 30
PACKAGE_NAMES = ("graphgen", "tests.oracles")
# Parts of the CPU seconds of a mutant that one file of tests gets at first: where its tests
# execute the fault, and where they do not so far. All tests that do not get ``ELSEWHERE`` times
# the seconds of those that do.
SHARE, SHARE_ELSEWHERE, ELSEWHERE = 1 / 3, 1 / 8, 2
# A hanging test may wait instead of computing: it gets this many times its CPU seconds.
WAITING = 4
# Options of pytest: in the order of the file, without files written to the tree.
OPTIONS = ("-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one mutant.

    Attributes:
        killed: whether a test failed, or did not end.
        by: the test that failed, or the file that did not end.
        how: of a failure outside of a test, or of one that counts only because it came again.
        hung: whether the time limit ended it.
        reached: whether the statement with the fault was executed at all.
        seconds: wall time.
        spent: CPU seconds of each file of tests that was run to its end or to its share.
    """

    killed: bool
    by: str
    how: str
    hung: bool
    reached: bool
    seconds: float
    spent: Mapping[str, float] = field(default_factory=dict)


def import_what_is_slow() -> None:
    """Import what every child would import again, in the environment of the tests."""
    os.environ["CI"] = "1"  # the same examples of hypothesis for each mutant
    # Each child imports the packages: from bytecode that is kept out of the tree.
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(ROOT / ".cache" / "bytecode")
    runpy.run_path(str(ROOT / "tests" / "conftest.py"))
    for name in SLOW_IMPORTS:
        importlib.import_module(name)
    # Collections in a child pass over what was imported here, and copy none of its memory.
    gc.collect()
    gc.freeze()


def run_mutant(
    mutation: Mutation | None, tests: Sequence[str], enough_s: float, limit_s: float
) -> Outcome:
    """Run test files one by one until a test fails because of the fault.

    A failure by a warning, or of a test that did not execute the fault, is stray: that test runs
    once more by itself, and counts only where it fails then for another reason than a warning of
    what was left behind. A file other than the first that uses up its share of the time goes on
    after all others.

    Args:
        mutation: None for the program as it is.
        tests: files, folders or single tests, the likeliest to fail first.
        enough_s: no further test is started after this many CPU seconds of tests that execute the
            statement, or ``ELSEWHERE`` times as many of tests that do not.
        limit_s: CPU seconds after which one file counts as hanging.
    """
    # Executed at all; by tests of the present file; when imported; by the present test.
    reached = mmap.mmap(-1, 4)
    events_in, events_out = os.pipe()
    scratch = tempfile.mkdtemp(prefix="mutant-")
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        os.close(events_in)
        _child(mutation, tests, enough_s, reached, events_out, Path(scratch))
    os.close(events_out)
    spent: dict[str, float] = {}
    try:
        by, how, hung = _follow(child, events_in, limit_s, spent)
    finally:
        _end(child)
        os.close(events_in)
        shutil.rmtree(scratch, ignore_errors=True)
    seconds = time.monotonic() - start
    return Outcome(bool(by), by, how, hung, reached[0] == 1, seconds, spent)


def _follow(
    child: int, events: int, limit_s: float, spent: dict[str, float]
) -> tuple[str, str, bool]:
    """The test that failed, or ``""``; how, if not as tests do; whether the time limit ended it."""
    text, current = b"", "the start"
    started, cpu = time.monotonic(), _cpu_seconds(child)
    while True:
        ready, _, _ = select.select([events], [], [], 1.0)
        if not ready:
            waited = time.monotonic() - started
            if waited > WAITING * limit_s or _cpu_seconds(child) - cpu > limit_s:
                return current, "the time limit", True
            continue
        piece = os.read(events, 4096)
        if not piece:
            return current, "the process ended", False
        *lines, text = (text + piece).split(b"\n")
        for event in map(json.loads, lines):
            if "failed" in event:
                return event["failed"], event["how"], False
            if "spent" in event:
                spent[current] = spent.get(current, 0.0) + float(event["spent"])
            else:
                current, started, cpu = event["file"], time.monotonic(), _cpu_seconds(child)


def _cpu_seconds(process: int) -> float:
    """CPU seconds of a process and of those it has waited for."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def _end(child: int) -> None:
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _child(
    mutation: Mutation | None,
    tests: Sequence[str],
    enough_s: float,
    reached: mmap.mmap,
    events: int,
    scratch: Path,
) -> None:
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        held = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
        resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, held + MEMORY))
        silent = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(silent, stream)
        os.chdir(ROOT)
        # A seed of an order, say, is for the run around this one, whose plugins this one lacks.
        os.environ.pop("PYTEST_ADDOPTS", None)
        _forget_packages()
        if mutation is not None:
            sys.meta_path.insert(0, _MutatedModule(mutation, reached))
        near = _Near(mutation)
        _run_tests(tests, near, enough_s, reached, events, scratch)
    except BaseException as error:  # a child never returns into the parent's code
        _tell(events, failed=tests[0], how=f"{type(error).__name__}: {error}")
    os._exit(0)


def _run_tests(
    tests: Sequence[str],
    near: _Near,
    enough_s: float,
    reached: mmap.mmap,
    events: int,
    scratch: Path,
) -> None:
    waiting = deque((test, 0) for test in tests)
    first, spent, elsewhere = tests[0], 0.0, 0.0
    while waiting and spent <= enough_s and elsewhere <= ELSEWHERE * enough_s:
        test, done = waiting.popleft()
        _tell(events, file=test)
        share = 1.0 if done or test == first else SHARE
        run = _FileRun(near, enough_s, share, done, reached)
        folder = f"--basetemp={scratch / str(len(waiting))}-{done}"
        code = _pytest(["-m", "not slow", folder, test], run)
        # 1: only stray failures; 5: every test of the file is slow.
        if run.failed or (not run.stopped and code not in (0, 1, 5)):
            _tell(events, failed=run.failed or test, how="" if run.failed else repr(code))
            return
        for number, stray in enumerate(dict.fromkeys(run.stray)):
            again = _FileRun(near, enough_s, 1.0, 0, reached, alone=True)
            folder = f"--basetemp={scratch / str(len(waiting))}-{done}-{number}"
            _pytest([folder, stray], again)
            if again.failed:
                _tell(events, failed=again.failed, how="in a second run by itself")
                return
        _tell(events, spent=f"{run.spent:.2f}")
        if run.reached:
            spent += run.spent
        else:
            elsewhere += run.spent
        if run.stopped and run.reached:
            waiting.append((test, run.done))
    _tell(events, failed="", how="")


def _pytest(arguments: Sequence[str], run: _FileRun) -> int | pytest.ExitCode:
    """The exit code of pytest, also where it ends by what tests have left behind.

    pytest collects what is left when its session has ended, and raises for warnings about it.
    """
    try:
        return pytest.main([*OPTIONS, *QUIET, *arguments], plugins=[run])
    except (Warning, BaseExceptionGroup) as error:
        if run.code is None or not _of_what_was_left(error):
            raise
        return run.code


class _Near:
    """Which tests name the functions or the words near a fault.

    Args:
        mutation: the fault; without one all tests are as near.
    """

    def __init__(self, mutation: Mutation | None) -> None:
        self.faulty = mutation is not None
        self.words = words_near(mutation) if mutation is not None else frozenset[str]()
        self.names = names_near(mutation) if mutation is not None else frozenset[str]()

    def distance(self, item: pytest.Item) -> int:
        """Smaller for tests whose name has the words, or whose text has the names."""
        hits = sum(word in item.name.lower() for word in self.words)
        if self.names and isinstance(item, pytest.Function):
            code = getattr(item.function, "__code__", None)
            if isinstance(code, CodeType):
                hits += 2 * len(self.names.intersection(code.co_names))
        return -hits


# Warnings about what other tests or processes left behind, which say nothing about a fault.
_LEFT_BEHIND = (pytest.PytestWarning, ResourceWarning)


def _causes(error: BaseException | None) -> Iterator[BaseException | None]:
    """An error, or those of a group."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _causes(one)
    else:
        yield error


def _of_what_was_left(error: BaseException | None) -> bool:
    """Whether an error is a warning about what was left behind, or some of these."""
    return all(isinstance(cause, _LEFT_BEHIND) for cause in _causes(error))


class _FileRun:
    """A plugin that runs a file from a test on until one fails or the file's share is spent.

    Tests that name what the fault is in run first.

    Attributes:
        failed: the name of the first test that failed because of the fault, or ``""``.
        stray: names of tests that failed by a warning, or without executing the fault.
        stopped: whether its share was spent.
        done: number of its tests that ran, with those of earlier runs.
        code: the exit code of pytest, once its session has ended.
    """

    def __init__(
        self,
        near: _Near,
        enough_s: float,
        share: float,
        done: int,
        reached: mmap.mmap,
        *,
        alone: bool = False,
    ) -> None:
        self.near = near
        self.enough_s, self.share, self.done, self._reached = enough_s, share, done, reached
        self.failed, self.stopped = "", False
        self.stray: list[str] = []
        self.code: int | pytest.ExitCode | None = None
        self.start = self.collected = time.process_time()
        self._alone = alone
        reached[1] = 0

    @property
    def spent(self) -> float:
        """CPU seconds since the start."""
        return time.process_time() - self.start

    @property
    def reached(self) -> bool:
        """Whether the fault was executed since the start, or when its module was imported."""
        return self._reached[1] == 1 or self._reached[2] == 1

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=self.near.distance)
        del items[: self.done]
        # Imports and the collection of tests are not part of the share.
        self.collected = time.process_time()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._reached[3] = 0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[object]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed and not self.failed:
            error = call.excinfo.value if call.excinfo is not None else None
            if self._counts(error):
                self.failed = report.nodeid
                item.session.shouldfail = "a test saw the fault"
            else:
                # Whatever the root of the names of tests is.
                self.stray.append(f"{item.path}::{report.nodeid.partition('::')[2]}")
        return report

    def _counts(self, error: BaseException | None) -> bool:
        """True for a failure that is of the fault."""
        executed = not self.near.faulty or self._reached[3] == 1 or self._reached[2] == 1
        if _of_what_was_left(error):
            return False
        # A warning of a computation comes again.
        warned = all(isinstance(cause, Warning) for cause in _causes(error))
        return executed and (self._alone or not warned)

    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        self.done += 1
        share = self.share if self.reached else SHARE_ELSEWHERE
        in_tests = time.process_time() - self.collected
        if nextitem is not None and in_tests > share * self.enough_s:
            self.stopped = True
            item.session.shouldstop = "its share is spent"

    def pytest_sessionfinish(self, exitstatus: int | pytest.ExitCode) -> None:
        self.code = exitstatus


def _tell(events: int, **event: str) -> None:
    os.write(events, json.dumps(event).encode() + b"\n")


def _forget_packages() -> None:
    for name in list(sys.modules):
        if name.startswith(PACKAGE_NAMES):
            del sys.modules[name]


class _MutatedModule(MetaPathFinder):
    """Finds one module of the packages, as the mutated syntax tree."""

    def __init__(self, mutation: Mutation, reached: mmap.mmap) -> None:
        self.mutation, self.reached = mutation, reached
        self.name = module_name(mutation.file)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        source = str(ROOT / self.mutation.file)
        loader = _MutatedLoader(fullname, source, mutated_tree(self.mutation), self.reached)
        return importlib.util.spec_from_file_location(fullname, source, loader=loader)


class _MutatedLoader(SourceFileLoader):
    def __init__(self, name: str, path: str, tree: ast.Module, reached: mmap.mmap) -> None:
        super().__init__(name, path)
        self.tree, self.reached = tree, reached

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.tree, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        def reach() -> None:
            self.reached[0] = self.reached[1] = self.reached[3] = 1

        setattr(module, REACHED, reach)
        before, self.reached[0] = self.reached[0], 0
        super().exec_module(module)
        self.reached[2] |= self.reached[0]
        self.reached[0] |= before
