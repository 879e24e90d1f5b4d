"""The option ``--on`` of commands that run programs: a backend by name."""

from __future__ import annotations

import typer

from graphgen.lowering.backends.backend_names import NAMES, is_backend_name

AUTO = "auto"


def checked_name(name: str | None) -> str | None:
    """The name of a backend, or ``auto``; a mistake of usage for anything else."""
    if name is None or name == AUTO or is_backend_name(name):
        return name
    raise typer.BadParameter(f"'{name}' is not one of {', '.join(NAMES)}")


def not_auto(name: str | None) -> str | None:
    """The name of a backend; a mistake of usage for anything else."""
    if name == AUTO:
        raise typer.BadParameter(f"'{name}' is not one of {', '.join(NAMES)}")
    return checked_name(name)
