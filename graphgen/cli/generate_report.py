"""Results of ``graphgen generate`` as JSON, and the tables of its ``--summary``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from graphgen.json_value import Json
from graphgen.report.table import Table, render

if TYPE_CHECKING:
    from graphgen.runtime.accuracy.cache_saturation import CacheSaturation
    from graphgen.runtime.engine import Engine, GenerationResult
    from graphgen.runtime.progress import Progress


def write_summary(
    engine: Engine, result: GenerationResult, progress: Progress, first: float | None
) -> None:
    """Write tables of passes, programs, times and the memory floor to stderr.

    Args:
        engine: the model.
        result: of the generation.
        progress: notified of the measurement of the floor.
        first: seconds from the start of the process to the first token, where it is known.
        before: the ids that the text of each answer goes on from; by default none, as after a chat
            template.
    """
    out = ["", _passes(engine), _programs(engine), _times(engine, result, progress, first)]
    print(render(out, sys.stderr), file=sys.stderr, flush=True)


def _passes(engine: Engine) -> Table:
    rows = [
        (r.name, str(r.ops_before), str(r.ops_after), str(r.applications), f"{r.seconds * 1e3:.1f}")
        for r in engine.model.reports
    ]
    return Table(("pass", "ops before", "ops after", "rewrites", "ms"), rows, 4)


def _programs(engine: Engine) -> Table:

    def warm(name: str) -> str:
        return f"{warm_ups[name]:.2f}" if name in warm_ups else "-"

    warm_ups = engine.programs.warm_ups
    rows = [
        (r.name, str(r.ops), "loaded" if r.loaded else "compiled", f"{r.seconds:.2f}", warm(r.name))
        for r in engine.programs.reports
    ]
    return Table(("program", "ops", "", "s", "first launch s"), rows, 4)


def _times(
    engine: Engine, result: GenerationResult, progress: Progress, first: float | None
) -> Table:
    from graphgen.lowering.cpu.memory_bandwidth import GIB, read_bandwidth
    from graphgen.runtime.weights.rank_weights import weight_bytes

    size = weight_bytes(engine.model.module)
    with progress.task("measuring memory bandwidth"):
        speed = read_bandwidth(2 * GIB)
    steps = result.timings.steps
    per_token = f"{_token_seconds(engine, result) * 1e3:.2f} ms" if steps else "-"
    best = f"{min(steps) * 1e3:.2f} ms" if steps else "-"
    floor = size / speed * 1e3
    rows = [
        ("loading", f"{result.load_s:.2f} s", "from an artifact" if engine.from_artifact else ""),
        *((f"  {name}", f"{seconds:.2f} s", "") for name, seconds in engine.phases.items()),
        ("compiling", f"{result.compile_s:.2f} s", ""),
        ("time to first token", f"{result.timings.first_token * 1e3:.1f} ms", ""),
        *_first_token_row(first),
        ("per token", per_token, f"best {best}, {len(steps)} steps"),
        ("tokens per second", f"{result.tokens_per_s:.1f}", ""),
        ("floor per token", f"{floor:.2f} ms", _floor_note(size, speed)),
        *_saturation_row(engine),
        *_dropped_row(engine),
        *_speculation_rows(engine),
    ]
    return Table(("", "", ""), rows, 1)


def _token_seconds(engine: Engine, result: GenerationResult) -> float:
    """Mean seconds of a row's token; a step of speculation gives several."""
    speculator = engine.speculator
    tokens = 1.0 if speculator is None else max(speculator.counts.tokens_per_step, 1.0)
    return result.timings.per_step / tokens


def _speculation_rows(engine: Engine) -> list[tuple[str, str, str]]:
    if engine.speculator is None:
        return []
    counts = engine.speculator.counts
    shares = " ".join(f"{share:.0%}" for share in counts.acceptance)
    note = f"{shares} of proposals accepted, by place" if shares else "nothing was proposed"
    return [("tokens per step", f"{counts.tokens_per_step:.2f}", note)]


def _speculation(engine: Engine) -> dict[str, Json]:
    """The numbers of proposed and accepted tokens, for engines that speculate."""
    if engine.speculator is None:
        return {}
    counts = engine.speculator.counts
    found: dict[str, Json] = {
        "speculation_length": engine.speculator.length,
        "launches": counts.launches,
        "tokens_per_step": round(counts.tokens_per_step, 4),
        "proposed": list(counts.proposed),
        "accepted": list(counts.accepted),
    }
    return {"speculation": found}


