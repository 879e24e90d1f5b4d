"""The partitioning of an HLO module: devices, meshes, shardings, and if XLA has split it yet."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module, TensorType, Value, tensor
from graphgen.json_value import Json
from graphgen.lowering.hlo.annotations import SHARDING, frontend_map
from graphgen.lowering.hlo.module_annotations import SCHEDULED
from graphgen.lowering.hlo_text.hlo_sharding import HloSharding, parse_sharding
from graphgen.ops import OPS

# Fields of a module that the partitioner writes when it is done.
_PARTITIONED = ("hlo.field_12", "hlo.field_14")
_MESHES, _SDY = "xla.sdy.meshes", "xla.sdy.sharding"
_MESH = re.compile(r"(\w+)\s*=\s*#sdy\.mesh<(\[[^\]]*\][^>]*)>")


@dataclass(frozen=True, slots=True)
class ShardedArgument:
    """An argument with a sharding.

    Attributes:
        name: of the argument.
        type: as the program states it.
        sharding: in HLO's or Shardy's words.
        per_rank: its type on one device, where the sharding says it.
    """

    name: str
    type: TensorType
    sharding: str
    per_rank: TensorType | None


@dataclass(slots=True)
class Partitioning:
    """The partitioning of a module.

    Attributes:
        partitions: number of partitions that the file states, or that its shardings name.
        replicas: number of replicas that the file states.
        meshes: Shardy's meshes by name.
        before: sizes are global: XLA has not split the program yet.
        arguments: the arguments that have a sharding.
        marks: number of ops with a sharding, those of sharding custom calls included.
    """

    partitions: int = 1
    replicas: int = 1
    meshes: dict[str, str] = field(default_factory=dict[str, str])
    before: bool = False
    arguments: list[ShardedArgument] = field(default_factory=list[ShardedArgument])
    marks: int = 0

    @property
    def sizes(self) -> str:
        """``global`` before XLA has split the program, else ``of one rank``."""
        return "global" if self.before else "of one rank"

    def to_json(self) -> dict[str, Json]:
        """The partitioning as JSON."""
        arguments: list[Json] = [
            {
                "name": item.name,
                "type": item.type.text,
                "sharding": item.sharding,
                "per_rank": item.per_rank.text if item.per_rank is not None else None,
            }
            for item in self.arguments
        ]
        return {
            "partitions": self.partitions,
            "replicas": self.replicas,
            "meshes": dict[str, Json](self.meshes),
            "before_partitioning": self.before,
            "sizes": self.sizes,
            "sharded_ops": self.marks,
            "arguments": arguments,
        }


def partitioning_of(module: Module) -> Partitioning | None:
    """The partitioning of a module read from HLO; ``None`` where the file has none."""
    meta = module.meta
    made = Partitioning(
        module.stated_number("hlo.num_partitions", 1), module.stated_number("hlo.replica_count", 1)
    )
    made.meshes = dict(_MESH.findall(frontend_map(meta).get(_MESHES, "")))
    calls = collectives = 0
    for function in module.functions.values():
        for op in function.block:
            target = op.attrs.text("target") if op.name == "custom_call" else ""
            calls += _is_sharding_call(target)
            collectives += OPS[op.name].collective
            sharding = str(op.annotations.get(SHARDING, ""))
            made.marks += bool(sharding)
            made.partitions = max(made.partitions, _devices(sharding))
    for function in module.programs():
        _arguments(function, made)
    # JAX writes a mesh without axes for programs of one device.
    several = any("=" in axes.partition("]")[0] for axes in made.meshes.values())
    stated = several if made.meshes else bool(made.arguments or calls)
    if made.partitions == made.replicas == 1 and not stated:
        return None
    split = SCHEDULED in meta or any(key in meta for key in _PARTITIONED)
    split = split or (collectives > 0 and calls == 0)
    many = made.partitions > 1 or several or (calls > 0 and not made.meshes)
    made.before = many and not split
    return made


def _is_sharding_call(target: str) -> bool:
    named = ("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape")
    return target in named or target.startswith("xla.sdy.")


def _arguments(function: Function, made: Partitioning) -> None:
    for value in function.args:
        text = str(value.annotations.get(SHARDING, ""))
        shardy = frontend_map(value.annotations).get(_SDY, "")
        if text:
            made.partitions = max(made.partitions, _devices(text))
        if text or shardy:
            shown = shardy.removeprefix("#sdy.sharding") or text
            per_rank = _per_rank(value, text)
            made.arguments.append(ShardedArgument(value.name or "-", value.type, shown, per_rank))


def _sharding(text: str) -> HloSharding | None:
    try:
        return parse_sharding(text) if text else None
    except GraphgenError:
        return None


def _devices(text: str) -> int:
    """The number of devices that a sharding names, 1 where it does not say."""
    found = _sharding(text)
    if found is None:
        return 1
    members = found.members or (found,)
    return max([max(member.order, default=0) + 1 for member in members], default=1)


def _per_rank(value: Value, text: str) -> TensorType | None:
    found = _sharding(text)
    if found is None or found.kind == "tuple" or not value.type.static:
        return None
    parts = found.parts
    if found.kind != "devices":
        return value.type if found.kind == "replicated" else None
    if len(parts) != value.type.rank:
        return None
    sizes = [-(-size // part) for size, part in zip(value.type.dims, parts, strict=True)]
    return tensor(value.type.dtype, sizes)
