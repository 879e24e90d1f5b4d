"""Memory and collectives of one core, measured on the compiled programs; no weights needed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import TYPE_CHECKING, TypeVar, cast

from graphgen.analysis.layers import layers_of
from graphgen.analysis.liveness import peak_memory
from graphgen.config.compile_config import CompileConfig
from graphgen.exec.adapters import adapter_rows, resident_rows
from graphgen.ir import Dim, Entry, Function, Module, Op, Role, TensorType, Value, dtype
from graphgen.json_value import Json
from graphgen.lowering.cost.roofline import roofline
from graphgen.models import build
from graphgen.models.first_layers import first_layers, stated_layers
from graphgen.models.registry import family_of
from graphgen.ops import OPS
from graphgen.ops.experts import expert_operands
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
from graphgen.passes.quantization.cache_form import CACHE_ELEMENTS, stored_type
from graphgen.passes.quantization.stored_readings import read_quantized
from graphgen.passes.weights.weight_copies import weight_copies
from graphgen.report.units import pattern
from graphgen.targets import Accelerator

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True, slots=True)
class ParameterCounts:
    """Numbers of a model.

    Attributes:
        total: elements of all weights.
        active: of them, those that compute one token: K of the E experts of each mixture.
    """

    total: int
    active: int


def parameter_counts(module: Module) -> ParameterCounts:
    """Count the elements of the weights of a model, as it is built.

    The weights of ``experts`` must be tensors of the interface, or made of such alone.
    """
    total = sum(_fixed(row.logical.size) for row in module.entries(Role.WEIGHT))
    idle = 0
    programs = list(module.programs())
    # Programs share their weights: one has all mixtures.
    for op in programs[0].block if programs else ():
        if op.name == "experts":
            chosen = _fixed(op.operands[1].shape[-1])
            for weight in expert_operands(op.operands)[0][3:]:
                experts = _fixed(weight.shape[0])
                idle += _fixed(weight.type.size) // experts * max(experts - chosen, 0)
    return ParameterCounts(total, total - idle)


def active_bytes(module: Module) -> int:
    """Bytes of the weights that one token needs, as they are stored: K of the E experts.

    Args:
        module: reads the tensors of a checkpoint, which may be narrow.
    """
    total = sum(row.logical.nbytes for row in module.entries(Role.WEIGHT))
    programs = list(module.programs())
    idle: dict[str, int] = {}
    for op in programs[0].block if programs else ():
        if op.name == "experts":
            experts, chosen = _fixed(op.operands[3].shape[0]), _fixed(op.operands[1].shape[-1])
            for value in _sources(expert_operands(op.operands)[0][3:]):
                share = value.type.nbytes * max(experts - chosen, 0) // experts
                idle[value.name or ""] = share
    return total - sum(idle.values())


def _sources(values: Sequence[Value]) -> set[Value]:
    """The arguments that values are made of."""
    work, seen = list(values), set(values)
    while work:
        op = work.pop().op
        for operand in op.operands if op is not None else ():
            if operand not in seen:
                seen.add(operand)
                work.append(operand)
    return {value for value in seen if value.op is None}


def _fixed(size: Dim) -> int:
    assert isinstance(size, int), f"a weight of {size} elements"
    return size


Row = TypeVar("Row", bound="DataclassInstance")


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
class ProgramUse:
    """Bytes on one core while one program runs.

    Attributes:
        name: of the program, which says its bucket.
        weights, kv: that it reads.
        activations: intermediate values at its worst moment.
        phase: ``prefill`` or ``decode``.
        seconds: of a call, a bound from below; 0 without a device.
    """

    name: str
    weights: int
    kv: int
    activations: int
    phase: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """Tensors on one core whose names differ in numbers only.

    Attributes:
        kind: ``weights`` or ``caches``.
        name: with ``#`` for numbers.
        count: of tensors.
        bytes: of all of them.
    """

    kind: str
    name: str
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
        weights_once, kv_once: of the whole model, each tensor counted once, caches with the numbers
            and scales that they are kept in.
        collectives: of a decode step.
        heads: how the attention heads were laid out, in words; empty where they just divide.
        programs: one after the other, as a core runs them.
        items: the tensors, those of all layers together.
        parameters: of the whole model.
        active: of them, those that compute a token.
        active_once: bytes of these, as they are stored.
        copies: bytes of ``weights`` that are second copies, laid out for another phase.
        adapters: bytes of the slots of adapters (LoRA), all of them.
        adapter_parameters: numbers of one adapter of the largest rank.
    """

    weights: int
    kv: int
    activations: int
    weights_once: int
    kv_once: int
    collectives: tuple[Collective, ...]
    heads: str = ""
    programs: tuple[ProgramUse, ...] = ()
    items: tuple[MemoryItem, ...] = ()
    parameters: int = 0
    active: int = 0
    active_once: int = 0
    copies: int = 0
    adapters: int = 0
    adapter_parameters: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.kv + self.adapters + self.activations

    def replicated(self, tp: int) -> float:
        """Bytes over all cores beyond one copy of everything, as a share of that copy."""
        once = self.weights_once + self.kv_once
        return tp * (self.weights + self.kv) / once - 1

    def seconds(self, phase: str) -> float:
        """The bound of a call of the longest program of a phase; 0 without a device."""
        return max((each.seconds for each in self.programs if each.phase == phase), default=0.0)

    def to_json(self, tp: int) -> dict[str, Json]:
        """The bytes and numbers of a core of ``tp``, by name."""
        return {
            "weights": self.weights,
            "kv": self.kv,
            "adapters": self.adapters,
            "activations": self.activations,
            "parameters": self.parameters,
            "active_parameters": self.active,
            "active_once": self.active_once,
            "weights_once": self.weights_once,
            "kv_once": self.kv_once,
            "replicated": self.replicated(tp),
            "second_copies": self.copies,
            "heads": self.heads or None,
            "collectives": [asdict(item) for item in self.collectives],
            "programs": [asdict(item) for item in self.programs],
            "items": [asdict(item) for item in self.items],
        }


