"""Measure acceptance over a text, and the launches of speculation on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from graphgen.errors import GraphgenError
from graphgen.lowering.plan.speculation_bound import StepSeconds
from graphgen.runtime.engine import Engine
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.model import build_model
from graphgen.runtime.progress_callback import Progress
from graphgen.runtime.session import Session
from graphgen.runtime.speculation.acceptance_counts import AcceptanceCounts
from graphgen.runtime.speculation.proposal import Proposal, Proposer, SpeculativeRow
from graphgen.runtime.speculation.speculator import line_speculator
from graphgen.runtime.step_call import packed

# Launches of which the median counts.
_LAUNCHES = 8


@dataclass(frozen=True, slots=True)
class MeasuredSpeculation:
    """Acceptance and times.

    Attributes:
        accepted: at place i the share of steps in which more than i proposals were accepted.
        counts: of the run with the largest k.
        seconds: of the launches, one row.
    """

    accepted: list[float]
    counts: AcceptanceCounts
    seconds: StepSeconds


class TimedProposer:
    """Another proposer, with the seconds that it takes.

    Attributes:
        seconds: so far, of proposals after the first of each sequence, which reads the prompt.
        tokens: proposed in them.
    """

    def __init__(self, proposer: Proposer) -> None:
        self._proposer = proposer
        self._begins = True
        self.seconds = 0.0
        self.tokens = 0

    def start(self) -> None:
        """Begin new sequences in all rows."""
        self._proposer.start()
        self._begins = True

    def propose(self, rows: Sequence[SpeculativeRow]) -> list[Proposal]:
        """Tokens that may follow each row."""
        start = time.perf_counter()
        made = self._proposer.propose(rows)
        if not self._begins:
            self.seconds += time.perf_counter() - start
            self.tokens += max((len(proposal.tokens) for proposal in made), default=0)
        self._begins = False
        return made


def measure_speculation(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    new_tokens: int,
    lengths: Sequence[int],
    progress: Progress,
) -> MeasuredSpeculation:
    """Answer prompts one by one with the largest k, and time the launches of each k.

    Args:
        engine: has a speculator of the largest of ``lengths``, and one row.
        prompts: token ids.
        new_tokens: of each answer.
        lengths: of k.
        progress: notified of each prompt and each k.
    """
    speculator = line_speculator(engine.speculator)
    assert speculator is not None, "the engine has nothing that proposes tokens"
    timed = speculator.proposer = TimedProposer(speculator.proposer)
    request = GenerationRequest(new_tokens)
    for number, prompt in enumerate(prompts, 1):
        with progress.task(f"answering prompt {number} of {len(prompts)}"):
            engine.generate([prompt], request)
    counts = speculator.counts
    engine.speculator = None
    with progress.task("timing decode steps"):
        plain = engine.generate([prompts[0]], GenerationRequest(_LAUNCHES + 2))
    engine.speculator = speculator
    verify = {k: _verify_seconds(engine, k, prompts[0], progress) for k in lengths}
    draft = timed.seconds / timed.tokens if timed.tokens else 0.0
    seconds = StepSeconds(median(plain.timings.steps[1:]), draft, verify)
    accepted = [*counts.accepted, *[0] * (max(lengths) - 1 - len(counts.accepted))]
    return MeasuredSpeculation([count / counts.rows for count in accepted], counts, seconds)


def _verify_seconds(
    engine: Engine, length: int, prompt: Sequence[int], progress: Progress
) -> float:
    """Seconds of a launch over ``length`` tokens after a prompt: the median of several."""
    settings = replace(engine.model.settings, speculation_length=length)
    session = engine.session
    if settings != engine.model.settings:
        built = build_model(engine.model.config, settings)
        session = Session(ExecutableCache(built.module, progress), engine.session.weights)
    session.prefill([prompt])
    given = packed([prompt[:length]], [len(prompt)])
    times: list[float] = []
    for _ in range(_LAUNCHES + 2):
        start = time.perf_counter()
        session.step(*given, verify=True)
        times.append(time.perf_counter() - start)
    return median(times[2:])


def text_prompts(tokens: Sequence[int], size: int, count: int) -> list[list[int]]:
    """Prompts of ``size`` tokens, at equal distances in a text.

    Raises:
        GraphgenError: GG0705 for a text of fewer tokens.
    """
    if len(tokens) < size:
        raise GraphgenError(
            "GG0705",
            f"the text has {len(tokens)} tokens, fewer than the {size} of a prompt",
            help="give a longer text, or a smaller --prompt-tokens",
        )
    last = len(tokens) - size
    starts = sorted({last * place // max(count - 1, 1) for place in range(count)})
    return [list(tokens[start : start + size]) for start in starts]
