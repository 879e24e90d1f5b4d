"""``graphgen bisect``: find the first pass and rewrite that make a module wrong."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from graphgen.atomic_write import write_inside
from graphgen.cli.command_table import Command
from graphgen.cli.compiled_file import files_of, note_passes_compiled
from graphgen.cli.console import emit, note
from graphgen.cli.files import check_output
from graphgen.cli.html_pages import TraceFile, op_name, page_link, write_trace_page
from graphgen.cli.module_file import read_module
from graphgen.cli.shared_options import (
    AsJson,
    ModuleFile,
    PipelineOption,
    Plugins,
    ScriptOption,
    Seed,
    load_pipeline,
)
from graphgen.cli.workload_options import Inputs, On, Weights, given_workload, rounding_backend
from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.lowering.plugin_file import needed_for
from graphgen.passes.validate.verdict_text import bisection_text
from graphgen.read_file import is_file, is_folder, is_there, read_file

if TYPE_CHECKING:
    from graphgen.exec.backend import Backend
    from graphgen.exec.session import Workload
    from graphgen.ir import Module
    from graphgen.passes.core import Pass
    from graphgen.passes.validate.bisect import Culprit
    from graphgen.passes.workload.short_script import Script

COMMAND: Final = Command("debug", "Find the rewrite that makes a module wrong.")

Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="DIR", help="Write a reproducer to a folder."),
]

Check = Annotated[
    str | None,
    typer.Option(
        "--check",
        metavar="COMMAND",
        help="Fails for a wrong module, whose file stands for {}; default: by numbers.",
    ),
]
Rounding = Annotated[
    bool, typer.Option("--rounding", help="Find only what exceeds the rounding budget.")
]


def bisect(
    file: ModuleFile,
    pipeline: PipelineOption = "default",
    check: Check = None,
    rounding: Rounding = False,
    output: Output = None,
    plugin: Plugins = None,
    seed: Seed = 0,
    script: ScriptOption = "auto",
    on: On = "numpy",
    inputs: Inputs = None,
    weights: Weights = None,
    trace: TraceFile = None,
    as_json: AsJson = False,
) -> None:
    """Find the first rewrite that makes a module wrong. Exit status 1 if there is one.

    The pass is the first that 'graphgen validate' would call wrong, by the same checks. The rewrite
    is found by letting the pass do half of its rewrites, then a quarter; the op by comparing values
    with and without it. A rewrite that is right alone is named with those it takes to be wrong. A
    pass that raises is a finding of its own, after any that is wrong before it. Where nothing is
    wrong, the wide twin of the module's model is run as by 'validate'. With --check the pass is
    found by halves; faults repaired later are not reported. A reproducer is written to DIR, or
    beside those of crashes.

    \b
    Examples:
      graphgen bisect mini.gg -p default,mine --plugin mine.py
      graphgen bisect mini.gg -p default --rounding --weights CHECKPOINT
      graphgen bisect mini.gg -p default,mine --plugin mine.py --trace page.html
      graphgen bisect mini.gg -p default --check 'graphgen check {} --target trn2' -o repro
    """
    from graphgen.lowering.runnable import runnable

    _check_outputs(output, trace)
    _check_options(check, rounding=rounding, arrays=bool(inputs or weights))
    passes = load_pipeline(pipeline, plugin, small=True)
    module = runnable(read_module(file))
    twin = ""
    if check is not None:
        found = _by_command(module, passes, check)
    else:
        workload = given_workload(module, passes, seed, inputs, weights, script)
        backend = rounding_backend(on, files_of(on, file, module))
        found = _by_numbers(module, passes, workload, backend, on, rounding=rounding)
        if found is None and script != "short" and not (rounding or inputs or weights):
            found = _on_wide_twin(module, pipeline, on, script, seed)
            twin = "wide" if found is not None else ""
    if found is not None and found.wrong:
        options = _options(check, rounding, on, weights, seed, script)
        whole = _Files(module, pipeline, plugin or [])
        _write_reproducer(
            output, found, whole if twin else _at_fault(found, whole), options, inputs
        )
    if trace is not None and found is not None:
        traced = _wide(module, pipeline) if twin else (read_module(file), passes)
        _write_trace(trace, file, *traced, found)
    emit(as_json, lambda: _facts(found, twin), lambda: bisection_text(found, rounding=rounding))
    if found is not None:
        raise typer.Exit(1)


def _at_fault(found: Culprit, whole: _Files) -> _Files:
    """The module before the pass at fault, and that pass alone."""
    return _Files(found.before, str(found.item), needed_for(found.item, list(whole.plugins)))


def _facts(found: Culprit | None, twin: str) -> dict[str, Json]:
    from graphgen.passes.inspect.result_json import bisection_json

    return bisection_json(found) | ({"twin": twin} if twin else {})


def _check_options(check: str | None, *, rounding: bool, arrays: bool) -> None:
    """Refuse options of running modules beside a command."""
    if check is not None and (rounding or arrays):
        raise typer.BadParameter("runs no module: leave out --rounding, --inputs and --weights")


def _on_wide_twin(
    module: Module, pipeline: str, on: str, script: Script, seed: int
) -> Culprit | None:
    """Bisect on the wide twin of the module's model, if it has one, as a validation runs it."""
    from graphgen.cli.step_progress import StepProgress
    from graphgen.passes.pipelines import parse
    from graphgen.runtime.accuracy.validate_model import ValidationOptions, bisect_wide

    options = ValidationOptions(script=script, seed=seed, evaluator=rounding_backend(on))
    with StepProgress() as progress:
        found = bisect_wide(module, lambda sizes: parse(pipeline, sizes), options, progress.step)
    if found is not None:
        note("found on the wide twin of the model, of large positions and ids")
    return found


