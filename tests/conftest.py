"""What every test runs under: JAX on the CPU, no network, reproducible examples."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable, Generator
from copy import copy
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import pytest
from hypothesis import settings

from graphgen.gc_pause import paused_collector
from tests.narrow_cpu import xla_limit
from tests.oracles.chromium import NO_BROWSER
from tests.oracles.chromium import program as browser_program
from tests.oracles.family_groups import is_variant

if TYPE_CHECKING:
    from graphgen.passes.core import Pass

P = ParamSpec("P")
R = TypeVar("R")

pytest_plugins = ["tests.filecheck_plugin"]

# Before any test imports jax or transformers: both read these once, at import.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Programs of several ranks run beside those of one; JAX fixes the number when it starts.
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")
# Every pass is held to its contract, not only to a well-formed module.
os.environ.setdefault("GRAPHGEN_VERIFY", "2")
# XLA takes far longer to optimize the code of small programs than to run it. The fixture
# ``optimized_code`` gives tests what users run.
os.environ.setdefault("GRAPHGEN_XLA_CODE", "quick")
# Passes that fail do so on purpose here; tests of what they leave behind say where.
os.environ["GRAPHGEN_CRASH"] = "off"
# Arrays of long caches are made anew in each call: the C library, where it is glibc, keeps their
# memory (up to 256 MB of it) instead of asking the kernel for empty pages each time.
if hasattr(_C := ctypes.CDLL(None), "mallopt"):
    _TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
    _C.mallopt(_TRIM_THRESHOLD, 1 << 28)
    _C.mallopt(_MMAP_THRESHOLD, 1 << 25)
# A test process a core: threads of their own would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Texts are compared as printed to a file, whatever terminal or CI starts the tests.
for _name in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "PY_COLORS", "GITHUB_ACTIONS"):
    os.environ.pop(_name, None)
# Nor do tests read settings of the user's own programs; proxies are not asked for servers of tests.
_SETTINGS = ("DEBUG", "DUMP", "FUEL", "VISIBLE_DEVICES", "KERNEL_ARTIFACTS", "API_KEY")
_SETTINGS += ("LAUNCH", "LAUNCH_SECRET")
for _name in (*(f"GRAPHGEN_{word}" for word in _SETTINGS), "RANK", "WORLD_SIZE"):
    os.environ.pop(_name, None)
os.environ["XLA_FLAGS"] = xla_limit(os.environ.get("XLA_FLAGS", ""))
for _name in [name for name in os.environ if name.startswith(("NEURON_", "OPENAI_"))]:
    del os.environ[_name]
# Artifacts are signed with a key of the tests, not of whoever runs them; processes that tests start
# have it too.
_KEYS = TemporaryDirectory(prefix="graphgen-tests-")
Path(_KEYS.name, "key").write_text("0123456789abcdef" * 4)
os.environ["GRAPHGEN_ARTIFACT_KEY"] = f"{_KEYS.name}/key"
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"

# No deadline: a slow machine is not a failing test. Under CI the same examples are tried each time.
settings.register_profile("graphgen", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "graphgen")


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, object, object]:
    """Mark most cases of a test as slow where one alone would not be.

    Slow are the cases of a family that is a variant of another, unless the test is marked
    ``every_family``; of the others all but every n-th where the test is marked ``one_in(n)``. Of
    the slow cases of such a test all but every n/2-th are ``exhaustive`` besides. Cases are counted
    as they are written, whatever is chosen and in whatever order it runs.
    """
    made = yield
    items = made if isinstance(made, list) else []
    cases = [item for item in items if isinstance(item, pytest.Function)]
    for item in cases:
        if item.get_closest_marker("every_family") is None and is_variant(item):
            item.add_marker(pytest.mark.slow)
    quick = [item for item in cases if item.get_closest_marker("slow") is None]
    for index, item in enumerate(quick):
        share = item.get_closest_marker("one_in")
        if share is not None and index % share.args[0]:
            item.add_marker(pytest.mark.slow)
    rest = [item for item in cases if item.get_closest_marker("slow") is not None]
    for index, item in enumerate(rest):
        share = item.get_closest_marker("one_in")
        if share is not None and index % max(1, share.args[0] // 2):
            item.add_marker(pytest.mark.exhaustive)
    return made


# Files that take minutes of CPU time, the longest first: one of few tests must not begin when the
# other process has nothing left to do.
LONGEST = (
    "passes/validate/test_tool_messages.py",
    "ci/test_rerun.py",
    "test_docs.py",
    "passes/validate/test_validate.py",
    "matrix/test_matrix.py",
    "runtime/test_generate_smollm2.py",
    "lowering/plan/test_capacity_plan.py",
    "passes/sharding/test_pad_to_mesh.py",
    "runtime/accuracy/test_validate_model.py",
    "test_packaging.py",
    "lowering/aten/test_ops.py",
    "runtime/speculation/test_eagle.py",
    "runtime/session/test_session.py",
    "lowering/aten/test_models.py",
    "passes/validate/test_every_model.py",
    "runtime/test_token_bound.py",
    "passes/test_scaling.py",
    "passes/gqa/test_heads_on_ranks.py",
    "lowering/cpu_kernels/test_linear_kernel.py",
    "runtime/quantization/test_cache_calibration.py",
    "runtime/test_feature_layers.py",
    "planted/test_situations.py",
    "lowering/test_regression.py",
    "passes/test_random_table.py",
    "passes/spmd/test_random_modules.py",
    "lowering/hlo/test_families.py",
    "graphgen/cli/test_minify_cmd.py",
    "graphgen/text/test_parser.py",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; the others stay in their order, which may be a random one."""
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what collection makes out of searches for garbage, which lives until the end.

    Graphs are millions of objects, hardly any of them garbage: search for it less often. Searches
    after each 20,000 new objects are a tenth of the time of all tests.
    """
    with paused_collector():
        made = yield
        gc.freeze()
    gc.set_threshold(200_000, 10, 10)
    return made


@pytest.fixture(scope="session", autouse=True)
def _programs_are_compiled_once() -> Generator[None]:
    """Share what XLA makes of a program among tests, of which many run the same mini models."""
    from graphgen.lowering.cpu import pjrt

    compile_text = pjrt.compile_text

    @lru_cache(maxsize=256)
    def compiled(text: str | bytes, ranks: int, kind: str) -> pjrt.Executable:
        return compile_text(text, ranks)

    def compiled_once(text: str | bytes, ranks: int) -> pjrt.Executable:
        return compiled(text, ranks, os.environ.get("GRAPHGEN_XLA_CODE", ""))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pjrt, "compile_text", compiled_once)
        yield
    compiled.cache_clear()


@pytest.fixture(scope="session", autouse=True)
def _jax_compiles_quickly() -> Generator[None]:
    """Compile what oracles compute in JAX as our own programs, mostly for a single run."""
    from jax._src import compiler

    from graphgen.lowering.cpu import pjrt

    options_of = compiler.get_compile_options

    def quick_options(*args: Any, **kwargs: Any) -> Any:
        options = options_of(*args, **kwargs)
        options.env_option_overrides = list(pjrt._overrides().items())
        return options

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "get_compile_options", quick_options)
        yield


@pytest.fixture(scope="session", autouse=True)
def _memory_is_measured_on_little_of_it() -> Generator[None]:
    """Read megabytes for the floor of ``generate --summary``: two gigabytes take seconds."""
    from graphgen.lowering.cpu import memory_bandwidth

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_bandwidth, "GIB", 1 << 20)
        yield


@pytest.fixture(scope="session", autouse=True)
def _files_are_not_forced_to_disk() -> Generator[None]:
    """No test of this process outlives the machine: what a disk has at its end is not read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _estimates_are_made_once() -> Generator[None]:
    """Share what planning finds for a model and a demand: it compiles programs to count them."""
    from graphgen.lowering.plan import bucket_seconds, measure

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "measure", _once(measure.measure))
        patch.setattr(bucket_seconds, "_bounds", _once(bucket_seconds._bounds))
        yield


