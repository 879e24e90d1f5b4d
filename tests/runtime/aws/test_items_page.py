"""docs/source/aws_items.tsv: every item of AWS's documents once, with tests that exist."""

from __future__ import annotations

import ast
import runpy
from collections import Counter
from functools import cache
from importlib.metadata import packages_distributions
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


SKIPS = ("skip", "skipif", "importorskip", "xfail")


def pinned() -> set[str]:
    """Packages of requirements/dev.txt and of what it is on top of, as PyPI compares names."""
    texts = [(ROOT / "requirements" / f"{name}.txt").read_text() for name in ("dev", "runtime")]
    lines = [line.partition("==") for text in texts for line in text.splitlines()]
    return {name.lower().replace("_", "-") for name, equal, _ in lines if equal}


PINNED = pinned()
INSTALLED = packages_distributions()


def skips(node: ast.AST) -> bool:
    """The code itself may skip tests or expect their failure where requirements/dev.txt is met."""
    for part in ast.walk(node):
        if not isinstance(part, ast.Call | ast.Attribute):
            continue
        called = ast.unparse(part.func if isinstance(part, ast.Call) else part)
        name = called.removeprefix("pytest.").removeprefix("mark.")
        if name not in SKIPS or (name == "importorskip" and isinstance(part, ast.Attribute)):
            continue
        if name != "importorskip" or not is_pinned(part):
            return True
    return False


def is_pinned(call: ast.AST) -> bool:
    """``importorskip`` of a package that is installed wherever the suite runs."""
    given = call.args[0] if isinstance(call, ast.Call) and call.args else None
    if not isinstance(given, ast.Constant):
        return False
    found = INSTALLED.get(str(given.value).partition(".")[0], [])
    return any(name.lower().replace("_", "-") in PINNED for name in found)


Names = dict[str, ast.stmt]


@cache
def tree(path: Path) -> tuple[Names, dict[str, tuple[Path, str]], list[ast.stmt]]:
    """What a file defines, what it imports of other tests, and what runs when it is imported."""
    made, imported, run = Names(), dict[str, tuple[Path, str]](), list[ast.stmt]()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            made[node.name] = node
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
            file = ROOT.joinpath(*str(node.module).split(".")).with_suffix(".py")
            if file.exists():
                imported |= {one.asname or one.name: (file, one.name) for one in node.names}
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            made[node.targets[0].id] = node
            # A mark that is assigned to a name counts where the name is used.
            if node.targets[0].id != "pytestmark" and "pytest.mark." in ast.unparse(node.value):
                continue
        run.append(node)
    return made, imported, run


def words(node: ast.AST) -> set[str]:
    """Names that the code uses; of a function also its fixtures, and those of ``usefixtures``."""
    found = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    found |= {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}
    marks = [part for part in ast.walk(node) if isinstance(part, ast.Call)]
    for call in (call for call in marks if ast.unparse(call.func).endswith("usefixtures")):
        found |= {str(given.value) for given in call.args if isinstance(given, ast.Constant)}
    return found


def conftests(file: Path) -> list[Path]:
    """The next conftest.py above a file, whose fixtures it may name."""
    folders = file.parents[1:] if file.name == "conftest.py" else file.parents
    found = [folder / "conftest.py" for folder in folders if folder.is_relative_to(ROOT)]
    return [path for path in found if path.exists()][:1]


def may_skip(path: Path, name: str) -> bool:
    """A test, what it calls, its fixtures and marks, or the import of their files may skip it."""
    seen, left = set[tuple[Path, str]](), [(path, name), (path, "pytestmark")]
    while left:
        file, word = left.pop()
        if (file, word) in seen:
            continue
        seen.add((file, word))
        made, imported, run = tree(file)
        if word in imported:
            left.append(imported[word])
        node = made.get(word)
        if node is not None:
            left += [(file, used) for used in words(node)]
        elif word not in imported:
            left += [(above, word) for above in conftests(file)]
        if (node is not None and skips(node)) or any(map(skips, run)):
            return True
    return False


@pytest.mark.parametrize("name", sorted({name for item in ITEMS for name in item.tests}))
def test_a_named_test_exists_and_is_not_skipped(name: str):
    path, _, function = name.partition("::")
    assert isinstance(tree(ROOT / path)[0].get(function), ast.FunctionDef)
    assert not may_skip(ROOT / path, function)


@pytest.mark.parametrize(
    ("text", "skipped"),
    [
        ("x = pytest.importorskip('torch')", False),
        ("pytest.importorskip('ml_dtypes.x', reason='of runtime.txt')", False),
        ("x = pytest.importorskip('vllm')", True),
        ("if pytest.importorskip('vllm'): pass", True),
        ("pytestmark = [pytest.mark.slow, pytest.mark.skipif(True, reason='')]", True),
        ("pytestmark = pytest.mark.slow", False),
        ("pytestmark = pytest.mark.skip", True),
        ("unused = pytest.mark.skipif(True, reason='')", False),
        ("needs = pytest.mark.skipif(True, reason='')\n@needs\ndef test_a(): pass", True),
        ("needs = pytest.mark.xfail\npytestmark = [needs]", True),
        ("from tests.runtime.vllm_plugin.vllm_environment import needs_vllm", False),
        (
            "from tests.runtime.vllm_plugin.vllm_environment import needs_vllm\n"
            "pytestmark = needs_vllm",
            True,
        ),
        ("def test_a(): values.skip(2)", False),
        ("def test_a(): pytest.skip('')", True),
        ("def home(): pytest.importorskip('vllm')\ndef test_a(home): pass", True),
        (
            "def home(): pytest.skip('')\n@pytest.mark.usefixtures('home')\ndef test_a(): pass",
            True,
        ),
        ("def test_b(): pytest.skip('')", False),
    ],
)
def test_skips_are_found(text: str, skipped: bool, tmp_path: Path):
    made = "" if "def test_a" in text else "\ndef test_a(): pass"
    (tmp_path / "test_x.py").write_text(text + made)
    assert may_skip(tmp_path / "test_x.py", "test_a") is skipped


def test_every_item_names_a_test():
    assert [item for item in ITEMS if not item.tests] == []
