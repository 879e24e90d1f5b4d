"""Test of a module by a command of the user: wrong if the command fails."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from graphgen.errors import GraphgenError
from graphgen.ir import Module

# Placeholder of the module's file.
PLACE = "{}"


def by_command(command: str, option: str) -> Callable[[Module], bool]:
    """A test that runs a command on the module as a file; status 0 is right, any other wrong.

    Args:
        command: words as in a shell, ``{}`` where the file goes.
        option: the option that gave the command, for errors.

    Raises:
        GraphgenError: GG0705 without a placeholder; from the test, if the command cannot run.
    """
    words = shlex.split(command)
    if not any(PLACE in word for word in words):
        raise GraphgenError(
            "GG0705", f"{option} '{command}' names no file", help="write {} where it goes"
        )

    def wrong(module: Module) -> bool:
        from graphgen.text import print_module

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "module.gg"
            path.write_text(print_module(module), encoding="utf-8")
            given = [word.replace(PLACE, str(path)) for word in words]
            try:
                ran = subprocess.run(given, capture_output=True, check=False)
            except OSError as error:
                raise GraphgenError(
                    "GG0705", f"{option}: cannot run '{words[0]}': {error.strerror}"
                ) from error
            return ran.returncode != 0

    return wrong
