"""Command-line context of an error: the options it names, as the user gave them."""

from __future__ import annotations

import re
from pathlib import Path
from shlex import quote
from typing import cast

import typer
from typer.core import TyperCommand

from graphgen.errors import GraphgenError

_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_CONFIGURATION, _PIPELINE = ("GG0501", "GG0502", "GG0503"), ("GG0301", "GG0302")


def error_context(error: GraphgenError, command: TyperCommand, context: typer.Context) -> str:
    """The options that the error names with their values, or its file; may be empty.

    Args:
        error: an error without a location of its own.
        command: the command that raised it.
        context: values of its parameters.
    """
    values = cast(dict[str, object], context.params)
    given = {name: value for name, value in values.items() if _is_given(context, name)}
    if error.code in _CONFIGURATION:
        return _configuration(given.get("model") or given.get("source"))
    spelled = {param.name or "": max(param.opts, key=len) for param in command.params}
    named = {option: name for name, option in spelled.items()}
    field = re.match(r"\w*", error.what)
    # In this order: options by name, by field, by quoted value, the pipeline.
    names = [named[word] for word in _OPTION.findall(error.what) if word in named]
    names = names or [
        name for name in given if field and field[0] == name and "--" in spelled[name]
    ]
    names = names or [name for name in given if _is_quoted(given[name], spelled[name], error.what)]
    if not names and error.code in _PIPELINE:
        names = [name for name in given if spelled[name] in ("-p", "--passes", "--pipeline")]
    return " ".join([_shown(spelled[name], given[name]) for name in names if name in given])


def _is_quoted(value: object, option: str, what: str) -> bool:
    """True if the error quotes the value of an option."""
    return option.startswith("-") and (f"'{value}'" in what or what.endswith(f"@{value}"))


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _shown(option: str, value: object) -> str:
    """An option as it can be typed; an argument has no word before it."""
    if isinstance(value, bool):
        return option
    items = cast(list[object], value) if isinstance(value, list | tuple) else [value]
    word = f"{option} " if option.startswith("-") else ""
    return " ".join([f"{word}{quote(str(item))}" for item in items])


def _configuration(model: object) -> str:
    """The configuration file of a model folder, else the model."""
    if model is None:
        return ""
    file = Path(str(model)) / "config.json"
    return str(file if file.is_file() else model)
