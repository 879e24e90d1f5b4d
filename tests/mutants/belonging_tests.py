"""The tests that belong to a file: its mirror, its folder's, then the nearest by imports."""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.mutants.mutations import PACKAGES, ROOT

# A package's import counts as one of all its modules where nothing nearer is found.
FARTHEST = 4
# The name of a pass, or another word with a hyphen that tests of the file are likely to use too.
HYPHENATED = re.compile(r"^[a-z0-9]+(-[a-z0-9]+)+$")


def belonging_tests(file: str, at_most: int) -> list[str]:
    """Test files of a file of the packages, the likeliest to see a fault in it first.

    Args:
        file: such as ``passes/gqa/assign_heads.py``.
        at_most: how many are returned.
    """
    mirror = f"tests/{Path(file).parent}/test_{Path(file).name}"
    distances = _distances(file)
    words = _words(file)

    def mentions(test: str) -> int:
        return min(sum(word in _text(test) for word in words), 3)

    def nearness(test: str) -> tuple[object, ...]:
        return (
            # The tests of its own room are quick and made for it, whatever they import, and so are
            # those of its name in another room, such as those of a command.
            not (_same_folder(test, file) or Path(file).stem in Path(test).stem),
            Path(file).stem not in Path(test).stem,
            min(distances.get(test, FARTHEST), 3) - mentions(test) - _named_after(test, file),
            -_shared_parts(test, file),
            test,
        )

    near = {test for test, far in distances.items() if far <= FARTHEST}
    # Tests run passes by name and import packages whole, so that no import leads to the file.
    near |= {test for test in _trees() if _same_folder(test, file) or mentions(test) > 1}
    near |= {test for test in _trees() if _named_after(test, file)}
    first = [mirror] if (ROOT / mirror).exists() else []
    rest = [test for test in sorted(near, key=nearness) if _is_test(test) and test != mirror]
    return [*first, *_filechecks(file), *rest][:at_most]


def quickest_first(
    tests: Sequence[str], file: str, killers: Iterable[str], seconds: Mapping[str, float]
) -> list[str]:
    """Order the tests of a file by outcomes of earlier mutants.

    Args:
        tests: as ``belonging_tests`` orders them.
        file: the file of the packages.
        killers: tests that failed on other faults of it, which come first.
        seconds: CPU seconds of files of tests, where known. Each puts a file one place back.
    """
    mirror = f"tests/{Path(file).parent}/test_{Path(file).name}"
    killing = set(killers)

    def cost(place: int) -> tuple[bool, bool, float]:
        test = tests[place]
        return test not in killing, test != mirror, place + seconds.get(test, 1.0)

    return [tests[place] for place in sorted(range(len(tests)), key=cost)]


def module_name(file: str) -> str:
    """The import name of a file of the packages."""
    name = ".".join(Path(file).with_suffix("").parts).removesuffix(".__init__")
    return name if name.startswith("graphgen") else f"graphgen.{name}"


def _filechecks(file: str) -> list[str]:
    """Files of IR with expected output, for the pass of that name."""
    parts = {*Path(file).parent.parts, Path(file).stem}
    folders = sorted((ROOT / "tests" / "filecheck").iterdir())
    return [f"tests/filecheck/{folder.name}" for folder in folders if folder.name in parts]


def _is_test(name: str) -> bool:
    return Path(name).name.startswith("test_")


def _same_folder(test: str, file: str) -> bool:
    return Path(test).parent == "tests" / Path(file).parent


def _named_after(test: str, file: str) -> bool:
    """Whether the name of a test holds that of the file or of a folder it is in."""
    name = Path(test).stem
    parts = (*Path(file).parent.parts[1:], Path(file).stem)
    return any(part in name for part in parts if len(part) > 3)


def _shared_parts(test: str, file: str) -> int:
    count = 0
    for mine, other in zip(Path(test).parts[1:], Path(file).parts, strict=False):
        if mine != other:
            break
        count += 1
    return count


def _distances(file: str) -> dict[str, int]:
    """Number of imports from each file that reaches ``file``, at first without whole packages."""
    near = _reaching(file, importers(whole_packages=False))
    wide = _reaching(file, importers(whole_packages=True))
    return {**{name: far + 1 for name, far in wide.items()}, **near}


def _reaching(file: str, importers: Mapping[str, set[str]]) -> dict[str, int]:
    found = {file: 0}
    waiting = deque([file])
    while waiting:
        name = waiting.popleft()
        for importer in importers.get(name, ()):
            if importer not in found:
                found[importer] = found[name] + 1
                waiting.append(importer)
    return found


@cache
def importers(*, whole_packages: bool = False) -> dict[str, set[str]]:
    """For each file the files that import it, or a name it defines through a package.

    Args:
        whole_packages: whether the import of a package is one of its ``__init__.py`` too.
    """
    found: dict[str, set[str]] = {}
    for file in _trees():
        for target in _imported(file, whole_packages):
            found.setdefault(target, set()).add(file)
    return found


@cache
def _text(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def _words(file: str) -> set[str]:
    """Public names that a file defines, and names of passes in it."""
    found: set[str] = set()
    for node in ast.walk(_trees()[file]):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            found.add(node.name)
        elif isinstance(node, ast.Constant) and HYPHENATED.match(str(node.value)):
            found.add(str(node.value))
    return {word for word in found if len(word) > 4}


@cache
def _trees() -> dict[str, ast.Module]:
    paths = sorted(
        path for name in (*PACKAGES, "tests", "benchmarks") for path in (ROOT / name).rglob("*.py")
    )
    names = [path.relative_to(ROOT).as_posix() for path in paths]
    return {name: ast.parse((ROOT / name).read_text(encoding="utf-8")) for name in names}


@cache
def _files() -> dict[str, str]:
    """The file of each import name."""
    tests = ("tests/", "benchmarks/")
    return {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        if name.startswith(tests)
        else module_name(name): name
        for name in _trees()
    }


def _imported(file: str, whole_packages: bool) -> set[str]:
    """Files that a file imports, also by a string with their name, or mirrors as a test."""
    files = _files()
    found: set[str | None] = set()
    for node in ast.walk(_trees()[file]):
        if isinstance(node, ast.Import):
            found |= {files.get(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {_home(node.module, alias.name) for alias in node.names}
            found.add(files.get(node.module) if whole_packages else None)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(files.get(node.value) if "." in node.value else None)
        elif isinstance(node, ast.JoinedStr):
            found |= _named_by(node)
    mirrored = Path(*Path(file).parts[1:]).with_name(Path(file).name.removeprefix("test_"))
    found.add(mirrored.as_posix() if mirrored.as_posix() in _trees() else None)
    return {name for name in found if name} - {file}


def _named_by(text: ast.JoinedStr) -> set[str]:
    """Modules whose name begins as a text that is put together does: ``f"graphgen.cli.{name}"``."""
    start = text.values[0].value if isinstance(text.values[0], ast.Constant) else None
    if not isinstance(start, str) or not re.match(r"graphgen\.\w+\.", start):
        return set()
    return {file for name, file in _files().items() if name.startswith(start)}


@cache
def _home(module: str, name: str) -> str | None:
    """The file that defines a name which ``from module import name`` gives."""
    files = _files()
    if f"{module}.{name}" in files:
        return files[f"{module}.{name}"]
    file = files.get(module)
    if file is None or not file.endswith("__init__.py"):
        return file
    for node in ast.walk(_trees()[file]):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if name == (alias.asname or alias.name) and node.module != module:
                    return _home(node.module, alias.name)
    return file