def _once(function: Callable[P, R]) -> Callable[P, R]:
    """The function with its results kept by the text of its arguments; errors are made anew."""
    kept: dict[str, R] = {}

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        key = repr((args, kwargs))
        if key not in kept:
            kept[key] = function(*args, **kwargs)
        return copy(kept[key])

    return call


@pytest.fixture(scope="module")
def optimized_code() -> Generator[None]:
    """XLA's code as users run it, which takes six times as long to compile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GRAPHGEN_XLA_CODE", raising=False)
        yield


@pytest.fixture
def registry() -> Generator[dict[str, type[Pass]]]:
    """The registry of passes, which is as before when the test is done."""
    from graphgen.passes.core import PASSES
    from graphgen.passes.core.registry import all_passes

    all_passes()
    before = dict(PASSES)
    yield PASSES
    PASSES.clear()
    PASSES.update(before)


@pytest.fixture(autouse=True)
def _only_families_of_the_project() -> Generator[None]:
    """Forget families that a test registered, which lists in errors and pages would show."""
    yield
    from graphgen.models import registry as family_registry

    for added in family_registry.FAMILIES.keys() - family_registry.BUILT_IN:
        family_registry.forget_family(added)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    """Say after a failure how to run the tests in the same order again."""
    seed = config.getoption("randomly_seed", None)
    if exitstatus and seed is not None:
        terminalreporter.write_line(f"in this order again: --randomly-seed={seed}")
    count = without_browser(terminalreporter)
    if count:
        terminalreporter.write_line(f"{count} tests of pages were skipped: {NO_BROWSER}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that skipped tests of pages although Chromium is installed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and without_browser(reporter) and browser_program() is not None:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def without_browser(reporter: pytest.TerminalReporter) -> int:
    """The number of tests that were skipped for want of a browser."""
    skipped = reporter.stats.get("skipped", [])
    return sum(NO_BROWSER in str(getattr(report, "longrepr", "")) for report in skipped)


@pytest.fixture(scope="session")
def hlo_corpus() -> Path:
    """The folder of compiled HLO modules that GRAPHGEN_HLO_CORPUS names; without it, a skip."""
    folder = os.environ.get("GRAPHGEN_HLO_CORPUS")
    if not folder:
        pytest.skip("GRAPHGEN_HLO_CORPUS names no folder of HLO modules")
    path = Path(folder)
    assert path.is_dir(), f"GRAPHGEN_HLO_CORPUS={folder} is not a folder"
    return path


GOLDEN = Path(__file__).resolve().parent / "golden"


@pytest.fixture(scope="session")
def golden() -> Callable[[str, str], None]:
    """Compare a text with ``tests/golden/<name>``; GRAPHGEN_UPDATE_GOLDEN=1 writes it instead."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        text = text.rstrip("\n") + "\n"
        if os.environ.get("GRAPHGEN_UPDATE_GOLDEN"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"no {path.name}: run once with GRAPHGEN_UPDATE_GOLDEN=1 and read it"
        assert text == path.read_text(encoding="utf-8")

    return compare
