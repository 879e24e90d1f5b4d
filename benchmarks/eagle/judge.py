"""Tokens a step of a draft over prompts that it was not trained on, through the usual loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.eagle.collect import encoded
from graphgen.runtime.engine import Engine
from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.open_speculator import SpeculationOptions, open_speculator
from graphgen.runtime.progress import Silent
from graphgen.runtime.speculation.acceptance_counts import AcceptanceCounts


@dataclass(frozen=True, slots=True)
class Judged:
    """The greedy answers of a group of prompts.

    Attributes:
        group: its name; ``all`` for all of them.
        tokens_per_step: mean number of tokens that a row gets of a step, the target's own included.
        acceptance: for each place the share of proposals there that was accepted.
        same: the answers are those of plain decoding, token for token.
    """

    group: str
    tokens_per_step: float
    acceptance: Sequence[float]
    same: bool


def judge(
    engine: Engine,
    model: str,
    draft: Path,
    groups: Mapping[str, Sequence[str]],
    length: int,
    new_tokens: int,
) -> list[Judged]:
    """Answer the prompts of each group with proposals of a draft, and without.

    Args:
        engine: of the target, which returns the features that the draft takes.
        model: path or name of the target.
        draft: folder of the draft.
        groups: prompts by group, as many as the engine has rows at most.
        length: tokens that a step verifies.
        new_tokens: of each answer.
    """
    request = GenerationRequest(new_tokens, engine.tokenizer.eos_ids)
    options = SpeculationOptions(draft=str(draft), length=length, model=model)
    speculator = open_speculator(engine, options, Silent())
    found: list[Judged] = []
    whole = AcceptanceCounts()
    for group, prompts in groups.items():
        given = encoded(engine.tokenizer, prompts)
        engine.speculator = None
        plain = engine.generate(given, request).completions
        engine.speculator, speculator.counts = speculator, AcceptanceCounts()
        done = engine.generate(given, request).completions
        counts = speculator.counts
        whole.rows, whole.tokens = whole.rows + counts.rows, whole.tokens + counts.tokens
        found.append(Judged(group, counts.tokens_per_step, counts.acceptance, done == plain))
    engine.speculator = None
    same = all(each.same for each in found)
    return [*found, Judged("all", whole.tokens_per_step, (), same)]
