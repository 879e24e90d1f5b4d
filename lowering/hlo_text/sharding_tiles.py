"""Arrays cut into the parts that a sharding gives to devices, and put together again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.lowering.hlo_text.hlo_sharding import HloSharding


def cut(whole: Array, sharding: HloSharding, devices: int) -> list[Array]:
    """The part of each device.

    Sizes that the number of parts does not divide are rounded up, and the last part is filled
    with zeros, as XLA's partitioner does.

    Args:
        whole: the array of all devices.
        sharding: of it.
        devices: their number.

    Raises:
        GraphgenError: GG0205 for a sharding that does not give each device a part.
    """
    return [
        _part(whole, place, sharding.parts) for place in part_places(sharding, whole.ndim, devices)
    ]


def joined(parts: Sequence[Array], sharding: HloSharding, dims: Sequence[int]) -> Array:
    """The array of which devices have ``parts``; of copies the first device's.

    Args:
        parts: of each device, as :func:`cut` gives them.
        sharding: of the array.
        dims: of the array.

    Raises:
        GraphgenError: GG0205 as :func:`cut`, and for parts of other shapes.
    """
    whole = np.zeros(tuple(dims), parts[0].dtype)
    places = part_places(sharding, whole.ndim, len(parts))
    for place, part in reversed(list(zip(places, parts, strict=True))):
        sizes = _sizes(whole.shape, sharding.parts)
        if part.shape != sizes:
            what = f"a part has shape {list(part.shape)}, {sharding.text} of {list(dims)} makes"
            raise GraphgenError("GG0205", f"{what} {list(sizes)}")
        at = _slices(whole.shape, place, sizes)
        whole[at] = part[tuple([slice(0, item.stop - item.start) for item in at])]
    return whole


def part_places(sharding: HloSharding, rank: int, devices: int) -> list[tuple[int, ...]]:
    """The part of each device, by its number along each dimension.

    Args:
        sharding: of an array.
        rank: number of its dimensions.
        devices: their number.

    Raises:
        GraphgenError: GG0205 for a sharding that does not give each device a part.
    """
    if sharding.kind == "replicated":
        return [(0,) * rank] * devices
    order = sharding.order
    fits = sharding.kind == "devices" and sorted(order) == list(range(devices))
    if not fits or len(sharding.parts) != rank:
        what = f"{sharding.text} does not give each of {devices} devices a part of {rank} dims"
        raise GraphgenError("GG0205", what)
    places = np.stack(np.unravel_index(np.arange(devices), sharding.dims), 1)[:, :rank]
    found = {device: tuple(map(int, place)) for device, place in zip(order, places, strict=True)}
    return [found[device] for device in range(devices)]


def _sizes(shape: tuple[int, ...], parts: Sequence[int]) -> tuple[int, ...]:
    if not parts:
        return shape
    return tuple([-(-size // count) for size, count in zip(shape, parts, strict=True)])


def _slices(
    shape: tuple[int, ...], place: tuple[int, ...], sizes: tuple[int, ...]
) -> tuple[slice, ...]:
    starts = [min(at * size, n) for at, size, n in zip(place, sizes, shape, strict=True)]
    return tuple(
        [
            slice(start, min(start + size, n))
            for start, size, n in zip(starts, sizes, shape, strict=True)
        ]
    )


def _part(whole: Array, place: tuple[int, ...], parts: Sequence[int]) -> Array:
    sizes = _sizes(whole.shape, parts)
    found = whole[_slices(whole.shape, place, sizes)]
    if found.shape == sizes:
        return found
    filled = np.zeros(sizes, whole.dtype)
    filled[tuple([slice(0, size) for size in found.shape])] = found
    return filled
