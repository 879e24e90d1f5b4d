"""The ratios that ``make check`` prints, on modules small enough to count by hand."""

from __future__ import annotations

from tests.ratios import code_lines, report

TEXTS = {
    "graphgen/__init__.py": '"""Root."""\n',
    "graphgen/a.py": (
        '"""Two lines\nof a docstring."""\n\nfrom graphgen import b\n\n# why\nx = b.y\n'
    ),
    "graphgen/b.py": "y = (\n    1\n)\n",
    "graphgen/cli/__init__.py": "",
    "graphgen/cli/c.py": "import graphgen.a\nimport graphgen.b\n",
}


def test_lines_of_code_leave_out_docstrings_comments_and_blanks():
    assert code_lines(TEXTS["graphgen/a.py"]) == {4, 7}
    assert code_lines(TEXTS["graphgen/b.py"]) == {1, 2, 3}


def test_ratios_and_the_change_since_a_revision():
    assert report(TEXTS, {"graphgen/b.py": "y = 1\n"}, "0123456789abcdef") == [
        "import lines / lines of code: 3 / 7 = 42.9% (aim: below 9 %)",
        "modules with one reader / modules: 1 / 3 = 33.3% (aim: below 10 %)",
        "lines of the CLI / lines of code: 2 / 7 = 28.6% (aim: below 7 %)",
        "lines of code since 012345678: +6",
    ]
