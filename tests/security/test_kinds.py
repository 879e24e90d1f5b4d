"""The table of weaknesses in the guide: each kind names tests that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_kind_of_weakness_has_tests():
    guide = (ROOT / "docs" / "security.md").read_text()
    table = guide.partition("| kind | CWE |")[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    assert len(rows) > 12
    for kind, weaknesses, _, tests in rows:
        assert re.fullmatch(r"\d+(, \d+)*", weaknesses), kind
        named = re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", tests)
        assert named, kind
        for file, function in named:
            path = ROOT / file
            assert path.exists(), (kind, file)
            if function:
                names = {
                    getattr(node, "name", "") for node in ast.walk(ast.parse(path.read_text()))
                }
                assert function in names, (kind, function)
