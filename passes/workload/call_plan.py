"""Plans of calls: which sequences each row of a call continues, and why, before any array is drawn.

A plan is made of facts that a reader can check: the program, the row of the cache, the first
position and the number of tokens. :mod:`~graphgen.passes.workload.draw_calls` draws the
arrays of a call from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from graphgen.ir import VERIFYING
from graphgen.passes.workload.program_shapes import ProgramShape, ServingSizes

# Token ids of a call: random ones; with the first and the last of the vocabulary; with some outside
# of it, which an embedding clamps; the same one in every place.
TokenIds = Literal["random", "ends", "outside", "one"]
# Phases of programs whose rows go on, with one token or several.
_GOING_ON = ("decode", *VERIFYING)


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens that a call gives one row of the cache.

    Attributes:
        start: position of the first.
        count: how many; they stand at the front of the row, padding after them.
        left: whether padding stands before them instead.
    """

    start: int
    count: int
    left: bool = False

    @property
    def end(self) -> int:
        """The length of the sequence after the call."""
        return self.start + self.count


@dataclass(frozen=True, slots=True)
class CallPlan:
    """One call of a program.

    Attributes:
        situation: what it is made for, in words.
        shape: the program.
        rows: for each row of the call, the row of the cache and the tokens; ``None`` if idle.
        ids: which token ids are drawn.
        equal: whether all rows get the same tokens.
        exact: whether only the comparison in float64 makes the call.
    """

    situation: str
    shape: ProgramShape
    rows: tuple[tuple[int, Span] | None, ...]
    ids: TokenIds = "random"
    equal: bool = False
    exact: bool = False

    @property
    def places(self) -> set[tuple[int, int]]:
        """The position of each token, and the row of the call that it is in."""
        filled = [(index, row[1]) for index, row in enumerate(self.rows) if row is not None]
        return {(at, index) for index, span in filled for at in range(span.start, span.end)}

    @property
    def active(self) -> tuple[int, ...]:
        """Rows of the call that are not idle."""
        return tuple(index for index, row in enumerate(self.rows) if row is not None)

    @property
    def note(self) -> str:
        """The program, the situation and the idle rows, in words."""
        idle = [str(index) for index, row in enumerate(self.rows) if row is None]
        rows = f", row{'s' * (len(idle) > 1)} {' '.join(idle)} idle" if idle else ""
        return f"{self.shape.text}: {self.situation}{rows}"


@dataclass(slots=True)
class CallWriter:
    """Writes the plans of a script, each one a call that a serving system could make.

    A row may go on where it is, begin again at position 0, or, the first time it is used, go on
    after any prefix, which its initial cache holds. Caches that are rings drop what is older than
    their window; other caches keep a prefix, so that any row may go back to one.

    Attributes:
        sizes: of the programs and the cache.
        plans: so far.
        lengths: of each row of the cache that was used.
        used: number of calls of each program.
    """

    sizes: ServingSizes
    plans: list[CallPlan] = field(default_factory=list[CallPlan])
    lengths: dict[int, int] = field(default_factory=dict[int, int])
    used: Counter[ProgramShape] = field(default_factory=Counter[ProgramShape])

    @property
    def prompts(self) -> list[ProgramShape]:
        """Programs that take the tokens of prompts, smallest first."""
        return [s for s in self.sizes.shapes if s.active > 1 and s.phase not in _GOING_ON]

    @property
    def steps(self) -> list[ProgramShape]:
        """Programs that take one token a row, smallest first."""
        return [shape for shape in self.sizes.shapes if shape.active == 1 and shape.steps == 1]

    @property
    def launches(self) -> list[ProgramShape]:
        """Programs of several decode steps, smallest first."""
        return [shape for shape in self.sizes.shapes if shape.steps > 1]

    @property
    def verifying(self) -> list[ProgramShape]:
        """Programs that take several tokens of rows that go on, smallest first."""
        return [s for s in self.sizes.shapes if s.active > 1 and s.phase in _GOING_ON]

    def may_start(self, row: int, start: int) -> bool:
        """True if a row of the cache can go on at a position."""
        held = self.lengths.get(row)
        return held is None or start in (0, held) or not self.sizes.rings

    def least_used(self, shapes: Sequence[ProgramShape], attended: int = 0) -> ProgramShape | None:
        """Of programs that attend to ``attended`` slots the one that was called least."""
        fits = [shape for shape in shapes if shape.attended >= attended]
        return min(fits, key=lambda shape: (self.used[shape], shape.attended), default=None)

    def next_span(self, row: int, shape: ProgramShape) -> Span | None:
        """One token more of the row's sequence; ``None`` if it has no room in the program."""
        start = self.lengths.get(row, 0)
        return Span(start, 1) if start < shape.attended else None

    def add(
        self,
        situation: str,
        shape: ProgramShape,
        spans: Mapping[int, Span],
        ids: TokenIds = "random",
        *,
        equal: bool = False,
    ) -> None:
        """Append a call.

        Args:
            situation: what it is made for.
            shape: the program.
            spans: tokens by row of the cache, as many as the program has rows or fewer.
            ids: which token ids are drawn.
            equal: whether all rows get the same tokens.
        """
        rows: list[tuple[int, Span] | None] = [None] * shape.rows
        if shape.whole:
            situation += ", from the first token on"
            spans = {row: Span(0, span.count) for row, span in spans.items()}
        if shape.in_place:
            for row, span in spans.items():
                rows[row] = (row, span)
        else:
            rows = _shuffled([*spans.items()], shape.rows, len(self.plans))
        self.append(CallPlan(situation, shape, tuple(rows), ids, equal))

    def append(self, plan: CallPlan) -> None:
        """Append a call whose rows are chosen."""
        self.plans.append(plan)
        self.used[plan.shape] += 1
        self.lengths |= {row[0]: row[1].end for row in plan.rows if row is not None}


def _shuffled(
    spans: Sequence[tuple[int, Span]], count: int, turn: int
) -> list[tuple[int, Span] | None]:
    """Rows of a call in an order other than that of the cache, idle ones in other places."""
    filled = [*reversed(spans), *[None] * (count - len(spans))]
    orders = [[*filled[at:], *filled[:at]] for at in (turn % count, (turn + 1) % count)]
    same = all(row is None or row[0] == index for index, row in enumerate(orders[0]))
    return orders[1] if same else orders[0]