def _wide(module: Module, pipeline: str) -> tuple[Module, Sequence[Pass]]:
    """The wide twin of a module that has one, and the passes for its sizes."""
    from graphgen.passes.pipelines import parse
    from graphgen.runtime.accuracy.validate_model import wide_pipeline

    found = wide_pipeline(module, lambda sizes: parse(pipeline, sizes))
    assert found is not None
    return found


def _write_trace(
    output: str, file: str, module: Module, passes: Sequence[Pass], found: Culprit
) -> None:
    """Write the page of the passes up to the guilty one, and where in it the fault is."""
    from graphgen.passes.core.fuel import labels

    last, item = found.number + found.wrong, found.application
    label = labels(passes)[found.number]
    blamed = [one.number for one in (*found.together, *([item] if item is not None else []))]
    write_trace_page(output, file, module, passes[:last], {label: blamed})
    if not found.wrong:
        return
    place = {} if item is None else {"rewrite": item.number}
    note(f"guilty: {page_link(output, pass_=label, **place)}")
    if found.first is not None:
        note(f"first wrong op: {page_link(output, op=op_name(found.first.right.text))}")


def _by_command(module: Module, passes: Sequence[Pass], check: str) -> Culprit | None:
    """Bisect by the exit status of a command; no module is run."""
    from graphgen.cli.command_check import by_command
    from graphgen.cli.step_progress import StepProgress
    from graphgen.passes.validate.bisect import bisect as find

    with StepProgress() as progress:
        wrong = by_command(check, "--check")
        return find(module, passes, wrong, on_step=progress.step)


def _by_numbers(
    module: Module,
    passes: Sequence[Pass],
    workload: Workload,
    backend: Backend | None,
    on: str,
    *,
    rounding: bool,
) -> Culprit | None:
    """Bisect by the checks of a validation, or by rounding alone."""
    from graphgen.cli.step_progress import StepProgress
    from graphgen.passes.validate import PassChecks, Verdict
    from graphgen.passes.validate.bisect import bisect_rounding, bisect_verdicts

    verdicts: list[Verdict] = []
    with StepProgress() as progress:
        progress.step("the module as given")
        if rounding:
            found = bisect_rounding(module, passes, workload, backend, progress.step)
        else:
            checks = PassChecks(
                backend, each_rewrite=True, on_step=progress.step, on_verdict=verdicts.append
            )
            found = bisect_verdicts(module, passes, workload, checks)
    note_passes_compiled(backend, on)
    for verdict in verdicts:
        if verdict.passed and verdict.state != "ok":
            note(f"{verdict.pass_text}: {verdict.state}; 'graphgen validate' has the reasons")
    return found


