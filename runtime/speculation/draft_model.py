"""A smaller model proposes tokens: its own cache follows the target's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Role
from graphgen.runtime.sampling.choose_token import DRAFTING, draw, uniform
from graphgen.runtime.sampling.processors import Scores, probabilities, process
from graphgen.runtime.session.session import Session
from graphgen.runtime.session.step_call import packed
from graphgen.runtime.speculation.proposal import Proposal, SpeculativeRow


def draft_token(
    logits: npt.NDArray[np.floating], sequence: Sequence[int], row: SpeculativeRow, place: int
) -> tuple[int, Scores | None]:
    """A token, and the distribution float64 [V] that it was drawn from, if it was drawn.

    Args:
        logits: float [V] of the draft after ``sequence``.
        sequence: tokens so far, proposed ones included.
        row: the row that it is for.
        place: the number of tokens that were proposed before.
    """
    scores = process(logits, sequence, row.how)
    if not row.how.do_sample or row.how.deterministic:
        return int(scores.argmax()), None
    number = uniform(row.how.seed, row.number, row.made + place, DRAFTING)
    return draw(scores, number), probabilities(scores)


# Launches of several tokens that a row takes rather than one of the programs for prompts.
_FEW = 2


class DraftModel:
    """Proposes the tokens that another model takes or draws.

    Between calls its cache holds the tokens that it has proposed. Where the target has taken
    others, the cache goes back to the last token that both have; what the draft has not seen yet
    is processed together, before its first proposal. So is a row that begins another text, as rows
    of a server do.

    Args:
        session: the draft's, with as many rows as the target's. Without programs that verify tokens
            what it has not seen takes a launch each.
        vocabulary: token ids of the target; the draft proposes no others.
    """

    def __init__(self, session: Session, vocabulary: int) -> None:
        self.session = session
        self._shared = min(vocabulary, session.vocabulary)
        self._held: list[list[int]] = []
        self._rings = any(row.last for row in session.module.entries(Role.STATE))
        self.start()

    def start(self) -> None:
        """Empty all rows."""
        self.session.reset()
        self._held = [[] for _ in range(self.session.rows)]

    def warm_up(self) -> None:
        """Compile or load every program; no row changes."""
        self.session.warm_up()

    def propose(self, rows: Sequence[SpeculativeRow]) -> list[Proposal]:
        """Tokens that may follow each row."""
        wanted = [self._fitting(row) for row in rows]
        tokens: list[list[int]] = [[] for _ in rows]
        drawn: list[list[Scores]] = [[] for _ in rows]
        for place in range(max(wanted, default=0)):
            active = [number for number, count in enumerate(wanted) if count > place]
            sequences = {n: [*rows[n].sequence, *tokens[n]] for n in active}
            logits = self.logits_after(sequences)
            for number in active:
                scores = logits[number][: self._shared]
                token, from_ = draft_token(scores, sequences[number], rows[number], place)
                tokens[number].append(token)
                if from_ is not None:
                    drawn[number].append(from_)
        return [Proposal(*each) for each in zip(tokens, drawn, strict=True)]

    def _fitting(self, row: SpeculativeRow) -> int:
        """Tokens that the draft's own cache has room to propose."""
        return max(min(row.wanted, self.session.limit + 1 - len(row.sequence)), 0)

    def logits_after(self, sequences: dict[int, list[int]]) -> dict[int, npt.NDArray[np.floating]]:
        """The logits float [V] after each sequence, by row, of what a row does not hold yet."""
        session, lengths = self.session, self.session.lengths.copy()
        for row, sequence in sequences.items():
            lengths[row] = self._kept(row, sequence)
        session.take_back(lengths)
        rest = {row: sequence[lengths[row] :] for row, sequence in sequences.items()}
        found = dict[int, npt.NDArray[np.floating]]()
        while rest:
            parts = {row: tokens[: self._taken(row, len(tokens))] for row, tokens in rest.items()}
            for several, group in self._groups(parts):
                found |= self._step(group, several)
            left = {row: tokens[len(parts[row]) :] for row, tokens in rest.items()}
            rest = {row: tokens for row, tokens in left.items() if tokens}
        for row, sequence in sequences.items():
            self._held[row] = sequence
        return found

    def _kept(self, row: int, sequence: Sequence[int]) -> int:
        """Tokens at the front of a sequence, without its last, that a row holds and keeps."""
        held = self._held[row]
        common = common_length(held, sequence[:-1])
        # A ring has room for the tokens that one step may refuse.
        lost = self._rings and len(held) - common >= max(self.session.table.verifies, 1)
        return 0 if lost else common

    def _taken(self, row: int, count: int) -> int:
        """The number of ``count`` tokens of a row that the next launch takes.

        A new text without the token that the target has added: the two may not fit its programs.
        """
        held, table = int(self.session.lengths[row]), self.session.table
        several = max(table.verifies, 1)
        if count == 1 or (held and count <= _FEW * several):
            return min(count, several if held else 1)
        prompts = table.buckets("prefill")
        if table.chunk_sizes() or (prompts and held + count - 1 <= prompts[-1]):
            return count - 1
        if held or not prompts:
            return min(count, several if held else count - 1)
        return prompts[-1]

    def _groups(self, parts: dict[int, list[int]]) -> list[tuple[bool, dict[int, list[int]]]]:
        """The launches of some tokens by row, and whether each goes through programs that verify.

        Single tokens share the launch of a few, where there is one.
        """
        few, single, texts = dict[int, list[int]](), dict[int, list[int]](), dict[int, list[int]]()
        for row, part in parts.items():
            goes_on = bool(self.session.lengths[row])
            if len(part) == 1:
                (few if goes_on and self.session.table.verifies else single)[row] = part
            elif goes_on and len(part) <= self.session.table.verifies:
                few[row] = part
            else:
                texts[row] = part
        if all(len(part) == 1 for part in few.values()):
            few, single = {}, {**single, **few}
        groups = ((True, few), (False, single), (False, texts))
        return [(several, group) for several, group in groups if group]

    def _step(
        self, group: dict[int, list[int]], several: bool
    ) -> dict[int, npt.NDArray[np.floating]]:
        """Process tokens of some rows; the logits after the last of each."""
        ids = np.array(list(group), np.int32)
        given = packed(list(group.values()), self.session.lengths[ids].tolist())
        made = self.session.step(*given, ids, verify=several)
        if not several:
            assert made.logits is not None
            return dict(zip(group, made.logits, strict=True))
        last = [len(tokens) - 1 for tokens in group.values()]
        return dict(zip(group, made.token_logits[np.arange(len(ids)), last], strict=True))


def common_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Number of equal tokens at the front of two sequences."""
    size = min(len(one), len(other))
    # Mostly all of them: one comparison of lists is enough.
    if one[:size] == other[:size]:
        return size
    return next(n for n in range(size) if one[n] != other[n])


def draft_settings(
    of_target: CompileConfig, rows: int, positions: int | None, max_len: int = 0
) -> CompileConfig:
    """The settings of a draft's programs.

    Args:
        of_target: the target's.
        rows: of the target's cache.
        positions: longest sequence of the draft; ``None`` for any.
        max_len: longest sequence that it proposes tokens for; 0 for the target's.
    """
    most = min(size for size in (of_target.max_len, positions, max_len) if size)
    plain = CompileConfig(
        dtype=of_target.dtype,
        kernels=of_target.kernels,
        prefill_batch=of_target.prefill_batch,
        speculation_length=of_target.speculation_length,
        verify_lengths=of_target.verify_lengths,
    )
    chunk = tuple(size for size in of_target.chunk if size < most)
    settings = plain.serving(batch=rows, max_len=most, chunk=chunk)
    if of_target.context and most == of_target.max_len:
        settings = replace(settings, context=of_target.context, tokens=of_target.tokens)
    return settings
