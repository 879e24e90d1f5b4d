"""Passes from outside the tree: a Python file, or an installed package's entry point."""

from __future__ import annotations

import importlib.util
import sys
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import walk_packages

from graphgen.errors import GraphgenError

GROUP = "graphgen.passes"
# What modules made of a user's files are called.
PLUGIN = "graphgen_plugin_"
# Files that have been run, so that what they registered can be had again elsewhere.
LOADED: list[Path] = []


def load_file(path: str) -> None:
    """Run a Python file that registers passes.

    Raises:
        GraphgenError: GG0705 when the file is not there or fails, with its own error.
    """
    file = Path(path)
    name = f"{PLUGIN}{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file) if file.is_file() else None
    if spec is None or spec.loader is None:
        raise GraphgenError("GG0705", f"the plugin '{path}' is no Python file")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise GraphgenError(
            "GG0705", f"the plugin '{path}' fails: {type(error).__name__}: {error}"
        ) from error
    LOADED.append(file.resolve())


def load_all() -> None:
    """Import every pass of ours, and what installed packages declare under ``graphgen.passes``."""

    package = import_module("graphgen.passes")
    for found in walk_packages(package.__path__, f"{package.__name__}."):
        import_module(found.name)
    for point in entry_points(group=GROUP):
        point.load()
