"""The code that users run: XLA's quick code has not all ops, nor all of their rounding."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="module")
def _optimized(optimized_code: None) -> None:
    """Have XLA optimize its code."""