def measure(
    config: Mapping[str, object],
    demand: CompileConfig,
    tp: int,
    device: Accelerator | None = None,
) -> CoreUse:
    """Compile for ``tp`` ranks and count.

    Args:
        config: a ``config.json``; Hugging Face's names.
        demand: the configuration to compile for.
        tp: ranks.
        device: whose rates bound the seconds of the programs; ``None`` for no seconds.

    Raises:
        GraphgenError: GG0304 where the model cannot be split over ``tp`` ranks; GG0501 to GG0503
            for the configuration.
    """
    module = build(config, dtype(demand.dtype))
    counts = parameter_counts(module)
    read_quantized(module, config, demand.target, demand.activation_quantization_type)
    needed = active_bytes(module)
    weights_once = sum(row.logical.nbytes for row in module.entries(Role.WEIGHT))
    reports = run_pipeline(module, default(replace(demand, tp=tp)))
    programs = tuple([_program(module, function, device) for function in module.programs()])
    items = _items(module)
    return CoreUse(
        weights=sum(item.bytes for item in items if item.kind == "weights"),
        kv=sum(item.bytes for item in items if item.kind == "caches"),
        activations=max(program.activations for program in programs),
        weights_once=weights_once,
        kv_once=sum(_kept(row, demand) for row in module.entries(Role.STATE)),
        collectives=tuple(_collectives(module)),
        heads="; ".join(said for r in reports if r.name.startswith("heads") for said in r.remarks),
        programs=programs,
        items=items,
        parameters=counts.total,
        active=counts.active,
        active_once=needed,
        copies=sum(item.bytes for item in weight_copies(module)),
        adapters=sum(row.physical.nbytes for row in resident_rows(module)),
        adapter_parameters=_adapter_parameters(module),
    )


