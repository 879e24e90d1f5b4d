"""Ends of commands: user errors without a traceback, defects with one, exit statuses."""

from __future__ import annotations

import traceback
from typing import cast

import typer
from typer.core import TyperCommand

from graphgen.cli.console import abandon_stdout, note, write_error, write_json
from graphgen.cli.error_context import error_context
from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.version import __version__

USER_ERROR, DEFECT, BROKEN_PIPE = 1, 70, 141


class GuardedCommand(TyperCommand):
    """A command that prints its errors as text or JSON and exits with a status of their own.

    A :class:`GraphgenError` is printed on stderr, or with ``--json`` as one JSON object on stdout.
    A reader of standard output that closes early (``| head``) is not reported. Anything else is a
    defect of graphgen and keeps its traceback.

    Attributes:
        error_status: the exit status of a user's mistake.
    """

    error_status = USER_ERROR

    def invoke(self, ctx: object) -> object:
        """Run the command."""
        context = cast(typer.Context, ctx)
        try:
            return super().invoke(context)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except GraphgenError as error:
            raise typer.Exit(self._report(error, context)) from None
        except BrokenPipeError:
            abandon_stdout()
            raise typer.Exit(BROKEN_PIPE) from None
        except MemoryError as error:
            small = GraphgenError(
                "GG0705", f"not enough memory: {error}", help="use smaller sizes, or --mini"
            )
            raise typer.Exit(self._report(small, context)) from None
        except Exception as error:
            raise typer.Exit(report_defect(error)) from None

    def _report(self, error: GraphgenError, context: typer.Context) -> int:
        """Print the error with its command-line context; return the exit status."""
        error.where = error.where or error_context(error, self, context)
        _print(error, as_json=self._as_json(context))
        return self.error_status

    def _as_json(self, context: typer.Context) -> bool:
        """True if the command has an option ``--json`` and got it."""
        given = context.params
        return any("--json" in param.opts and given.get(param.name) for param in self.params)


def _print(error: GraphgenError, *, as_json: bool) -> None:
    if as_json:
        facts: dict[str, Json] = {**error.to_json()}
        try:
            write_json({"error": facts})
        except (BrokenPipeError, GraphgenError):
            # The error is about standard output itself, or its reader has closed it.
            abandon_stdout()
            write_error(error)
    else:
        write_error(error)


def report_defect(error: Exception) -> int:
    """Print the traceback and ask for a report.

    Returns:
        The exit status.
    """
    notes: list[str] = getattr(error, "__notes__", [])
    error.__notes__ = []
    traceback.print_exception(error)
    note(f"this is a defect of graphgen {__version__}: please report it with the lines above")
    for text in notes:
        note(text)
    return DEFECT


def show_version() -> None:
    """Print ``graphgen`` and the version."""
    typer.echo(f"graphgen {__version__}")
