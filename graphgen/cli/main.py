"""The command ``graphgen`` and the table of its subcommands, each imported when it is invoked."""

from __future__ import annotations

import atexit
import gc
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, Final, Protocol, cast

import typer
from typer.core import TyperCommand, TyperGroup

from graphgen.cli.command_errors import (
    USER_ERROR,
    GuardedCommand,
    one_style,
    refuse_dashes,
    report_defect,
    show_version,
)

# Groups of commands, one for each kind of user, and their titles in ``graphgen --help``.
PANELS: Final = {
    "model": "Run a model",
    "launching": "Use several processes",
    "passes": "Run and understand passes",
    "debug": "Debug a miscompile",
    "inspect": "Inspect programs",
    "quantization": "Quantize",
    "speculation": "Decode speculatively",
    "neuron": "Target Neuron devices",
    "aws": "Migrate from AWS's libraries",
    "machine": "Inspect this machine",
}


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """One row of ``graphgen --help``, and the place of the command's code.

    Attributes:
        panel: key of :data:`PANELS`.
        help: one line.
        function: parameters are the command's, the docstring its help; by default ``COMMAND``.
            Of a command with subcommands the typer application.
        error_status: exit status of a user's mistake.
    """

    panel: str
    help: str
    function: str = ""
    error_status: int = USER_ERROR

    def load(self, name: str) -> Callable[..., None] | typer.Typer:
        """Import the function of the command ``name``; nothing is imported before."""
        return getattr(import_module(self.module(name)), self.function or _identifier(name))

    def module(self, name: str) -> str:
        """The module of the command ``name``."""
        return f"graphgen.cli.{_identifier(name)}_cmd"


def _identifier(name: str) -> str:
    return name.replace("-", "_")


