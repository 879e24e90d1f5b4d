"""Cost model of latent attention: expanded keys and values against absorbed projections.

With B rows, S tokens, C slots, H heads, a latent vector of L elements, keys of N + R and values of
W elements::

    expanded: 2 B C L H (N + W) + 2 B S H C (N + R + W) operations,
              L H (N + W) + B C (L + R) + 2 B C H (N + R + W) elements moved
    absorbed: 2 B S L H (N + W) + 2 B S H C (2 L + R) operations,
              L H (N + W) + B C (L + R) elements moved

    seconds = elements element_s + operations / flops

with the rates of a target's products: see :mod:`graphgen.passes.experts.form_costs`. Scores are the
same in both.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.passes.experts.form_costs import Throughput
from graphgen.passes.latent.latent_match import LatentAttention
from graphgen.report.units import number


@dataclass(frozen=True, slots=True)
class LatentCost:
    """The work of one form.

    Attributes:
        form: ``expand`` or ``absorb``.
        elements: moved between memory and the products.
        flops: operations.
        seconds: of a target.
    """

    form: str
    elements: int
    flops: int
    seconds: float

    @property
    def text(self) -> str:
        """The numbers, for people."""
        work = f"{number(self.elements)} elements, {number(self.flops)} operations"
        return f"{self.form} {self.seconds * 1e3:.3g} ms ({work})"


def latent_costs(found: LatentAttention, rate: Throughput) -> tuple[LatentCost, LatentCost]:
    """The costs of ``expand`` and ``absorb``."""
    batch, active, heads, _ = found.op.operands[0].type.dims
    attended, latent = found.keys.latent.type.dims[1:]
    plain, shared, value = found.keys.size, found.shared.type.dims[3], found.values.size
    weights = latent * heads * (plain + value)
    read = weights + batch * attended * (latent + shared)
    made = 2 * batch * attended * heads * (plain + shared + value)
    scored = 2 * batch * active * heads * attended
    expanded = 2 * batch * attended * weights + scored * (plain + shared + value)
    absorbed = 2 * batch * active * weights + scored * (2 * latent + shared)

    def cost(form: str, elements: int, flops: int) -> LatentCost:
        return LatentCost(form, elements, flops, elements * rate.element_s + flops / rate.flops)

    return cost("expand", read + made, expanded), cost("absorb", read, absorbed)
