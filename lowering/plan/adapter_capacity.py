"""The number of adapters that fit a part of a core's memory: exact, and by AWS's guide.

The guide (NxD Inference, "Maximum number of LoRA adapters supported") divides the reserved memory
by the size of an adapter's file: by half of it where one factor of each projection is on every
core, by its share of the ranks where both are divided. It says that its sizes, 170 and 830 MB for
rank 16 of Llama 3.1 8B and 3.3 70B, are of BF16; they are those of float32, in two digits:
41,943,040 and 207,093,760 numbers are 167.8 and 828.4 MB of float32 and half of that in BF16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphgen.json_value import Json
from graphgen.lowering.plan.measure import CoreUse

_F32 = 4


@dataclass(frozen=True, slots=True)
class AdapterCapacity:
    """Adapters on one core.

    Attributes:
        rank: r.
        parameters: numbers of one adapter with a term beside each projection.
        core_bytes: bytes of one adapter on a core, in the programs' element types.
        slots: adapters that the programs hold at once.
        reserve: bytes of a core for adapters; 0 where none are reserved.
        tp: ranks.
    """

    rank: int
    parameters: int
    core_bytes: int
    slots: int
    reserve: int
    tp: int

    @property
    def fits(self) -> int:
        """The adapters that the reserved bytes hold."""
        return self.reserve // self.core_bytes

    @property
    def guide(self) -> tuple[float, float]:
        """The guide's counts, not rounded: with one factor on every core, and with both divided."""
        return guide_counts(self.parameters * _F32, self.reserve, self.tp)

    def to_json(self) -> Mapping[str, Json]:
        """All of it, with the guide's counts."""
        whole, divided = self.guide
        return {
            "rank": self.rank,
            "parameters": self.parameters,
            "core_bytes_each": self.core_bytes,
            "slots": self.slots,
            "reserve": self.reserve or None,
            "fits": self.fits if self.reserve else None,
            "guide": {"f32_bytes": self.parameters * _F32, "one_whole": whole, "divided": divided}
            if self.reserve
            else None,
        }

    @property
    def text(self) -> str:
        """Two lines."""
        lines = [
            f"adapters of rank {self.rank}: {self.parameters:,} numbers, {self.core_bytes:,} bytes "
            f"of each on a core; {self.slots} slots take {self.slots * self.core_bytes:,}"
        ]
        if self.reserve:
            whole, divided = self.guide
            lines += [
                f"{self.reserve:,} bytes of a core hold {self.fits}",
                f"AWS's guide counts {self.parameters * _F32:,} bytes of f32: {whole:.2f} with one "
                f"factor on every core, {divided:.2f} with both divided",
            ]
        return "\n".join(lines) + "\n"


def guide_counts(size: int, reserve: int, tp: int) -> tuple[float, float]:
    """AWS's counts for an adapter of ``size`` bytes: (reserve / (size / 2), reserve tp / size)."""
    return 2 * reserve / size, reserve * tp / size


def adapter_capacity(use: CoreUse, rank: int, slots: int, reserve: int, tp: int) -> AdapterCapacity:
    """The adapters of programs that were compiled with ``slots`` of them."""
    return AdapterCapacity(rank, use.adapter_parameters, use.adapters // slots, slots, reserve, tp)
