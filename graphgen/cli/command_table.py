"""Table of the commands, read from the declaration in the module of each command.

``COMMAND`` of ``NAME_cmd.py`` is a literal: ``graphgen --help`` reads it and imports no command.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import typer

# Groups of commands, one for each kind of user, and their titles in ``graphgen --help``.
PANELS: Final = {
    "model": "Run a model",
    "launching": "Use several processes",
    "passes": "Run and understand passes",
    "debug": "Debug a miscompile",
    "inspect": "Inspect programs",
    "quantization": "Quantize",
    "speculation": "Decode speculatively",
    "neuron": "Target Neuron devices",
    "aws": "Migrate from AWS's libraries",
    "machine": "Inspect this machine",
}
_FOLDER: Final = Path(__file__).parent
_SUFFIX: Final = "_cmd"
_DECLARATION: Final = re.compile(r"^COMMAND: Final = Command(\(.*?\))$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Command:
    """One row of ``graphgen --help``; all arguments are literals.

    The module has a function of the command's name, with ``_`` at its end where Python or the
    module uses the name otherwise: parameters are the command's, the docstring its help. A command
    with subcommands is the typer application ``app`` of its module.

    Attributes:
        panel: key of :data:`PANELS`.
        help: one line.
        order: place in the panel; commands of one place are sorted by name.
        error_status: exit status of a user's mistake; 2 where 1 is an answer, such as a difference.
    """

    panel: str
    help: str
    order: int = 100
    error_status: int = 1


def command_module(name: str) -> str:
    """The module of the command ``name``."""
    return f"graphgen.cli.{name.replace('-', '_')}{_SUFFIX}"


def command_function(name: str) -> Callable[..., None] | typer.Typer:
    """Import the function, or the application, of the command ``name``."""
    module, identifier = import_module(command_module(name)), name.replace("-", "_")
    names = ("app", f"{identifier}_", identifier)
    return getattr(module, next(each for each in names if hasattr(module, each)))


@cache
def commands() -> Mapping[str, Command]:
    """All commands by name, sorted by panel, place and name."""
    names = [path.stem.removesuffix(_SUFFIX) for path in _FOLDER.glob(f"*{_SUFFIX}.py")]
    found = {name.replace("_", "-"): find_command(name.replace("_", "-")) for name in names}
    panels = list(PANELS)
    return dict(
        sorted(found.items(), key=lambda row: (panels.index(row[1].panel), row[1].order, row[0]))
    )


@cache
def find_command(name: str) -> Command:
    """The declaration of the command ``name``; :class:`KeyError` if there is no such command."""
    path = _FOLDER / f"{name.replace('-', '_')}{_SUFFIX}.py"
    if not re.fullmatch(r"[a-z][a-z-]*", name) or not path.is_file():
        raise KeyError(name)
    declared = _DECLARATION.search(path.read_text(encoding="utf-8"))
    assert declared, f"{path.name} declares no COMMAND"
    call = ast.parse(f"Command{declared[1]}", mode="eval").body
    assert isinstance(call, ast.Call)
    named = {word.arg or "": ast.literal_eval(word.value) for word in call.keywords}
    return Command(*map(ast.literal_eval, call.args), **named)
