"""Summary statistics of an array: range, moments, first values, non-finite elements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphgen.eval import Array
from graphgen.json_value import Json, json_number

FIRST = 4


@dataclass(frozen=True, slots=True)
class ArraySummary:
    """Facts about an array; the moments are of its finite elements, ``None`` if there are none.

    Attributes:
        least, greatest, mean, deviation: minimum, maximum, mean, population standard deviation.
        first: the first elements in row-major order.
        nan, inf: how many elements are NaN, and infinite.
    """

    least: float | None
    greatest: float | None
    mean: float | None
    deviation: float | None
    first: tuple[float, ...]
    nan: int
    inf: int

    def to_json(self) -> dict[str, Json]:
        """The fields by the names that ``graphgen run --json`` prints."""
        return {
            "min": self.least,
            "max": self.greatest,
            "mean": self.mean,
            "std": self.deviation,
            "nan": self.nan,
            "inf": self.inf,
            "first": [json_number(value) for value in self.first],
        }

    def cells(self) -> list[str]:
        """The cells of a table: moments, NaN count, first elements."""
        moments = [self.least, self.greatest, self.mean, self.deviation]
        shown = ["-" if value is None else f"{value:.5g}" for value in moments]
        strange = str(self.nan) + (f" (+{self.inf} inf)" if self.inf else "")
        return [*shown, strange, " ".join(f"{value:.5g}" for value in self.first)]


def summarize(array: Array) -> ArraySummary:
    """Describe an array of any element type; computed in float64."""
    wide = np.asarray(array).astype(np.float64).ravel()
    finite = wide[np.isfinite(wide)]
    some = finite.size > 0
    return ArraySummary(
        float(finite.min()) if some else None,
        float(finite.max()) if some else None,
        float(finite.mean()) if some else None,
        float(finite.std()) if some else None,
        tuple(float(value) for value in wide[:FIRST]),
        int(np.isnan(wide).sum()),
        int(np.isinf(wide).sum()),
    )
