"""The buckets and rows that serve requests of known lengths in the least time on a core.

The time of a request is that of its prefill and of its share of decode steps:
``seconds = prefill[bucket] + steps / rows * decode[bucket, rows]``. A step takes the bucket of its
longest row; rows are taken as independent, so a step of R rows fits a bucket with the R-th power
of the probability of one. Times are rooflines of the compiled programs, bounds from below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, pairwise
from math import inf, isfinite

from graphgen.config.bucket_ladder import SMALLEST_BUCKET, powers
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.lowering.plan.bucket_seconds import Seconds, bucket_seconds
from graphgen.lowering.plan.capacity_plan import make_plan
from graphgen.lowering.plan.ladder_search import Ladder, best_ladders, binned, ladder_seconds
from graphgen.lowering.plan.measure import estimate, layer_period
from graphgen.lowering.plan.request_lengths import RequestLengths
from graphgen.targets import Accelerator

MOST_BUCKETS = 16
# Candidates at equal distances; with the powers of two among them.
_STEPS = 16


@dataclass(frozen=True, slots=True)
class PhaseSeconds:
    """The programs of a phase that could be compiled, and the calls of one request.

    Attributes:
        sizes: candidate buckets, increasing.
        calls: that need more than the size before and at most this one.
        seconds: of a call in each bucket.
    """

    sizes: Sequence[int]
    calls: Sequence[float]
    seconds: Sequence[float]

    def best(self, most: int) -> list[Ladder]:
        """The best ladder of at most 1, 2, ... ``most`` buckets, at most 16."""
        return best_ladders(self.sizes, self.calls, self.seconds, min(most, MOST_BUCKETS))

    def time(self, buckets: Sequence[int]) -> float:
        """Seconds of the calls in these buckets."""
        return ladder_seconds(buckets, self.sizes, self.calls, self.seconds)

    def padded(self, buckets: Sequence[int]) -> float:
        """Tokens or slots of all calls, padding included."""
        return ladder_seconds(buckets, self.sizes, self.calls, self.sizes)


@dataclass(frozen=True, slots=True)
class RequestSeconds:
    """The model, the device and the requests of a search.

    Attributes:
        config: a ``config.json``; Hugging Face's names.
        target: the accelerator.
        demand: has the ranks, the slots of a cache row, and the largest bucket of each phase.
        lengths: of the requests.
        executable_bytes: that an executable takes on a core.
        period: what :func:`graphgen.lowering.plan.measure.layer_period` says of ``config``.
    """

    config: Mapping[str, object]
    target: Accelerator
    demand: CompileConfig
    lengths: RequestLengths
    executable_bytes: int
    period: int

    @property
    def prompt(self) -> int:
        """The largest context bucket."""
        return rounded(self.lengths.longest_prompt)

    def bytes(self, rows: int) -> int:
        """Of a core, without executables."""
        demand = replace(self.demand, batch=(rows,), prefill_batch=(1,))
        return estimate(self.config, demand, demand.tp, self.period).total

    def seconds(self, phase: str, sizes: tuple[int, ...], rows: int) -> Seconds:
        """Of the programs of a phase, by bucket."""
        ladders = {"context": sizes} if phase == "prefill" else {"tokens": sizes}
        demand = replace(self.demand, batch=(rows,), rows=rows, **ladders)
        return bucket_seconds(self.config, self.target, demand, phase, self.period)

    def prefill(self) -> PhaseSeconds:
        """The calls of one row that a request starts with."""
        sizes = candidates(self.prompt)
        calls = binned(self.lengths.prefills(), sizes)
        time = self.seconds("prefill", sizes, 1)
        share = [count / self.lengths.requests for count in calls]
        return PhaseSeconds(sizes, share, [time[size] for size in sizes])

    def decode(self, sizes: tuple[int, ...], rows: int) -> PhaseSeconds:
        """A request's share of the steps of ``rows`` rows."""
        time = self.seconds("decode", sizes, rows)
        steps = binned(self.lengths.steps(), sizes)
        total = sum(steps)
        fits = [(below / total) ** rows if total else 0.0 for below in accumulate(steps, initial=0)]
        each = total / self.lengths.requests / rows
        return PhaseSeconds(
            sizes, [each * (b - a) for a, b in pairwise(fits)], [time[s] for s in sizes]
        )

    def room(self, used: int) -> int:
        """Executables that fit beside ``used`` bytes."""
        return max(self.target.hbm_bytes - used, 0) // self.executable_bytes


