"""Pages of docs that a script writes are what it makes today."""

from __future__ import annotations

import runpy

import pytest

from tests.hashed_requirements import ROOT

# A page, its script, and the function of the script that gives the text.
PAGES = [
    ("api.txt", "public_names.py", "public_names"),
    ("aws-configuration.md", "aws_configuration.py", "page"),
    ("aws-items.md", "aws_items.py", "page"),
    ("options.md", "options.py", "page"),
    ("trust.md", "trust.py", "page"),
]


@pytest.mark.parametrize(("page", "script", "name"), PAGES)
def test_the_page_is_what_its_script_makes(page: str, script: str, name: str):
    made = runpy.run_path(str(ROOT / "docs" / "source" / script))[name]()
    text = (ROOT / "docs" / page).read_text("utf-8")
    assert text == made, f"run python docs/source/{script}; CHANGELOG.md has what users notice"
