"""The published prices of an hour of an instance; an instance without one has none here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import cast


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of one region, as they were read.

    Attributes:
        currency: such as ``USD``.
        region: of the cloud.
        terms: under which they hold.
        read: the day on which they were read, ``YYYY-MM-DD``.
        source: where.
        hour: of an hour of each instance type that has a price there.
    """

    currency: str
    region: str
    terms: str
    read: str
    source: str
    hour: Mapping[str, float]


@cache
def published_prices() -> Prices:
    """The prices of ``neuron_prices.json``."""
    text = files("graphgen.targets").joinpath("neuron_prices.json").read_text(encoding="utf-8")
    return Prices(**cast(dict[str, str], json.loads(text)))  # pyright: ignore[reportArgumentType]
