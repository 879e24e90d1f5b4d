"""Programs are made as users make them: contracts of passes are for the tests of passes."""

from __future__ import annotations

from collections.abc import Generator

import pytest


@pytest.fixture(scope="module", autouse=True)
def _passes_are_checked_as_for_users() -> Generator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHGEN_VERIFY", "1")
        yield
