"""Ends of commands: user errors without a traceback, defects with one, exit statuses."""

from __future__ import annotations

import errno
import re
import traceback
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import takewhile
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from graphgen.cli.console import abandon_stdout, note, write_error, write_json
from graphgen.cli.printed_dashes import dashed_flag
from graphgen.config.option_groups import GROUPS
from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.limits import change_limits
from graphgen.numbers import MOST_SIZE
from graphgen.read_file import is_file
from graphgen.version import __version__

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
    return str(file if is_file(file) else model)


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

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params.append(_limits_option())

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words; flags with the dashes of printed text are refused first."""
        refuse_dashes(self, ctx, args)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, the options of no group, and those of each group."""
        for title, records in self.help_sections(ctx).items():
            with formatter.section(title):
                formatter.write_dl(records)

    def help_sections(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        """The spelling and the meaning of each parameter, by the title of its section."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        sections |= {group: [] for group in GROUPS}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                option = param.param_type_name == "option"
                group = getattr(param, "rich_help_panel", None) or "Options"
                sections[group if option else "Arguments"].append(record)
        return {title: records for title, records in sections.items() if records}

    def invoke(self, ctx: object) -> object:
        """Run the command."""
        context = cast(typer.Context, ctx)
        try:
            self._require_numbers(context)
            return super().invoke(context)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except GraphgenError as error:
            raise typer.Exit(self._report(error, context)) from None
        except BrokenPipeError:
            abandon_stdout()
            raise typer.Exit(BROKEN_PIPE) from None
        except Exception as error:
            ours = _last_net(error)
            status = report_defect(error) if ours is None else self._report(ours, context)
            raise typer.Exit(status) from None

    def _require_numbers(self, context: typer.Context) -> None:
        """Refuse whole numbers that no file, list or float has room for (GG0705)."""
        for param in self.params:
            given: object = context.params.get(param.name or "")
            items = cast("list[object]", given if isinstance(given, list | tuple) else [given])
            if any(isinstance(item, int) and abs(item) > MOST_SIZE for item in items):
                what = f"{max(param.opts, key=len)}: the number is too large"
                raise GraphgenError("GG0705", what)

    def _report(self, error: GraphgenError, context: typer.Context) -> int:
        """Print the error with its command-line context; return the exit status."""
        error.where = error.where or error_context(error, self, context)
        _print(error, as_json=self._as_json(context))
        return self.error_status

    def _as_json(self, context: typer.Context) -> bool:
        """True if the command has an option ``--json`` and got it."""
        given = context.params
        return any("--json" in param.opts and given.get(param.name) for param in self.params)


def _change_limits(text: str) -> str:
    """Let limits hold for the command and the processes that it starts."""
    try:
        change_limits(text)
    except GraphgenError as error:
        write_error(error)
        raise typer.Exit(USER_ERROR) from None
    return text


@lru_cache(maxsize=1)
def _limits_option() -> TyperOption:
    """The option of every command that changes limits of files."""

    def plain(
        limits: Annotated[
            str,
            typer.Option(
                metavar="NAME=N",
                callback=_change_limits,
                is_eager=True,
                expose_value=False,
                show_default=False,
                help="Limits of files of others; see docs/security.md.",
            ),
        ] = "",
    ) -> None: ...

    application = typer.Typer(add_completion=False)
    application.command()(plain)
    made = typer.main.get_command(application).params
    return next(param for param in made if isinstance(param, TyperOption))


def _last_net(error: Exception) -> GraphgenError | None:
    """The error of a user for what Python raises about this machine or a file; else ``None``."""
    if isinstance(error, MemoryError) or (
        isinstance(error, OSError) and error.errno == errno.ENOMEM
    ):
        what = f"not enough memory: {error}"
        return GraphgenError("GG1103", what, help="use smaller sizes, or --mini")
    if isinstance(error, RecursionError):
        return GraphgenError("GG1103", "the input is nested too deeply")
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        what = f"too many files are open: {error.strerror}"
        return GraphgenError("GG1103", what, help="allow more: ulimit -n 4096")
    if isinstance(error, OSError) and error.filename is not None and error.errno in _OF_NAMES:
        where = str(error.filename)
        return GraphgenError("GG1103", f"cannot open the file: {error.strerror}", where=where)
    return None


# Faults of a name that a user gives.
_OF_NAMES = (errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.ENOTDIR, errno.EISDIR)


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


# The attribute of an error whose help is another than that of the command.
_REPAIR = "graphgen_help"
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


def refuse_dashes(command: TyperCommand | TyperGroup, context: Any, words: Sequence[str]) -> None:
    """Refuse flags with dashes of printed text; another word may be a value, and passes.

    Args:
        command: of the flags.
        context: for the error.
        words: after the command's name; those after ``--`` are values.
    """
    flags = {flag for param in command.get_params(context) for flag in param.opts}
    for word in takewhile(lambda word: word != "--", words):
        found = dashed_flag(word)
        flag = "" if found is None else found.flag.partition("=")[0]
        # A word that begins with a hyphen is a flag, of this command or not, unless it is text.
        if found is not None and (flag in flags or (word[0] == "-" and _OPTION.fullmatch(flag))):
            error = typer.BadParameter(found.what, context)
            vars(error)[_REPAIR] = found.help
            raise error


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
    repair = str(getattr(error, _REPAIR, f"{command} --help"))
    return GraphgenError("GG0705", text.rstrip("."), help=repair)


def plain(text: str) -> str:
    """The text without the words of the checking library."""
    for pattern, words in _PLAIN:
        text = re.sub(pattern, words, text)
    first, _, rest = text.partition(" ")
    return f"{_BOUNDS[first]} {rest}" if first in _BOUNDS else text
