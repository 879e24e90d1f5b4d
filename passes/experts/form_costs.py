"""Costs of the forms of a mixture of experts: bytes, operations, and seconds on a target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphgen.ir import Op
from graphgen.targets import Target, accelerator


@dataclass(frozen=True, slots=True)
class MixtureSizes:
    """The sizes of one op ``experts``.

    Attributes:
        tokens: T.
        chosen: K, experts of a token.
        experts: E, those that are here.
        inner: I, inner features of an expert.
        width: H, features of a token.
        bytes: of an element of a weight as it is stored, at least 1.
    """

    tokens: int
    chosen: int
    experts: int
    inner: int
    width: int
    bytes: int

    @staticmethod
    def of(op: Op) -> MixtureSizes:
        """The sizes of an op, which are fixed."""
        x, indices, gate = op.operands[0].type, op.operands[1].type, op.operands[3].type
        *tokens, width = x.dims
        rows = 1
        for size in tokens:
            rows *= size
        experts, inner, _ = gate.dims
        widened = op.operands[3].producer("dequantize")
        stored = gate if widened is None else widened.operands[0].type
        each = max(1, stored.dtype.bits // 8)
        return MixtureSizes(rows, indices.dims[-1], experts, inner, width, each)

    @property
    def matrices(self) -> int:
        """Elements of the three matrices of an expert."""
        return 3 * self.inner * self.width


@dataclass(frozen=True, slots=True)
class FormCost:
    """The work of one form.

    Attributes:
        read: bytes of weights that products read.
        copied: bytes of weights that are gathered first; each is read, written, and read again.
        flops: operations of the products.
    """

    read: int
    copied: int
    flops: int

    def seconds(self, rates: Rates) -> float:
        """``(read + 3 copied) / bandwidth + flops / rate``."""
        return (self.read + 3 * self.copied) / rates.bandwidth + self.flops / rates.flops

    def text(self, rates: Rates) -> str:
        """The numbers, for people."""
        moved = (self.read + 3 * self.copied) / 1e6
        return f"{self.seconds(rates) * 1e3:.3g} ms ({moved:.3g} MB, {self.flops / 1e6:.3g} MFLOP)"


@dataclass(frozen=True, slots=True)
class Rates:
    """Throughput of a target.

    Attributes:
        bandwidth: bytes of memory a second.
        flops: operations of products a second.
    """

    bandwidth: float
    flops: float


# Two cores of this project's machine; only the ratio matters to a choice.
_CPU = Rates(10e9, 100e9)


def rates_of(target: Target, element: str) -> Rates:
    """The rates of a target for products of an element type."""
    if not target.is_accelerator:
        return _CPU
    device = accelerator(target.name)
    return Rates(device.hbm_bandwidth, device.flops.get(element, device.vector_flops))


def form_costs(sizes: MixtureSizes) -> Mapping[str, FormCost]:
    """The cost of each form by its name."""
    own = sizes.matrices * sizes.bytes
    pairs = sizes.tokens * sizes.chosen
    return {
        "all": FormCost(sizes.experts * own, 0, 2 * sizes.tokens * sizes.experts * sizes.matrices),
        "selective": FormCost(0, pairs * own, 2 * pairs * sizes.matrices),
    }
