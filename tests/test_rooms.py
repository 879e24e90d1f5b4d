"""Rooms: one level of folders below a package, and no cycle among their imports.

A room is a folder ``package/room``. A module at the root of a package is a node of its own. All
imports count: at module level, under ``TYPE_CHECKING`` and inside functions.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("graphgen", "passes", "lowering", "runtime")
# What a docstring names: ``file.py`` or :mod:`module`.
NAMED = re.compile(r"``(?P<file>[a-z]\w*)\.py``|:mod:`~?(?P<module>[\w.]+)`")


def sources(root: Path) -> dict[str, str]:
    """Text of each module by its path, without what the links in graphgen/ lead to."""
    files = [path for name in PACKAGES for path in (root / name).rglob("*.py")]
    kept = {path for path in files if not any(folder.is_symlink() for folder in path.parents)}
    return {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in sorted(kept)}


def module_name(path: str) -> str:
    """``graphgen.passes.core.rule`` of ``passes/core/rule.py``."""
    parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
    return ".".join(parts if parts[0] == "graphgen" else ["graphgen", *parts])


def room(path: str) -> str:
    """``passes/core`` of ``passes/core/rule.py``; ``passes/open`` of ``passes/open.py``."""
    return path.rpartition("/")[0] if path.count("/") > 1 else path.removesuffix(".py")


def imported(text: str) -> Iterator[tuple[str, ...]]:
    """Names of modules that an import may mean, the longest first."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.name,)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.module


def room_imports(texts: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """For each room those that it imports, with one module that does."""
    paths = {module_name(path): path for path in texts}
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for path, text in texts.items():
        for names in imported(text):
            read = next((paths[name] for name in names if name in paths), None)
            if read is not None and room(read) != room(path):
                found[room(path)].setdefault(room(read), path)
    return found


def cycle(graph: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Rooms that import each other in a circle, each with the module that imports the next."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        rooms: list[str] = error.args[1][::-1]
        return [f"{a} imports {b} in {graph[a][b]}" for a, b in pairwise(rooms)]
    return []


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return sources(ROOT)


@pytest.fixture(scope="module")
def graph(texts: dict[str, str]) -> dict[str, dict[str, str]]:
    return room_imports(texts)


def test_rooms_import_each_other_in_one_direction(graph: dict[str, dict[str, str]]):
    assert len(graph) > 50
    assert cycle(graph) == []


def test_packages_import_each_other_in_one_direction(graph: dict[str, dict[str, str]]):
    order = {name: place for place, name in enumerate(PACKAGES)}
    up = [
        f"{name} imports {other} in {path}"
        for name, others in graph.items()
        for other, path in others.items()
        if order[other.split("/")[0]] > order[name.split("/")[0]]
        and not name.startswith("graphgen/cli")
    ]
    assert up == []


def test_the_command_line_is_imported_by_none(graph: dict[str, dict[str, str]]):
    readers = {name for name, others in graph.items() if "graphgen/cli" in others}
    assert readers <= {"graphgen/__main__"}


@pytest.mark.parametrize(
    ("late", "found"),
    [
        ("", []),
        (
            "def f():\n    from graphgen.lowering.b import y\n",
            [
                "lowering/a imports lowering/b in lowering/a/x.py",
                "lowering/b imports lowering/a in lowering/b/y.py",
            ],
        ),
    ],
    ids=["one-direction", "inside-a-function"],
)
def test_a_cycle_is_found(late: str, found: list[str]):
    planted = {
        "lowering/a/__init__.py": "",
        "lowering/a/x.py": late,
        "lowering/b/__init__.py": "",
        "lowering/b/y.py": "import graphgen.lowering.a.x\n",
    }
    assert sorted(cycle(room_imports(planted))) == found


def test_no_folder_lies_below_a_room(texts: dict[str, str]):
    assert [path for path in texts if path.count("/") > 2] == []


def test_every_room_is_a_package_with_more_than_its_init(texts: dict[str, str]):
    rooms = {path.rpartition("/")[0] for path in texts}
    assert [name for name in sorted(rooms) if f"{name}/__init__.py" not in texts] == []
    alone = [name for name in sorted(rooms) if len(list((ROOT / name).glob("[a-z]*.*"))) == 0]
    assert alone == []


def test_an_init_says_what_the_room_holds(texts: dict[str, str]):
    bad: list[str] = []
    for path, text in texts.items():
        if path.count("/") != 2 or not path.endswith("/__init__.py"):
            continue
        doc = ast.get_docstring(ast.parse(text)) or ""
        first = doc.partition("\n")[0]
        if len(first.split()) < 3 or not first.endswith((".", ":")):
            bad.append(f"{path}: says too little: {first!r}")
        if re.match(r"(read|start|see)\b", first, re.IGNORECASE):
            bad.append(f"{path}: opens with an order, not with what is here")
    assert bad == []


def test_an_init_names_files_that_are_there(texts: dict[str, str]):
    paths = {module_name(path): path for path in texts}
    bad: list[str] = []
    for path, text in texts.items():
        if path.endswith("/__init__.py"):
            folder = path.removesuffix("/__init__.py")
            for match in NAMED.finditer(ast.get_docstring(ast.parse(text)) or ""):
                name = match["file"] or match["module"]
                if name not in paths and f"{folder}/{name}.py" not in texts:
                    bad.append(f"{path}: there is no {name}")
    assert bad == []


def test_a_public_class_name_has_one_meaning(texts: dict[str, str]):
    places: dict[str, list[str]] = defaultdict(list)
    for path, text in texts.items():
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_a_module_does_not_repeat_a_name(texts: dict[str, str]):
    """Of two definitions of one name at module level the first is lost."""
    bad: list[str] = []
    for path, text in texts.items():
        names = Counter(
            node.name
            for node in ast.parse(text).body
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.decorator_list
        )
        bad += [f"{path}: {name}" for name, count in names.items() if count > 1]
    assert bad == []


def test_the_map_names_every_room(texts: dict[str, str]):
    drawn = (ROOT / "docs" / "map.md").read_text("utf-8")
    package, named = "", set[str]()
    for line in drawn.splitlines():
        if found := re.match(r"(graphgen|passes|lowering|runtime)/ ", line):
            package = found[1]
        elif found := re.match(r"  ([a-z_]+)/ ", line):
            named.add(f"{package}/{found[1]}")
    assert named == {path.rpartition("/")[0] for path in texts if path.count("/") == 2}
