"""Expected speed of speculation: tokens a step for each k, and the time of a step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.lowering.plan.speculation_bound import StepSeconds
from graphgen.report.figure import COLORS, picture
from graphgen.report.table import Table
from graphgen.runtime.engine import Engine
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.model import build_model
from graphgen.runtime.progress import Progress
from graphgen.runtime.session.session import Session
from graphgen.runtime.session.step_call import packed
from graphgen.runtime.speculation.acceptance_counts import AcceptanceCounts
from graphgen.runtime.speculation.proposal import Proposal, Proposer, SpeculativeRow
from graphgen.runtime.speculation.speculator import line_speculator

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def speed_report(found: MeasuredSpeculation, rows: Sequence[Speedup]) -> list[str | Table]:
    """The table of a measurement."""
    shares = ", ".join(f"{share:.0%}" for share in found.accepted)
    times = found.seconds
    lines = [
        f"accepted more than 0, 1, ... proposals: {shares} of {found.counts.rows} steps",
        f"a decode step takes {times.decode * 1e3:.2f} ms, a proposed token "
        f"{times.draft * 1e3:.2f} ms",
        "",
    ]
    cells = [
        (
            str(r.length),
            f"{r.tokens:.2f}",
            f"{r.step_s * 1e3:.2f}",
            f"{r.token_s * 1e3:.2f}",
            f"{r.ratio:.2f}",
        )
        for r in rows
    ]
    return [*lines, Table(("k", "tokens a step", "step ms", "token ms", "speed"), cells, 4)]


def speed_json(found: MeasuredSpeculation, rows: Sequence[Speedup]) -> Json:
    """A measurement as JSON."""
    times = found.seconds
    return {
        "accepted": list(found.accepted),
        "steps": found.counts.rows,
        "decode_s": times.decode,
        "draft_s": times.draft,
        "lengths": [
            {
                "speculation_length": r.length,
                "tokens_per_step": r.tokens,
                "step_s": r.step_s,
                "token_s": r.token_s,
                "ratio": r.ratio,
            }
            for r in rows
        ],
    }


@dataclass(frozen=True, slots=True)
class StepBound:
    """Lower bounds of a step, and what a time a token implies.

    Attributes:
        length: k.
        decode_s, draft_s, verify_s: seconds of the launches.
        step_s: of k - 1 proposals and their verification.
        tokens: a step, that the time a token implies; ``None`` where none is given.
        acceptance: of each proposal by itself, that gives as many.
    """

    length: int
    decode_s: float
    draft_s: float
    verify_s: float
    step_s: float
    tokens: float | None
    acceptance: float | None


def bound_report(model: str, target: str, made: Sequence[StepBound]) -> list[str | Table]:
    """The table of bounds."""
    first = made[0]
    lines = [
        f"{model} on {target}, lower bounds: a decode step {first.decode_s * 1e3:.2f} ms, a "
        f"proposed token {first.draft_s * 1e3:.2f} ms",
        "",
    ]
    headers = ("k", "verify ms", "step ms", "token ms at best")
    cells = [
        (
            str(b.length),
            f"{b.verify_s * 1e3:.2f}",
            f"{b.step_s * 1e3:.2f}",
            f"{b.step_s * 1e3 / b.length:.2f}",
        )
        for b in made
    ]
    if first.tokens is not None:
        headers = (*headers, "tokens a step implied", "acceptance implied")
        more = [(f"{b.tokens:.2f}", f"{b.acceptance:.0%}") for b in made]
        cells = [(*row, *two) for row, two in zip(cells, more, strict=True)]
    return [*lines, Table(headers, cells, len(headers) - 1)]


def bound_json(made: Sequence[StepBound]) -> Json:
    """Bounds as JSON."""
    return [asdict(b) for b in made]


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


@dataclass(frozen=True, slots=True)
class Speedup:
    """Expected tokens and seconds of a step of k tokens.

    Attributes:
        length: k.
        tokens: expected number of tokens a row gets of a step.
        step_s: seconds of a step, proposals included.
        decode_s: seconds of a decode step.
    """

    length: int
    tokens: float
    step_s: float
    decode_s: float

    @property
    def token_s(self) -> float:
        """Seconds a token."""
        return self.step_s / self.tokens

    @property
    def ratio(self) -> float:
        """Speed beside plain decoding; above 1 is faster."""
        return self.decode_s / self.token_s


def speedups(accepted: Sequence[float], seconds: StepSeconds) -> list[Speedup]:
    """The expectation for each k that has a time.

    Args:
        accepted: at place i the share of steps in which more than i proposals are accepted, where
            enough are proposed: E[tokens] = 1 + accepted[0] + ... + accepted[k - 2].
        seconds: of the launches.
    """
    return [
        Speedup(length, 1 + sum(accepted[: length - 1]), seconds.step(length), seconds.decode)
        for length in sorted(seconds.verify)
        if length - 1 <= len(accepted)
    ]


# matplotlib's keyword arguments carry no types.
# pyright: reportUnknownMemberType=false


def speedup_picture(name: str, title: str, rows: Sequence[Speedup]) -> bytes:
    """The bytes of an SVG or a PNG.

    Args:
        name: of the file, which ends in ``.svg`` or ``.png``.
        title: of the picture.
        rows: a point each, by k.
    """

    def draw(figure: Figure) -> None:
        figure.suptitle(title, fontsize=12)
        lengths = [row.length for row in rows]
        panels = figure.subplots(1, 2).ravel().tolist()
        for axes, label, values in (
            (panels[0], "speed beside plain decoding", [row.ratio for row in rows]),
            (panels[1], "tokens a step", [row.tokens for row in rows]),
        ):
            axes.plot(lengths, values, marker="o", color=COLORS["weights"])
            axes.set_xlabel("k, tokens that a step verifies")
            axes.set_ylabel(label)
            axes.set_xticks(lengths)
            axes.set_ylim(bottom=0)
        panels[0].axhline(1.0, color="grey", linewidth=0.8)

    return picture(name, (9.0, 4.0), draw)
