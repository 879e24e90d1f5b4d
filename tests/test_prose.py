"""Docstrings in the words of the field, names with one meaning, folders of a readable size.

The limits are counts of places that break a rule today. Lower them when a place is mended; a new
place fails the test.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("graphgen", "passes", "lowering", "runtime")
GLOSSARY = ROOT / "docs" / "glossary.md"

OPENERS = re.compile(r"^(what|which|whether|where|how|those|whoever|that)\b", re.IGNORECASE)
BANNED = re.compile(
    r"\b(anew|nobody|whoever|owed|foresees?|behind|told|tells|dearest|dear|how-manieth|of two minds"
    r"|makes? up for|what (?:is|was) asked|asked for|where nobody|so many|said|lies)\b",
    re.IGNORECASE,
)
IS_NO = re.compile(r"\b(?:is|are|was|be) no (?!longer|more|less|such)[a-z]+", re.IGNORECASE)

OPENER_LIMIT = 0
BANNED_LIMIT = 31
IS_NO_LIMIT = 0
MOST_MODULES = 15
DEEPEST_CHAIN = 8
# A folder with one file for each model family grows with the families.
WIDE_FOLDERS = {"graphgen/models/families"}
# Sibling packages with the same role, such as the emitters of two dialects, share base names.
REPEATED_BASE_NAME_LIMIT = 18
REPEATED_CLASS_LIMIT = 0


FILES = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
FOLDERS = sorted({path.parent.relative_to(ROOT).as_posix() for path in FILES})


@cache
def trees() -> dict[str, ast.Module]:
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in FILES}


@pytest.fixture(scope="module", autouse=True)
def _forgotten_trees() -> Generator[None]:
    """Millions of nodes would make every later collection of garbage slower."""
    yield
    trees.cache_clear()


def definitions(
    tree: ast.Module,
) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node


@cache
def prose() -> tuple[tuple[str, str], ...]:
    """Each line of a docstring or comment, after its place."""
    found: list[tuple[str, str]] = []
    for path, tree in trees().items():
        for node in (tree, *definitions(tree)):
            text = ast.get_docstring(node, clean=False)
            start = node.body[0].lineno if text is not None else 0
            lines = enumerate((text or "").splitlines(), start)
            found += [(f"{path}:{number}", line) for number, line in lines]
        for token in tokenize.generate_tokens(io.StringIO((ROOT / path).read_text()).readline):
            if token.type == tokenize.COMMENT:
                found.append((f"{path}:{token.start[0]}", token.string))
    return tuple(found)


def hits(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{place}: {match.group()}: {line.strip()}"
        for place, line in prose()
        for match in pattern.finditer(line)
    ]


def at_most(limit: int, places: list[str]) -> None:
    assert len(places) <= limit, "\n".join([f"{len(places)} places, not {limit}:", *places])


def test_modules_open_with_a_noun_or_an_imperative():
    docs = {path: ast.get_docstring(tree) or "" for path, tree in trees().items()}
    assert [f"{path}: {doc[:80]}" for path, doc in docs.items() if OPENERS.match(doc)] == []


def test_docstrings_open_with_a_noun_or_an_imperative():
    at_most(
        OPENER_LIMIT,
        [
            f"{path}:{node.lineno}: {doc.splitlines()[0]}"
            for path, tree in trees().items()
            for node in definitions(tree)
            if OPENERS.match(doc := ast.get_docstring(node) or "")
        ],
    )


def test_words_are_the_fields():
    at_most(BANNED_LIMIT, hits(BANNED))


def test_a_thing_that_is_not_one_is_not_called_no_thing():
    at_most(IS_NO_LIMIT, hits(IS_NO))


def test_folders_have_a_readable_size():
    modules = [Path(path) for path in trees() if not path.endswith("__init__.py")]
    counts = Counter(path.parent.as_posix() for path in modules)
    crowded = {name: n for name, n in counts.items() if n > MOST_MODULES}
    assert crowded.keys() - WIDE_FOLDERS == set()


def test_every_package_says_what_to_read_first():
    packages = [path for path in trees() if path.endswith("__init__.py")]
    held = {path: ast.get_docstring(trees()[path]) or "" for path in packages}
    modules = {Path(path) for path in trees()}
    several = {
        path for path in packages if sum(other.parent == Path(path).parent for other in modules) > 4
    }
    named = re.compile(r"\b(read|start)\b", re.IGNORECASE)
    assert [path for path in sorted(several) if not named.search(held[path])] == []


def test_a_class_name_has_one_meaning():
    places: dict[str, list[str]] = defaultdict(list)
    for path, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path)
    at_most(
        REPEATED_CLASS_LIMIT,
        [f"{name}: {', '.join(where)}" for name, where in places.items() if len(where) > 1],
    )


def test_base_names_are_repeated_for_one_role_only():
    names = Counter(Path(path).name for path in trees())
    del names["__init__.py"]
    at_most(REPEATED_BASE_NAME_LIMIT, [f"{name}: {n}" for name, n in names.items() if n > 1])


def imports_in(folder: str) -> dict[str, set[str]]:
    """For each module of a folder those of the same folder that it imports at module level."""
    modules = {
        path.removesuffix(".py").replace("/", "."): path
        for path in trees()
        if Path(path).parent.as_posix() == folder and not path.endswith("__init__.py")
    }
    found: dict[str, set[str]] = {}
    for path in modules.values():
        names = {
            name.removeprefix("graphgen.") if folder.split("/")[0] != "graphgen" else name
            for node in trees()[path].body
            if isinstance(node, ast.ImportFrom) and node.module
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        }
        found[path] = {modules[name] for name in names if name in modules} - {path}
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_import_chains_inside_a_folder_are_short(folder: str):
    graph = imports_in(folder)

    @cache
    def depth(path: str) -> int:
        return 1 + max(map(depth, graph[path]), default=0)

    assert {path: n for path in graph if (n := depth(path)) > DEEPEST_CHAIN} == {}


def test_the_glossary_names_modules_that_exist():
    rows = [line for line in GLOSSARY.read_text().splitlines() if line.startswith("| ")]
    terms = [row.split("|")[1].strip() for row in rows if "| term |" not in row]
    assert len(terms) == len(set(terms)) >= 60
    named = re.findall(r"`(graphgen/[\w/.]+)`", "\n".join(rows))
    assert len(named) > 50
    assert [name for name in named if not (ROOT / name).exists()] == []
