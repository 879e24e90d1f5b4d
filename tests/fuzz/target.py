"""What a target of the fuzzer is, and targets that are commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from graphgen.json_value import Json

ROOT: Final = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Target:
    """A reader.

    Attributes:
        file: name of the file that holds an input, in a folder of its own.
        read: reads the file; errors of the house are right, other exceptions are defects.
        seeds: makes right inputs.
        slow: seeds or reader need a library that takes seconds to import.
    """

    file: str
    read: Callable[[Path], object]
    seeds: Callable[[], Sequence[bytes]]
    slow: bool = False


def json_seeds(*values: Json) -> Callable[[], list[bytes]]:
    """Right inputs in JSON."""
    return lambda: [json.dumps(value).encode() for value in values]


def command(*words: str, text: bool = False) -> Callable[[Path], None]:
    """A reader that is a command of graphgen.

    Args:
        words: of the command; the file comes last.
        text: the content of the file is the last word, not its path.
    """

    def read(path: Path) -> None:
        import typer
        from typer.testing import CliRunner

        from graphgen.cli.main import app

        data = path.read_bytes().decode("utf-8", "replace").replace("\0", "")
        last = (data[:100_000] if text else str(path)) or "x"
        ran = CliRunner().invoke(cast(typer.Typer, app), [*words, last])
        if ran.exit_code == 70:
            raise RuntimeError(ran.stderr[-600:])

    return read
