"""``graphgen speculate``: how fast decoding with proposals is, for each number of tokens a step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphgen.cli.console import emit, note
from graphgen.cli.files import read_text, write_bytes
from graphgen.cli.flags import NO_OPTIONS, CompileOptions, with_compile_flags
from graphgen.cli.model_flags import read_buckets
from graphgen.cli.shared_options import AsJson, PlotFile, check_plot
from graphgen.cli.speculation_flags import (
    NO_SPECULATION,
    SpeculationFlags,
    nothing_proposes,
    with_speculation_flags,
)
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.runtime.benchmark.speedup import (
    StepBound,
    bound_json,
    bound_report,
    speed_json,
    speed_report,
)

if TYPE_CHECKING:
    from graphgen.runtime.benchmark.speedup import MeasuredSpeculation, Speedup
    from graphgen.runtime.tokenizer.tokenizer import Tokenizer

Lengths = Annotated[
    str, typer.Option("--lengths", metavar="K,K,...", help="Tokens a step verifies, to compare.")
]
Text = Annotated[
    Path | None, typer.Option("--text", metavar="FILE", help="UTF-8 text to take prompts from.")
]
BoundOn = Annotated[
    str | None,
    typer.Option("--target", help="Bound the times on inf2, trn1, trn2 or trn3 instead."),
]


@with_speculation_flags()
@with_compile_flags(
    *("dtype", "tp", "quantization", "kv_cache_quant", "kv_cache_dtype"), defaults={"dtype": None}
)
def speculate(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A checkpoint, or a shape with --target.")
    ],
    speculation: SpeculationFlags = NO_SPECULATION,
    text: Text = None,
    lengths: Lengths = "2,3,4,5,6,8",
    prompts: Annotated[
        int, typer.Option("--prompts", min=1, help="Number of prompts to answer.")
    ] = 4,
    prompt_tokens: Annotated[int, typer.Option("--prompt-tokens", min=1, help="Of each.")] = 64,
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", min=2, help="Of each answer.")
    ] = 48,
    target: BoundOn = None,
    seq_len: Annotated[
        int, typer.Option("--seq-len", min=1, help="Slots of the cache, with --target.")
    ] = 2048,
    token_ms: Annotated[
        float | None,
        typer.Option("--token-ms", help="With --target: the acceptance that this time implies."),
    ] = None,
    plot: PlotFile = None,
    compile_options: CompileOptions = NO_OPTIONS,
    as_json: AsJson = False,
) -> None:
    """Measure how many proposed tokens are accepted, and how fast each k would be.

    Prompts are cut from the text and answered greedily with the largest k. From the share of
    proposals accepted at each place, and the time of each launch on this machine or its lower bound
    on an accelerator, follow the expected tokens a step and the speed beside plain decoding.

    \b
    Examples:
      graphgen speculate smollm2 --draft-layers 10 --text story.txt
      graphgen speculate smollm2 --prompt-lookup 3 --text story.txt --lengths 2,4,8 --plot k.svg
      graphgen speculate llama-3.1-405b --draft-model-path llama-3.2-1b --target trn2 --tp 64 \
