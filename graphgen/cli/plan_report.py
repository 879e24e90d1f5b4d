"""The advice of ``graphgen plan`` as text: ladders, meshes, nodes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from typing import TYPE_CHECKING

from graphgen.cli.console import emit
from graphgen.cli.model_flags import levels_text
from graphgen.config.compile_config import CompileConfig
from graphgen.json_value import Json
from graphgen.lowering.plan.ladder_advice import LadderAdvice, RowOption
from graphgen.lowering.plan.mesh_search import MeshOption, MeshSearch, search_meshes
from graphgen.report.table import Report, Table, render
from graphgen.targets import Accelerator, over_nodes

if TYPE_CHECKING:
    from graphgen.lowering.plan.node_plan import NodeLayout


def emit_nodes(
    as_json: bool,
    model: str,
    device: Accelerator,
    demand: CompileConfig,
    nodes: int,
    instance: str,
) -> None:
    """Print the layouts of a model on 1, 2, 4, ... nodes.

    Args:
        as_json: as JSON.
        model: a checkpoint, a ``config.json``, or a known shape.
        device, demand, nodes, instance: as for :func:`graphgen.lowering.plan.node_plan.node_plan`.
    """
    from graphgen.lowering.plan.node_plan import node_plan
    from graphgen.runtime.checkpoint.model_config import model_config

    config = model_config(model, keep_quantized=demand.keep_quantized)
    ranks = demand.tp if demand.tp > 1 else 0
    most = over_nodes(device, nodes, instance, ranks * nodes)
    found = node_plan(config, device, demand, nodes, instance)
    emit(
        as_json,
        lambda: _json(model, most, demand, found),
        lambda: _text(model, most, demand, found),
    )


def _text(
    model: str, device: Accelerator, demand: CompileConfig, found: Sequence[NodeLayout]
) -> str:
    head = (
        f"{model}, {demand.dtype}, batch {demand.cache_rows}, {demand.max_len} positions "
        f"on nodes of {device.node_ranks} ranks of {device.name} ({device.core}, "
        f"{device.hbm_bytes / 1e9:.2f} GB a core)\n{levels_text(device)}\n"
    )
    headers = ["nodes", "layout", "GB a core", "prompt ms", "step ms", "tokens/s", "MB of a chip"]
    headers += ["MB of a node", "serves", ""]
    rows = [[str(row.nodes), row.layout, *_cells(row)] for row in found]
    foot = (
        "\ntimes are rooflines of the compiled programs, bounds from below; MB are those of a "
        "decode step over links\n"
    )
    return head + render(Table(headers, rows, 8), sys.stdout) + foot + _flat_text(found)


def _flat_text(found: Sequence[NodeLayout]) -> str:
    """The meshes over nodes where the engine makes no stages of collectives, and where we do."""
    headers = ["layout", "prompt ms", "in stages", "step ms", "in stages", "MB of a node"]
    rows = [
        [
            row.layout,
            f"{1e3 * row.flat.prefill_s:.1f}",
            f"{1e3 * row.staged.prefill_s:.1f}",
            f"{1e3 * row.flat.step_s:.2f}",
            f"{1e3 * row.staged.step_s:.2f}",
            f"{row.flat.node_bytes / 1e6:.2f}",
            f"{row.staged.node_bytes / 1e6:.2f}",
        ]
        for row in found
        if row.flat is not None and row.staged is not None
    ]
    if not rows:
        return ""
    head = (
        "\neach collective as one ring or mesh of all its ranks, and in the stages of --nodes "
        "(pass hierarchical-collectives):\n\n"
    )
    return head + render(Table([*headers, "in stages"], rows, 7), sys.stdout)


def _cells(row: NodeLayout) -> list[str]:
    if not row.core_bytes:
        return ["-"] * 6 + ["no", row.why_not]
    return [
        f"{row.core_bytes / 1e9:.2f}",
        f"{1e3 * row.prefill_s:.1f}",
        f"{1e3 * row.step_s:.2f}",
        f"{row.tokens_per_second:.0f}",
        f"{row.link_bytes / 1e6:.2f}",
        f"{row.node_bytes / 1e6:.2f}",
        "no" if row.why_not else "yes",
        row.why_not,
    ]


def _json(
    model: str, device: Accelerator, demand: CompileConfig, found: Sequence[NodeLayout]
) -> Json:
    return {
        "model": model,
        "target": device.name,
        "lnc": device.lnc,
        "node_ranks": device.node_ranks,
        "core_bytes": device.hbm_bytes,
        "batch": demand.cache_rows,
        "seq": demand.max_len,
        "context": max(demand.context),
        "dtype": demand.dtype,
        "levels": [asdict(level) for level in device.levels],
        "layouts": [row.to_json() for row in found],
        "sources": dict(device.sources),
    }


def ladder_report(model: str, made: LadderAdvice) -> Report:
    """The requests, the rows, the ladders side by side, and the flags to compile with."""
    lengths, target, demand = made.lengths, made.target, made.demand
    head = (
        f"{model}, {demand.dtype}, tp {demand.tp} on {target.name} ({target.core}, "
        f"{target.hbm_bytes / 1e9:.2f} GB a core), an executable takes "
        f"{made.executable_bytes / 1e6:.0f} MB\n"
        f"{lengths.requests:,} requests: prompts of {lengths.mean_prompt:.0f} tokens on average "
        f"(longest {lengths.longest_prompt}), answers of {lengths.mean_answer:.0f}, sequences of "
        f"{lengths.longest_sequence} at most\n"
    )
    buckets = "".join(
        f"{item.name}: context {_list(item.context)}; tokens {_list(item.tokens)}\n"
        for item in made.ladders
    )
    return [
        head,
        _rows(made),
        _ladders(made),
        buckets,
        "times are rooflines of the compiled programs, bounds from below\n",
        f"rows: {demand.cache_rows}\nflags: {' '.join(made.flags)}\n",
    ]


def _rows(made: LadderAdvice) -> Table:
    headers = ["rows", "GB a core", "executables that fit", "ms a request", "tokens/s", ""]
    rows = [
        [
            str(item.rows),
            f"{item.bytes / 1e9:.2f}",
            str(item.executables),
            *_speed(made, item),
            "advised" if item.rows == made.demand.cache_rows else "",
        ]
        for item in made.rows
    ]
    return Table(headers, rows, 4)


def _speed(made: LadderAdvice, item: RowOption) -> list[str]:
    if not isfinite(item.seconds):
        return ["does not fit", "-"]
    return [f"{1e3 * item.seconds:.1f}", f"{made.lengths.mean_answer / item.seconds:.0f}"]


def _ladders(made: LadderAdvice) -> Table:
    headers = [
        *("buckets", "executables", "padding of prompts", "of attention"),
        *("prefill ms", "decode ms", "a request", "to powers of two", "GB a core", "rows fit"),
    ]
    rule = made.ladders[1].seconds
    rows = [
        [
            item.name,
            f"{len(item.context)}+{len(item.tokens)}",
            f"{100 * item.context_padding:.1f} %",
            f"{100 * item.token_padding:.1f} %",
            f"{1e3 * item.prefill_s:.1f}",
            f"{1e3 * item.decode_s:.1f}",
            f"{1e3 * item.seconds:.1f}",
            f"{item.seconds / rule - 1:+.1%}",
            f"{item.bytes / 1e9:.2f}",
            str(item.rows_fit),
        ]
        for item in made.ladders
    ]
    return Table(headers, rows, len(headers) - 1)


def _list(sizes: tuple[int, ...]) -> str:
    return ",".join(map(str, sizes))


def searched(
    model: str, target: Accelerator, demand: CompileConfig, generated: int = 0
) -> MeshSearch:
    """Search the meshes of a model that a user names, with the progress on stderr."""
    from graphgen.runtime.checkpoint.model_config import model_config
    from graphgen.runtime.progress import TerminalProgress

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
