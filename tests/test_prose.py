"""Prose in the words of the field.

Prose is a docstring, a comment, a string literal of the packages, or a page of ``docs/``. The
limits are counts of places that break a rule today. Lower them when a place is mended; a new place
fails the test.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("graphgen", "passes", "lowering", "runtime")
PAGES = (*sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md")
FRONT_PAGES = (ROOT / "README.md", ROOT / "CHANGELOG.md")
GLOSSARY = ROOT / "docs" / "glossary.md"

OPENERS = re.compile(r"^(what|which|whether|where|how|those|whoever|that)\b", re.IGNORECASE)
BANNED = re.compile(
    r"\b(anew|nobody|whoever|owed|foresees?|behind|told|tells|dearest|dear|how-manieth|of two minds"
    r"|makes? up for|what (?:is|was) asked|asked for|where nobody|so many|said|lies)\b",
    re.IGNORECASE,
)
IS_NO = re.compile(
    r"(?<!\bthere )\b(?:is|are|was|were|be|been) no(?! (?:longer|more|less|such)\b)\b[^.;:,]{0,20}",
    re.IGNORECASE,
)
# A question may begin so.
RELATIVE_SENTENCE = re.compile(r"(?:^|(?<=[.;:] ))What(?:ever)?\b[^?.;:]*(?:[.;:]|$)")
# In the first sentence of a module: a clause instead of a noun, or one clause inside another.
CLAUSE = re.compile(r"\b(?:what|those|whatever|whoever)\b", re.IGNORECASE)
RELATIVE = re.compile(r"\b(?:that|which|where|whose|who)\b", re.IGNORECASE)
INLINE_CODE = re.compile(r"`[^`\n]*`")
HEADING = re.compile(r"^#+ (.*)", re.MULTILINE)
ITEM = re.compile(r"\s*(?:[*-] |\d+\. |\|)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
# An option that is on or off is documented by "whether ...".
PHRASE_OPENERS = re.compile(OPENERS.pattern.replace("|whether", ""), re.IGNORECASE)

FRONT_PAGE_LIMIT = 0


FILES = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))


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


def paragraphs(text: str, line: int = 1) -> Iterator[tuple[int, str]]:
    """The first line and the text of each paragraph; a phrase may continue on the next line."""
    held: list[str] = []
    start = line
    for number, row in enumerate([*text.splitlines(), ""], line):
        if held and (not row.strip() or ITEM.match(row)):
            yield start, " ".join(held)
            held = []
        if row.strip():
            start = start if held else number
            held.append(row.strip())


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Each run of lines that are comments as one text."""
    found = {
        token.start[0]: token.string.lstrip("#! ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    rows = [found.get(line, "") for line in range(1, max(found, default=0) + 1)]
    yield from paragraphs("\n".join(rows))


def docstring_of(node: ast.AST) -> ast.Constant | None:
    if isinstance(
        node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    ) and isinstance(ast.get_docstring(node), str):
        first = node.body[0]
        assert isinstance(first, ast.Expr)
        assert isinstance(first.value, ast.Constant)
        return first.value
    return None


def literal_text(node: ast.expr) -> str | None:
    """The constant parts of a string, with ``{}`` for each value that is formatted into it."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr():
            return "".join(literal_text(part) or "{}" for part in node.values)
        case ast.FormattedValue(value=ast.IfExp(body=chosen)):
            return literal_text(chosen)
        case _:
            return None


def literals(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """String literals without docstrings; an f-string is one text."""
    skipped = {id(docstring_of(node)) for node in nodes}
    skipped |= {
        id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values
    }
    for node in nodes:
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in skipped:
            text = literal_text(node)
            if text is not None:
                yield node.lineno, " ".join(text.split())


def module_prose(source: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    nodes = list(ast.walk(tree))
    for node in nodes:
        text = docstring_of(node)
        if text is not None:
            yield from paragraphs(str(text.value), text.lineno)
    yield from comments(source)
    yield from literals(nodes)


def page_prose(text: str) -> Iterator[tuple[int, str]]:
    return paragraphs(INLINE_CODE.sub("{}", text))


@cache
def prose() -> tuple[tuple[str, str], ...]:
    """Each paragraph of the packages and pages, after its place."""
    found: list[tuple[str, str]] = []
    for name, tree in trees().items():
        rows = module_prose((ROOT / name).read_text(), tree)
        found += [(f"{name}:{line}", text) for line, text in rows]
    for path in PAGES:
        rows = page_prose(path.read_text())
        found += [(f"{path.relative_to(ROOT)}:{line}", text) for line, text in rows]
    return tuple(found)


def hits(pattern: re.Pattern[str], texts: Iterable[tuple[str, str]]) -> list[str]:
    return [
        f"{place}: {match.group()}: {text[max(0, match.start() - 60) : match.end() + 40]}"
        for place, text in texts
        for match in pattern.finditer(text)
    ]


def at_most(limit: int, places: list[str]) -> None:
    assert len(places) <= limit, "\n".join([f"{len(places)} places, not {limit}:", *places])


def test_modules_open_with_a_noun_or_an_imperative():
    docs = {path: ast.get_docstring(tree) or "" for path, tree in trees().items()}
    assert [f"{path}: {doc[:80]}" for path, doc in docs.items() if OPENERS.match(doc)] == []


def test_docstrings_open_with_a_noun_or_an_imperative():
    found = [
        f"{path}:{node.lineno}: {doc.splitlines()[0]}"
        for path, tree in trees().items()
        for node in definitions(tree)
        if OPENERS.match(doc := ast.get_docstring(node) or "")
    ]
    assert found == []


def phrases(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Literals of several words that are arguments of a call: messages, reasons, help texts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for value in (*node.args, *(keyword.value for keyword in node.keywords)):
                text = literal_text(value)
                if text is not None and len(text.split()) > 2:
                    yield value.lineno, text


def test_messages_and_help_open_with_a_noun_or_an_imperative():
    found = [
        f"{path}:{line}: {text}"
        for path, tree in trees().items()
        for line, text in phrases(tree)
        if PHRASE_OPENERS.match(text)
    ]
    assert found == []


def headings(page: Path) -> list[str]:
    return [
        f"{page.relative_to(ROOT)}: {heading}"
        for heading in HEADING.findall(FENCE.sub("", page.read_text()))
        if OPENERS.match(heading)
    ]


def test_headings_of_pages_open_with_a_noun_or_an_imperative():
    assert [heading for page in PAGES for heading in headings(page)] == []


def test_words_are_the_fields():
    assert hits(BANNED, prose()) == []


def test_a_thing_that_is_not_one_is_not_called_no_thing():
    assert hits(IS_NO, prose()) == []


def test_a_sentence_begins_with_its_subject_or_verb():
    assert hits(RELATIVE_SENTENCE, prose()) == []


def test_the_first_sentence_of_a_module_can_be_spoken():
    found: list[str] = []
    for path, tree in trees().items():
        first = re.split(r"(?<=\.)\s", ast.get_docstring(tree) or "")[0]
        if CLAUSE.search(first) or len(RELATIVE.findall(first)) > 1:
            found.append(f"{path}: {first}")
    assert found == []


def test_front_pages_are_in_the_words_of_the_field():
    texts = [(page.name, text) for page in FRONT_PAGES for _, text in page_prose(page.read_text())]
    found = [heading for page in FRONT_PAGES for heading in headings(page)]
    found += [hit for rule in (BANNED, IS_NO, RELATIVE_SENTENCE) for hit in hits(rule, texts)]
    at_most(FRONT_PAGE_LIMIT, found)


EXAMPLE = '''
"""A cache that is
no ring."""

# Bytes that are
# no array.
raise GraphgenError("GG0705", f"{name!r} is "
    f"no mesh axis", help=f"there is no {name}: the file {'is' if one else 'are'} no list")
TEXTS = {"a": "the scale is no longer read", "b": "it was told"}
'''


def test_prose_is_found_across_lines_and_in_formatted_strings():
    texts = [(str(line), text) for line, text in module_prose(EXAMPLE, ast.parse(EXAMPLE))]
    found = [hit.split(": ")[1].split()[:3] for hit in hits(IS_NO, texts)]
    assert found == [
        ["is", "no", "ring"],
        ["are", "no", "array"],
        ["is", "no", "mesh"],
        ["is", "no", "list"],
    ]
    assert [hit.split(": ")[1] for hit in hits(BANNED, texts)] == ["told"]
    assert hits(BANNED, [("", text) for _, text in page_prose("read `a/said.py`\n")]) == []


def test_the_glossary_names_modules_that_exist():
    rows = [line for line in GLOSSARY.read_text().splitlines() if line.startswith("| ")]
    terms = [row.split("|")[1].strip() for row in rows if "| term |" not in row]
    assert len(terms) == len(set(terms)) >= 60
    named = re.findall(r"`(graphgen/[\w/.]+)`", "\n".join(rows))
    assert len(named) > 50
    assert [name for name in named if not (ROOT / name).exists()] == []
