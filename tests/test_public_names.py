"""The committed list of public names is that of the code."""

from __future__ import annotations

import runpy

from tests.hashed_requirements import ROOT


def test_the_list_of_public_names_is_that_of_the_code():
    made = runpy.run_path(str(ROOT / "docs" / "source" / "public_names.py"))
    again = "run python docs/source/public_names.py, and say what changed in CHANGELOG.md"
    assert (ROOT / "docs" / "api.txt").read_text("utf-8") == made["public_names"](), again
