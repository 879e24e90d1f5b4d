"""Seconds of a low-rank term in each of its forms.

The matrices of one slot have M = r (in + out) elements. For T values of R rows, ``masked``
multiplies every value by those of all L slots; ``gathered`` reads those of each row's slot, writes
them side by side, and multiplies each value by its own::

    masked    L M element_s + 2 T L M / flops
    gathered  3 R M element_s + 2 T M / flops
"""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.targets import Target, accelerator

MASKED, GATHERED = "masked", "gathered"


@dataclass(frozen=True, slots=True)
class TermSizes:
    """Sizes of one term.

    Attributes:
        rows: R, values with a slot of their own.
        values: T, of all rows.
        slots: L.
        matrices: M, elements of A and B of one slot.
        element: of a matrix, ``bf16`` for example.
        bytes: of an element.
    """

    rows: int
    values: int
    slots: int
    matrices: int
    element: str
    bytes: int

    @property
    def text(self) -> str:
        """For a remark."""
        return f"{self.values} values of {self.rows} rows, {self.slots} adapters"


@dataclass(frozen=True, slots=True)
class TermCost:
    """The cost of one form."""

    form: str
    seconds: float

    @property
    def text(self) -> str:
        """For a remark."""
        return f"{self.form} {self.seconds * 1e6:.1f} us"


@dataclass(frozen=True, slots=True)
class _Rates:
    """Seconds to read a byte; operations a second, and those of a batch of products of one row."""

    byte_s: float
    flops: float
    batched: float


# Two AVX2 cores: XLA computes a batch of products of few rows without its matrix library. Estimates
# from its products with weights.
_FEW = 8
_CPU = _Rates(0.15e-9, 35e9, 4e9)


def term_costs(sizes: TermSizes, target: Target) -> tuple[TermCost, TermCost]:
    """The cost of ``masked`` and of ``gathered`` on a target."""
    rates = _CPU
    if target.is_accelerator:
        device = accelerator(target.name)
        flops = device.flops.get(sizes.element, device.vector_flops)
        rates = _Rates(1 / device.hbm_bandwidth, flops, flops)
    read = sizes.matrices * sizes.bytes * rates.byte_s
    work = 2 * sizes.values * sizes.matrices
    few = sizes.rows > 1 and sizes.values < _FEW * sizes.rows
    return (
        TermCost(MASKED, sizes.slots * (read + work / rates.flops)),
        TermCost(GATHERED, 3 * sizes.rows * read + work / (rates.batched if few else rates.flops)),
    )