COMMANDS: Final[Mapping[str, CommandEntry]] = {
    "demo": CommandEntry("model", "Answer a prompt with a small model."),
    "generate": CommandEntry("model", "Generate text from prompts."),
    "launch": CommandEntry("launching", "Run a command as several processes."),
    "place": CommandEntry("launching", "Share an instance among several models."),
    "serve": CommandEntry("model", "Answer requests of OpenAI's API over HTTP."),
    "speculate": CommandEntry("speculation", "Measure the gain of speculative decoding."),
    "perplexity": CommandEntry("quantization", "Measure the perplexity of a model on a text."),
    "quantize": CommandEntry("quantization", "Write a checkpoint with quantized weights."),
    "calibrate": CommandEntry("quantization", "Write ranges of caches and activations on a text."),
    # Status 1 is an answer: the outputs differ.
    "accuracy": CommandEntry("model", "Compare a model with a reference.", error_status=2),
    "benchmark": CommandEntry("model", "Measure latencies and throughput."),
    "load-test": CommandEntry("model", "Measure a server of OpenAI's API under load."),
    "build": CommandEntry("model", "Write a model's graph as IR text."),
    "import": CommandEntry("model", "Import a model of PyTorch or JAX, or a program.", "import_"),
    "shard-weights": CommandEntry("model", "Write a checkpoint's weights per rank."),
    "merge-lora": CommandEntry("model", "Write a checkpoint with an adapter in its weights."),
    "opt": CommandEntry("passes", "Run passes over a module."),
    "passes": CommandEntry("passes", "List the passes, or explain one."),
    "pipeline": CommandEntry("passes", "List the pipelines, or show what one is made of."),
    "ops": CommandEntry("passes", "List the ops, or explain one."),
    "explain": CommandEntry("passes", "Show why a pass did, or did not, rewrite an op."),
    "trace": CommandEntry("passes", "Show all that passes did, as a page of HTML."),
    "why": CommandEntry("passes", "Show one value's history through the passes."),
    "validate": CommandEntry("debug", "Check passes by numbers; name the wrong rewrite."),
    # Status 1 is an answer: a difference, no match.
    "equiv": CommandEntry("debug", "Compare two modules by numbers.", error_status=2),
    "prove": CommandEntry("debug", "Prove that two modules compute the same.", error_status=2),
    "bisect": CommandEntry("debug", "Find the rewrite that makes a module wrong."),
    # Status 1 is an answer: a compiler is wrong.
    "triage": CommandEntry("debug", "Say which compiler is wrong for a program.", error_status=2),
    "minify": CommandEntry("debug", "Reduce a failing module to a few ops."),
    "repro": CommandEntry("debug", "Replay a pass that failed."),
    "replay": CommandEntry("debug", "Compare lowered models with a git revision's."),
    "inspect": CommandEntry("inspect", "Describe a module, a checkpoint or a work folder."),
    "explore": CommandEntry("inspect", "Write the graph of a module as a page that unfolds."),
    "diff": CommandEntry("inspect", "Compare two modules by what they compute.", error_status=2),
    "grep": CommandEntry("inspect", "Find ops by a pattern.", error_status=2),
    "slice": CommandEntry("inspect", "Extract a part of a program.", "slice_"),
    "memory": CommandEntry("inspect", "Show what uses the memory of a program."),
    "profile": CommandEntry("inspect", "Show measured times of ops beside their bounds."),
    "normalize": CommandEntry("inspect", "Write a module in a normal form for text diffs."),
    "run": CommandEntry("inspect", "Run a program and describe its outputs."),
    "lower": CommandEntry("neuron", "Turn a module's programs into StableHLO or HLO."),
    "compile": CommandEntry("neuron", "Compile a model with neuronx-cc.", "compile_"),
    "cache": CommandEntry("neuron", "List, verify and prune the compile cache.", "app"),
    "device-kit": CommandEntry("neuron", "Write a test kit for a device, read its results.", "app"),
    "check": CommandEntry("neuron", "Predict what neuronx-cc will refuse."),
    "cost": CommandEntry("neuron", "Estimate a module's time on an accelerator."),
    "models": CommandEntry("neuron", "List the models that plan, build and cost know by name."),
    "plan": CommandEntry("neuron", "Plan memory, ranks and instances for a model."),
    "hash": CommandEntry("neuron", "Print the compile cache keys of programs."),
    "config": CommandEntry("aws", "Show what AWS's configurations do here."),
    # Status 1 is an answer: a name is missing, tokens differ.
    "tnx": CommandEntry(
        "aws", "Run an installed transformers-neuronx here.", "app", error_status=2
    ),
    "doctor": CommandEntry("machine", "Show what is used on this machine, what is missing."),
}


class _Formatter(Protocol):
    """The used part of typer's help formatter."""

    def section(self, name: str) -> Any:
        """Start a section; a context manager."""
        ...

    def write_dl(self, rows: list[tuple[str, str]]) -> None:
        """Write two aligned columns."""
        ...


class LazyCommands(MutableMapping[str, TyperCommand | TyperGroup]):
    """Commands by name; looking one up imports its module and makes it a typer command.

    Args:
        entries: the table of commands.
    """

    def __init__(self, entries: Mapping[str, CommandEntry]) -> None:
        self._entries = dict(entries)
        self._loaded: dict[str, TyperCommand | TyperGroup] = {}

    def __getitem__(self, name: str) -> TyperCommand | TyperGroup:
        found = self._loaded.get(name)
        if found is None:
            entry = self._entries[name]
            found = self._loaded[name] = _compile(name, entry.load(name), entry.error_status)
        return found

    def __setitem__(self, name: str, command: TyperCommand | TyperGroup) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _compile(
    name: str, function: Callable[..., None] | typer.Typer, error_status: int
) -> TyperCommand | TyperGroup:
    """Make a typer command of a function with annotated parameters, or of an application."""
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
        self.commands = cast(Any, LazyCommands(COMMANDS))

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
        """The names, in the order of :data:`COMMANDS`."""
        return list(COMMANDS)

    def format_commands(self, ctx: object, formatter: _Formatter) -> None:
        """One panel for each folder of commands; typer would import every command for its help."""
        width = max(map(len, COMMANDS))
        for panel, title in PANELS.items():
            with formatter.section(title):
                rows = [
                    (name.ljust(width), e.help) for name, e in COMMANDS.items() if e.panel == panel
                ]
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
