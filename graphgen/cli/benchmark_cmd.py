"""``graphgen benchmark``: latencies of a model, per sub-model and end to end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import emit, note_remarks
from graphgen.cli.files import check_output
from graphgen.cli.flags import NO_OPTIONS, with_compile_flags
from graphgen.cli.generate_cmd import ArtifactFolder, DType, Model, check_dtype
from graphgen.cli.model_flags import MaxLen, TrustArtifacts
from graphgen.cli.shared_options import AsJson
from graphgen.config.compile_config import CompileConfig

if TYPE_CHECKING:
    from graphgen.runtime.benchmark.benchmark_report import BenchmarkReport
    from graphgen.runtime.engine import Engine, EngineOptions

COMMAND: Final = Command("model", "Measure latencies and throughput.")

Runs = Annotated[
    int, typer.Option("--runs", min=1, help="Measured runs; one more to warm up is not counted.")
]
InputTokens = Annotated[
    int, typer.Option("--input-tokens", min=1, help="Random tokens of each prompt.")
]
NewTokens = Annotated[int, typer.Option("--new-tokens", min=1, help="New tokens of each row.")]
Batch = Annotated[int, typer.Option("--batch", min=1, help="Rows that run together.")]
ReportFile = Annotated[
    Path | None, typer.Option("--report", metavar="FILE.json", help="Write the report as JSON.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of the prompts.")]


@with_compile_flags(without=["dtype", "speculation_length"])
def benchmark(
    model: Model,
    runs: Runs = 20,
    input_tokens: InputTokens = 128,
    new_tokens: NewTokens = 32,
    batch: Batch = 1,
    seed: Seed = 0,
    report: ReportFile = None,
    dtype: DType = None,
    max_len: MaxLen = None,
    artifact: ArtifactFolder = None,
    trust_artifacts: TrustArtifacts = False,
    compile_options: CompileConfig = NO_OPTIONS,
    as_json: AsJson = False,
) -> None:
    """Measure a model: latencies of its programs, time to first token, time between tokens.

    Each run answers random prompts greedily and never stops early. Of the sub-models and of whole
    runs the columns are those of NxD Inference's report; of requests, the rows of a run, those of
    LLMPerf. Compilation and the first run are not counted.

    \b
    Examples:
      graphgen benchmark smollm2 --runs 5 --new-tokens 16
      graphgen benchmark smollm2 --dtype bf16 --batch 4 --input-tokens 64 --report report.json
      graphgen benchmark smollm2.art --json
    """
    from graphgen.cli.launched_inputs import end_process, launch_options
    from graphgen.runtime.benchmark.benchmark_report import benchmark_tables
    from graphgen.runtime.distributed.process_group import launched
    from graphgen.runtime.engine import EngineOptions

    check_dtype(dtype)
    if report is not None:
        check_output(str(report))
    asked = compile_options.updated({"dtype": dtype})
    options = EngineOptions(asked, batch=batch, max_len=max_len, artifact=artifact)
    options = replace(options, trust_artifacts=trust_artifacts)
    sizes = (batch, input_tokens, new_tokens)
    with launched(end_process) as group:
        if group is not None:
            options = launch_options(group, model, options)
        found = _measured(model, options, sizes, seed, runs)
    if found is None:
        return
    if report is not None:
        found.write(report)
    emit(as_json, found.to_json, lambda: benchmark_tables(found))


def _measured(
    model: str, options: EngineOptions, sizes: tuple[int, int, int], seed: int, runs: int
) -> BenchmarkReport | None:
    """Measure a model; ``None`` in processes of a launch that do not report.

    Args:
        model: MODEL.
        options: to open it with.
        sizes: rows, tokens of a prompt, and new tokens of a row.
        seed: of the prompts.
        runs: measured runs.
    """
    from graphgen.runtime.benchmark.benchmark_report import run_benchmark
    from graphgen.runtime.distributed.led_session import lead
    from graphgen.runtime.engine import open_engine
    from graphgen.runtime.generation import GenerationRequest
    from graphgen.runtime.progress import TerminalProgress

    batch, input_tokens, new_tokens = sizes
    # Which tokens there are is known when the model is open; the sizes are known before.
    given = [[0] * input_tokens] * batch
    engine, _ = open_engine(model, options, lambda _: given, new_tokens, TerminalProgress())
    note_remarks(engine.reports)
    prompts = _prompts(engine, batch, input_tokens, seed)
    request = GenerationRequest(new_tokens)

    def generate() -> list[int]:
        made = engine.generate(prompts, request)
        return [len(completion.tokens) for completion in made.completions]

    lengths, length = [input_tokens] * batch, input_tokens + new_tokens
    return lead(
        engine.session, lambda: run_benchmark(generate, engine.session, lengths, length, runs)
    )


def _prompts(engine: Engine, batch: int, size: int, seed: int) -> list[list[int]]:
    """Random token ids of the model's vocabulary."""
    import numpy as np

    random = np.random.default_rng(seed)
    return random.integers(0, engine.model.vocab_size, (batch, size)).tolist()
