"""Summary statistics of an array: range, moments, first values, non-finite elements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphgen.eval import Array
from graphgen.eval.element_kinds import Number, element_json, element_text
from graphgen.json_value import Json

FIRST = 4


@dataclass(frozen=True, slots=True)
class ArraySummary:
    """Facts about an array; the moments are of its finite elements, ``None`` if there are none.

    Attributes:
        least, greatest: minimum and maximum; of complex elements those of absolute values.
        mean, deviation: mean, and population standard deviation, which is real.
        first: the first elements in row-major order.
        nan, inf: how many elements are NaN, and infinite; a complex one is NaN if a part is.
    """

    least: float | None
    greatest: float | None
    mean: Number | None
    deviation: float | None
    first: tuple[Number, ...]
    nan: int
    inf: int

    def to_json(self) -> dict[str, Json]:
        """The fields by the names that ``graphgen run --json`` prints.

        A complex number is a list of its real and its imaginary part.
        """
        return {
            "min": self.least,
            "max": self.greatest,
            "mean": None if self.mean is None else element_json(self.mean),
            "std": self.deviation,
            "nan": self.nan,
            "inf": self.inf,
            "first": [element_json(value) for value in self.first],
        }

    def cells(self) -> list[str]:
        """The cells of a table: moments, NaN count, first elements."""
        moments = [self.least, self.greatest, self.mean, self.deviation]
        shown = ["-" if value is None else element_text(value, 5) for value in moments]
        strange = str(self.nan) + (f" (+{self.inf} inf)" if self.inf else "")
        return [*shown, strange, " ".join(element_text(value, 5) for value in self.first)]


def summarize(array: Array) -> ArraySummary:
    """Describe an array of any element type; computed in float64 or two of them."""
    given = np.asarray(array)
    is_complex = given.dtype.kind == "c"
    wide = given.astype(np.complex128 if is_complex else np.float64).ravel()
    finite = wide[np.isfinite(wide)]
    sizes = np.abs(finite) if is_complex else finite
    some = finite.size > 0
    nan = np.isnan(wide)
    return ArraySummary(
        float(sizes.min()) if some else None,
        float(sizes.max()) if some else None,
        finite.mean().item() if some else None,
        float(finite.std()) if some else None,
        tuple([value.item() for value in wide[:FIRST]]),
        int(nan.sum()),
        int((np.isinf(wide) & ~nan).sum()),
    )
