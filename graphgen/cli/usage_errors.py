"""Errors of the command line itself, such as unknown options, in the style of all others."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import typer

from graphgen.cli.console import write_error
from graphgen.errors import GraphgenError

# Of typer's parser: the class of all its errors.
UsageError = cast("type[Exception]", typer.BadParameter.__base__)
# Texts of the library that checks the types of values, in plain words.
_PLAIN = (
    (r"^Value error, ", ""),
    (r"^Input should be a valid integer.*$", "not an integer"),
    (r"^Input should be a valid number.*$", "not a number"),
    (r"^Input should be (greater|less) than or equal to (\S+)$", r"\1 \2"),
    (r"^Input should be ", "not "),
)
_BOUNDS = {"greater": "must be at least", "less": "must be at most"}


@contextmanager
def one_style() -> Generator[None]:
    """Let usage errors that leave the block print as ``error[GG0705]``, with a line of help."""
    try:
        yield
    except UsageError as error:
        ours = usage_error(error)
        vars(error)["show"] = partial(_show, ours)
        raise


def _show(error: GraphgenError, file: object = None) -> None:
    """Print on stderr, whatever the file."""
    write_error(error)


def usage_error(error: Any) -> GraphgenError:
    """A usage error as one of ours: the option, what is wrong with it, and where help is."""
    context = error.ctx
    command = context.command_path if context is not None else "graphgen"
    text = str(error.format_message())
    found = re.match(r"Invalid value(?: for (.*?))?: (.*)$", text, re.DOTALL)
    if found:
        option = (found[1] or "").replace("'", "")
        text = f"{option}: {plain(found[2])}" if option else plain(found[2])
    return GraphgenError("GG0705", text.rstrip("."), help=f"{command} --help")


def plain(text: str) -> str:
    """The text without the words of the checking library."""
    for pattern, words in _PLAIN:
        text = re.sub(pattern, words, text)
    first, _, rest = text.partition(" ")
    return f"{_BOUNDS[first]} {rest}" if first in _BOUNDS else text
