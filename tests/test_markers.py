"""The markers of quick and slow cases lose none."""

from __future__ import annotations

from pathlib import Path

# pytester unloads what is imported first while it runs, and NumPy cannot be loaded twice.
import numpy  # noqa: F401
import pytest

from graphgen.models.registry import FAMILIES
from tests.conftest import LONGEST
from tests.oracles.family_groups import VARIANTS

pytest_plugins = ["pytester"]


def collected(pytester: pytest.Pytester, *chosen: str) -> list[pytest.Item]:
    """The items of the folder; loading schemathesis would take longer than all else."""
    items, _ = pytester.inline_genitems("-p", "no:schemathesis", *chosen)
    return items


CASES = """
import pytest

@pytest.mark.one_in(3)
@pytest.mark.parametrize("x", [0, pytest.param(1, marks=pytest.mark.slow), 2, 3, 4, 5, 6, 7])
def test_shared(x): pass

@pytest.mark.parametrize("x", range(2))
def test_others(x): pass
"""


@pytest.mark.parametrize("chosen", [[], ["-k", "6 or 7"], ["-m", "not slow"]])
def test_cases_are_shared_out_whatever_is_chosen(pytester: pytest.Pytester, chosen: list[str]):
    pytester.makeconftest("from tests.conftest import pytest_pycollect_makeitem\n")
    pytester.makepyfile(CASES)
    items = collected(pytester, *chosen)
    assert len(items) == 10
    quick = sorted(item.name for item in items if item.get_closest_marker("slow") is None)
    assert quick == [
        *("test_others[0]", "test_others[1]"),
        *("test_shared[0]", "test_shared[4]", "test_shared[7]"),
    ]


MANY_CASES = """
import pytest

@pytest.mark.one_in(4)
@pytest.mark.parametrize("x", range(9))
def test_many(x): pass

@pytest.mark.slow
@pytest.mark.one_in(6)
@pytest.mark.parametrize("x", range(5))
def test_slow(x): pass
"""


def test_every_case_is_in_one_run(pytester: pytest.Pytester):
    pytester.makeconftest("from tests.conftest import pytest_pycollect_makeitem\n")
    pytester.makepyfile(MANY_CASES)
    items = collected(pytester)
    runs: dict[tuple[bool, bool], str] = {}
    for item in items:
        marks = [item.get_closest_marker(name) is not None for name in ("slow", "exhaustive")]
        runs[marks[0], marks[1]] = runs.get((marks[0], marks[1]), "") + item.name[5:]
    assert runs == {
        (False, False): "many[0]many[4]many[8]",
        (True, False): "many[1]many[3]many[6]slow[0]slow[3]",
        (True, True): "many[2]many[5]many[7]slow[1]slow[2]slow[4]",
    }


FAMILY_CASES = """
import pytest

@pytest.mark.parametrize("name", ["gpt_neox", "gptj", "gpt-j-6b", "gpt-neox-20b"])
def test_some(name): pass

@pytest.mark.every_family
@pytest.mark.parametrize("name", ["gpt_neox", "gptj"])
def test_all(name): pass
"""


def test_variants_of_a_family_are_slow(pytester: pytest.Pytester):
    assert not VARIANTS.keys() & set(VARIANTS.values())
    assert VARIANTS.keys() | set(VARIANTS.values()) <= FAMILIES.keys()
    pytester.makeconftest("from tests.conftest import pytest_pycollect_makeitem\n")
    pytester.makeini("[pytest]\nmarkers =\n    every_family\n    slow\n    one_in\n")
    pytester.makepyfile(FAMILY_CASES)
    items = collected(pytester)
    slow = {item.name for item in items if item.get_closest_marker("slow") is not None}
    assert slow == {"test_some[gptj]", "test_some[gpt-j-6b]"}


def test_the_longest_files_run_first(pytester: pytest.Pytester):
    assert [name for name in LONGEST if not (Path(__file__).parent / name).is_file()] == []
    pytester.makeconftest(
        "import tests.conftest as real\n"
        "real.__file__ = __file__\n"
        "real.LONGEST = ('test_c.py', 'test_b.py')\n"
        "from tests.conftest import pytest_collection_modifyitems\n"
    )
    pytester.makepyfile(**{f"test_{name}": "def test_one(): pass" for name in "abcd"})
    plugins = ("-p", "no:randomly", "-p", "no:schemathesis")
    ran = pytester.runpytest_subprocess("--collect-only", "-q", *plugins)
    ran.stdout.fnmatch_lines(["test_c.py*", "test_b.py*", "test_a.py*", "test_d.py*"])
