"""Resolve ``parallelism=auto``: the configuration with the mesh found by the search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphgen.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import VERIFY, VERIFY_TREE, dtype
from graphgen.lowering.plan.measure import few_layers
from graphgen.lowering.plan.mesh_search import PLAIN, MeshOption, MeshSearch, search_meshes
from graphgen.models import PHASES, build
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
from graphgen.rank_config import AUTO, MANUAL
from graphgen.targets import Accelerator, accelerator, find_target


@dataclass(frozen=True, slots=True)
class ChosenMesh:
    """A configuration whose mesh was chosen.

    Attributes:
        config: to compile with; its ``parallelism`` is ``manual``.
        remark: the choice, for the user; empty where nothing was chosen.
    """

    config: CompileConfig
    remark: str = ""


def chosen_mesh(
    model: Mapping[str, object],
    demand: CompileConfig,
    device: Accelerator | None = None,
) -> ChosenMesh:
    """The configuration with a mesh, if it leaves that to graphgen; else the same.

    Args:
        model: a ``config.json``.
        demand: the configuration.
        device: the accelerator; by default the target's, with its usual logical cores.

    Raises:
        GraphgenError: GG0304 where no mesh of the ranks serves, with the reason of the plain one.
    """
    if demand.parallelism != AUTO:
        return ChosenMesh(demand)
    if demand.tp == 1:
        return ChosenMesh(replace(demand, parallelism=MANUAL))
    if device is None and find_target(demand.target).is_accelerator:
        device = accelerator(demand.target)
    made = search_meshes(model, device, demand)
    for option in by_seconds(made):
        config = made.demand.updated(option.changes)
        if option.changes == PLAIN or compiles(model, config):
            return ChosenMesh(config, _remark(made, option))
    raise GraphgenError(
        "GG0304",
        f"no mesh of {demand.tp} ranks serves the model: {made.options[0].refused}",
        help="give another number of ranks",
    )


def by_seconds(made: MeshSearch) -> list[MeshOption]:
    """Options that can serve, the cheapest first; the chosen one before its equals."""
    able = [item for item in made.options if not item.refused]
    return sorted(able, key=lambda item: (item is not made.chosen, item.seconds))


def compiles(model: Mapping[str, object], config: CompileConfig) -> bool:
    """True if the programs outside of the search compile: chunked prefill and verification."""
    more = [VERIFY] * bool(config.speculation_length) + [VERIFY_TREE] * bool(config.tree_nodes)
    if not (config.chunk or more or config.steps_per_launch > 1):
        return True
    short = few_layers(model)
    module = build(
        model if short is None else short.few, dtype(config.dtype), phases=(*PHASES, *more)
    )
    try:
        run_pipeline(module, default(config))
    except GraphgenError:
        return False
    return True


def _remark(made: MeshSearch, option: MeshOption) -> str:
    plain = made.options[0]
    shown = "the plain mesh" if option.changes == PLAIN else option.text
    if plain.refused or option.changes == PLAIN:
        return f"parallelism auto: {shown}, of {len(made.options)} meshes and layouts"
    less = 100 * (1 - option.seconds / plain.seconds)
    return f"parallelism auto: {shown}, {less:.1f} % less time a request than the plain mesh"
