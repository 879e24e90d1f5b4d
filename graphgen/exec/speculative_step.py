"""One speculative step of a model and its draft, by calls of their own programs.

A program of the phase ``steps`` of a joined module makes such a step in one launch
(:mod:`graphgen.passes.programs.fuse_speculation`). Here is what that means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import numpy.typing as npt

from graphgen.eval import Array
from graphgen.eval.speculative_sampling import accept_rows, place_of, settled, shares_left
from graphgen.exec.decode_steps import COUNT, STEP_COUNTS, STEP_RANDOM, STOP_TOKENS
from graphgen.exec.program_run import Outcome, ProgramCall
from graphgen.ir import VERIFY, Module

# In front of what is the draft's: names of functions, weights, states and outputs.
DRAFT = "draft."
# In front of the phases of its programs, which no call of the model's programs finds then.
DRAFT_PHASE = "draft_"
# The logits of a program that verifies, f32 [B,S,V].
TOKEN_LOGITS = "token_logits"
_OWN = {STEP_COUNTS, STOP_TOKENS, STEP_RANDOM}


def has_draft(module: Module) -> bool:
    """True for a module of a model and its draft, before their programs are fused."""
    return any(function.phase.startswith(DRAFT_PHASE) for function in module.programs())


def of_draft(call: ProgramCall) -> ProgramCall:
    """The same call of the draft's program."""
    return replace(call, phase=f"{DRAFT_PHASE}{call.phase}")


def speculative_step(
    module: Module, call: ProgramCall, run: Callable[[ProgramCall], Outcome]
) -> Array:
    """The tokens s32 [B,N] of each row, -1 from the place on where a row has none.

    Args:
        module: of a model and its draft.
        call: of N steps, with the inputs that ``unroll-steps`` documents; of programs that draw,
            ``step_random`` f32 [B,N,3].
        run: runs a call of one of the programs; gives its outputs.
    """
    step = _Step(module, call, run)
    tokens, drafted = step.proposed()
    logits = step.verified(tokens)
    made, _ = accept_rows(
        [tokens[:, 1:], call.inputs[STEP_COUNTS], *step.operands(logits, drafted)]
    )
    stops = (made[:, :, None] == call.inputs[STOP_TOKENS][:, None]).any(2)
    ended = np.cumsum(stops, 1) - stops > 0
    return np.where(ended, -1, made).astype(np.int32)


class _Step:
    """The parts of one speculative step."""

    def __init__(
        self, module: Module, call: ProgramCall, run: Callable[[ProgramCall], Outcome]
    ) -> None:
        self.call, self.run, self.inputs = call, run, call.inputs
        self.count, self.rows = cast(int, call.dims[COUNT]), cast(int, call.dims["R"])
        self.vocabulary = cast(int, module.interface[TOKEN_LOGITS].logical.shape[2])
        self.candidates = _Candidates(module, call.inputs)

    def proposed(self) -> tuple[Array, list[tuple[Array, Array]]]:
        """The tokens s32 [B,N] to verify, and the draft's candidates for all but the first."""
        tokens, drafted = [self.inputs["tokens"][:, 0]], list[tuple[Array, Array]]()
        dims = {name: size for name, size in self.call.dims.items() if name != COUNT}
        for number in range(self.count):
            given = self._given(range(number, number + 1), tokens[-1][:, None])
            part = ProgramCall(f"{DRAFT_PHASE}decode", dims, given)
            logits = self.run(part)[f"{DRAFT}logits"][:, : self.vocabulary]
            if number + 1 < self.count:
                ids, shares = self.candidates.of(logits, 1)
                drafted.append((ids, shares))
                tokens.append(self.candidates.drawn(ids, shares, number))
        return np.stack(tokens, 1).astype(np.int32), drafted

    def verified(self, tokens: Array) -> Array:
        """The model's logits [B,N,V] after each of the tokens."""
        dims = {**self.call.dims, "S": self.count}
        del dims[COUNT]
        return self.run(ProgramCall(VERIFY, dims, self._given(range(self.count), tokens)))[
            TOKEN_LOGITS
        ]

    def _given(self, places: range, tokens: Array) -> dict[str, Array]:
        """The inputs of a call for some places of each row."""
        left = np.asarray(self.inputs[STEP_COUNTS])
        active = left[:, None] > np.arange(places.start, places.stop)
        taken = self.inputs["lengths"] - 1 + np.minimum(left, places.stop)
        takes = active.any(1)
        made = {name: array for name, array in self.inputs.items() if name not in _OWN}
        return made | {
            "tokens": np.where(active, tokens, 0).astype(np.int32),
            "positions": np.where(active, self.inputs["positions"] + np.array(places), -1).astype(
                np.int32
            ),
            "lengths": np.where(takes, taken, 0).astype(np.int32),
            "seq_ids": np.where(takes, self.inputs["seq_ids"], self.rows).astype(np.int32),
        }

    def operands(self, logits: Array, drafted: list[tuple[Array, Array]]) -> list[Array]:
        """The operands of ``accept`` after proposals and limits."""
        rows, places, size = logits.shape
        ids, shares = self.candidates.of(np.asarray(logits).reshape(rows * places, size), places)
        shape = (rows, places, ids.shape[1])
        own = [np.stack([pair[i] for pair in drafted], 1) for i in range(2)]
        random = self.inputs.get(STEP_RANDOM, np.zeros((rows, places, 3), np.float32))
        return [ids.reshape(shape), shares.reshape(shape), *own, random[..., :2]]


