"""The registry of compilation targets, and the reader of their JSON files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import cast

from graphgen.errors import GraphgenError

Json = Mapping[str, object]
# The target of the commands that are about accelerators alone.
DEFAULT_ACCELERATOR = "trn2"
_REGISTERED: dict[str, Target] = {}


@dataclass(frozen=True, slots=True)
class Target:
    """A device and its compiler.

    Attributes:
        name: as ``--target`` and ``legalize{target=NAME}`` write it; for Neuron devices as
            ``neuronx-cc --target`` does.
        passes: pipeline text per phase of the default pipeline; appended to the phase's own passes.
        quantized_passes: the same, for models with quantized weights only.
        narrow_products: 8-bit element types that both operands of a product may have.
        rules: names of the rewrite rules that ``legalize`` applies; see
            :mod:`graphgen.passes.legalize.legalization_rules`.
        hardware: the figures of :class:`graphgen.targets.Accelerator` with their sources; empty for
            a target without a device of its own.
        flushes_subnormals: ``value``, whether it computes with subnormal numbers as with zeros,
            ``None`` where that is not known, and ``source``.
        legality: the target whose rules in ``legality.json`` hold for this one; empty for its own
            name. Rules that name no target hold for all.
    """

    name: str
    passes: Mapping[str, str] = field(default_factory=dict[str, str])
    quantized_passes: Mapping[str, str] = field(default_factory=dict[str, str])
    narrow_products: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    hardware: Json = field(default_factory=dict[str, object])
    flushes_subnormals: Json = field(default_factory=dict[str, object])
    legality: str = ""

    @property
    def flushes(self) -> bool | None:
        """True if subnormal numbers are flushed to zero; ``None`` where it is not known."""
        value = self.flushes_subnormals.get("value")
        return value if isinstance(value, bool) else None

    @property
    def is_accelerator(self) -> bool:
        """True for a target with hardware figures, each rank of which is a logical core."""
        return bool(self.hardware)

    @property
    def legality_name(self) -> str:
        """The name under which ``legality.json`` lists rules for this target."""
        return self.legality or self.name


def register_target(target: Target) -> Target:
    """Enter ``target`` under its name, replacing the one that had it; for plugins."""
    _REGISTERED[target.name] = target
    return target


def registered_targets() -> dict[str, Target]:
    """The targets that plugins have entered, by name."""
    return dict(_REGISTERED)


def find_target(name: str) -> Target:
    """The target called ``name``.

    Raises:
        GraphgenError: GG0302 for an unknown name, with all names there are.
    """
    known = _all()
    if name not in known:
        raise GraphgenError(
            "GG0302", f"unknown target '{name}'", help=f"there are {', '.join(known)}"
        )
    return known[name]


def target_names() -> tuple[str, ...]:
    """All targets: the shipped ones by name, then those of plugins."""
    return tuple(_all())


def accelerator_names() -> tuple[str, ...]:
    """The targets with hardware figures."""
    return tuple(name for name, target in _all().items() if target.is_accelerator)


def _all() -> Mapping[str, Target]:
    return {**_shipped(), **_REGISTERED}


@cache
def _shipped() -> Mapping[str, Target]:
    """The JSON files of this package, without the rules of compilers."""
    found = sorted(
        (
            file
            for file in files("graphgen.targets").iterdir()
            if file.name.endswith(".json") and not file.name.startswith("neuron_")
        ),
        key=lambda file: file.name,
    )
    targets = [read_target(cast(Json, json.loads(file.read_text("utf-8")))) for file in found]
    return {target.name: target for target in targets}


def read_target(data: Json) -> Target:
    """A target from the object of its JSON file, with the keys that :class:`Target` names.

    Raises:
        GraphgenError: GG0302 for an unknown key or no name.
    """
    known = set(Target.__dataclass_fields__)
    unknown = [key for key in data if key not in known]
    if unknown or "name" not in data:
        what = f"a target has no '{unknown[0]}'" if unknown else "a target without a name"
        raise GraphgenError("GG0302", what, help=f"keys: {', '.join(Target.__dataclass_fields__)}")
    return Target(
        name=str(data["name"]),
        passes=cast(Mapping[str, str], data.get("passes", {})),
        quantized_passes=cast(Mapping[str, str], data.get("quantized_passes", {})),
        narrow_products=tuple(cast(list[str], data.get("narrow_products", []))),
        rules=tuple(cast(list[str], data.get("rules", []))),
        hardware=cast(Json, data.get("hardware", {})),
        flushes_subnormals=cast(Json, data.get("flushes_subnormals", {})),
        legality=str(data.get("legality", "")),
    )
