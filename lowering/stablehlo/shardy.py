"""Shardy's meshes and shardings, and the shardings of HLO that say the same."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise

from graphgen.ir import Module
from graphgen.limits import RANKS
from graphgen.lowering.hlo.annotations import frontend_map
from graphgen.lowering.hlo_text.hlo_sharding import HloSharding
from graphgen.numbers import whole_number

SHARDING, MESHES = "xla.sdy.sharding", "xla.sdy.meshes"
_MESH = re.compile(
    r"<\s*\[(?P<axes>[^\]]*)\](?:\s*,\s*device_ids\s*=\s*\[(?P<ids>[\d,\s]*)\])?\s*>"
)
_NAMED = re.compile(r"([\w.\-]+|\"[^\"]*\")\s*=\s*(?:#sdy\.mesh)?(<\s*\[[^\]]*\][^>]*>)")
_AXIS = re.compile(r'"([^"]*)"\s*=\s*(\d+)')
_ONE = re.compile(
    r'<\s*@(?P<mesh>[\w.\-]+|"[^"]*")\s*,\s*\[(?P<dims>(?:[^\[\]])*)\](?P<more>[^<>]*)>'
)
_DIM = re.compile(r"\{([^{}]*)\}")
_PART = re.compile(r'"([^"]*)"(?::\((\d+)\)(\d+))?')

# An axis, or a part of it: its name, the size of what is before it, its size.
Part = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class ShardyMesh:
    """A mesh of devices.

    Attributes:
        axes: names and sizes, in order.
        devices: their numbers in row-major order of the axes; empty for 0, 1, 2, ...
    """

    axes: tuple[tuple[str, int], ...]
    devices: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """The number of devices."""
        return math.prod([size for _, size in self.axes])


def parse_mesh(text: str) -> ShardyMesh | None:
    """The mesh in ``<["x"=2, "y"=4]>``; ``None`` where the text is none."""
    found = _MESH.search(text)
    if found is None:
        return None
    axes = tuple(
        [(name, whole_number(size, RANKS.most)) for name, size in _AXIS.findall(found["axes"])]
    )
    return ShardyMesh(
        axes,
        tuple(
            [whole_number(item, RANKS.most) for item in re.findall(r"[0-9]+", found["ids"] or "")]
        ),
    )


def named_meshes(text: str) -> dict[str, str]:
    """The texts of the meshes in ``{mesh = #sdy.mesh<["x"=2]>}`` by name."""
    return {name.strip('"'): mesh for name, mesh in _NAMED.findall(text)}


def meshes_of_module(module: Module) -> dict[str, ShardyMesh]:
    """The meshes in the frontend attributes of HLO by name, but for those that are unreadable."""
    texts = named_meshes(frontend_map(module.meta).get(MESHES, ""))
    found = {name: parse_mesh(text) for name, text in texts.items()}
    return {name: mesh for name, mesh in found.items() if mesh is not None}


def hlo_sharding(text: str, meshes: Mapping[str, ShardyMesh]) -> str:
    """The sharding of HLO that says the same as Shardy's; empty where none is known.

    Args:
        text: ``#sdy.sharding<@mesh, [{"x"}, {}]>``, or ``#sdy.sharding_per_value<[...]>`` of one
            value or several.
        meshes: by name.
    """
    made = [_one(found, meshes) for found in _ONE.finditer(text)]
    if not made or any(item is None for item in made):
        return ""
    known = [item for item in made if item is not None]
    whole = known[0] if len(known) == 1 else HloSharding("tuple", members=tuple(known))
    return whole.text


def value_shardings(
    text: str, meshes: Mapping[str, ShardyMesh], axes: Collection[str]
) -> list[HloSharding | None]:
    """The shardings of HLO of several values, over some axes alone; ``None`` for an unknown one.

    Args:
        text: ``#sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>``.
        meshes: by name.
        axes: names; of other axes a value is whole.
    """
    return [_one(found, meshes, axes) for found in _ONE.finditer(text)]


def axes_of(text: str) -> list[tuple[str, list[str]]]:
    """The mesh of each sharding in a text, and the axes, or parts of axes, that it uses."""
    return [
        (
            found["mesh"].strip('"'),
            [
                f"{name}:{before},{size}" if size else name
                for dim in _DIM.findall(found["dims"])
                for name, before, size in _PART.findall(dim)
            ],
        )
        for found in _ONE.finditer(text)
    ]


def _one(
    found: re.Match[str], meshes: Mapping[str, ShardyMesh], axes: Collection[str] | None = None
) -> HloSharding | None:
    mesh = meshes.get(found["mesh"].strip('"'))
    if mesh is None or "unreduced" in found["more"]:
        return None
    if not mesh.axes:
        return HloSharding("maximal", (), mesh.devices) if mesh.devices else _REPLICATED
    sizes = dict(mesh.axes)
    dims: list[list[Part]] = [
        [
            (name, whole_number(before or "1"), whole_number(size) if size else sizes.get(name, 0))
            for name, before, size in _PART.findall(dim)
            if axes is None or name in axes
        ]
        for dim in _DIM.findall(found["dims"])
    ]
    parts = [math.prod([size for _, _, size in dim]) for dim in dims]
    if math.prod(parts) == 1:
        return _REPLICATED
    return _tiled(mesh, dims, parts) if math.prod(parts) else None


_REPLICATED = HloSharding("replicated")


def _tiled(mesh: ShardyMesh, dims: list[list[Part]], parts: list[int]) -> HloSharding | None:
    """The device of each tile: the mesh with its axes cut into factors, those of tiles first."""
    used = [part for dim in dims for part in dim]
    factors = _factors(mesh, used)
    order: list[int] = []
    for name, before, size in used:
        inside = [
            place
            for place, (axis, start, length) in enumerate(factors)
            if axis == name and before <= start and start * length <= before * size
        ]
        if math.prod([factors[place][2] for place in inside]) != size:
            return None
        order += inside
    if len(set(order)) != len(order):
        return None
    order += [place for place in range(len(factors)) if place not in order]
    rest = mesh.size // math.prod(parts)
    tiles = (*parts, rest) if rest > 1 else tuple(parts)
    lengths = [length for _, _, length in factors]
    if mesh.devices:
        from graphgen.lowering.hlo_proto.replica_groups import iota_groups

        places = iota_groups(1, mesh.size, tuple(lengths), tuple(order))[0]
        devices = tuple([mesh.devices[place] for place in places])
        return HloSharding("devices", tiles, devices, last_replicated=rest > 1)
    return HloSharding("devices", tiles, iota=_merged(lengths, order), last_replicated=rest > 1)


def _factors(mesh: ShardyMesh, used: list[Part]) -> list[Part]:
    """The axes, cut wherever a part of one begins or ends."""
    out: list[Part] = []
    for axis, size in mesh.axes:
        cuts = {1, size}
        for name, before, length in used:
            if name == axis:
                cuts |= {before, before * length}
        marks = sorted(cuts)
        pairs = pairwise(marks)
        out += [(axis, low, high // low) for low, high in pairs if high > low]
    return out


def _merged(lengths: list[int], order: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Factors and their order, neighbors that stay neighbors as one."""
    runs: list[list[int]] = []
    for place in order:
        if runs and runs[-1][-1] + 1 == place:
            runs[-1].append(place)
        else:
            runs.append([place])
    ranked = sorted(runs)
    dims = tuple([math.prod([lengths[place] for place in run]) for run in ranked])
    return dims, tuple([ranked.index(run) for run in runs])
