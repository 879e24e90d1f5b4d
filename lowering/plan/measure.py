"""Memory and collectives of one core, measured on the compiled programs; no weights needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphgen.analysis.liveness import peak_memory
from graphgen.compile_config import CompileConfig
from graphgen.ir import Entry, Function, Module, Op, Role, dtype
from graphgen.models import build
from graphgen.ops import OPS
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default

# How configurations call the number of layers.
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers")


@dataclass(frozen=True, slots=True)
class Collective:
    """Collectives of one kind and size in a decode step.

    Attributes:
        kind: the op.
        count: how many.
        bytes: what each of them gives to every rank.
    """

    kind: str
    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class CoreUse:
    """Bytes on one core.

    Attributes:
        weights: prepared tensors, and checkpoint tensors the programs read as they are.
        kv: the caches.
        activations: intermediate values at the worst moment of any program, op by op: an upper
            bound, since a compiler that fuses writes fewer of them.
        weights_once, kv_once: of the whole model, each tensor counted once.
        collectives: of a decode step.
        heads: how the attention heads were laid out, in words; empty where they just divide.
    """

    weights: int
    kv: int
    activations: int
    weights_once: int
    kv_once: int
    collectives: tuple[Collective, ...]
    heads: str = ""

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.kv + self.activations

    def replicated(self, tp: int) -> float:
        """Bytes over all cores beyond one copy of everything, as a share of that copy."""
        once = self.weights_once + self.kv_once
        return tp * (self.weights + self.kv) / once - 1


def measure(config: Mapping[str, object], demand: CompileConfig, tp: int) -> CoreUse:
    """Compile for ``tp`` ranks and count.

    Raises:
        GraphgenError: GG0304 where the model cannot be split over ``tp`` ranks; GG0501 to GG0503
            for the configuration.
    """
    module = build(config, dtype(demand.dtype))
    weights_once = sum(row.logical.nbytes for row in module.entries(Role.WEIGHT))
    reports = run_pipeline(module, default(replace(demand, tp=tp)))
    return CoreUse(
        weights=sum(_bytes_read(module, (Role.PARAM, Role.WEIGHT))),
        kv=sum(_bytes_read(module, (Role.STATE,))),
        activations=max(peak_memory(module, f).bytes for f in module.programs()),
        weights_once=weights_once,
        kv_once=sum(_kept(row) for row in module.entries(Role.STATE)),
        collectives=tuple(_collectives(module)),
        heads="; ".join(said for r in reports if r.name.startswith("heads") for said in r.remarks),
    )


def _kept(row: Entry) -> int:
    """Bytes of a whole cache, of what is kept of it."""
    slots = row.logical.dims[1]
    return row.logical.nbytes // slots * (row.last or slots)


def estimate(
    config: Mapping[str, object], demand: CompileConfig, tp: int, alike: bool | None = None
) -> CoreUse:
    """The same as :func:`measure`, from models of three and of four layers where all are alike.

    Bytes and collectives grow by the same number with each layer; several degrees are then
    compared in the time of one. What fewer layers take grows otherwise: the first and the last
    alone hold what a layer between them shares with its neighbors.

    Args:
        config, demand, tp: as for :func:`measure`.
        alike: what :func:`layers_alike` says of ``config``, where that is known.
    """
    key = next((key for key in _LAYERS if key in config), None)
    layers = config[key] if key is not None else None
    if key is None or not isinstance(layers, int) or layers <= 4:
        return measure(config, demand, tp)
    if not (layers_alike(config) if alike is None else alike):
        return measure(config, demand, tp)
    few = measure({**config, key: 3}, demand, tp)
    most = measure({**config, key: 4}, demand, tp)
    more = layers - 4
    counts = {(item.kind, item.bytes): item.count for item in few.collectives}
    return replace(
        most,
        weights=most.weights + more * (most.weights - few.weights),
        kv=most.kv + more * (most.kv - few.kv),
        activations=most.activations + more * (most.activations - few.activations),
        weights_once=most.weights_once + more * (most.weights_once - few.weights_once),
        kv_once=most.kv_once + more * (most.kv_once - few.kv_once),
        collectives=tuple(
            replace(item, count=item.count + more * (item.count - counts[item.kind, item.bytes]))
            for item in most.collectives
        ),
    )


def layers_alike(config: Mapping[str, object]) -> bool:
    """True if the attention windows of all layers have one size, or none has a window."""
    programs = build(config, dtype("bf16"), phases=("decode",)).programs()
    masks = [op for f in programs for op in f.ops if op.name == "attention_mask"]
    return len({op.attrs.integer("window") for op in masks}) <= 1


def _bytes_read(module: Module, roles: tuple[Role, ...]) -> list[int]:
    """Sizes of what the programs read in these roles, each once."""
    read = {value.name for function in module.programs() for value in function.args}
    rows = [row for row in module.interface.values() if row.role in roles and row.name in read]
    return [row.physical.nbytes for row in rows]


def _collectives(module: Module) -> list[Collective]:
    found: dict[tuple[str, int], int] = {}
    for op in _one_step(module):
        if OPS[op.name].collective:
            size = sum(result.type.nbytes for result in op.results)
            found[op.name, size] = found.get((op.name, size), 0) + 1
    return [Collective(kind, count, size) for (kind, size), count in found.items()]


def _one_step(module: Module) -> list[Op]:
    """The ops of a decode step."""
    decode: list[Function] = [f for f in module.programs() if f.phase == "decode"]
    return list(decode[-1].block) if decode else []
