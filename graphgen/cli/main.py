"""The command ``graphgen``: which subcommands there are, each imported when it is invoked."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, Final, Protocol, cast

import typer
from typer.core import TyperCommand, TyperGroup

from graphgen.cli.failures import USER_ERROR, GuardedCommand, report_defect, show_version


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command lives, and what ``graphgen --help`` says about it.

    Attributes:
        module: imported when the command is invoked, never for ``graphgen --help``.
        function: the function in it; its parameters are the command's, its docstring the help.
        help: one line.
        error_status: exit status of a user's mistake.
    """

    module: str
    function: str
    help: str
    error_status: int = USER_ERROR


COMMANDS: Final[Mapping[str, Entry]] = {
    "generate": Entry("graphgen.cli.generate", "generate", "Answer prompts with a model."),
    "build": Entry("graphgen.cli.build", "build", "Write a model's graph as IR text."),
    "import": Entry("graphgen.cli.import_", "import_", "Take a graph that was made elsewhere."),
    "opt": Entry("graphgen.cli.opt", "opt", "Run passes over a module."),
    "validate": Entry(
        "graphgen.cli.validate", "validate", "Check passes by numbers; name the wrong rewrite."
    ),
    # As for diff: 1 is a difference.
    "equiv": Entry("graphgen.cli.equiv", "equiv", "Compare two modules by numbers.", 2),
    "diff": Entry("graphgen.cli.diff", "diff", "Compare two modules by what they compute.", 2),
    "grep": Entry("graphgen.cli.grep", "grep", "Find ops by a pattern.", 2),
    "inspect": Entry("graphgen.cli.inspect", "inspect", "Say what is in a module."),
    "slice": Entry("graphgen.cli.slice", "slice_", "Cut a part of a program out."),
    "normalize": Entry(
        "graphgen.cli.normalize", "normalize", "Write a module so that texts can be compared."
    ),
    "cost": Entry("graphgen.cli.cost", "cost", "Say what a module takes on an accelerator."),
    "check": Entry("graphgen.cli.check", "check", "Predict what neuronx-cc will refuse."),
    "hash": Entry("graphgen.cli.hash", "hash", "Say under which key a compilation is kept."),
    "perplexity": Entry(
        "graphgen.cli.perplexity", "perplexity", "Say how well a model foresees a text."
    ),
    "shard-weights": Entry(
        "graphgen.cli.shard_weights", "shard_weights", "Prepare a checkpoint's weights a rank."
    ),
    "plan": Entry("graphgen.cli.plan", "plan", "Say what a model needs and where it fits."),
    "bisect": Entry("graphgen.cli.bisect", "bisect", "Find the rewrite that makes a module wrong."),
    "minify": Entry(
        "graphgen.cli.minify", "minify", "Make a failing module as small as it still fails."
    ),
    "explain": Entry(
        "graphgen.cli.explain", "explain", "Say why a pass did, or did not, rewrite something."
    ),
    "trace": Entry("graphgen.cli.trace", "trace", "Show all that passes did, as a page of HTML."),
    "why": Entry("graphgen.cli.why", "why", "Tell one value's history through the passes."),
    "replay": Entry(
        "graphgen.cli.replay", "replay", "Say whether models are lowered as at a git revision."
    ),
    "repro": Entry("graphgen.cli.repro", "repro", "Replay a pass that failed."),
    "lower": Entry(
        "graphgen.cli.lower", "lower", "Turn a module's programs into StableHLO or HLO."
    ),
    "run": Entry("graphgen.cli.run", "run", "Run a program and describe what it gives."),
    "passes": Entry("graphgen.cli.passes", "passes", "List the passes, or explain one."),
    "pipeline": Entry(
        "graphgen.cli.pipelines", "pipeline", "List the pipelines, or show what one is made of."
    ),
    "ops": Entry("graphgen.cli.ops", "ops", "List the ops, or explain one."),
}


class _Formatter(Protocol):
    """What we use of typer's help formatter."""

    def section(self, name: str) -> Any:
        """A context manager; what is written inside stands under ``name``."""
        ...

    def write_dl(self, rows: list[tuple[str, str]]) -> None:
        """Two aligned columns."""
        ...


class LazyCommands(MutableMapping[str, TyperCommand]):
    """Commands by name; looking one up imports its module and makes it a typer command.

    Args:
        entries: what there is.
    """

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._entries = dict(entries)
        self._loaded: dict[str, TyperCommand] = {}

    def __getitem__(self, name: str) -> TyperCommand:
        found = self._loaded.get(name)
        if found is None:
            entry = self._entries[name]
            function = getattr(import_module(entry.module), entry.function)
            found = self._loaded[name] = _compile(name, function, entry.error_status)
        return found

    def __setitem__(self, name: str, command: TyperCommand) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _compile(name: str, function: Callable[..., None], error_status: int) -> TyperCommand:
    """A function with annotated parameters as a command, by typer."""
    single = typer.Typer(rich_markup_mode=None, add_completion=False)
    single.command(name, cls=GuardedCommand)(function)
    command = cast(GuardedCommand, typer.main.get_command(single))
    command.error_status = error_status
    return command


class LazyGroup(TyperGroup):
    """The group of all commands, none of them imported before it is needed."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = cast(Any, LazyCommands(COMMANDS))

    def list_commands(self, ctx: object) -> list[str]:
        """The names, in the order of :data:`COMMANDS`."""
        return list(COMMANDS)

    def format_commands(self, ctx: object, formatter: _Formatter) -> None:
        """The names with their one-line helps; typer would import every command for them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


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

    0 is success, 1 a mistake of the user with an error code (2 from ``equiv``, ``diff`` and
    ``grep``, where 1 is an answer), 2 a usage error, 70 a defect of graphgen, 130 an interruption
    from the keyboard, 141 a reader of standard output that left.
    """
    if any(word.endswith("-completion") for word in sys.argv[1:2]):
        from graphgen.cli.completion import complete_at_first_tab

        complete_at_first_tab()
    try:
        typer.main.get_command(app)(prog_name="graphgen")
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        sys.exit(report_defect(error))
