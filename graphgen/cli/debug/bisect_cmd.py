"""``graphgen bisect``: find the first pass and rewrite that make a module wrong."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphgen.cli.console import emit, note
from graphgen.cli.files import write_text
from graphgen.cli.module_file import read_module
from graphgen.cli.shared_options import (
    AsJson,
    ModuleFile,
    PipelineOption,
    Plugins,
    Seed,
    load_pipeline,
)
from graphgen.errors import GraphgenError

if TYPE_CHECKING:
    from graphgen.ir import Module
    from graphgen.passes.core import Pass
    from graphgen.passes.verify.bisect import Culprit, Oracle

Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="DIR", help="Write a reproducer to a new folder."),
]


def bisect(
    file: ModuleFile,
    pipeline: PipelineOption = "default",
    check: Annotated[
        str | None,
        typer.Option(
            "--check",
            metavar="COMMAND",
            help="Fails for a wrong module, whose file stands for {}; default: by numbers.",
        ),
    ] = None,
    output: Output = None,
    plugin: Plugins = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Find the first rewrite that makes a module wrong. Exit status 1 if there is one.

    The pass is found by running half of the pipeline, then a quarter; the rewrite by letting the
    pass do half of its rewrites, then a quarter; the op by comparing values with and without it.
    A reproducer is written to DIR, or to a new folder beside those of crashes.

    \b
    Examples:
      graphgen bisect mini.gg -p default --plugin broken.py
      graphgen bisect mini.gg -p default --check 'graphgen check {} --target trn2' -o repro
    """
    from graphgen.passes.inspect.result_json import bisection_json
    from graphgen.passes.verify.bisect import bisect as find

    if output is not None:
        _check_folder(output)
    passes = load_pipeline(pipeline, plugin, small=True)
    module = read_module(file)
    found = find(module, passes, _judge(module, passes, check, seed))
    if found is not None:
        more = [] if check is None else ["--check", check]
        _write_reproducer(output, found, plugin or [], [*more, "--seed", str(seed)])
    emit(as_json, lambda: bisection_json(found), lambda: _text(found))
    if found is not None:
        raise typer.Exit(1)


def _judge(module: Module, passes: Sequence[Pass], check: str | None, seed: int) -> Oracle:
    """The test for a wrong module: by the command, or by numbers."""
    if check is not None:
        from graphgen.cli.debug.command_check import by_command

        return by_command(check, "--check")
    from graphgen.passes.verify import make_workload
    from graphgen.passes.verify.bisect import by_numbers
    from graphgen.passes.verify.workload import may_shuffle

    shuffled = may_shuffle(module) and not any(getattr(i, "in_place", False) for i in passes)
    return by_numbers(module, make_workload(module, seed, shuffled=shuffled))


def _check_folder(folder: Path) -> None:
    """Refuse a folder that exists and is not empty (GG0704)."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise GraphgenError("GG0704", f"{folder} exists", help="choose a new or empty folder")


def _write_reproducer(
    folder: Path | None, found: Culprit, plugins: list[str], options: list[str]
) -> None:
    """Write the module before the pass, without the guilty rewrite, and with it."""
    from graphgen.text import print_module

    modules = {"before": found.before, "good": found.good, "bad": found.bad}
    texts = {f"{name}.gg": print_module(module) for name, module in modules.items()}
    texts |= {Path(path).name: Path(path).read_text(encoding="utf-8") for path in plugins}
    words = ["graphgen", "bisect", "before.gg", "-p", str(found.item), *options]
    for path in plugins:
        words += ["--plugin", Path(path).name]
    texts["command.txt"] = f"{shlex.join(words)}\n"
    home = folder or _default_folder("".join(texts.values()))
    if home is None:
        return
    home.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_text(str(home / name), text)
    note(f"wrote {home}: {', '.join(texts)}")


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


def _text(found: Culprit | None) -> str:
    if found is None:
        return "nothing is wrong at the end of the pipeline\n"
    lines = [f"wrong after pass {found.number + 1}: {found.item}"]
    item = found.application
    if item is None:
        lines.append("  the pass as a whole is to blame: it does not stop half-way")
    else:
        lines.append(f"  guilty: {item}")
        lines.append(f"  in @{item.function}, by the rule at {item.source}")
    if found.first is not None:
        lines.append(f"  first wrong op: {found.first.right.text}")
        lines.append(f"  instead of:     {found.first.left.text}")
    return "\n".join([*lines, ""])
