"""A model on one node and on more: memory of a core, and bounds of its programs, by layout.

Three layouts share the ranks of several nodes:

* ``tp``: one mesh axis over all ranks. Ranks fill node after node, so that sums cross the network.
* ``pp``: each node has the layers of a stage and its own tensor parallelism. A hidden state crosses
  the network once a stage; as many requests as stages are in flight.
* ``dp``: each node has the whole model and answers requests of its own.

Times are rooflines, bounds from below (:mod:`graphgen.lowering.cost.roofline`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from graphgen.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import dtype
from graphgen.lowering.plan.ladders.bucket_seconds import ProgramBound
from graphgen.lowering.plan.measure import layer_period
from graphgen.lowering.plan.short_bounds import short_bounds
from graphgen.models.config_reader import ConfigReader
from graphgen.models.family_registry import family_of
from graphgen.models.first_layers import first_layers, stated_layers
from graphgen.targets import Accelerator, over_nodes

_PHASES = ("prefill", "decode")


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """A model over some nodes in one layout.

    Attributes:
        nodes: how many.
        layout: ``tp 128``, ``pp 2 x tp 64`` or ``dp 2 x tp 64``.
        core_bytes: of a core, with code; 0 where the model cannot be laid out like that.
        prefill_s, step_s: of one request's prompt of the longest bucket, and of one of its tokens.
        tokens_per_second: of all requests together.
        link_bytes: that a chip sends to others of its node in a decode step.
        node_bytes: that a node sends to others in a decode step.
        why_not: why it does not serve; empty where it does.
    """

    nodes: int
    layout: str
    core_bytes: int = 0
    prefill_s: float = 0.0
    step_s: float = 0.0
    tokens_per_second: float = 0.0
    link_bytes: int = 0
    node_bytes: int = 0
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Bounds of the longest prompt and of a decode step, and bytes of a core for one layer.

    The bytes are those of the mesh of one node, which stages have; 0 for other meshes.
    """

    prefill: ProgramBound
    decode: ProgramBound
    layer_bytes: int = 0


def node_plan(
    config: Mapping[str, object],
    device: Accelerator,
    demand: CompileConfig,
    nodes: int,
    instance: str = "",
) -> list[NodeLayout]:
    """The layouts on 1, 2, 4, ... nodes, up to ``nodes``, which is the last.

    Args:
        config: a ``config.json``; Hugging Face's names.
        device: the accelerator.
        demand: the configuration to compile for; ``tp`` is the ranks of a node, 1 for all of them.
        nodes: the most.
        instance: the type of each node; empty for the usual one.

    Raises:
        GraphgenError: GG0302 for an instance without figures of a network, or a configuration that
            is not supported.
    """
    ranks = demand.tp if demand.tp > 1 else over_nodes(device, 2, instance).node_ranks
    period = layer_period(config)
    inside = replace(demand, tp=ranks)
    alone = _bounds(config, device, inside, period)
    if isinstance(alone, _Bounds):
        alone = replace(alone, layer_bytes=_layer_bytes(config, device, inside, alone, period))
    counts = [*[1 << n for n in range(nodes.bit_length()) if 1 << n < nodes], nodes]
    found: list[NodeLayout] = []
    for count in counts:
        where = over_nodes(device, count, instance, count * ranks)
        tp = replace(demand, tp=count * ranks)
        made = alone if count == 1 else _bounds(config, where, tp, period)
        found.append(_row(where, count, f"tp {count * ranks}", made, demand))
        if count > 1:
            found.extend(_of_nodes(config, where, alone, demand, count, ranks))
    return found


def _bounds(
    config: Mapping[str, object], device: Accelerator, demand: CompileConfig, period: int
) -> _Bounds | GraphgenError:
    """The bounds, or why the model cannot be laid out like that."""
    try:
        whole = short_bounds(config, device, demand, _PHASES, period)
    except GraphgenError as error:
        if error.code != "GG0304":
            raise
        return error
    longest = {phase: max(c for p, c in whole if p == phase) for phase in _PHASES}
    prefill, decode = (whole[phase, longest[phase]] for phase in _PHASES)
    return _Bounds(prefill, decode)


def _layer_bytes(
    config: Mapping[str, object],
    device: Accelerator,
    demand: CompileConfig,
    whole: _Bounds,
    period: int,
) -> int:
    """Bytes of a core that the last layer takes; 0 for a model of one layer."""
    family = family_of(config)
    _, layers = stated_layers(family, config)
    if layers is None or layers < 2:
        return 0
    fewer = first_layers(family, config, layers - 1)
    bounds = short_bounds(fewer, device, demand, _PHASES, period)
    return whole.decode.core_bytes - next(iter(bounds.values())).core_bytes


def _row(
    device: Accelerator,
    nodes: int,
    layout: str,
    made: _Bounds | GraphgenError,
    demand: CompileConfig,
) -> NodeLayout:
    """A mesh of one axis."""
    if isinstance(made, GraphgenError):
        return NodeLayout(nodes, layout, why_not=made.what)
    step = made.decode.seconds
    held = made.decode.core_bytes + device.code_bytes
    return NodeLayout(
        nodes,
        layout,
        held,
        made.prefill.seconds,
        step,
        demand.cache_rows / step,
        made.decode.link_bytes,
        made.decode.node_bytes,
        _too_much(held, device),
    )


def _of_nodes(
    config: Mapping[str, object],
    device: Accelerator,
    alone: _Bounds | GraphgenError,
    demand: CompileConfig,
    nodes: int,
    ranks: int,
) -> Iterator[NodeLayout]:
    """The layouts with a mesh in each node: stages, and whole models."""
    names = [f"{kind} {nodes} x tp {ranks}" for kind in ("pp", "dp")]
    if isinstance(alone, GraphgenError):
        for name in names:
            yield NodeLayout(nodes, name, why_not=alone.what)
        return
    stages = _row(device, nodes, names[0], alone, demand)
    _, layers = stated_layers(family_of(config), config)
    if layers is None or layers < nodes:
        yield NodeLayout(nodes, names[0], why_not=f"{layers} layers are fewer than {nodes} stages")
    else:
        held = stages.core_bytes - (layers - -(-layers // nodes)) * alone.layer_bytes
        width = dtype(demand.dtype).bits // 8 * ConfigReader(config).integer("hidden_size")
        network, rows = device.levels[1], demand.cache_rows
        sends = [
            (nodes - 1) * (network.hop_seconds + rows * length * width / network.bandwidth)
            for length in (max(demand.context), 1)
        ]
        step = stages.step_s + sends[1]
        yield replace(
            stages,
            core_bytes=held,
            prefill_s=stages.prefill_s + sends[0],
            step_s=step,
            tokens_per_second=nodes * rows / step,
            node_bytes=rows * width,
            why_not=_too_much(held, device),
        )
    whole = _row(device, nodes, names[1], alone, demand)
    yield replace(whole, tokens_per_second=nodes * whole.tokens_per_second)


def _too_much(held: int, device: Accelerator) -> str:
    if held <= device.hbm_bytes:
        return ""
    return f"needs {held / 1e9:.1f} GB of {device.hbm_bytes / 1e9:.1f} GB a core"
