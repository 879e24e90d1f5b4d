"""Small uses of every simple op, shared by the tests that run them in different ways."""

from __future__ import annotations

from tests.oracles.sample import Sample, inputs, program
from tests.oracles.samples.bits import bits
from tests.oracles.samples.choosing import choosing
from tests.oracles.samples.complex_uses import complex_numbers
from tests.oracles.samples.elementwise import elementwise
from tests.oracles.samples.linalg import ordering, summing
from tests.oracles.samples.memory import places
from tests.oracles.samples.narrow import narrow
from tests.oracles.samples.numerical import random_bits, systems, transforms
from tests.oracles.samples.shape import making, moving
from tests.oracles.samples.windows import convolving, reducing

FAMILIES = (
    elementwise,
    complex_numbers,
    bits,
    choosing,
    making,
    moving,
    places,
    summing,
    ordering,
    narrow,
    convolving,
    reducing,
    systems,
    transforms,
    random_bits,
)
SAMPLES = [sample for family in FAMILIES for sample in family()]
BY_OP: dict[str, list[Sample]] = {}
for _sample in SAMPLES:
    BY_OP.setdefault(_sample.op, []).append(_sample)

__all__ = ["BY_OP", "SAMPLES", "Sample", "inputs", "program"]
