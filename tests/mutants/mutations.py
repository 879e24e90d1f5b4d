"""The small faults that one file allows: comparisons, arithmetic, conditions, small integers."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("graphgen", "passes", "lowering", "runtime")
# Texts of the command line, the version and the table of error codes are not behaviour.
LEFT_OUT = ("graphgen/cli/", "graphgen/version.py", "graphgen/errors.py", "graphgen/__main__.py")
# The name that mutated source calls right before the statement that holds the fault.
REACHED = "__mutant_reached__"
LARGEST_INTEGER = 16

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Div: ast.Mult,
}
# Keywords whose value no behaviour of a right program depends on, by the name of what is called.
SILENT_KEYWORDS = {
    "dataclass": {"frozen", "slots", "kw_only", "eq", "order", "repr"},
    "field": {"repr", "compare", "hash", "init"},
    "zip": {"strict"},
    "mkdir": {"exist_ok", "parents"},
    "unlink": {"missing_ok"},
}
SILENT_DECORATORS = {"cache", "lru_cache", "overload"}
SILENT_NAMES = {"__slots__", "__all__"}
# Calls whose text is a message: a reason not to rewrite, or a refusal.
MESSAGE_CALLS = {"no_match", "require", "remark"}
# Keywords that carry the text of a message.
MESSAGE_KEYWORDS = {"help", "notes", "hint", "message"}


@dataclass(frozen=True, slots=True, order=True)
class Mutation:
    """One fault in one file.

    Attributes:
        file: relative to the checkout.
        line: 1 for the first; for people only, since lines move.
        text: the source line without its indentation.
        change: before and after, as source: ``a < b -> a <= b``.
        occurrence: 1 for the first place in the file with this text and change.
        index: of the fault among those of the file.
    """

    file: str
    line: int
    text: str
    change: str
    occurrence: int
    index: int

    @property
    def key(self) -> str:
        """Name of the fault that stays the same when lines above it change."""
        return f"{self.file} | {self.text} | {self.change} | {self.occurrence}"


def mutated_files() -> list[str]:
    """Files of the packages that faults are put into, relative to the checkout."""
    found = [
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.name != "__init__.py"
    ]
    return [name for name in found if not name.startswith(LEFT_OUT)]


@cache
def mutations(file: str) -> tuple[Mutation, ...]:
    """Every fault of a file, in the order of the source."""
    source = (ROOT / file).read_text(encoding="utf-8")
    lines = source.splitlines()
    seen: Counter[tuple[str, str]] = Counter()
    found: list[Mutation] = []
    for index, place in enumerate(_places(ast.parse(source))):
        text = lines[place.node.lineno - 1].strip()
        seen[text, place.change] += 1
        occurrence = seen[text, place.change]
        found.append(Mutation(file, place.node.lineno, text, place.change, occurrence, index))
    return tuple(found)


def mutated_tree(mutation: Mutation) -> ast.Module:
    """The file's syntax tree with the fault, and a call of ``REACHED`` before its statement."""
    tree = ast.parse((ROOT / mutation.file).read_text(encoding="utf-8"))
    place = list(_places(tree))[mutation.index]
    changed = place.changed
    setattr(place.parent, place.name, changed) if place.at is None else _put(place)
    _mark(tree, changed)
    return ast.fix_missing_locations(tree)


def words_near(mutation: Mutation) -> frozenset[str]:
    """Words of five letters or more in the top-level function or class that holds the fault."""
    source = (ROOT / mutation.file).read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if node.lineno <= mutation.line <= (node.end_lineno or node.lineno):
            names = [n for n in ast.walk(node) if isinstance(n, ast.FunctionDef | ast.ClassDef)]
            texts = [n for n in ast.walk(node) if isinstance(n, ast.Constant)]
            given = [n.name for n in names] + [
                str(n.value) for n in texts if isinstance(n.value, str)
            ]
            return frozenset(
                word
                for text in given
                if len(text) < 40
                for word in re.findall(r"[a-z0-9]{5,}", text.lower())
            )
    return frozenset()


def names_near(mutation: Mutation) -> frozenset[str]:
    """Names of the functions and classes that hold the fault, without private ones."""
    source = (ROOT / mutation.file).read_text(encoding="utf-8")
    holding = [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and node.lineno <= mutation.line <= (node.end_lineno or node.lineno)
    ]
    return frozenset(name for name in holding if not name.startswith("_"))


