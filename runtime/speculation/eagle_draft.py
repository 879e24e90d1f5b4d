"""A draft of EAGLE proposes tokens: it reads the hidden states of the model that verifies them.

Place t of the draft's cache is made of token t + 1 and the target's features of token t
(arXiv 2401.15077). After a step of the target the draft takes the accepted tokens with their
features, all in one launch; the result predicts the next token. Further ones it predicts from the
features that it predicted itself; the next step of the target replaces those places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from graphgen.runtime.sampling.processors import Scores
from graphgen.runtime.session.feature_log import FeatureLog
from graphgen.runtime.session.row_results import RowResults
from graphgen.runtime.session.session import Session
from graphgen.runtime.session.step_call import Floats, Ints, packed
from graphgen.runtime.speculation.draft_model import common_length, draft_token
from graphgen.runtime.speculation.proposal import Proposal, SpeculativeRow

NEXT_FEATURES = "next_features"


@dataclass(frozen=True, slots=True)
class Place:
    """Outputs of the draft after one place of its cache: logits [Vd] and features [E]."""

    logits: npt.NDArray[np.floating]
    features: Floats


class EagleDraft:
    """Proposes tokens by an EAGLE draft, one after the other.

    Args:
        session: the draft's, with as many rows as the target's, and programs that verify.
        log: keeps the features of the target's launches. A row whose features are not there, since
            its tokens were processed before, is proposed nothing.
        token_ids: s32 [Vd], the target's token of each of the draft's logits; ``None`` if they are
            the same.
    """

    def __init__(self, session: Session, log: FeatureLog, token_ids: Ints | None = None) -> None:
        self.session = session
        self.log = log
        self._token_ids = token_ids
        # Of each row the tokens whose places were made of the target's features.
        self._held: list[list[int]] = [[] for _ in range(session.rows)]

    def start(self) -> None:
        """Nothing: what places hold depends on the tokens up to them alone."""

    def warm_up(self) -> None:
        """Compile or load every program; no row changes."""
        self.session.warm_up()

    def propose(self, rows: Sequence[SpeculativeRow]) -> list[Proposal]:
        """Tokens that may follow each row."""
        wanted = [self._fitting(row) for row in rows]
        tokens: list[list[int]] = [[] for _ in rows]
        drawn: list[list[Scores]] = [[] for _ in rows]
        places = self.refresh({n: row for n, row in enumerate(rows) if wanted[n] > 0})
        while places:
            for number, place in places.items():
                row, made = rows[number], tokens[number]
                sequence = [*row.sequence, *made]
                token, scores = draft_token(self.known(place.logits), sequence, row, len(made))
                made.append(token)
                if scores is not None:
                    drawn[number].append(scores)
            active = {n: p for n, p in places.items() if len(tokens[n]) < wanted[n]}
            places = self._go_on({n: (tokens[n][-1], p.features) for n, p in active.items()})
        return [Proposal(*each) for each in zip(tokens, drawn, strict=True)]

    def _fitting(self, row: SpeculativeRow) -> int:
        """Tokens that the draft's own cache has room to propose."""
        return min(row.wanted, self.session.limit + 2 - len(row.sequence))

    def known(self, logits: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
        """Logits float [V] of the target's tokens; -inf for tokens unknown to the draft."""
        if self._token_ids is None:
            return logits
        made = np.full(self.session.token_ids, -np.inf, np.float32)
        made[self._token_ids] = logits
        return made

    def refresh(self, rows: Mapping[int, SpeculativeRow]) -> dict[int, Place]:
        """Make the places of tokens that the target has taken of its features; the last of each."""
        lengths, rest = self.session.lengths.copy(), dict[int, tuple[Sequence[int], Floats]]()
        for number, row in rows.items():
            tokens = list(row.sequence[1:])
            # The last place is made again: what it says is not kept.
            held = min(common_length(self._held[number], tokens), len(tokens) - 1)
            features = self.log.between(number, held, len(tokens))
            if features is not None:
                lengths[number] = held
                rest[number] = tokens[held:], features
                # Until the launches are made; they may fail.
                self._held[number] = tokens[:held]
        self.session.take_back(lengths)
        found = dict[int, Place]()
        while rest:
            parts = {number: self._taken(number, len(given[0])) for number, given in rest.items()}
            for verify in (True, False):
                few = {n for n, count in parts.items() if count <= self.session.table.verifies}
                group = [number for number in parts if (number in few) is verify]
                if group:
                    given = {n: (rest[n][0][: parts[n]], rest[n][1][: parts[n]]) for n in group}
                    found |= self._step(given, verify)
            left = {n: (t[parts[n] :], f[parts[n] :]) for n, (t, f) in rest.items()}
            rest = {number: given for number, given in left.items() if given[0]}
        for number in found:
            self._held[number] = list(rows[number].sequence[1:])
            self.log.forget(number, len(self._held[number]) - 1)
        return found

    def _taken(self, number: int, count: int) -> int:
        """The number of ``count`` tokens of a row that the next launch takes.

        More than a step verifies go through the programs for prompts, where those take them.
        """
        table, held = self.session.table, int(self.session.lengths[number])
        prompts = table.buckets("prefill")
        if count <= table.verifies or table.chunk_sizes():
            return count
        return min(count, table.verifies if held or not prompts else prompts[-1])

    def _step(
        self, given: Mapping[int, tuple[Sequence[int], Floats]], verify: bool
    ) -> dict[int, Place]:
        """Process tokens of some rows with the target's features; the last place of each."""
        ids = np.array(list(given), np.int32)
        tokens, positions = packed(
            [part for part, _ in given.values()], self.session.lengths[ids].tolist()
        )
        features = np.zeros((*tokens.shape, next(iter(given.values()))[1].shape[1]), np.float32)
        for place, (part, states) in enumerate(given.values()):
            features[place, : len(part)] = states
        made = self.session.step(tokens, positions, ids, verify=verify, features=features)
        last = np.array([len(part) - 1 for part, _ in given.values()])
        return _places(list(given), made, last, verify)

    def _go_on(self, given: Mapping[int, tuple[int, Floats]]) -> dict[int, Place]:
        """The place of one more token of some rows, with features that the draft predicted."""
        if not given:
            return {}
        ids = np.array(list(given), np.int32)
        tokens = [[token] for token, _ in given.values()]
        features = np.stack([states for _, states in given.values()])[:, None]
        positions = self.session.lengths[ids][:, None]
        made = self.session.step(tokens, positions, ids, features=features)
        return _places(list(given), made, np.zeros(len(ids), np.int64), False)


def _places(
    numbers: Sequence[int], made: RowResults, last: npt.NDArray[np.int64], verified: bool
) -> dict[int, Place]:
    """The places of the last tokens of a step, by row."""
    at = np.arange(len(numbers)), last
    features = cast("Floats", made.outputs[NEXT_FEATURES])[at]
    logits = made.token_logits[at] if verified else made.logits
    assert logits is not None
    return {n: Place(logits[i], features[i]) for i, n in enumerate(numbers)}
