"""Ratios of the house, printed by ``make check``; none is a gate.

    python -m tests.ratios [REVISION]

A line of code is one that is not blank, not a comment and not part of a docstring. The change in
lines of code is counted since REVISION, by default since the commit where this branch left main.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
import tokenize
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tests.test_rooms import PACKAGES, ROOT, imported, module_name, sources

_SKIPPED = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT),
    *(tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER),
}


def code_lines(text: str) -> set[int]:
    """Numbers of the lines that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _SKIPPED:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        # A string that is a statement is a docstring.
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def import_lines(text: str) -> int:
    """Number of lines of import statements."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(found)


def read_once(texts: Mapping[str, str]) -> int:
    """Number of modules that exactly one other module imports."""
    names = {module_name(path) for path in texts}
    readers: Counter[str] = Counter()
    for path, text in texts.items():
        read = {next((name for name in group if name in names), "") for group in imported(text)}
        readers.update(read - {"", module_name(path)})
    modules = [module_name(path) for path in texts if not path.endswith("__init__.py")]
    return sum(readers[name] == 1 for name in modules)


def texts_at(revision: str) -> dict[str, str] | None:
    """Text of each module at a revision; ``None`` where git does not have it."""
    command = ["git", "archive", revision, *PACKAGES]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if ran.returncode:
        return None
    found: dict[str, str] = {}
    with tarfile.open(fileobj=io.BytesIO(ran.stdout)) as archive:
        for member in archive:
            held = archive.extractfile(member) if member.name.endswith(".py") else None
            if held is not None and member.isfile():
                found[member.name] = held.read().decode()
    return found


def branch_point() -> str:
    """The commit where this branch left main; the last but one on main itself."""
    command = ["git", "merge-base", "main", "HEAD"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    point = ran.stdout.strip()
    return "HEAD~1" if not point or point == head.stdout.strip() else point


def lines_of_code(texts: Mapping[str, str]) -> int:
    """Lines of code of all modules."""
    return sum(len(code_lines(text)) for text in texts.values())


def report(texts: Mapping[str, str], before: Mapping[str, str] | None, since: str) -> list[str]:
    """A line for each ratio, and one for the change since a revision."""
    code = lines_of_code(texts)
    imports = sum(map(import_lines, texts.values()))
    modules = sum(not path.endswith("/__init__.py") for path in texts)
    once = read_once(texts)
    cli = lines_of_code({p: text for p, text in texts.items() if p.startswith("graphgen/cli/")})
    lines = [
        f"import lines / lines of code: {imports} / {code} = {imports / code:.1%} (aim: below 9 %)",
        f"modules with one reader / modules: {once} / {modules} = {once / modules:.1%} "
        "(aim: below 10 %)",
        f"lines of the CLI / lines of code: {cli} / {code} = {cli / code:.1%} (aim: below 7 %)",
    ]
    if before is not None:
        lines.append(f"lines of code since {since[:9]}: {code - lines_of_code(before):+d}")
    return lines


def main() -> None:
    """Print the ratios of this checkout."""
    since = sys.argv[1] if len(sys.argv) > 1 else branch_point()
    print(*report(sources(Path(ROOT)), texts_at(since), since), sep="\n")


if __name__ == "__main__":
    main()
