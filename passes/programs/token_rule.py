"""Reference for sampling in a program, in NumPy: the tokens implied by scores.

Written from the documentation of
:class:`~graphgen.passes.programs.on_device_sampling.OnDeviceSampling` and not from the ops that it
makes, so that comparing the two checks both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.eval.speculative_sampling import place_of, settled, shares_left, weights
from graphgen.ir import Module

LOGITS, TOKENS = "logits", "next_tokens"
PARAMS, RANDOM, KEPT = "sampling_params", "random", "top_p_min_tokens"
# The fact of a module with sampling programs: the number of best tokens they consider.
CANDIDATES = "global_topk"


@dataclass(frozen=True, slots=True)
class TokenRule:
    """The tokens s32 [B] that follow from ``logits`` [B,V]: the highest, or drawn ones.

    Attributes:
        do_sample: whether tokens are drawn, with the inputs that the pass documents.
        global_topk: how many of the best tokens are looked at when drawing; 0 for all.
        deterministic: whether the number 0.5 is drawn each time.
        top_p_min_tokens: whether rows say how many tokens top_p keeps at least.
        scores: the output that tokens are chosen from.
    """

    do_sample: bool = False
    global_topk: int = 256
    deterministic: bool = False
    top_p_min_tokens: bool = False
    scores: str = LOGITS

    def chosen(self, scores: Array, inputs: Mapping[str, Array]) -> Array:
        """The tokens s32 [B] that scores [B,V] and the inputs of the call imply."""
        rows = [self._row(scores, inputs, row) for row in range(len(scores))]
        return np.asarray([row.token() for row in rows], np.int32)

    def admits(
        self,
        scores: Array,
        inputs: Mapping[str, Array],
        tokens: Array,
        moved: float,
        error: float,
    ) -> Array:
        """Pred [B]: whether a row's token may be the right one if its scores are a little off.

        Never false for a token that some such scores imply; it may be true for one that none do.

        Args:
            scores: float [B,V].
            inputs: of the call.
            tokens: s32 [B].
            moved: the largest change of a score; 0 for none, where equal scores are in order of
                ids.
            error: the largest error of a sum of probabilities.
        """
        rows = [self._row(scores, inputs, row) for row in range(len(scores))]
        found = [row.admits(int(t), moved, error) for row, t in zip(rows, tokens, strict=True)]
        return np.asarray(found, np.bool_)

    def _row(self, scores: Array, inputs: Mapping[str, Array], row: int) -> _GreedyRow | _DrawnRow:
        ranked = _ranked(scores[row].astype(np.float64))
        if not self.do_sample:
            return _GreedyRow(*ranked)
        missing = {PARAMS} - inputs.keys()
        if not self.deterministic:
            missing |= {RANDOM} - inputs.keys()
        if missing:
            raise GraphgenError(
                "GG0402",
                f"drawing {TOKENS} needs the input {min(missing)}, which the calls do not give",
                help="give it: --inputs FILE.npz",
            )
        top_k, top_p, temperature = (float(value) for value in inputs[PARAMS][row])
        number = 0.5 if self.deterministic else float(inputs[RANDOM][row])
        least = int(inputs[KEPT][row]) if self.top_p_min_tokens else 0
        top_p, temperature, least = settled(top_p, temperature, least)
        count = min(self.global_topk or scores.shape[1], scores.shape[1])
        return _DrawnRow(*ranked, count, int(top_k), top_p, temperature, number, least)


def token_rule(module: Module) -> TokenRule | None:
    """The rule of a module that gives ``next_tokens``; ``None`` for any other."""
    if TOKENS not in module.interface:
        return None
    looks_at = module.stated_number(CANDIDATES, 0)
    drawn = PARAMS in module.interface
    halves = drawn and RANDOM not in module.interface
    return TokenRule(drawn, looks_at, halves, KEPT in module.interface)


def _ranked(scores: Array) -> tuple[Array, Array]:
    """Scores in descending order, and whose they are; equal ones by ascending id, NaN first."""
    ids = np.argsort(np.where(np.isnan(scores), -np.inf, -scores), kind="stable")
    return scores[ids], ids


@dataclass(frozen=True, slots=True)
class _GreedyRow:
    """One row that takes its best token: scores in descending order, and their ids."""

    ordered: Array
    ids: Array

    def token(self) -> int:
        return int(self.ids[0])

    def admits(self, token: int, moved: float, error: float) -> bool:
        if token == self.ids[0]:
            return True
        place = np.flatnonzero(self.ids == token)
        return moved > 0 and place.size > 0 and _near(self.ordered, int(place[0]), 2 * moved)


def _near(ordered: Array, place: int, reach: float) -> bool:
    """True if the best score is within ``reach`` of the one at ``place``."""
    return bool(ordered[place] == ordered[0] or ordered[0] - ordered[place] <= reach)


@dataclass(frozen=True, slots=True)
class _DrawnRow:
    """One row that draws.

    Attributes:
        ordered, ids: scores in descending order, and their ids.
        count: how many are looked at.
        top_k, top_p, temperature: the filters.
        number: random, in [0, 1).
        least: how many top_p keeps at least.
    """

    ordered: Array
    ids: Array
    count: int
    top_k: int
    top_p: float
    temperature: float
    number: float
    least: int

    def token(self) -> int:
        looked_at = self.ordered[: self.count]
        shares = shares_left(looked_at, self.top_k, self.top_p, self.temperature, self.least)
        return int(self.ids[place_of(shares, self.number)])

    def admits(self, token: int, moved: float, error: float) -> bool:
        place = np.flatnonzero(self.ids == token)
        if not place.size or np.isnan(self.ordered[0]):
            return token == self.token()
        scores = self.ordered / self.temperature
        return _Range(self, scores, 2 * moved / self.temperature, error).holds(int(place[0]))


class _Range:
    """The least and the most of what decides over a token, over all scores near the given ones.

    Places are those of the descending order. A difference of two scores changes by ``reach`` at
    most, which moves the log odds of a share of probability by as much; sums are off by ``error``.
    """

    def __init__(self, row: _DrawnRow, scores: Array, reach: float, error: float) -> None:
        self.row, self.reach, self.error = row, reach, error
        self.weights = weights(scores)
        self.sums = np.append(0.0, np.cumsum(self.weights))
        places = np.arange(scores.size)
        # How many tokens are surely, and how many may be, ahead of the one at each place.
        self.fewest, self.most = places, places
        if reach:
            rising = -scores
            self.fewest = np.searchsorted(rising, rising - reach, "left")
            self.most = np.searchsorted(rising, rising + reach, "right") - 1
        keeps = min(row.top_k, row.count) if row.top_k > 0 else row.count
        self.maybe, self.surely = self._kept(scores, keeps)
        self._limit(keeps)

    def _kept(self, scores: Array, keeps: int) -> tuple[Array, Array]:
        """Places that the numbers of tokens may leave, and those they surely do."""
        maybe = self.fewest < self.row.count
        surely = self.most < self.row.count
        if self.row.top_k > 0:
            end = scores[keeps - 1]
            maybe = maybe & ((scores >= end - self.reach) | (scores == end))
            surely = surely & ((self.most < keeps) if self.reach else (scores >= end))
        return maybe, surely

    def _limit(self, keeps: int) -> None:
        """Remove places beyond top_p; the sums over the rest."""
        high, low = int(self.maybe.sum()), int(self.surely.sum())
        most = self.sums[high]
        fewest = max(self.sums[low], most - self.sums[high - min(keeps, high)])
        ahead_least = self.sums[self.fewest]
        ahead_most = self.sums[self.most + 1] - self.weights
        row = self.row
        self.maybe = self.maybe & (
            (self._low(ahead_least, most) < row.top_p) | (self.fewest < row.least)
        )
        self.surely = self.surely & (
            (self._high(ahead_most, fewest) < row.top_p) | (self.most < row.least)
        )
        self.ahead_least, self.ahead_most = ahead_least, ahead_most

    def _low(self, part: Array, whole: float) -> Array:
        return _shifted(part, whole, -self.reach) - self.error

    def _high(self, part: Array, whole: float) -> Array:
        return _shifted(part, whole, self.reach) + self.error

    def holds(self, place: int) -> bool:
        """True if the number that is drawn may fall on the token at ``place``."""
        if not self.maybe[place]:
            return False
        most = float(self.weights[self.maybe].sum())
        starts = self._low(self.ahead_least[place], most)
        end = self.ahead_most[place] + self.weights[place]
        whole = max(float(self.weights[self.surely].sum()), float(end))
        return bool(
            starts <= self.row.number and (end >= whole or self.row.number < self._high(end, whole))
        )


def _shifted(part: Array, whole: float, by: float) -> Array:
    """``part / whole`` after its log odds have moved."""
    share = np.clip(part / whole, 0.0, 1.0)
    if not by:
        return share
    # Beyond e^40 a share in between is 0 or 1 to the last digit.
    factor = np.exp(np.clip(by, -40.0, 40.0))
    return share * factor / (1 - share + share * factor)
