"""Files of plugins for reproducer folders: each plugin and the neighbours that it imports."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

# Installed packages are named by their versions, not copied.
_INSTALLED = {"site-packages", "dist-packages"}


def plugin_names(plugins: Sequence[Path]) -> dict[Path, str]:
    """Plugin -> its name in a folder; two plugins may share a base name."""
    taken = {name: file for plugin in plugins for name, file in neighbours(plugin).items()}
    found: dict[Path, str] = {}
    for plugin in plugins:
        path = plugin.resolve()
        used = path.name in found.values() or taken.get(path.name, path) != path
        found.setdefault(path, f"{len(found)}_{path.name}" if used else path.name)
    return found


def plugin_files(plugins: Sequence[Path]) -> dict[str, Path]:
    """Name in a folder -> file, of plugins and of the modules beside them that they import."""
    found = {name: file for plugin in plugins for name, file in neighbours(plugin).items()}
    return found | {name: path for path, name in plugin_names(plugins).items()}


def neighbours(plugin: Path) -> dict[str, Path]:
    """Modules in the folder of a plugin that it imports, directly or through others.

    Returns:
        The path of each relative to a folder from which it is imported by the same name -> file.
    """
    folder = plugin.resolve().parent
    found: dict[str, Path] = {}
    work: list[tuple[Path, str]] = [(plugin.resolve(), "")]
    while work:
        file, package = work.pop()
        for name in dict.fromkeys(_imports(file, package)):
            source = _source(name, folder)
            if source is None:
                continue
            inner = source.name == "__init__.py"
            target = name.replace(".", "/") + ("/__init__.py" if inner else ".py")
            if target not in found:
                found[target] = source
                work.append((source, name if inner else name.rpartition(".")[0]))
    return found


def _imports(file: Path, package: str) -> Iterator[str]:
    """Names of modules that a file may import, those of their packages included."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom):
            home = _home(node, package)
            if home is not None:
                for alias in node.names:
                    yield from _with_parents(".".join(filter(None, (home, alias.name))))


def _home(node: ast.ImportFrom, package: str) -> str | None:
    """The module that names are imported from; ``None`` for one above the top package."""
    if not node.level:
        return node.module
    parts = package.split(".") if package else []
    if node.level > len(parts):
        return None
    return ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [node.module])])


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])


def _source(name: str, folder: Path) -> Path | None:
    """The file of a module if it is in ``folder``, not installed, and not one of graphgen's."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names or top == "graphgen":
        return None
    loaded = getattr(sys.modules.get(name), "__file__", None)
    base = folder.joinpath(*name.split("."))
    tried = [Path(loaded)] if loaded else [base.with_name(f"{base.name}.py"), base / "__init__.py"]
    for path in tried:
        file = path.resolve()
        inside = file.is_relative_to(folder) and not _INSTALLED.intersection(file.parts)
        if inside and file.suffix == ".py" and file.is_file():
            return file
    return None
