"""docs/source/aws_items.tsv: every item of AWS's documents once, with tests that exist."""

from __future__ import annotations

import ast
import runpy
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = runpy.run_path(str(ROOT / "docs" / "source" / "aws_items.py"))
ITEMS: list[Any] = SCRIPT["items"]()
# Items of each document, as they were counted when the documents were read.
COUNTS = {
    "feature guide": 82,
    "API reference": 153,
    "older API reference": 118,
    "transformers-neuronx guide": 83,
    "405B tutorial": 58,
}


def test_every_item_of_a_document_has_one_row():
    assert Counter(item.document for item in ITEMS) == COUNTS
    assert len(ITEMS) == 494
    found = Counter((item.document, item.item) for item in ITEMS)
    assert [item for item, count in found.items() if count > 1] == []
    for name in COUNTS:
        lines = [item.line for item in ITEMS if item.document == name]
        assert lines == sorted(lines)


def test_statuses_are_known_and_exceptions_have_a_reason():
    for item in ITEMS:
        assert item.status in SCRIPT["STATUSES"]
        assert item.status == "works" or len(item.reason.split()) > 3, item
    assert sum(item.status == "refused" for item in ITEMS) <= 12


@cache
def functions(path: str) -> dict[str, ast.FunctionDef]:
    """The tests of a file; none if the whole file is skipped somewhere."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    made = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    marks = [node for node in tree.body if isinstance(node, ast.Assign) and skips(node)]
    skipped = [node for node in tree.body if isinstance(node, ast.Expr) and skips(node)]
    marked = any("pytestmark" in ast.unparse(node) for node in marks)
    return {} if marked or skipped else made


def skips(node: ast.AST) -> bool:
    """The code skips tests."""
    text = ast.unparse(node)
    return any(word in text for word in ("skip(", "skipif(", "importorskip(", "xfail"))


@pytest.mark.parametrize("name", sorted({name for item in ITEMS for name in item.tests}))
def test_a_named_test_exists_and_is_not_skipped(name: str):
    path, _, function = name.partition("::")
    found = functions(path).get(function)
    assert found is not None, f"{path} has no test {function}"
    assert not any(map(skips, found.decorator_list))
    assert not skips(ast.Module(body=list(found.body), type_ignores=[]))


def test_every_item_names_a_test():
    assert [item for item in ITEMS if not item.tests] == []