def logical_module(
    config: Mapping[str, object], demand: CompileConfig, phases: tuple[str, ...]
) -> Module:
    """A model before any pass, with the weights of its checkpoint as they are stored."""
    module = build(config, dtype(demand.dtype), phases=phases)
    read_quantized(module, config, demand.target, demand.activation_quantization_type)
    return module


def core_bytes(module: Module) -> int:
    """Bytes of a core for compiled programs: all that they read, and values at the worst moment."""
    held = sum(item.bytes for item in _items(module))
    held += sum(row.physical.nbytes for row in resident_rows(module))
    return held + max(peak_memory(module, function).bytes for function in module.programs())


def _adapter_parameters(module: Module) -> int:
    """Numbers of one adapter: of one slot of each A and B."""
    rows = [row for pair in adapter_rows(module).values() for row in pair]
    return sum(prod(row.logical.dims[1:]) for row in rows)


def _kept(row: Entry, demand: CompileConfig) -> int:
    """Bytes of a whole cache, of what is kept of it."""
    kept, slots = row.logical, row.logical.dims[1]
    if demand.kv_cache_quant and row.physical.dtype.bits == 8:
        kept = stored_type(kept, CACHE_ELEMENTS[demand.kv_cache_dtype], demand.cache_scale)
    return kept.nbytes // slots * (row.last or slots)


@dataclass(frozen=True, slots=True)
class FewLayers:
    """Two models of few layers, to extrapolate the cost of a deeper one with the same period.

    Attributes:
        few, most: their configurations; ``most`` has one period of layers more.
        more: periods that the deeper one has beyond those of ``most``.
    """

    few: Mapping[str, object]
    most: Mapping[str, object]
    more: int