def _options(
    check: str | None, rounding: bool, on: str, weights: str | None, seed: int, script: str
) -> list[str]:
    """The options that a reproducer is run with, besides the files in it."""
    more = [] if check is None else ["--check", check]
    more += ["--rounding", "--on", on] if rounding else []
    if weights is not None:
        more += ["--weights", str(Path(weights).resolve()) if is_there(Path(weights)) else weights]
    more += [] if script == "auto" else ["--script", script]
    return [*more, "--seed", str(seed)]


def _check_outputs(folder: Path | None, page: str | None) -> None:
    """Refuse a folder that holds something else, and a page that cannot be written (GG0704)."""
    if page is not None:
        check_output(page)
    if folder is None or not is_there(folder):
        return
    if not is_folder(folder) or (any(folder.iterdir()) and not _is_reproducer(folder)):
        what = "choose a new or empty folder, or that of an earlier bisection"
        raise GraphgenError("GG0704", f"{folder} exists", help=what)


def _is_reproducer(folder: Path) -> bool:
    """True for what an earlier bisection wrote, which may be written over."""
    command = folder / "command.txt"
    return is_file(command) and read_file(command).startswith(_COMMAND.encode())


# The beginning of the command in a reproducer.
_COMMAND = "graphgen bisect "


@dataclass(frozen=True, slots=True)
class _Files:
    """The module and pipeline that a reproducer bisects.

    Attributes:
        module: the module; a wide twin is made of the one that was given.
        pipeline: as after ``-p``.
        plugins: files with passes of it.
    """

    module: Module
    pipeline: str
    plugins: Sequence[str]


def _write_reproducer(
    folder: Path | None,
    found: Culprit,
    again: _Files,
    options: list[str],
    inputs: str | None,
) -> None:
    """Write the module before the pass, without the guilty rewrite, and with it."""
    from graphgen.passes.validate.reproducer import plugin_files, plugin_names
    from graphgen.text import print_module

    modules = {"before": found.before, "good": found.good, "bad": found.bad}
    start = "before"
    if again.module is not found.before:
        start, modules = "module", {"module": again.module, **modules}
    texts = {f"{name}.gg": print_module(module) for name, module in modules.items()}
    paths = [Path(path) for path in again.plugins]
    files = plugin_files(paths)
    words = ["graphgen", "bisect", f"{start}.gg", "-p", again.pipeline, *options]
    if inputs is not None:
        files[Path(inputs).name] = Path(inputs)
        words += ["--inputs", Path(inputs).name]
    for name in plugin_names(paths).values():
        words += ["--plugin", name]
    command = f"{shlex.join(words)}\n"
    home = folder or _default_folder("".join([*texts.values(), command]))
    if home is None:
        return
    contents = {name: text.encode() for name, text in texts.items()}
    contents |= {name: path.read_bytes() for name, path in files.items()}
    contents["command.txt"] = command.encode()
    # Any user may have made a link of the default name among temporary files.
    root = folder or home.parent
    for name, content in contents.items():
        write_inside(root, home / name, content, parents=True)
    note(f"wrote {home}: {', '.join(contents)}")


def _default_folder(content: str) -> Path | None:
    """Default folder of reproducers, beside those of crashes; ``None`` if these are off."""
    import hashlib
    import tempfile

    from graphgen.passes.core.settings import OFF, debugging

    home = debugging().crash
    if home == OFF:
        return None
    key = hashlib.sha256(content.encode()).hexdigest()[:10]
    return Path(home or tempfile.gettempdir()) / f"graphgen-bisect-{key}"
