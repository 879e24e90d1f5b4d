"""``graphgen plan``: memory per core of a model, and the smallest instance that fits it."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from graphgen.cli.compile_options import NO_OPTIONS, CompileOptions, takes_compile_options
from graphgen.cli.console import emit
from graphgen.cli.shared_options import AcceleratorName, AsJson, Lnc
from graphgen.compile_config import CompileConfig
from graphgen.json_value import Json
from graphgen.report.table import Table, render
from graphgen.targets import DEFAULT_ACCELERATOR

if TYPE_CHECKING:
    from graphgen.lowering.plan.capacity_plan import CapacityPlan, Degree
    from graphgen.lowering.plan.measure import CoreUse


@takes_compile_options(without=["tp", "heads", "dtype", "quantization"])
def plan(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A checkpoint, a config.json, or a known shape.")
    ],
    target: AcceleratorName = DEFAULT_ACCELERATOR,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Rows of a call.")] = 1,
    seq: Annotated[int, typer.Option("--seq", min=1, help="Positions of a sequence.")] = 2048,
    context: Annotated[
        int, typer.Option("--context", min=0, help="Tokens of a prompt; 0 for as many as --seq.")
    ] = 0,
    dtype: Annotated[
        Literal["f32", "bf16", "f16"], typer.Option("--dtype", help="Element type.")
    ] = "bf16",
    tp: Annotated[
        int, typer.Option("--tp", min=0, help="This degree; 0 for the smallest that serves.")
    ] = 0,
    lnc: Lnc = 0,
    compile_options: CompileOptions = NO_OPTIONS,
    rules: Annotated[
        Literal["graphgen", "aws"],
        typer.Option("--rules", help="What this compiler can do, or what AWS's guides ask."),
    ] = "graphgen",
    as_json: AsJson = False,
) -> None:
    """Say how much memory a model takes on each core, and the smallest instance that serves it.

    Everything is read off the compiled programs, so no weights are needed; 1 GB is 1e9 bytes.

    \b
    Examples:
      graphgen plan llama-3.1-70b --target trn1 --batch 1 --seq 2048
      graphgen plan llama-3.1-405b --target trn2 --seq 12288 --tp 64
      graphgen plan llama-3.1-8b --target inf2 --rules aws --json
      graphgen plan gemma-3-1b --target trn1 --seq 8192 --roll-window-cache
    """
    from graphgen.lowering.plan.capacity_plan import make_plan
    from graphgen.runtime.checkpoint.model_config import model_config
    from graphgen.targets import accelerator

    where = accelerator(target, lnc)
    demand = CompileConfig(
        dtype=dtype, batch=(batch,), context=(context or seq,), tokens=(seq,), slots=seq
    )
    demand = demand.updated(compile_options)
    made = make_plan(model_config(model), where, demand, rules, tp)
    emit(as_json, lambda: _json(model, made), lambda: _text(model, made))


def _text(model: str, made: CapacityPlan) -> str:
    where, demand = made.target, made.demand
    lines = [
        f"{model}, {demand.dtype}, batch {demand.rows}, {demand.max_len} positions on {where.name} "
        f"({where.core}, {_gb(where.hbm_bytes)} a core), rules {made.rules}",
        "",
        render(_degrees(made), sys.stdout),
    ]
    if made.chosen is None:
        lines.append(f"no degree of {where.name} serves it")
    else:
        lines.append(_chosen(made, made.chosen))
    return "\n".join(lines).rstrip() + "\n"


def _degrees(made: CapacityPlan) -> Table:
    headers = ["tp", "weights", "kv", "activations", "a core", "copies", "serves", ""]
    rows = [
        [str(item.tp), *_cells(item), "yes" if item.serves else "no", item.why_not]
        for item in made.degrees
    ]
    return Table(headers, rows, 5)


def _cells(item: Degree) -> list[str]:
    use = item.use
    if use is None:
        return ["-", "-", "-", _gb(item.needs) if item.needs else "-", "-"]
    parts = [_gb(use.weights), _gb(use.kv), _gb(use.activations), _gb(item.needs)]
    return [*parts, f"{100 * use.replicated(item.tp):+.1f} %"]


def _chosen(made: CapacityPlan, chosen: Degree) -> str:
    cores = made.target.cores(made.instance) if made.instance else 0
    where = f"{made.instance} ({cores} cores)" if made.instance else "no single instance"
    text = f"tp {chosen.tp}: {where}\n"
    if chosen.use is None:
        return text
    if chosen.use.heads:
        text += f"heads: {chosen.use.heads}\n"
    rows = [[item.kind, str(item.count), str(item.bytes)] for item in chosen.use.collectives]
    if not rows:
        return text
    shown = Table(["collective of a decode step", "count", "bytes each"], rows, 2)
    return f"{text}\n{render(shown, sys.stdout)}"


def _gb(size: int) -> str:
    return f"{size / 1e9:.2f} GB"


def _json(model: str, made: CapacityPlan) -> Json:
    return {
        "model": model,
        "target": made.target.name,
        "lnc": made.target.lnc,
        "core_bytes": made.target.hbm_bytes,
        "batch": made.demand.rows,
        "seq": made.demand.max_len,
        "context": max(made.demand.context),
        "dtype": made.demand.dtype,
        "roll_window_cache": made.demand.roll_window_cache,
        "rules": made.rules,
        "degrees": [_degree_json(item) for item in made.degrees],
        "chosen": _degree_json(made.chosen) if made.chosen else None,
        "instance": made.instance or None,
        "sources": dict(made.target.sources),
    }


def _degree_json(item: Degree) -> dict[str, Json]:
    return {
        "tp": item.tp,
        "serves": item.serves,
        "why_not": item.why_not or None,
        "core_bytes": item.needs,
        "use": _use_json(item.use, item.tp) if item.use else None,
    }


def _use_json(use: CoreUse, tp: int) -> dict[str, Json]:
    return {
        "weights": use.weights,
        "kv": use.kv,
        "activations": use.activations,
        "weights_once": use.weights_once,
        "kv_once": use.kv_once,
        "replicated": use.replicated(tp),
        "heads": use.heads or None,
        "collectives": [asdict(item) for item in use.collectives],
    }