--lengths 7 --token-ms 8.27
    """
    check_plot(plot)
    asked = _SpeculateRequest(model, speculation, compile_options, _lengths(lengths))
    _check(speculation, asked.lengths[-1])
    if target is not None:
        _refuse(text is not None or plot is not None, "--text and --plot", "with --target")
        made = _bound(asked, target, seq_len, token_ms)
        emit(as_json, lambda: bound_json(made), lambda: bound_report(model, target, made))
        return
    _refuse(token_ms is not None, "--token-ms", "without --target")
    found = _measured(asked, text, prompts, prompt_tokens, max_new_tokens)
    emit(as_json, lambda: speed_json(*found), lambda: speed_report(*found))
    if plot is not None:
        from graphgen.runtime.benchmark.speedup import speedup_picture

        write_bytes(plot, [speedup_picture(plot, model, found[1])])
        note(f"wrote {plot}")


def _check(speculation: SpeculationFlags, most: int) -> None:
    if not speculation.is_asked:
        raise nothing_proposes()
    _refuse(speculation.adaptive, "--speculative-adaptive", "when every k is measured")
    # A number of proposals that is given too has to be the largest one.
    speculation.requested({"speculation_length": most})


@dataclass(frozen=True, slots=True)
class _SpeculateRequest:
    """The model, what proposes tokens, and the numbers of tokens a step."""

    model: str
    speculation: SpeculationFlags
    compiled: CompileOptions
    lengths: tuple[int, ...]


def _lengths(text: str) -> tuple[int, ...]:
    found = tuple(sorted(set(read_buckets("--lengths", text))))
    if found[0] < 2:
        raise GraphgenError(
            "GG0705", f"--lengths {text}: a step verifies 2 tokens or more", help="leave 1 out"
        )
    return found


def _refuse(given: bool, flags: str, why: str) -> None:
    if given:
        raise GraphgenError("GG0705", f"{flags} has no effect {why}", help="leave it out")


def _measured(
    asked: _SpeculateRequest, text: Path | None, prompts: int, size: int, new_tokens: int
) -> tuple[MeasuredSpeculation, list[Speedup]]:
    """Acceptance over the text, and the speed of each k on this machine."""
    from graphgen.runtime.benchmark.speedup import measure_speculation, speedups, text_prompts
    from graphgen.runtime.engine import EngineOptions, open_engine
    from graphgen.runtime.progress import TerminalProgress

    if text is None:
        raise GraphgenError(
            "GG0705",
            "there is no text to take prompts from",
            help="give --text FILE, or --target for lower bounds on an accelerator",
        )
    most, progress = asked.lengths[-1], TerminalProgress()
    compiled = {**asked.compiled, "speculation_length": most}
    compiled |= asked.speculation.features(asked.model)
    read = read_text(text)
    cut: list[list[int]] = []

    def encoded(tokenizer: Tokenizer) -> list[list[int]]:
        cut.extend(text_prompts(tokenizer.encode(read), size, prompts))
        return cut[:1]

    engine, _ = open_engine(
        asked.model, EngineOptions(compiled, batch=1), encoded, new_tokens + most, progress
    )
    asked.speculation.give(engine, asked.model, compiled, progress)
    found = measure_speculation(engine, cut, new_tokens, asked.lengths, progress)
    return found, speedups(found.accepted, found.seconds)


def _bound(
    asked: _SpeculateRequest, target: str, seq_len: int, token_ms: float | None
) -> list[StepBound]:
    """The least time of a step of each k on an accelerator."""
    from graphgen.lowering.plan.speculation_bound import bound_seconds, implied_acceptance
    from graphgen.models import family_of
    from graphgen.models.first_layers import first_layers
    from graphgen.runtime.checkpoint.model_config import model_config
    from graphgen.runtime.progress import TerminalProgress
    from graphgen.targets import accelerator

    config, flags = model_config(asked.model), asked.speculation
    draft = model_config(flags.draft) if flags.draft else None
    if flags.layers:
        draft = first_layers(family_of(config), config, flags.layers)
    demand = CompileConfig(dtype="bf16", tokens=(seq_len,), context=(seq_len,)).updated(
        asked.compiled
    )
    with TerminalProgress().task("compiling programs of few layers"):
        times = bound_seconds(config, draft, accelerator(target), demand, asked.lengths)
    made: list[StepBound] = []
    for length in asked.lengths:
        step = times.step(length)
        tokens = None if token_ms is None else step * 1e3 / token_ms
        implied = None if tokens is None else implied_acceptance(tokens, length)
        verify = times.verify[length]
        made.append(StepBound(length, times.decode, times.draft, verify, step, tokens, implied))
    return made