@dataclass(frozen=True, slots=True)
class _Place:
    """A node to replace: the field ``name`` of ``parent``, its item ``at`` where it is a list."""

    parent: ast.AST
    name: str
    at: int | None
    node: ast.expr
    changed: ast.expr

    @property
    def change(self) -> str:
        return f"{ast.unparse(self.node)} -> {ast.unparse(self.changed)}"


def _put(place: _Place) -> None:
    getattr(place.parent, place.name)[place.at] = place.changed


def _places(tree: ast.Module) -> list[_Place]:
    found = list(_walk(tree))
    return sorted(found, key=lambda p: (p.node.lineno, p.node.col_offset, p.change))


def _walk(parent: ast.AST) -> Iterator[_Place]:
    for name, value in ast.iter_fields(parent):
        several = isinstance(value, list)
        for at, node in enumerate(value if several else [value]):
            if not isinstance(node, ast.AST) or _silent(parent, name, node):
                continue
            if isinstance(node, ast.expr):
                for changed in _changed(parent, name, node):
                    yield _Place(parent, name, at if several else None, node, changed)
            yield from _walk(node)


def _changed(parent: ast.AST, name: str, node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare):
        for at, op in enumerate(node.ops):
            if type(op) in COMPARISONS:
                ops = [*node.ops[:at], COMPARISONS[type(op)](), *node.ops[at + 1 :]]
                yield _like(node, ast.Compare(node.left, ops, node.comparators))
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and not _of_text(node):
        yield _like(node, ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right))
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield _like(node, ast.BoolOp(other, node.values))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.Constant):
        yield from _other_constant(node)
    if name == "test" and isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
        yield _like(node, ast.UnaryOp(ast.Not(), node))


def _other_constant(node: ast.Constant) -> Iterator[ast.expr]:
    if isinstance(node.value, bool):
        yield _like(node, ast.Constant(not node.value))
    elif isinstance(node.value, int) and 0 <= node.value <= LARGEST_INTEGER:
        yield _like(node, ast.Constant(node.value + 1))


def _like(old: ast.expr, new: ast.expr) -> ast.expr:
    return ast.copy_location(new, old)


def _of_text(node: ast.BinOp) -> bool:
    """Whether arithmetic is on texts or lists written there: every fault in it raises at once."""
    return any(
        isinstance(side, ast.JoinedStr | ast.List | ast.Tuple | ast.Set | ast.ListComp)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
        or (isinstance(side, ast.BinOp) and _of_text(side))
        for side in (node.left, node.right)
    )


def _silent(parent: ast.AST, name: str, node: ast.AST) -> bool:
    """Whether a fault in ``node`` changes no behaviour of a right program, or only a message."""
    if isinstance(node, ast.Assert | ast.Raise | ast.Import | ast.ImportFrom):
        return True
    if name in ("annotation", "returns", "keywords", "format_spec") or name == "decorator_list":
        return _silent_part(parent, name, node)
    if isinstance(node, ast.If):
        return _name(node.test) == "TYPE_CHECKING" or "__name__" in ast.unparse(node.test)
    if isinstance(node, ast.JoinedStr) and isinstance(parent, ast.Call):
        return _name(parent.func) in MESSAGE_CALLS
    if isinstance(node, ast.Assign):
        return any(_name(target) in SILENT_NAMES for target in node.targets)
    return isinstance(node, ast.Call) and _name(node.func).endswith(("Error", "Warning"))


def _silent_part(parent: ast.AST, name: str, node: ast.AST) -> bool:
    if name == "keywords":
        keyword = node.arg if isinstance(node, ast.keyword) else None
        called = _name(parent.func) if isinstance(parent, ast.Call) else ""
        silent = SILENT_KEYWORDS.get(called, set())
        return keyword in silent | MESSAGE_KEYWORDS
    if name == "decorator_list":
        called = node.func if isinstance(node, ast.Call) else node
        return _name(called) in SILENT_DECORATORS
    return True


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _mark(tree: ast.Module, changed: ast.expr) -> None:
    """Put a call of ``REACHED`` in front of the innermost statement that holds ``changed``."""
    body, at = _statement(tree, changed)
    call = ast.Call(ast.Name(REACHED, ast.Load()), [], [])
    body.insert(at, ast.copy_location(ast.Expr(call), body[at]))


def _statement(tree: ast.Module, changed: ast.expr) -> tuple[list[ast.stmt], int]:
    found: tuple[list[ast.stmt], int] | None = None
    for node in ast.walk(tree):
        for _, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                for at, statement in enumerate(value):
                    if any(inner is changed for inner in ast.walk(statement)):
                        found = value, at
    assert found is not None
    return found
