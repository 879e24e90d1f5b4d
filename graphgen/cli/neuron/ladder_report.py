"""The advice of ``graphgen plan --lengths`` as text and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite

from graphgen.json_value import Json
from graphgen.lowering.plan.ladders.ladder_advice import LadderAdvice, LadderOption, RowOption
from graphgen.report.table import Report, Table


def ladder_report(model: str, made: LadderAdvice) -> Report:
    """The requests, the rows, the ladders side by side, and the flags to compile with."""
    lengths, target, demand = made.lengths, made.target, made.demand
    head = (
        f"{model}, {demand.dtype}, tp {demand.tp} on {target.name} ({target.core}, "
        f"{target.hbm_bytes / 1e9:.2f} GB a core), an executable takes "
        f"{made.executable_bytes / 1e6:.0f} MB\n"
        f"{lengths.requests:,} requests: prompts of {lengths.mean_prompt:.0f} tokens on average "
        f"(longest {lengths.longest_prompt}), answers of {lengths.mean_answer:.0f}, sequences of "
        f"{lengths.longest_sequence} at most\n"
    )
    buckets = "".join(
        f"{item.name}: context {_list(item.context)}; tokens {_list(item.tokens)}\n"
        for item in made.ladders
    )
    return [
        head,
        _rows(made),
        _ladders(made),
        buckets,
        "times are rooflines of the compiled programs, bounds from below\n",
        f"rows: {demand.cache_rows}\nflags: {' '.join(flags(made))}\n",
    ]


def flags(made: LadderAdvice) -> list[str]:
    """The options of ``graphgen generate`` for the advised programs."""
    demand = made.demand
    return [
        *("--tp", str(demand.tp)),
        *("--seq-len", str(demand.max_len)),
        *("--context-encoding-buckets", _list(demand.context)),
        *("--token-generation-buckets", _list(demand.tokens)),
    ]


def _rows(made: LadderAdvice) -> Table:
    headers = ["rows", "GB a core", "executables that fit", "ms a request", "tokens/s", ""]
    rows = [
        [
            str(item.rows),
            f"{item.bytes / 1e9:.2f}",
            str(item.executables),
            *_speed(made, item),
            "advised" if item.rows == made.demand.cache_rows else "",
        ]
        for item in made.rows
    ]
    return Table(headers, rows, 4)


def _speed(made: LadderAdvice, item: RowOption) -> list[str]:
    if not isfinite(item.seconds):
        return ["does not fit", "-"]
    return [f"{1e3 * item.seconds:.1f}", f"{made.lengths.mean_answer / item.seconds:.0f}"]


def _ladders(made: LadderAdvice) -> Table:
    headers = [
        *("buckets", "executables", "padding of prompts", "of attention"),
        *("prefill ms", "decode ms", "a request", "to powers of two", "GB a core", "rows fit"),
    ]
    rule = made.ladders[1].seconds
    rows = [
        [
            item.name,
            f"{len(item.context)}+{len(item.tokens)}",
            f"{100 * item.context_padding:.1f} %",
            f"{100 * item.token_padding:.1f} %",
            f"{1e3 * item.prefill_s:.1f}",
            f"{1e3 * item.decode_s:.1f}",
            f"{1e3 * item.seconds:.1f}",
            f"{item.seconds / rule - 1:+.1%}",
            f"{item.bytes / 1e9:.2f}",
            str(item.rows_fit),
        ]
        for item in made.ladders
    ]
    return Table(headers, rows, len(headers) - 1)


def _list(sizes: tuple[int, ...]) -> str:
    return ",".join(map(str, sizes))


def ladder_json(model: str, made: LadderAdvice) -> Json:
    """The same numbers; sizes in tokens, times in seconds of a request."""
    lengths, demand = made.lengths, made.demand
    return {
        "model": model,
        "target": made.target.name,
        "lnc": made.target.lnc,
        "tp": demand.tp,
        "dtype": demand.dtype,
        "core_bytes": made.target.hbm_bytes,
        "executable_bytes": made.executable_bytes,
        "requests": {
            "count": lengths.requests,
            "mean_prompt": lengths.mean_prompt,
            "longest_prompt": lengths.longest_prompt,
            "mean_answer": lengths.mean_answer,
            "longest_sequence": lengths.longest_sequence,
        },
        "rows": [_row_json(item) for item in made.rows],
        "ladders": [_ladder_json(item) for item in made.ladders],
        "advised": {
            "rows": demand.cache_rows,
            "seq_len": demand.max_len,
            "context": list(demand.context),
            "tokens": list(demand.tokens),
            "flags": list(flags(made)),
        },
    }


def _row_json(item: RowOption) -> Json:
    fits = isfinite(item.seconds)
    return {**asdict(item), "fits": fits, "seconds": item.seconds if fits else None}


def _ladder_json(item: LadderOption) -> Json:
    return {
        **asdict(item),
        "context": list(item.context),
        "tokens": list(item.tokens),
        "executables": item.executables,
        "seconds": item.seconds,
    }
