"""Pages of the commands, made of their help.

    python docs/source/command_pages.py        # prints the page of every command

A page has what ``graphgen COMMAND --help`` prints: usage, text, examples, arguments and options by
section. A command with subcommands has a section for each.
"""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Iterator

import typer
from typer.core import TyperCommand, TyperGroup

from graphgen.cli.command_errors import GuardedCommand
from graphgen.cli.command_table import PANELS, commands
from graphgen.cli.main import app

FOLDER = "commands"
# Characters that mean something in Markdown.
_MARKS = re.compile(r"([\\`*_\[\]|#])")


def command_pages() -> dict[str, str]:
    """The text of each page by its name, ``index`` and one for each command."""
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    with typer.Context(root, info_name="graphgen") as context:
        pages = {"index": _index(root)}
        for name in commands():
            lines = _command(root.commands[name], name, context, level=1)
            pages[name] = "\n".join(lines) + "\n"
    return pages


def _index(root: TyperGroup) -> str:
    """All commands by panel."""
    lines = ["# Commands", "", *_prose(root.help or "")]
    for panel, title in PANELS.items():
        lines += [f"## {title}", "", "| command | does |", "|---|---|"]
        for name, entry in commands().items():
            if entry.panel == panel:
                lines.append(f"| [`{name}`]({name}.md) | {plain(entry.help)} |")
        lines.append("")
    return "\n".join(lines)


def _command(
    command: TyperCommand | TyperGroup, name: str, parent: typer.Context, level: int
) -> Iterator[str]:
    """The lines about a command, and those about its subcommands."""
    with typer.Context(command, info_name=name, parent=parent) as context:
        usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
        yield from ("#" * level + f" {context.command_path}", "")
        yield from ("```", usage, "```", "", *_prose(command.help or ""))
        if isinstance(command, GuardedCommand):
            for title, records in command.help_sections(context).items():
                yield from ("#" * (level + 1) + f" {title}", "", f"| {title.lower()} | meaning |")
                yield "|---|---|"
                yield from (f"| {_code(names)} | {plain(text)} |" for names, text in records)
                yield ""
        if isinstance(command, TyperGroup):
            for inner, subcommand in command.commands.items():
                yield from _command(subcommand, inner, context, level + 1)


def _prose(text: str) -> Iterator[str]:
    """Paragraphs; those that keep their lines, after ``\\b``, are code with its heading."""
    for paragraph in text.strip().split("\n\n"):
        if paragraph.startswith("\b\n"):
            head, _, rows = paragraph.removeprefix("\b\n").partition("\n")
            yield from (plain(head), "", "```", textwrap.dedent(rows), "```", "")
        else:
            yield from (plain(" ".join(paragraph.split())), "")


def _code(text: str) -> str:
    """A spelling as code in a cell of a table."""
    return f"<code>{html.escape(text).replace('|', '&#124;')}</code>"


def plain(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _MARKS.sub(r"\\\1", html.escape(text, quote=False)).replace("\n", " ")


if __name__ == "__main__":
    print("\n".join(command_pages().values()))
