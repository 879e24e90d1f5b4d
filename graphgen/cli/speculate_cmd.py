"""``graphgen speculate``: how fast decoding with proposals is, for each number of tokens a step."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import emit, note
from graphgen.cli.files import read_text, write_bytes
from graphgen.cli.flags import NO_OPTIONS, with_compile_flags, with_field_flags
from graphgen.cli.model_flags import read_buckets
from graphgen.cli.shared_options import AsJson, PlotFile, check_plot
from graphgen.cli.speculation_flags import (
    NO_SPECULATION,
    SpeculationFlags,
    nothing_proposes,
    with_speculation_flags,
)
from graphgen.config.compile_config import CompileConfig
from graphgen.config.fields import (
    MismatchError,
    fields_of,
    number,
    option,
    optional,
    read_field,
)
from graphgen.errors import GraphgenError
from graphgen.runtime.benchmark.speedup import (
    SpeedAssumptions,
    bound_json,
    bound_report,
    speed_json,
    speed_report,
    step_bound,
)

if TYPE_CHECKING:
    from graphgen.lowering.plan.speculation_bound import StepSeconds
    from graphgen.runtime.benchmark.speedup import MeasuredSpeculation, Speedup
    from graphgen.runtime.tokenizer.tokenizer import Tokenizer

COMMAND: Final = Command("speculation", "Measure the gain of speculative decoding.")

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


@dataclass(frozen=True, slots=True)
class AssumptionFlags:
    """Flags of the assumptions that ``--target`` makes beside the bounds."""

    measured_decode_ms: float | None = option(
        optional(number(0, open_low=True)),
        None,
        "With --target: measured time of a decode step without quantization; the bound over it is "
        "the efficiency of all launches.",
    )
    efficiency: float | None = option(
        optional(number(0, 1, open_low=True)),
        None,
        "With --target: the bound of each launch over its time, in place of a measured one.",
    )
    token_ms: float | None = option(
        optional(number(0, open_low=True)),
        None,
        "With --target: the acceptance that this time a token implies.",
    )
    acceptance: float | None = option(
        optional(number(0, 1)),
        None,
        "With --target: of each proposal, to predict the time a token.",
    )
    speedups: str | None = option(
        None,
        None,
        "With --target: the acceptance that these ratios over decoding without proposals and "
        "quantization need.",
        metavar="X,X,...",
    )

    @property
    def given(self) -> list[str]:
        """The flags that are given, by field name."""
        return [item.name for item in fields(self) if getattr(self, item.name) is not None]

    def of(self, decode_s: float) -> SpeedAssumptions:
        """The assumptions, for the bound of a decode step without quantization.

        Raises:
            GraphgenError: GG0705 for values out of range, two efficiencies, and a measured time
                below the bound.
        """
        for name, item in fields_of(AssumptionFlags).items():
            read_field("speculate", item, getattr(self, name), "GG0705")
        efficiency, measured = self.efficiency or 1.0, self.measured_decode_ms
        if measured is not None:
            what = "as --measured-decode-ms states it"
            _refuse(self.efficiency is not None, "--efficiency", what)
            efficiency = decode_s * 1e3 / measured
            if efficiency > 1:
                raise GraphgenError(
                    "GG0705",
                    f"--measured-decode-ms {measured:g} is below the bound of "
                    f"{decode_s * 1e3:.2f} ms",
                    help="check --dtype, --tp and --seq-len: the bound is of these",
                )
        return SpeedAssumptions(
            efficiency=efficiency,
            measured_decode_s=None if measured is None else measured / 1e3,
            token_s=None if self.token_ms is None else self.token_ms / 1e3,
            acceptance=self.acceptance,
            speedups=_speedups(self.speedups),
        )


NO_ASSUMPTIONS = AssumptionFlags()


def _speedups(text: str | None) -> tuple[float, ...]:
    kind = number(0, open_low=True)
    try:
        return tuple(kind.parse(part.strip()) for part in (text or "").split(",") if part.strip())
    except MismatchError as error:
        what = f"--speedups {text}: {error}"
        raise GraphgenError("GG0705", what, help="such as --speedups 4.02,4.59") from None


@with_field_flags("assumed", AssumptionFlags)
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
    assumed: AssumptionFlags = NO_ASSUMPTIONS,
    plot: PlotFile = None,
    compile_options: CompileConfig = NO_OPTIONS,
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
--lengths 7 --measured-decode-ms 37.93 --token-ms 8.27
    """
    check_plot(plot)
    asked = _SpeculateRequest(model, speculation, compile_options, _lengths(lengths))
    _check(speculation, asked.lengths[-1])
    if target is not None:
        _refuse(text is not None or plot is not None, "--text and --plot", "with --target")
        times = _bound(asked, target, seq_len)
        stated = assumed.of(times.plain)
        made = [step_bound(times, length, stated) for length in asked.lengths]
        emit(as_json, lambda: bound_json(made), lambda: bound_report(model, target, made, stated))
        return
    for name in assumed.given:
        _refuse(True, f"--{name.replace('_', '-')}", "without --target")
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
    speculation.requested(NO_OPTIONS.updated({"speculation_length": most}))


@dataclass(frozen=True, slots=True)
class _SpeculateRequest:
    """The model, what proposes tokens, and the numbers of tokens a step."""

    model: str
    speculation: SpeculationFlags
    compiled: CompileConfig
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
    features = asked.speculation.features(asked.model)
    compiled = asked.compiled.updated({"speculation_length": most, **features})
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


def _bound(asked: _SpeculateRequest, target: str, seq_len: int) -> StepSeconds:
    """The least times of launches on an accelerator."""
    from graphgen.lowering.plan.speculation_bound import bound_seconds
    from graphgen.models import family_of
    from graphgen.models.first_layers import first_layers
    from graphgen.runtime.checkpoint.model_config import model_config
    from graphgen.runtime.progress import TerminalProgress
    from graphgen.targets import accelerator

    config, flags = model_config(asked.model), asked.speculation
    draft = model_config(flags.draft) if flags.draft else None
    if flags.layers:
        draft = first_layers(family_of(config), config, flags.layers)
    demand = asked.compiled.over(CompileConfig(dtype="bf16", tokens=(seq_len,), context=(seq_len,)))
    with TerminalProgress().task("compiling programs of few layers"):
        return bound_seconds(config, draft, accelerator(target), demand, asked.lengths)
