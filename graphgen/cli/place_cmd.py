"""``graphgen place``: several models on one instance."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import emit, note
from graphgen.cli.shared_options import AsJson, Lnc
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.report.table import Table

if TYPE_CHECKING:
    from graphgen.lowering.plan.placement import Placement, WantedModel

COMMAND: Final = Command("launching", "Share an instance among several models.")

# Settings that may follow a model, and the type of each value.
_KEYS: Mapping[str, Callable[[str], object]] = {
    "tp": int,
    "batch": int,
    "seq": int,
    "dtype": str,
}


def place(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=MODEL[,KEY=VALUE]...",
            help="Keys: tp (the fewest that serve), batch (1), seq (2048), dtype (bf16).",
        ),
    ],
    instance: Annotated[
        str, typer.Option("--instance", help="Type of instance.")
    ] = "trn2.48xlarge",
    threads: Annotated[
        int,
        typer.Option("--threads", min=0, help="CPUs of the instance; by default those here."),
    ] = 0,
    lnc: Lnc = 0,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", help="Write NAME.env.sh for each model to this folder."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Place several models on one instance: cores, memory and threads of each.

    No two models share a core. Memory is read off the compiled programs, as 'graphgen plan' does;
    what does not fit is refused. The files export what the runtime of each process reads.

    \b
    Examples:
      graphgen place chat=llama-3.1-70b,tp=32,batch=4,seq=8192 draft=llama-3.1-8b,tp=8 --threads 192
      graphgen place a=llama-3.1-8b b=gemma-3-1b --instance inf2.48xlarge -o env
    """
    from graphgen.lowering.plan.placement import place as place_models

    wanted = [_wanted(text) for text in models]
    names = [item.name for item in wanted]
    if len({*names}) < len(names):
        raise typer.BadParameter(f"two models have one name: {', '.join(names)}")
    count = threads or os.cpu_count() or 1
    made = place_models(wanted, instance, count, lnc)
    if output is not None:
        _write(Path(output), made)
    emit(as_json, made.to_json, lambda: _table(made))


def _wanted(text: str) -> WantedModel:
    """A model as it was given: ``name=model,tp=8``."""
    from graphgen.lowering.plan.placement import WantedModel
    from graphgen.runtime.checkpoint.model_config import model_config

    name, sign, rest = text.partition("=")
    model, *pairs = rest.split(",")
    if not sign or not name or not model or "/" in name:
        raise typer.BadParameter(f"'{text}' is not NAME=MODEL, such as chat=llama-3.1-8b")
    given = dict(_pair(name, pair) for pair in pairs)
    demand = CompileConfig(dtype=cast(str, given.get("dtype", "bf16"))).serving(
        batch=cast(int, given.get("batch", 1)), max_len=cast(int, given.get("seq", 2048))
    )
    return WantedModel(name, model_config(model), demand, cast(int, given.get("tp", 0)))


def _pair(name: str, text: str) -> tuple[str, object]:
    key, _, value = text.partition("=")
    kind = _KEYS.get(key)
    try:
        if kind is not None and value:
            return key, kind(value)
    except ValueError:
        pass
    raise typer.BadParameter(f"{name}: '{text}' is not one of {', '.join(_KEYS)} with a value")


def _write(folder: Path, made: Placement) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GraphgenError("GG0704", f"{folder} cannot be made: {error.strerror}") from error
    from graphgen.atomic_write import write_inside
    from graphgen.runtime.artifact.runtime_environment import export_lines

    for model in made.models:
        lines = export_lines(model.variables(made.device.lnc))
        text = "\n".join([*lines, ""])
        write_inside(folder, folder / f"{model.name}.env.sh", text.encode())
    note(f"wrote {len(made.models)} files to {folder}")


def _table(made: Placement) -> Table:
    most = made.device.hbm_bytes / 1e9
    rows = [
        (
            model.name,
            str(model.degree.tp),
            f"{model.first} to {model.last}",
            f"{model.degree.needs / 1e9:.2f} of {most:.1f}",
            str(model.threads),
        )
        for model in made.models
    ]
    rows.append(("free", str(made.free), "", "", ""))
    return Table(["model", "tp", "cores", "GB a core", "threads"], rows)
