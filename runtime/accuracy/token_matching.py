"""Token matching: the first step at which each row's tokens differ from the reference's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphgen.errors import GraphgenError
from graphgen.json_value import Json


@dataclass(frozen=True, slots=True)
class RowTokens:
    """The tokens of one row.

    Attributes:
        row: index of the prompt.
        expected: the reference's new tokens.
        actual: the tested model's.
    """

    row: int
    expected: list[int]
    actual: list[int]

    @property
    def step(self) -> int:
        """The first step that differs, -1 if none does; a missing token differs from any."""
        longest = max(len(self.expected), len(self.actual))
        pairs = ((self.token(self.expected, i), self.token(self.actual, i)) for i in range(longest))
        return next((step for step, (one, two) in enumerate(pairs) if one != two), -1)

    @staticmethod
    def token(tokens: Sequence[int], step: int) -> int | None:
        """The token of a step, ``None`` after the end of the row."""
        return tokens[step] if step < len(tokens) else None

    def to_json(self) -> dict[str, Json]:
        """``row``, ``step`` and the tokens of both sides at that step."""
        step = self.step
        return {
            "row": self.row,
            "passed": step < 0,
            "divergence_index": step,
            "expected_token": self.token(self.expected, step) if step >= 0 else None,
            "actual_token": self.token(self.actual, step) if step >= 0 else None,
            "expected_tokens": list(self.expected),
            "actual_tokens": list(self.actual),
        }


@dataclass(frozen=True, slots=True)
class TokenMatch:
    """The result of token matching.

    Attributes:
        rows: one per prompt.
    """

    rows: list[RowTokens]

    @property
    def passed(self) -> bool:
        """True if every row has the reference's tokens."""
        return self.first is None

    @property
    def first(self) -> RowTokens | None:
        """The row that differs at the earliest step."""
        return min((row for row in self.rows if row.step >= 0), key=lambda r: r.step, default=None)

    def get_divergence_index(self) -> int:
        """The earliest step at which a row differs, -1 if none does."""
        return -1 if self.first is None else self.first.step

    def to_json(self) -> dict[str, Json]:
        """``passed``, ``divergence_index`` and the rows."""
        return {
            "mode": "token-matching",
            "passed": self.passed,
            "divergence_index": self.get_divergence_index(),
            "rows": [row.to_json() for row in self.rows],
        }


def match_tokens(
    expected: Sequence[Sequence[int]],
    actual: Sequence[Sequence[int]],
    most: int | None = None,
) -> TokenMatch:
    """Compare new tokens row by row; rows may differ in length.

    Args:
        expected: the reference's.
        actual: the tested model's, as many rows.
        most: compare only the first ``most`` tokens.

    Raises:
        GraphgenError: GG0705 for different numbers of rows.
    """
    if len(expected) != len(actual):
        raise GraphgenError(
            "GG0705", f"{len(actual)} rows of tokens, but {len(expected)} are expected"
        )
    return TokenMatch(
        [
            RowTokens(row, list(one)[:most], list(two)[:most])
            for row, (one, two) in enumerate(zip(expected, actual, strict=True))
        ]
    )
