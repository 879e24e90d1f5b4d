"""docs/options.md is what its script makes of the options."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_the_page_is_current():
    spec = spec_from_file_location("options", DOCS / "source" / "options.py")
    assert spec is not None
    assert spec.loader is not None
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    text = (DOCS / "options.md").read_text(encoding="utf-8")
    assert text == made.page(), "run python docs/source/options.py"