def few_layers(config: Mapping[str, object], period: int | None = None) -> FewLayers | None:
    """The short models of ``config``; ``None`` where they would be as deep, or layers never repeat.

    The first layer and the last share memory with one neighbor only: between them ``few`` has at
    least one layer, and two periods where a period has several.

    Args:
        config: a ``config.json``; Hugging Face's names.
        period: what :func:`layer_period` says of ``config``, where that is known.
    """
    family = family_of(config)
    _, layers = stated_layers(family, config)
    period = layer_period(config) if period is None else period
    if layers is None or not period:
        return None
    first = _first_dense(config)
    few = first + (layers - first) % period + period * (3 if period == 1 else 2)
    if layers <= few + period:
        return None
    short, most = (first_layers(family, config, count) for count in (few, few + period))
    return FewLayers(short, most, (layers - few) // period - 1)


def _first_dense(config: Mapping[str, object]) -> int:
    """The first layers, which have no experts where all others have some."""
    count = config.get("first_k_dense_replace")
    return count if isinstance(count, int) else 0


def estimate(
    config: Mapping[str, object],
    demand: CompileConfig,
    tp: int,
    period: int | None = None,
    device: Accelerator | None = None,
) -> CoreUse:
    """The same as :func:`measure`, from two short models where layers repeat.

    Bytes and collectives grow by the same number with each period of layers; several degrees are
    then compared in the time of one. Values of a program at its worst moment may differ a little:
    by 1 kB of 2 MB in decode programs of Gemma 3 with rolled caches.

    Args:
        config, demand, tp, device: as for :func:`measure`.
        period: what :func:`layer_period` says of ``config``, where that is known.
    """
    short = few_layers(config, period)
    if short is None:
        return measure(config, demand, tp, device)
    few, most = (measure(each, demand, tp, device) for each in (short.few, short.most))
    more = short.more
    sums = ("weights", "kv", "activations", "weights_once", "kv_once")
    sums += ("parameters", "active", "active_once", "copies", "adapters", "adapter_parameters")
    return replace(
        _grown(few, most, more, sums),
        collectives=_all_grown(few.collectives, most.collectives, more, ("count",)),
        programs=_all_grown(
            few.programs, most.programs, more, ("weights", "kv", "activations", "seconds")
        ),
        items=_all_grown(few.items, most.items, more, ("count", "bytes")),
    )


def _grown(few: Row, most: Row, more: int, fields: Sequence[str]) -> Row:
    """``most`` with these fields as they are with ``more`` further layers."""
    a, b = (cast(dict[str, int], {key: getattr(row, key) for key in fields}) for row in (few, most))
    return replace(most, **{key: b[key] + more * (b[key] - a[key]) for key in fields})


def _all_grown(
    few: Sequence[Row], most: Sequence[Row], more: int, fields: Sequence[str]
) -> tuple[Row, ...]:
    """Each row of ``most`` with the row of ``few`` that is equal but for ``fields``."""
    rest = {_apart(row, fields): row for row in few}
    return tuple([_grown(rest[_apart(row, fields)], row, more, fields) for row in most])


def _apart(row: DataclassInstance, fields: Sequence[str]) -> tuple[object, ...]:
    return tuple([value for key, value in asdict(row).items() if key not in fields])


def layer_period(config: Mapping[str, object]) -> int:
    """The layers after which all but the first dense ones repeat; 0 where they never do.

    Layers that repeat have the same weights and ops, and share the same masks and rotations.
    """
    module = build(config, dtype("bf16"), phases=("decode",))
    kinds = _layer_kinds(module)[_first_dense(config) :]
    repeats = (
        period
        for period in range(1, len(kinds) // 2 + 1)
        if all(a == b for a, b in zip(kinds, kinds[period:], strict=False))
    )
    return next(repeats, 0)


def _layer_kinds(module: Module) -> list[tuple[object, ...]]:
    """Of each layer a key that is equal for layers of the same weights, ops and shared values."""
    weights: dict[str, set[tuple[str, TensorType]]] = {}
    for row in module.entries(Role.WEIGHT):
        number = _LAYER.search(row.name)
        if number is not None:
            held = weights.setdefault(number[1], set())
            held.add((row.name[number.end() :], row.logical))
    (decode,) = module.programs()
    layers = layers_of(decode)
    shared = _shared_values(layers)
    kinds: list[tuple[object, ...]] = []
    for name, ops in layers.items():
        reads = [v for op in ops for v in op.operands if v in shared]
        made = tuple([(op.name, op.attrs) for op in ops])
        kinds.append((frozenset(weights.get(name.rpartition(".")[2], ())), made, tuple(reads)))
    return kinds


def _shared_values(layers: Mapping[str, Sequence[Op]]) -> set[Value]:
    """Values that several layers read and none makes: masks, rotations."""
    made = {value for ops in layers.values() for op in ops for value in op.results}
    readers = Counter(v for ops in layers.values() for v in {v for op in ops for v in op.operands})
    return {value for value, count in readers.items() if count > 1 and value not in made}


# The number of a layer in the name of a weight.
_LAYER = re.compile(r"\.(\d+)\.")
_KINDS = {Role.PARAM: "weights", Role.WEIGHT: "weights", Role.STATE: "caches"}


def _program(module: Module, function: Function, device: Accelerator | None) -> ProgramUse:
    held = {"weights": 0, "caches": 0}
    for value in function.args:
        row = module.interface.get(value.name or "")
        if row is not None and row.role in _KINDS:
            held[_KINDS[row.role]] += row.physical.nbytes
    activations = peak_memory(module, function).bytes
    seconds = 0.0 if device is None else roofline(module, function, device).seconds
    return ProgramUse(
        function.name, held["weights"], held["caches"], activations, function.phase, seconds
    )


def _items(module: Module) -> tuple[MemoryItem, ...]:
    """The tensors that the programs read, each once."""
    read = {value.name for function in module.programs() for value in function.args}
    found: dict[tuple[str, str], list[int]] = {}
    for row in module.interface.values():
        if row.role in _KINDS and row.name in read:
            sizes = found.setdefault((_KINDS[row.role], pattern(row.name)), [])
            sizes.append(row.physical.nbytes)
    return tuple([MemoryItem(*key, len(sizes), sum(sizes)) for key, sizes in found.items()])


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
