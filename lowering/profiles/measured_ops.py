"""Ops with their measured times beside their bounds, and the time that is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from graphgen.json_value import Json
from graphgen.lowering.profiles.op_bounds import InstructionBound
from graphgen.lowering.profiles.program_times import ProgramTimes


@dataclass(frozen=True, slots=True)
class MeasuredOp:
    """One op of a program.

    Attributes:
        name: of its HLO instruction.
        opcode, layer, line: see :class:`InstructionBound`; empty for what the program has not.
        times: how often it ran in one run of the program, on average.
        seconds: that it took in one run, without what ran inside of it.
        inside: seconds of what ran inside of it.
        flops, bytes: that one run of it takes.
        bound: seconds that all its times take at least; ``None`` without rates, or for what the
            program has not.
        by: what bounds it: ``compute``, ``memory`` or ``link``.
    """

    name: str
    opcode: str
    layer: str
    line: str
    times: float
    seconds: float
    inside: float
    flops: int
    bytes: int
    bound: float | None
    by: str

    @property
    def lost(self) -> float | None:
        """Seconds above the bound; 0 for an op that is faster, as operands in a cache allow."""
        return None if self.bound is None else max(self.seconds - self.bound, 0.0)

    @property
    def reached(self) -> float | None:
        """The bound as a part of the time."""
        return self.bound / self.seconds if self.bound is not None and self.seconds else None

    def to_json(self) -> dict[str, Json]:
        """Its facts."""
        return {**asdict(self), "lost": self.lost, "reached": self.reached}


def measured_ops(
    times: ProgramTimes, bounds: Mapping[str, InstructionBound]
) -> Sequence[MeasuredOp]:
    """The ops of a program: those that lose most time first, then those that take most."""
    nothing = InstructionBound("", "", "", 0, 0, None, "")
    found: list[MeasuredOp] = []
    for op in times.ops:
        bound = bounds.get(op.name, nothing)
        count = op.times / times.counted
        seconds = None if bound.seconds is None else count * bound.seconds
        found.append(
            MeasuredOp(
                *(op.name, bound.opcode, bound.layer, bound.line, count, op.seconds, op.inside),
                *(bound.flops, bound.bytes, seconds, bound.by),
            )
        )
    return sorted(found, key=lambda one: (-(one.lost or 0.0), -one.seconds))