class _Candidates:
    """Tokens that may follow and their probabilities, by the rule of ``on-device-sampling``."""

    def __init__(self, module: Module, inputs: Mapping[str, Array]) -> None:
        self.params, self.kept = inputs.get("sampling_params"), inputs.get("top_p_min_tokens")
        self.random = inputs.get(STEP_RANDOM)
        self.looks_at = module.stated_number("global_topk", 0)

    def of(self, logits: Array, places: int) -> tuple[Array, Array]:
        """Ids and probabilities [n,K] of n rows, ``places`` for each row of the call."""
        if self.params is None:
            best: Array = np.argmax(logits, 1)[:, None].astype(np.int32)
            ones: Array = np.ones(best.shape, logits.dtype)
            return best, ones
        made = [self._row(scores, row // places) for row, scores in enumerate(logits)]
        ids: Array = np.stack([pair[0] for pair in made])
        shares: Array = np.stack([pair[1] for pair in made])
        if self.random is not None:
            return ids, shares
        # Without random numbers the token in the middle is the only candidate.
        middle = [[place_of(row, 0.5)] for row in shares]
        only: Array = np.take_along_axis(ids, np.array(middle), 1)
        one: Array = np.ones(only.shape, logits.dtype)
        return only, one

    def _row(self, scores: Array, row: int) -> tuple[Array, Array]:
        assert self.params is not None
        top_k, top_p, temperature = (float(x) for x in self.params[row])
        least = 1 if self.kept is None else int(self.kept[row])
        ids = np.argsort(-scores, kind="stable")[: self.looks_at or len(scores)]
        left = shares_left(scores[ids], int(top_k), *settled(top_p, temperature, least))
        shares: Array = np.zeros(len(ids), scores.dtype)
        shares[: len(left)] = left / left.sum()
        return ids.astype(np.int32), shares

    def drawn(self, ids: Array, shares: Array, place: int) -> Array:
        """The draft's token s32 [B] of each row's candidates."""
        if self.random is None or self.params is None:
            return ids[:, 0]
        numbers = self.random[:, place, 2]
        at = [[place_of(row, number)] for row, number in zip(shares, numbers, strict=True)]
        drawn: Array = np.take_along_axis(ids, np.array(at), 1)[:, 0]
        return drawn


def depths(parents: Sequence[int]) -> list[int]:
    """The distance of each node from the root.

    Args:
        parents: of each node the number of an earlier one; -1 for node 0.
    """
    made: list[int] = []
    for parent in parents:
        made.append(made[parent] + 1 if made else 0)
    return made


def ancestors(parents: Sequence[int]) -> npt.NDArray[np.int32]:
    """s32 [n,n]: 1 where a node is itself or an ancestor of the node of the row.

    Args:
        parents: as for :func:`depths`.
    """
    made = np.eye(len(parents), dtype=np.int32)
    for node, parent in enumerate(parents[1:], 1):
        made[node] |= made[parent]
    return made
