"""``graphgen plan --nodes``: a model on several nodes, as a table and as JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from graphgen.cli.console import emit
from graphgen.cli.machine.node_options import levels_text
from graphgen.compile_config import CompileConfig
from graphgen.json_value import Json
from graphgen.report.table import Table, render
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
        "layouts": [{**asdict(row), "why_not": row.why_not or None} for row in found],
        "sources": dict(device.sources),
    }
