"""The number of tokens to propose, chosen at each step from recent acceptance and measured times.

With n proposed tokens, of which a row accepts each with the probability a, the row gets
1 + a + ... + a^n tokens of the step (arXiv 2211.17192, equation 1). The step takes n proposals of d
seconds each and a launch that verifies n + 1 tokens in v(n + 1) seconds, v(1) those of a decode
step. The rows share the launch, so n is the number with the most tokens a second of all of them:

    sum over rows of (1 + a + ... + a^min(n, room)) / (n * d + v(n + 1))

a is accepted / tried of a row's steps, where a step that accepts m of n proposals has tried m + 1,
or n if it accepts all: what comes after a refused one was not tried. Older steps count less.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

# Weight of a step beside that of the next one, and of the acceptance that a new row is taken for.
_KEPT, _EXPECTED, _WEIGHT = 0.9, 0.7, 2.0
# Launches whose median counts, and steps after which the oldest of these times is measured again.
_LAUNCHES, _RENEWAL = 8, 64


@dataclass(slots=True)
class RowAcceptance:
    """The share of proposed tokens that one row accepts.

    Attributes:
        accepted: tokens, older ones counting less.
        tried: tokens, likewise.
    """

    accepted: float = 0.0
    tried: float = 0.0

    def note(self, proposed: int, accepted: int) -> None:
        """Count a step; one without proposals brings the share closer to that of a new row."""
        self.accepted = _KEPT * self.accepted + accepted
        self.tried = _KEPT * self.tried + min(accepted + 1, proposed)

    @property
    def share(self) -> float:
        """The probability that a proposed token is accepted, given that all before it were."""
        return (self.accepted + _EXPECTED * _WEIGHT) / (self.tried + _WEIGHT)

    def tokens(self, proposed: int) -> float:
        """Expected number of tokens of a step with that number of proposals."""
        return sum(self.share**place for place in range(proposed + 1))


class AdaptiveLength:
    """Chooses the number of tokens to propose.

    Args:
        verified: numbers of tokens that programs verify, in order, at least one.
        length: k, the largest number that a step may verify.

    Attributes:
        rows: the acceptance of each row of the last step, by its key.
    """

    def __init__(self, verified: Sequence[int], length: int) -> None:
        self._widths: Final = [1, *verified]
        self._length: Final = length
        self._launches: Final[dict[int, deque[float]]] = {}
        self._measured: Final[dict[int, int]] = {}
        self._proposals: Final[deque[float]] = deque(maxlen=_LAUNCHES)
        self._steps = 0
        self._begins = False
        self.rows: dict[int, RowAcceptance] = {}

    def choose(self, rooms: Mapping[int, int]) -> int:
        """The number of tokens to propose to each row, as far as it has room.

        A number of tokens that was never verified is tried first, the largest before the others;
        every 64 steps the one that was not measured for the longest time is.

        Args:
            rooms: by the key of a row the most tokens that it may be proposed.
        """
        self._steps += 1
        self._begins = any(key not in self.rows for key in rooms)
        self.rows = {key: self.rows.get(key, RowAcceptance()) for key in rooms}
        most = min(max(rooms.values(), default=0), self._length - 1)
        due = self._due(most)
        if due is not None:
            return due
        return max(range(most + 1), key=lambda count: self.rate(rooms, count))

    def rate(self, rooms: Mapping[int, int], count: int) -> float:
        """Expected tokens a second of a step with ``count`` proposals."""
        tokens = sum(self.rows[key].tokens(min(count, room)) for key, room in rooms.items())
        return tokens / self.seconds(count)

    def seconds(self, count: int) -> float:
        """Expected seconds of a step with ``count`` proposals."""
        each = median(self._proposals) if self._proposals else 0.0
        return max(count * each + median(self._launches[self._width(count + 1)]), 1e-9)

    def note_proposals(self, count: int, seconds: float) -> None:
        """Note the time of ``count`` proposals to each row, unless a row has begun with them."""
        if count and not self._begins:
            self._proposals.append(seconds / count)

    def note_launch(self, tokens: int, seconds: float) -> None:
        """Note the time of a launch over as many as ``tokens`` of a row."""
        width = self._width(tokens)
        self._launches.setdefault(width, deque(maxlen=_LAUNCHES)).append(seconds)
        self._measured[width] = self._steps

    def note(self, key: int, proposed: int, accepted: int) -> None:
        """Note what a row has accepted."""
        self.rows[key].note(proposed, accepted)

    def _width(self, tokens: int) -> int:
        """Tokens of the smallest program that takes this number."""
        return min(width for width in self._widths if width >= tokens)

    def _due(self, most: int) -> int | None:
        """The number of proposals whose launch is to be measured; ``None`` for none."""
        usable = [width for width in self._widths if self._width(min(width, most + 1)) == width]
        missing = [width for width in usable if width not in self._launches]
        if missing:
            return min(missing[-1] - 1, most)
        if self._steps % _RENEWAL:
            return None
        return min(min(usable, key=lambda width: self._measured[width]) - 1, most)
