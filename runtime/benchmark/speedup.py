"""Expected speed of speculation: tokens a step for each k, and the time of a step."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Final

from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.lowering.plan.speculation_bound import (
    StepSeconds,
    expected_tokens,
    implied_acceptance,
)
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
class SpeedAssumptions:
    """Assumptions beside the bounds of an accelerator, each from a flag.

    Attributes:
        efficiency: the bound of a launch over its time, the same of all launches.
        measured_decode_s: the seconds of a decode step without quantization that ``efficiency``
            comes from.
        token_s: seconds a token that the implied acceptance is of.
        acceptance: of each proposal by itself, that the prediction is of.
        speedups: over plain decoding, whose acceptance is asked.
    """

    efficiency: float = 1.0
    measured_decode_s: float | None = None
    token_s: float | None = None
    acceptance: float | None = None
    speedups: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class StepBound:
    """Lower bounds of a step, and what follows from them and the assumptions.

    Attributes:
        length: k.
        decode_s, draft_s, verify_s: seconds of the launches.
        step_s: of k - 1 proposals and their verification.
        plain_s: of a decode step without quantization, which speeds are compared with.
        tokens: a step, that the time a token implies at the bound; ``None`` where none is given,
            and for fewer than 1 or more than k.
        acceptance: of each proposal by itself, that gives as many.
        efficiency: that is assumed.
        expected_step_s: ``step_s`` over the efficiency.
        expected_tokens, expected_acceptance: ``tokens`` and ``acceptance`` at the efficiency.
        predicted_token_s: seconds a token at the assumed acceptance; ``None`` without one.
        predicted_ratio: over ``plain_s``; both run at the efficiency, which cancels.
        needed: by ratio over ``plain_s`` the acceptance that gives it; ``None`` if none does.
    """

    length: int
    decode_s: float
    draft_s: float
    verify_s: float
    step_s: float
    tokens: float | None
    acceptance: float | None
    plain_s: float = 0.0
    efficiency: float = 1.0
    expected_step_s: float = 0.0
    expected_tokens: float | None = None
    expected_acceptance: float | None = None
    predicted_token_s: float | None = None
    predicted_ratio: float | None = None
    needed: Mapping[str, float | None] = field(default_factory=dict[str, float | None])


# Tokens a step, and the acceptance that gives them.
_NONE: Final = (None, None)


def _tokens_of(tokens: float, length: int) -> tuple[float, float] | tuple[None, None]:
    """Tokens a step of ``length`` with their acceptance, where one gives them."""
    acceptance = implied_acceptance(tokens, length)
    return _NONE if acceptance is None else (tokens, acceptance)


def step_bound(times: StepSeconds, length: int, assumed: SpeedAssumptions) -> StepBound:
    """The bounds of a step of ``length`` tokens, and what the assumptions imply."""
    step = times.step(length)
    expected = step / assumed.efficiency
    at_bound = at_efficiency = _NONE
    predicted = ratio = None
    if assumed.token_s is not None:
        at_bound = _tokens_of(step / assumed.token_s, length)
        at_efficiency = _tokens_of(expected / assumed.token_s, length)
    if assumed.acceptance is not None:
        predicted = expected / expected_tokens(assumed.acceptance, length)
        ratio = times.plain / assumed.efficiency / predicted
    needed = {
        f"{wanted:g}": implied_acceptance(wanted * step / times.plain, length)
        for wanted in assumed.speedups
    }
    return StepBound(
        *(length, times.decode, times.draft, times.verify[length], step),
        tokens=at_bound[0],
        acceptance=at_bound[1],
        plain_s=times.plain,
        efficiency=assumed.efficiency,
        expected_step_s=expected,
        expected_tokens=at_efficiency[0],
        expected_acceptance=at_efficiency[1],
        predicted_token_s=predicted,
        predicted_ratio=ratio,
        needed=needed,
    )


def bound_report(
    model: str, target: str, made: Sequence[StepBound], assumed: SpeedAssumptions
) -> list[str | Table]:
    """The bounds, and under each assumption what it implies."""
    first = made[0]
    plain = ""
    if first.plain_s != first.decode_s:
        plain = f"; plain decoding, without quantization, {_ms(first.plain_s)}"
    rows = [(str(b.length), f"{b.verify_s * 1e3:.2f}", f"{b.step_s * 1e3:.2f}") for b in made]
    parts: list[str | Table] = [
        f"At the bound (roofline): {model} on {target}, a decode step {_ms(first.decode_s)}, a "
        f"proposed token {_ms(first.draft_s)}{plain}\n",
        Table(
            ("k", "verify ms", "step ms", "token ms if all are accepted"),
            [(*row, f"{b.step_s * 1e3 / b.length:.2f}") for row, b in zip(rows, made, strict=True)],
            3,
        ),
    ]
    if assumed.efficiency != 1:
        measured = assumed.measured_decode_s
        why = ""
        if measured is not None:
            why = f" ({_ms(first.plain_s)} over the measured {_ms(measured)})"
        parts += [
            f"\nAssumed efficiency {assumed.efficiency:.1%} of the bound{why}: a decode step "
            f"{_ms(first.decode_s / assumed.efficiency)}, a proposed token "
            f"{_ms(first.draft_s / assumed.efficiency)}\n",
            Table(("k", "step ms"), [(str(b.length), _number(b.expected_step_s)) for b in made], 1),
        ]
    if assumed.token_s is not None:
        parts += [f"\nImplied by {_ms(assumed.token_s)} a token\n", _implied(made, assumed)]
    if assumed.acceptance is not None:
        cells = [
            (
                str(b.length),
                f"{expected_tokens(assumed.acceptance, b.length):.2f}",
                _number(b.predicted_token_s or 0),
                f"{b.predicted_ratio or 0:.2f}x",
            )
            for b in made
        ]
        parts += [
            f"\nPredicted with an acceptance of {assumed.acceptance:.0%} a proposal\n",
            Table(("k", "tokens a step", "token ms", "over plain decoding"), cells, 3),
        ]
    for wanted in made[0].needed:
        shown = [(str(b.length), _percent(b.needed[wanted])) for b in made]
        parts += [
            f"\nAcceptance that {wanted} times plain decoding needs, at any efficiency\n",
            Table(("k", "acceptance"), shown, 1),
        ]
    return parts


def _implied(made: Sequence[StepBound], assumed: SpeedAssumptions) -> Table:
    """Tokens a step and acceptance that a time a token implies, at the bound and below it."""
    headers = ("k", "tokens a step at the bound", "acceptance at the bound")
    rows = [(str(b.length), _count(b.tokens), _percent(b.acceptance)) for b in made]
    if assumed.efficiency == 1:
        return Table(headers, rows, 2)
    headers = (*headers, "tokens at the efficiency", "acceptance at the efficiency")
    more = [(_count(b.expected_tokens), _percent(b.expected_acceptance)) for b in made]
    return Table(headers, [(*row, *two) for row, two in zip(rows, more, strict=True)], 4)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def _number(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}"


def _count(tokens: float | None) -> str:
    return "none" if tokens is None else f"{tokens:.2f}"


def _percent(part: float | None) -> str:
    return "none" if part is None else f"{part:.0%}"


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
