"""Throughput of products on a target: seconds = elements * element_s + operations / flops."""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.targets.accelerator import accelerator
from graphgen.targets.target import Target


@dataclass(frozen=True, slots=True)
class Throughput:
    """Rates at which a target computes products.

    Attributes:
        element_s: seconds to bring an element of a weight to the products.
        flops: operations a second.
    """

    element_s: float
    flops: float

    def seconds(self, elements: float, flops: float) -> float:
        """``elements * element_s + flops / self.flops``.

        Args:
            elements: brought to the products.
            flops: operations.
        """
        return elements * self.element_s + flops / self.flops


# Fitted with the forms of experts, on two AVX2 cores: see graphgen.passes.experts.form_costs.
_CPU_WIDE, _CPU_NARROW = Throughput(0.8e-9, 38e9), Throughput(0.65e-9, 35e9)


def throughput(target: Target, element: str, bits: int, stored: int) -> Throughput:
    """The rates of products whose weights are in place.

    Args:
        target: an accelerator reads weights once, at the published bandwidth of its memory.
        element, bits: name and bits of the type of the products.
        stored: bytes of an element of a weight in the memory of an accelerator.
    """
    if not target.is_accelerator:
        return _CPU_NARROW if bits <= 16 else _CPU_WIDE
    device = accelerator(target.name)
    return Throughput(stored / device.hbm_bandwidth, device.matrix_flops(element))
