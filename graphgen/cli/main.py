"""The command ``graphgen``: its help, and subcommands that are imported when they are invoked."""

from __future__ import annotations

import atexit
import gc
import signal
import sys
from collections.abc import Iterator, MutableMapping
from typing import Annotated, Any, Protocol, cast

import typer
from typer.core import TyperCommand, TyperGroup

from graphgen.cli.command_errors import (
    GuardedCommand,
    one_style,
    refuse_dashes,
    report_defect,
    show_version,
)
from graphgen.cli.command_table import PANELS, command_function, commands, find_command


class _Formatter(Protocol):
    """The used part of typer's help formatter."""

    def section(self, name: str) -> Any:
        """Start a section; a context manager."""
        ...

    def write_dl(self, rows: list[tuple[str, str]]) -> None:
        """Write two aligned columns."""
        ...


class LazyCommands(MutableMapping[str, TyperCommand | TyperGroup]):
    """Commands by name; looking one up imports its module and makes it a typer command."""

    def __init__(self) -> None:
        self._loaded: dict[str, TyperCommand | TyperGroup] = {}

    def __getitem__(self, name: str) -> TyperCommand | TyperGroup:
        found = self._loaded.get(name)
        if found is None:
            found = self._loaded[name] = _compile(name, find_command(name).error_status)
        return found

    def __setitem__(self, name: str, command: TyperCommand | TyperGroup) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(commands())

    def __len__(self) -> int:
        return len(commands())


def _compile(name: str, error_status: int) -> TyperCommand | TyperGroup:
    """Import a command and make its function, or its application, a typer command."""
    function = command_function(name)
    if isinstance(function, typer.Typer):
        group = cast(TyperGroup, typer.main.get_command(function))
        for inner in group.commands.values():
            cast(GuardedCommand, inner).error_status = error_status
        return group
    single = typer.Typer(rich_markup_mode=None, add_completion=False)
    single.command(name, cls=GuardedCommand)(function)
    command = cast(GuardedCommand, typer.main.get_command(single))
    command.error_status = error_status
    return command


class LazyGroup(TyperGroup):
    """The group of all commands, none of them imported before it is needed."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = cast(Any, LazyCommands())

    def make_context(self, *arguments: Any, **settings: Any) -> Any:
        """Parse the words of the command line."""
        with one_style():
            return super().make_context(*arguments, **settings)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words up to the command's name."""
        refuse_dashes(self, ctx, args[:1])
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the words name."""
        with one_style():
            return super().invoke(ctx)

    def list_commands(self, ctx: object) -> list[str]:
        """The names, as :func:`~graphgen.cli.command_table.commands` sorts them."""
        return list(commands())

    def format_commands(self, ctx: object, formatter: _Formatter) -> None:
        """One section for each panel; typer would import every command for its help."""
        width = max(map(len, commands()))
        for panel, title in PANELS.items():
            with formatter.section(title):
                rows = [(n.ljust(width), e.help) for n, e in commands().items() if e.panel == panel]
                formatter.write_dl(rows)


app = typer.Typer(cls=LazyGroup, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def graphgen(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Compile language models for AWS Trainium and Inferentia, and for this CPU.

    \b
    Examples:
      graphgen inspect FILE
      graphgen build llama-3.1-8b --mini -o mini.gg
      graphgen opt mini.gg -p canonicalize --stats -o canonical.gg
      graphgen run mini.gg --program prefill
      graphgen lower mini.gg --to stablehlo --program prefill

    'graphgen COMMAND --help' explains a command; 'graphgen --install-completion' lets the shell
    complete commands, options and values.
    """
    if version:
        show_version()
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


def main() -> None:
    """Run the command line and exit with its status.

    0 is success, 1 a mistake of the user with an error code (2 from ``equiv``, ``diff``, ``grep``
    and ``accuracy``, where 1 is an answer), 2 a usage error, 70 a defect of graphgen, 130 an
    interruption from the keyboard, 141 a reader of standard output that left.
    """
    if any(word.endswith("-completion") for word in sys.argv[1:2]):
        from graphgen.cli.completion import complete_at_first_tab

        complete_at_first_tab()
    # The memory of graphs goes with the process: no cycles are looked for in them at its end.
    atexit.register(gc.freeze)
    try:
        typer.main.get_command(app)(prog_name="graphgen")
    except KeyboardInterrupt:
        # A second Ctrl-C kills a process that is slow to end, without a traceback of its cleanup.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        sys.exit(130)
    except Exception as error:
        sys.exit(report_defect(error))
