"""``graphgen minify``: reduce a failing module while it still fails."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from graphgen.cli.backend_option import not_auto
from graphgen.cli.command_table import Command
from graphgen.cli.compiled_file import backend_for, file_for, note_compiled
from graphgen.cli.console import note
from graphgen.cli.files import STANDARD
from graphgen.cli.module_file import open_module_file, write_module
from graphgen.cli.shared_options import (
    ModuleFile,
    OutputFile,
    Plugins,
    Seed,
    check_outputs,
    load_pipeline,
)
from graphgen.errors import GraphgenError, printable
from graphgen.json_value import Json

if TYPE_CHECKING:
    from graphgen.ir import Module
    from graphgen.lowering.backends.program_files import ReadFile
    from graphgen.passes.core import Pass
    from graphgen.passes.validate.minify import Round

COMMAND: Final = Command("debug", "Reduce a failing module to a few ops.")

Check = Annotated[
    Literal["numeric", "crash"],
    typer.Option("--check", help="A pass fails a check of validate, or raises."),
]
TestCommand = Annotated[
    str | None,
    typer.Option(
        "--command",
        metavar="COMMAND",
        help="Instead: it fails if this command does; {} is the file after the passes.",
    ),
]

On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="BACKEND",
        callback=not_auto,
        help="Instead: it fails if cpu, xla, iree or pjrt:PLATFORM differs from NumPy after the "
        "passes.",
    ),
]


def minify(
    file: ModuleFile,
    pipeline: Annotated[
        str,
        typer.Option("-p", "--pipeline", metavar="PIPELINE", help="Passes under which it fails."),
    ] = "",
    output: OutputFile = STANDARD,
    check: Check = "numeric",
    command: TestCommand = None,
    on: On = None,
    plugin: Plugins = None,
    seed: Seed = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was done as JSON; needs -o OUT.gg.")
    ] = False,
) -> None:
    """Reduce a failing module to the few ops that still fail.

    Programs, layers, outputs, ops, sizes and attributes are removed while the check fails; a value
    whose op was removed becomes an input. By numbers, the first pass that 'graphgen validate' calls
    wrong for FILE has to fail the same check for what is left: the meaning, the rounding, a rewrite
    by itself, and so on. Progress is on stderr.

    \b
    Examples:
      graphgen minify mini.gg -p default,mine --plugin mine.py -o small.gg
      graphgen minify crash/repro.gg -p 'partition' --check crash -o small.gg
      graphgen minify mini.gg --command 'python check.py {}' -o small.gg
      graphgen minify dump.mlir --on xla -o small.gg
    """
    from graphgen.passes.validate.minify import Minifier

    check_outputs(output, as_json)
    passes = load_pipeline(pipeline, plugin, small=True)
    source, module, _ = open_module_file(file)
    before = module.op_count()
    if on is not None:
        origin = file_for(on, source, module)
        module, fails = _on_backend(module, origin, passes, on, seed)
        before = module.op_count()
    else:
        fails = _check(module, passes, check, command, seed)
    progress = MinifyProgress(before)
    minifier = Minifier(module, fails, progress.done, progress.asked)
    found = minifier.run()
    progress.end()
    rounds: list[Json] = [
        {"what": item.what, "ops": item.ops, "checks": item.checks} for item in minifier.rounds
    ]
    write_module(found, output, as_json=as_json, more={"ops_before": before, "rounds": rounds})


def _on_backend(
    module: Module, origin: ReadFile | None, passes: Sequence[Pass], on: str, seed: int
) -> tuple[Module, Callable[[Module], bool]]:
    """The module with its symbols bound, and the test that a backend differs from NumPy."""
    from graphgen.cli.open_sizes import with_sizes
    from graphgen.cli.run_cmd import bound_program
    from graphgen.ir.clone import clone_module
    from graphgen.lowering.backends.triage import RIGHT, Triage
    from graphgen.lowering.runnable import runnable
    from graphgen.passes.core import run_pipeline
    from graphgen.passes.validate.failure_predicate import after_passes

    whole = runnable(module)
    sized = with_sizes(whole, None, "", default=True)
    bound, function = bound_program(sized, None, "")
    after = clone_module(bound)
    run_pipeline(after, passes)
    backend = backend_for(on, origin, bound, function, changed=sized is not whole)
    judge = Triage({on: backend}, seed)
    entry = after.function(function.name)
    (verdict,) = judge.run(after, entry, {})
    note_compiled(backend, on)
    if verdict.state == RIGHT:
        raise GraphgenError(
            "GG0304", f"{on} gives NumPy's numbers", help="graphgen triage takes --inputs"
        )
    note(f"{on} is {verdict.state}")
    return bound, after_passes(passes, judge.still_fails(after, entry, verdict))


def _check(
    module: Module, passes: Sequence[Pass], check: str, command: str | None, seed: int
) -> Callable[[Module], bool]:
    """The test that the smaller module has to fail."""
    from graphgen.passes.validate.failure_predicate import (
        after_passes,
        at_fault,
        same_exception,
    )

    if command is not None:
        from graphgen.cli.command_check import by_command

        return after_passes(passes, by_command(command, "--command"))
    if not passes:
        raise GraphgenError("GG0705", "nothing can fail without passes", help="give -p PIPELINE")
    if check == "crash":
        fails, failure = same_exception(module, passes)
        if failure is None:
            raise GraphgenError("GG0304", "the pipeline raises no exception for this module")
        note(f"it fails by {failure}")
        return fails
    fails, item, state = at_fault(module, passes, seed)
    if item is None:
        raise GraphgenError("GG0304", "no pass is at fault: validate calls none wrong")
    note(f"{item} {_STATES.get(state, state)}")
    return fails


# The fault of a pass in words, by the state of its verdict.
_STATES = {
    "WRONG": "changes the meaning",
    "over budget": "goes over its rounding budget",
    "WRONG rewrite": "makes a rewrite that is wrong by itself",
    "not repeatable": "is not repeatable",
    "silent": "records no rewrite",
    "raised": "raises an exception",
}


class MinifyProgress:
    """Progress of minification: a moving line on a terminal, else one line per round."""

    def __init__(self, ops: int) -> None:
        self.ops = ops
        self.terminal = sys.stderr.isatty()

    def done(self, item: Round) -> None:
        """Print the result of a round."""
        self._wipe()
        line = f"{item.what:<10} {self.ops:>5} -> {item.ops} ops, {item.checks} checks"
        print(printable(line), file=sys.stderr, flush=True)
        self.ops = item.ops

    def asked(self, ops: int, checks: int) -> None:
        """Show the size of the module under test."""
        if self.terminal:
            print(f"\r  {ops} ops, {checks} checks ", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Remove the moving line."""
        self._wipe()

    def _wipe(self) -> None:
        if self.terminal:
            print("\r\x1b[K", end="", file=sys.stderr)
