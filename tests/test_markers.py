"""The marker ``one_in`` leaves every n-th case in the quick tests and loses none."""

from __future__ import annotations

from pathlib import Path

# pytester unloads what is imported first while it runs, and NumPy cannot be loaded twice.
import numpy  # noqa: F401
import pytest

from tests.conftest import LONGEST

pytest_plugins = ["pytester"]

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
    items, _ = pytester.inline_genitems(*chosen)
    assert len(items) == 10
    quick = sorted(item.name for item in items if item.get_closest_marker("slow") is None)
    assert quick == [
        *("test_others[0]", "test_others[1]"),
        *("test_shared[0]", "test_shared[4]", "test_shared[7]"),
    ]


def test_the_longest_files_run_first(pytester: pytest.Pytester):
    assert [name for name in LONGEST if not (Path(__file__).parent / name).is_file()] == []
    pytester.makeconftest(
        "import tests.conftest as real\n"
        "real.__file__ = __file__\n"
        "real.LONGEST = ('test_c.py', 'test_b.py')\n"
        "from tests.conftest import pytest_collection_modifyitems\n"
    )
    pytester.makepyfile(**{f"test_{name}": "def test_one(): pass" for name in "abcd"})
    ran = pytester.runpytest_subprocess("--collect-only", "-q", "-p", "no:randomly")
    ran.stdout.fnmatch_lines(["test_c.py*", "test_b.py*", "test_a.py*", "test_d.py*"])
