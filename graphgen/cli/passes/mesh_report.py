"""The search of ``graphgen plan --search`` as text and as JSON."""

from __future__ import annotations

from graphgen.compile_config import CompileConfig
from graphgen.json_value import Json
from graphgen.lowering.plan.mesh_search import MeshOption, MeshSearch, search_meshes
from graphgen.report.table import Report, Table
from graphgen.targets import Accelerator


def searched(
    model: str, target: Accelerator, demand: CompileConfig, generated: int = 0
) -> MeshSearch:
    """Search the meshes of a model that a user names, with the progress on stderr."""
    from graphgen.runtime.checkpoint.model_config import model_config
    from graphgen.runtime.terminal_progress import TerminalProgress

    config = model_config(model, keep_quantized=demand.keep_quantized)
    with TerminalProgress().task("comparing meshes of few layers") as progress:
        return search_meshes(config, target, demand, generated, progress)


def mesh_report(model: str, target: Accelerator, made: MeshSearch) -> Report:
    """All meshes, those that serve first and the fastest of them on top; the choice below."""
    demand = made.demand
    head = (
        f"{model}, {demand.dtype}, tp {demand.tp}, batch {demand.cache_rows}, {demand.max_len} "
        f"positions on {target.name} ({target.hbm_bytes / 1e9:.2f} GB a core)\n"
        f"a request: one prefill of {max(demand.context)} tokens and {made.generated} steps, "
        "shared by the rows; seconds are rooflines, bounds from below\n"
    )
    return [head, _table(made), _choice(made)]


def _table(made: MeshSearch) -> Table:
    headers = ["options", "prefill ms", "step ms", "request s", "GB a core", ""]
    ordered = sorted(made.options, key=lambda item: (bool(item.refused), item.seconds))
    rows = [[item.text, *_figures(item), _said(made, item)] for item in ordered]
    return Table(headers, rows, 4)


def _figures(item: MeshOption) -> list[str]:
    if not item.bytes:
        return ["-"] * 4
    times = f"{1e3 * item.prefill_s:.3f}", f"{1e3 * item.step_s:.4f}", f"{item.seconds:.4f}"
    return [*times, f"{item.bytes / 1e9:.2f}"]


def _said(made: MeshSearch, item: MeshOption) -> str:
    return "chosen" if item is made.chosen else item.refused


def _choice(made: MeshSearch) -> str:
    item = made.chosen
    if item is None:
        return f"no mesh of {made.demand.tp} ranks serves it\n"
    options = "" if item.text == "-" else f",{item.text}"
    flags = f"flags: --tp {made.demand.tp} {item.flags}".rstrip() + "\n"
    text = f"options: default{{tp={made.demand.tp}{options}}}\n"
    return text + (flags if item.flags or not item.changes else "")


def mesh_json(model: str, target: Accelerator, made: MeshSearch) -> Json:
    """The same numbers; times in seconds, sizes in bytes of a core."""
    demand = made.demand
    return {
        "model": model,
        "target": target.name,
        "lnc": target.lnc,
        "tp": demand.tp,
        "dtype": demand.dtype,
        "batch": demand.cache_rows,
        "seq": demand.max_len,
        "context": max(demand.context),
        "generated": made.generated,
        "core_bytes": target.hbm_bytes,
        "meshes": [_option_json(item) for item in made.options],
        "chosen": None if made.chosen is None else _option_json(made.chosen),
    }


def _option_json(item: MeshOption) -> dict[str, Json]:
    known = bool(item.bytes)
    options: dict[str, Json] = {
        name: list(value) if isinstance(value, tuple) else value  # pyright: ignore
        for name, value in item.changes.items()
    }
    return {
        "options": options,
        "flags": item.flags or None,
        "prefill_s": item.prefill_s if known else None,
        "step_s": item.step_s if known else None,
        "request_s": item.seconds if known else None,
        "core_bytes": item.bytes or None,
        "refused": item.refused or None,
    }
