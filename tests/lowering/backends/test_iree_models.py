"""Prefill and decode of a mini model compiled by IREE give NumPy's numbers.

``python -m tests.matrix.iree`` tries those of all families.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from graphgen.lowering.backends.named import has_iree
from tests.matrix import iree
from tests.oracles.minis import MINIS

needs_iree = pytest.mark.skipif(
    not has_iree(), reason="IREE is not installed: graphgen-compiler[iree]"
)


@pytest.mark.slow
@needs_iree
@pytest.mark.parametrize(
    "name", [MINIS[0], *[pytest.param(n, marks=pytest.mark.exhaustive) for n in MINIS[1:]]]
)
def test_a_mini_on_iree_has_the_numbers_of_numpy(name: str):
    for module, function in iree.mini_programs(name):
        assert iree.iree_difference(module, function) <= iree.BUDGET


@needs_iree
def test_a_run_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    asked: list[str] = []

    def difference(module: object, function: object) -> float:
        asked.append("")
        return 1.0 if len(asked) == 1 else 0.0

    monkeypatch.setattr(iree, "iree_difference", difference)
    options = ["--results", str(tmp_path / "iree.jsonl"), "--limit", "1"]
    assert iree.main(options) == 1
    first = len(asked)
    assert "1 wrong, 0 refused" in capsys.readouterr().out
    assert iree.main(options) == 1
    assert first < len(asked)
    assert f"{len(MINIS) - 2} models left" in capsys.readouterr().out
