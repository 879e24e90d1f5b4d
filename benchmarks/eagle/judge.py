"""Tokens a step of a draft over prompts that it was not trained on, through the usual loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.eagle.collect import ROWS, encoded
from graphgen.runtime.engine import Engine
from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.progress_callback import Silent
from graphgen.runtime.speculation.open_speculator import SpeculationOptions, open_speculator


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
        groups: prompts by group.
        length: tokens that a step verifies.
        new_tokens: of each answer.
    """
    request = GenerationRequest(new_tokens, engine.tokenizer.eos_ids)
    found: list[Judged] = []
    tokens, rows = 0, 0
    for group, prompts in groups.items():
        given = encoded(engine.tokenizer, prompts[:ROWS])
        engine.speculator = None
        plain = engine.generate(given, request).completions
        options = SpeculationOptions(draft=str(draft), length=length, model=model)
        speculator = engine.speculator = open_speculator(engine, options, Silent())
        done = engine.generate(given, request).completions
        counts = speculator.counts
        tokens, rows = tokens + counts.tokens, rows + counts.rows
        mean = counts.tokens_per_step
        found.append(Judged(group, mean, counts.acceptance, done == plain))
    engine.speculator = None
    same = all(each.same for each in found)
    return [*found, Judged("all", tokens / rows, (), same)]