def rounded(length: int) -> int:
    """The bucket that takes the longest call: a multiple of the smallest bucket."""
    return -(-length // SMALLEST_BUCKET) * SMALLEST_BUCKET


def candidates(largest: int) -> tuple[int, ...]:
    """Sizes at equal distances, a power of two times 128, with the powers of two among them."""
    return tuple(sorted({*range(spacing(largest), largest, spacing(largest)), *powers(largest)}))


def spacing(largest: int) -> int:
    """The distance of the candidates up to ``largest``: 128 to 2048, 256 to 4096, and so on."""
    step = SMALLEST_BUCKET
    while step * _STEPS < largest:
        step *= 2
    return step


# Another bucket, or twice the rows, has to save more than this share of the time.
SLACK = 0.01
_MOST_ROWS = 256
# The distances that the guide of transformers-neuronx advises: above 2048 tokens, and below around
# a length that most prompts have.
_DENSE_FROM, _DENSE, _CLOSE = 2048, 1024, 256


@dataclass(frozen=True, slots=True)
class RowOption:
    """A number of rows.

    Attributes:
        rows: of a decode step and of the cache.
        bytes: of a core, without executables.
        executables: how many fit beside that; less than 2 cannot serve.
        seconds: of a request, with the best powers of two as buckets; infinite where it does not
            fit.
    """

    rows: int
    bytes: int
    executables: int
    seconds: float

    def to_json(self) -> dict[str, Json]:
        """The attributes by name; no seconds where it does not fit."""
        fits = isfinite(self.seconds)
        return {**asdict(self), "fits": fits, "seconds": self.seconds if fits else None}


@dataclass(frozen=True, slots=True)
class LadderOption:
    """A pair of ladders, at the advised rows.

    Attributes:
        name: how it was made.
        context, tokens: buckets of prefill and of decode programs.
        prefill_s, decode_s: seconds of a request.
        context_padding: share of the prompt tokens computed that are padding.
        token_padding: share of the cache slots attended to that hold no token of the row.
        bytes: of a core, with an executable for each bucket.
        rows_fit: rows that fit beside the executables, of those looked at; 0 for none.
    """

    name: str
    context: tuple[int, ...]
    tokens: tuple[int, ...]
    prefill_s: float
    decode_s: float
    context_padding: float
    token_padding: float
    bytes: int
    rows_fit: int

    @property
    def executables(self) -> int:
        """Number of programs."""
        return len(self.context) + len(self.tokens)

    @property
    def seconds(self) -> float:
        """Of a request."""
        return self.prefill_s + self.decode_s

    def to_json(self) -> dict[str, Json]:
        """The attributes by name."""
        return {
            **asdict(self),
            "context": list(self.context),
            "tokens": list(self.tokens),
            "executables": self.executables,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, slots=True)
class LadderAdvice:
    """The answer.

    Attributes:
        lengths: of the requests.
        target: the accelerator.
        demand: the configuration to compile for, with the advised rows and ladders.
        executable_bytes: that an executable takes on a core.
        rows: numbers of rows looked at.
        ladders: the advised one, and others to compare it with.
    """

    lengths: RequestLengths
    target: Accelerator
    demand: CompileConfig
    executable_bytes: int
    rows: tuple[RowOption, ...]
    ladders: tuple[LadderOption, ...]

    @property
    def flags(self) -> list[str]:
        """The options of ``graphgen generate`` for the advised programs."""
        return [
            *("--tp", str(self.demand.tp)),
            *("--seq-len", str(self.demand.max_len)),
            *("--context-encoding-buckets", ",".join(map(str, self.demand.context))),
            *("--token-generation-buckets", ",".join(map(str, self.demand.tokens))),
        ]

    def to_json(self, model: str) -> dict[str, Json]:
        """The answer for a model, by name; sizes in tokens, times in seconds of a request."""
        lengths, demand = self.lengths, self.demand
        return {
            "model": model,
            "target": self.target.name,
            "lnc": self.target.lnc,
            "tp": demand.tp,
            "dtype": demand.dtype,
            "core_bytes": self.target.hbm_bytes,
            "executable_bytes": self.executable_bytes,
            "requests": {
                "count": lengths.requests,
                "mean_prompt": lengths.mean_prompt,
                "longest_prompt": lengths.longest_prompt,
                "mean_answer": lengths.mean_answer,
                "longest_sequence": lengths.longest_sequence,
            },
            "rows": [item.to_json() for item in self.rows],
            "ladders": [item.to_json() for item in self.ladders],
            "advised": {
                "rows": demand.cache_rows,
                "seq_len": demand.max_len,
                "context": list(demand.context),
                "tokens": list(demand.tokens),
                "flags": [*self.flags],
            },
        }


def advise_ladders(
    config: Mapping[str, object],
    target: Accelerator,
    demand: CompileConfig,
    lengths: RequestLengths,
    tp: int = 0,
    rows: int = 0,
    executable_bytes: int = 0,
) -> LadderAdvice:
    """Choose the rows, then the buckets, that take the least time a request and fit on a core.

    Fewer buckets, and fewer rows, are chosen where they cost no more than 1 % of the time.

    Args:
        config: a ``config.json``; Hugging Face's names.
        target: the accelerator.
        demand: the options to compile with; its sizes, target and ``tp`` are not used.
        lengths: of the requests.
        tp: ranks; 0 for the fewest that hold one row.
        rows: of a decode step; 0 for the best power of two up to 256.
        executable_bytes: device memory that an executable takes on a core; 0 for the target's
            published figure of code.

    Raises:
        GraphgenError: GG0705 where a core cannot hold the rows with one program a phase.
    """
    slots = rounded(lengths.longest_sequence)
    prompt = rounded(lengths.longest_prompt)
    demand = replace(demand, target=target.name, batch=(1,), slots=slots)
    demand = replace(demand, context=(prompt,), tokens=(slots,))
    demand = replace(demand, tp=tp or _fewest_ranks(config, target, demand))
    executable_bytes = executable_bytes or target.code_bytes
    period = layer_period(config)
    search = RequestSeconds(config, target, demand, lengths, executable_bytes, period)
    prefill = search.prefill()
    options = _row_options(search, prefill, rows)
    chosen = _chosen_rows(options, search, rows)
    decode = search.decode(candidates(slots), chosen.rows)
    context, tokens = _fewest(_pairs(prefill, decode, chosen.executables))
    ladders = {"advised": (context.buckets, tokens.buckets), **_rules(lengths, slots)}
    made = [
        _option(name, pair, search, (prefill, decode), options, chosen)
        for name, pair in ladders.items()
    ]
    batch = {"batch": (chosen.rows,), "context": context.buckets, "tokens": tokens.buckets}
    demand = replace(demand, **batch)
    return LadderAdvice(lengths, target, demand, executable_bytes, tuple(options), tuple(made))


def _rules(lengths: RequestLengths, slots: int) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Ladders by rules of thumb: those of the guide of transformers-neuronx, and one bucket."""
    prompt = rounded(lengths.longest_prompt)
    rule = powers(prompt)
    if prompt > _DENSE_FROM:
        step = max(_DENSE, spacing(prompt))
        name, more = f"every {step} above {_DENSE_FROM}", range(_DENSE_FROM, prompt, step)
    else:
        around = _around(lengths)
        name, more = f"every {_CLOSE} around the mean", range(_CLOSE, prompt, _CLOSE)
        more = [size for size in more if around[0] <= size < around[1] + _CLOSE]
    return {
        "powers of two": (rule, powers(slots)),
        f"and {name}": (tuple(sorted({*rule, *more})), powers(slots)),
        "one bucket a phase": ((prompt,), (slots,)),
    }


def _around(lengths: RequestLengths) -> tuple[float, float]:
    """Tokens of a prompt, a standard deviation below and above the mean."""
    mean = lengths.mean_prompt
    square = sum((p - mean) ** 2 * n for (p, _), n in lengths.counts.items()) / lengths.requests
    return mean - square**0.5, mean + square**0.5


def _fewest_ranks(config: Mapping[str, object], target: Accelerator, demand: CompileConfig) -> int:
    made = make_plan(config, target, demand)
    if made.chosen is None:
        raise _too_large(f"no degree of {target.name} holds", demand.max_len)
    return made.chosen.tp


def _too_large(what: str, slots: int) -> GraphgenError:
    return GraphgenError(
        "GG0705",
        f"{what} a row of {slots} positions with one program a phase",
        help="give more ranks (--tp), a larger device, or shorter lengths",
    )


def _row_options(search: RequestSeconds, prefill: PhaseSeconds, rows: int) -> list[RowOption]:
    """The powers of two up to the first that does not fit, or only the number of rows given."""
    made: list[RowOption] = []
    count = rows or 1
    sizes = powers(search.demand.max_len)
    while True:
        used = search.bytes(count)
        room = search.room(used)
        seconds = inf
        if room >= 2:
            decode = search.decode(sizes, count)
            seconds = min(map(_total, _pairs(prefill, decode, room)))
        made.append(RowOption(count, used, room, seconds))
        if rows or seconds == inf or count == _MOST_ROWS:
            return made
        count *= 2


def _chosen_rows(options: Sequence[RowOption], search: RequestSeconds, rows: int) -> RowOption:
    """The fewest rows within the slack of the least time."""
    least = min(option.seconds for option in options)
    if least == inf:
        where = f"a core of {search.target.name} at tp {search.demand.tp} does not hold"
        what = f"{where} {rows} rows, each" if rows else where
        raise _too_large(what, search.demand.max_len)
    return next(item for item in options if item.seconds <= least * (1 + SLACK))


def _pairs(prefill: PhaseSeconds, decode: PhaseSeconds, most: int) -> list[tuple[Ladder, Ladder]]:
    """The best ladders of each two lengths whose buckets are ``most`` together."""
    return [
        (context, tokens)
        for context in prefill.best(most - 1)
        for tokens in decode.best(most - 1)
        if len(context.buckets) + len(tokens.buckets) <= most
    ]


def _total(pair: tuple[Ladder, Ladder]) -> float:
    return pair[0].seconds + pair[1].seconds


def _fewest(pairs: Sequence[tuple[Ladder, Ladder]]) -> tuple[Ladder, Ladder]:
    """The pair of fewest buckets within the slack of the least time; of several, the fastest."""
    limit = min(map(_total, pairs)) * (1 + SLACK)
    fast = [pair for pair in pairs if _total(pair) <= limit]
    return min(fast, key=lambda pair: (len(pair[0].buckets) + len(pair[1].buckets), _total(pair)))


def _option(
    name: str,
    ladders: tuple[tuple[int, ...], ...],
    search: RequestSeconds,
    phases: tuple[PhaseSeconds, PhaseSeconds],
    options: Sequence[RowOption],
    chosen: RowOption,
) -> LadderOption:
    (context, tokens), (prefill, decode) = ladders, phases
    executables = len(context) + len(tokens)
    steps = search.lengths.steps()
    held = sum(length * count for length, count in enumerate(steps)) / max(sum(steps), 1)
    attended, calls = decode.padded(tokens), sum(decode.calls)
    return LadderOption(
        name,
        context,
        tokens,
        prefill_s=prefill.time(context),
        decode_s=decode.time(tokens),
        context_padding=1 - search.lengths.mean_prompt / prefill.padded(context),
        token_padding=1 - held * calls / attended if attended else 0.0,
        bytes=chosen.bytes + executables * search.executable_bytes,
        rows_fit=max([o.rows for o in options if o.executables >= executables], default=0),
    )