def _saturation_row(engine: Engine) -> list[tuple[str, str, str]]:
    found = _saturation(engine)
    return [] if found is None else [("caches saturated", found.text, "at an end of their type")]


def _dropped_row(engine: Engine) -> list[tuple[str, str, str]]:
    choices = engine.session.outputs.choices
    if choices is None:
        return []
    return [("experts dropped", f"{choices.dropped:,}", f"of {choices.made:,} choices of tokens")]


def _dropped(engine: Engine) -> dict[str, Json]:
    """The choices that experts had no place for, where they have a capacity."""
    choices = engine.session.outputs.choices
    if choices is None:
        return {}
    return {"experts": {"choices": choices.made, "dropped": choices.dropped}}


def _saturation(engine: Engine) -> CacheSaturation | None:
    """The saturated numbers of the caches; ``None`` where they clamp nothing."""
    from graphgen.runtime.accuracy.cache_saturation import cache_saturation

    return cache_saturation(engine.session, engine.model.settings)


def _first_token_row(first: float | None) -> list[tuple[str, str, str]]:
    if first is None:
        return []
    return [("cold start", f"{first:.2f} s", "from the start of the process to the first token")]


class FirstToken:
    """When the first token was there."""

    def __init__(self) -> None:
        self.seconds: float | None = None

    def token(self, row: int, token: int) -> None:
        """Note the first token of any row."""
        self.note()

    def note(self) -> None:
        """Note the age of this process, in seconds, the first time."""
        if self.seconds is None:
            self.seconds = process_age()


def process_age() -> float | None:
    """Seconds since this process was started, to 0.01 s; ``None`` where the system hides it.

    Linux: ``starttime``, field 22 of ``/proc/self/stat``, in ticks since the machine has started.
    """
    stat = Path("/proc/self/stat")
    if not stat.is_file():
        return None
    # The second field, in parentheses, may hold spaces.
    ticks = int(stat.read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def _floor_note(size: int, speed: float) -> str:
    return f"{size / 1e6:.0f} MB of weights at {speed / 1e9:.1f} GB/s, read just now"


def describe(
    engine: Engine,
    prompts: list[list[int]],
    result: GenerationResult,
    first: float | None = None,
    before: Sequence[Sequence[int]] | None = None,
) -> dict[str, Json]:
    """The result as JSON: ``outputs`` and ``timings``.

    Args:
        engine: the model.
        prompts: token ids.
        result: of the generation.
        first: seconds from the start of the process to the first token, where it is known.
        before: the ids that the text of each answer goes on from; by default none, as after a chat
            template.

    With ``kv_cache``, the saturated numbers, for quantized caches that clamp, ``speculation``, the
    numbers of proposed and accepted tokens by place, and ``experts``, the choices that experts of a
    limited capacity had no place for.
    """
    outputs: list[Json] = [
        {
            "prompt_tokens": list(tokens),
            "tokens": list(completion.tokens),
            "text": engine.tokenizer.text_after(start, completion.tokens),
            "finish_reason": completion.finish_reason,
        }
        for tokens, start, completion in zip(
            prompts, before or [()] * len(prompts), result.completions, strict=True
        )
    ]
    saturation = _saturation(engine)
    return {
        "outputs": outputs,
        **({} if saturation is None else {"kv_cache": dict(saturation.to_json())}),
        **_speculation(engine),
        **_dropped(engine),
        "timings": {
            "load_s": round(result.load_s, 4),
            "compile_s": round(result.compile_s, 4),
            "ttft_ms": round(result.timings.first_token * 1e3, 3),
            "ms_per_token": round(_token_seconds(engine, result) * 1e3, 3),
            "tokens_per_s": round(result.tokens_per_s, 3),
            **({} if first is None else {"cold_start_s": round(first, 2)}),
            **({"phases_s": _rounded(engine.phases)} if engine.phases else {}),
        },
    }


def _rounded(seconds: Mapping[str, float]) -> dict[str, Json]:
    return {name: round(value, 4) for name, value in seconds.items()}
