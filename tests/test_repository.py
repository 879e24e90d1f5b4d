"""The rules of the house that no other tool holds: sizes, names, imports, pins, error codes."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from graphgen.errors import CODES

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("graphgen", "passes", "lowering", "runtime")
MAX_FUNCTION_LINES = 60
# Names that say nothing about what the file or folder holds.
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}
CODE = re.compile(r"\bGG\d{4}\b")


@cache
def package_files() -> tuple[Path, ...]:
    files = tuple(sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py")))
    assert len({path.relative_to(ROOT).parts[0] for path in files}) == len(PACKAGES)
    return files


@cache
def source(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(source(path))


def shown(path: Path, line: int | None = None) -> str:
    name = path.relative_to(ROOT).as_posix()
    return name if line is None else f"{name}:{line}"


def lines_matching(pattern: re.Pattern[str], path: Path) -> Iterator[str]:
    for number, line in enumerate(source(path).splitlines(), 1):
        if found := pattern.search(line):
            yield f"{shown(path, number)}: {found.group()}"


@cache
def project_files() -> tuple[Path, ...]:
    """Text files git tracks or would add; what git ignores (.venv, caches) is not ours."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    files: list[Path] = []
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.is_file() and b"\0" not in path.read_bytes()[:8192]:
            files.append(path)
    assert Path(__file__).resolve() in files
    return tuple(files)


def test_functions_stay_short():
    long: list[str] = []
    for path in package_files():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    long.append(f"{shown(path, node.lineno)}: {node.name} has {lines} lines")
    assert long == []


def test_names_say_what_is_inside():
    python = (path for path in project_files() if path.suffix == ".py")
    parts = ((path, path.relative_to(ROOT).with_suffix("").parts) for path in python)
    assert [shown(path) for path, names in parts if EMPTY_NAMES.intersection(names)] == []


def test_every_module_says_what_it_does():
    silent = [path for path in package_files() if not ast.get_docstring(tree(path))]
    assert [shown(path) for path in silent] == []


def test_nothing_is_left_unfinished():
    # The words are split so that a search for them finds unfinished code only.
    unfinished = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b|NotImplemented" r"Error")
    assert [hit for path in package_files() for hit in lines_matching(unfinished, path)] == []


def test_importing_a_test_module_does_not_change_the_environment():
    """Every process of pytest imports all modules, and its children inherit what they set."""
    found = [
        shown(path, node.lineno)
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if path.name not in {"conftest.py", "__init__.py"}
        for node in tree(path).body
        if isinstance(node, ast.Assign | ast.Expr)
        if ast.unparse(node).startswith(("os.environ", "os.putenv"))
    ]
    assert found == []


def test_files_of_arrays_are_closed():
    """An open one is a warning, and so an error, in whatever test the collector runs."""
    found: list[str] = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        closed = {
            id(item.context_expr)
            for node in ast.walk(tree(path))
            if isinstance(node, ast.With)
            for item in node.items
        }
        found += [
            shown(path, node.lineno)
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "np.load"
            if id(node) not in closed
        ]
    assert found == []


def test_no_path_of_one_machine():
    # A path is absolute when nothing that could be its beginning comes before the slash.
    anywhere = re.compile(r"(?<![\w.})-])/(?:home|root|work|Users)/")
    temporary = re.compile(r"(?<![\w.})-])/tmp\b")
    hits: list[str] = []
    for path in project_files():
        hits += lines_matching(anywhere, path)
        if path.relative_to(ROOT).parts[0] != "tests":
            hits += lines_matching(temporary, path)
    assert hits == []


HEAVY = ("numpy", "jax", "jaxlib", "torch", "networkx", "transformers")


@pytest.mark.parametrize("package", PACKAGES)
def test_import_is_light(package: str):
    name = package if package == "graphgen" else f"graphgen.{package}"
    program = f"import sys, {name}; print(*(m for m in {HEAVY!r} if m in sys.modules))"
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == []


def test_every_error_code_in_use_is_declared():
    used = {(code, path) for path in package_files() for code in CODE.findall(source(path))}
    assert sorted({f"{shown(path)}: {code}" for code, path in used if code not in CODES}) == []


def test_every_error_code_has_its_documentation():
    documented = set(CODE.findall(source(ROOT / "docs" / "errors.md")))
    assert documented == set(CODES)


@cache
def pyproject() -> dict[str, list[str]]:
    """Requirements by group: ``dependencies`` and one entry for each extra."""
    project = tomllib.loads(source(ROOT / "pyproject.toml"))["project"]
    return {"dependencies": project["dependencies"], **project["optional-dependencies"]}


def pins(name: str) -> dict[str, str]:
    """Versions by package in ``requirements/<name>.txt``, where every line must be an exact pin."""
    pinned: dict[str, str] = {}
    for line in source(ROOT / "requirements" / f"{name}.txt").splitlines():
        if line and not line.startswith("#"):
            found = re.fullmatch(r"([\w.-]+)==([\w.]+)", line)
            assert found, f"requirements/{name}.txt: not an exact pin: {line}"
            pinned[canonicalize_name(found[1])] = found[2]
    return pinned


@pytest.mark.parametrize(
    ("group", "files"),
    [
        ("dependencies", ["runtime"]),
        ("test", ["runtime", "dev"]),
        ("prove", ["runtime", "dev"]),
        ("dev", ["runtime", "dev"]),
    ],
)
def test_requirements_are_pinned_within_the_stated_ranges(group: str, files: list[str]):
    pinned = {name: version for file in files for name, version in pins(file).items()}
    for requirement in map(Requirement, pyproject()[group]):
        if requirement.name != "graphgen-compiler":
            assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)])


def test_no_package_is_pinned_twice():
    names = [name for file in ("runtime", "dev", "docs") for name in pins(file)]
    assert len(names) == len(set(names))


def test_torch_is_installed_by_its_exact_version_before_anything_else():
    lines = source(ROOT / "requirements" / "dev.txt").splitlines()
    first = next(line for line in lines if line and not line.startswith("#"))
    assert re.fullmatch(r"torch==\d+\.\d+\.\d+", first)
