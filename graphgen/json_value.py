"""JSON values: the type of everything that commands print with ``--json``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]


def json_number(value: float) -> float | str:
    """A number as JSON can hold it: ``nan``, ``inf`` and ``-inf`` become strings."""
    return value if math.isfinite(value) else str(value)
