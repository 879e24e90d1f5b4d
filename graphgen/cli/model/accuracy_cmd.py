"""``graphgen accuracy``: compare a compiled model with a reference, token by token."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from graphgen.cli.compile_options import NO_OPTIONS, CompileOptions, takes_compile_options
from graphgen.cli.console import emit, note_remarks
from graphgen.cli.model.bucket_options import MaxLen
from graphgen.cli.model.generate_cmd import DType, check_dtype
from graphgen.cli.shared_options import AsJson
from graphgen.json_value import Json

if TYPE_CHECKING:
    from graphgen.report.table import Report
    from graphgen.runtime.accuracy.check_model import CheckedModel

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="A checkpoint folder, a GGUF file, an artifact folder, or smollm2."
    ),
]
Reference = Annotated[
    str | None,
    typer.Option(
        "--reference", metavar="MODEL", help="Checkpoint to compare with; default: MODEL."
    ),
]
ReferenceBy = Annotated[
    Literal["graphgen", "transformers"],
    typer.Option("--reference-by", help="Runs the reference, in f32 on one rank."),
]
Mode = Annotated[
    Literal["token-matching", "logit-matching"],
    typer.Option("--mode", help="Compare tokens, or the logits of each step."),
]
Prompts = Annotated[
    list[str] | None, typer.Option("--prompt", help="A text to go on from; may be repeated.")
]
Steps = Annotated[
    int | None,
    typer.Option("--num-tokens-to-check", min=1, help="New tokens a prompt; default: 16."),
]
Expected = Annotated[
    Path | None,
    typer.Option("--expected", metavar="FILE", help="Expected outputs, in place of a reference's."),
]
SaveExpected = Annotated[
    Path | None,
    typer.Option(
        "--save-expected",
        metavar="FILE",
        help="Write the reference's outputs: .json, or with logits .npz or .safetensors.",
    ),
]
TolMap = Annotated[
    str | None,
    typer.Option(
        "--tol-map",
        metavar="MAP",
        help="Accepted errors of the k largest logits: '{5: (1e-5, 0.01), None: (1e-5, 0.05)}'.",
    ),
]
DivergenceTol = Annotated[
    float,
    typer.Option(
        "--divergence-difference-tol", min=0, help="Accepted gap of two best tokens, in logits."
    ),
]
Layers = Annotated[
    Literal["on-failure", "always", "never"],
    typer.Option("--layers", help="When to compare the output of each layer."),
]
Capture = Annotated[
    Path | None,
    typer.Option(
        "--capture", metavar="FOLDER", help="Write the inputs of the failing step, for 'run'."
    ),
]


@takes_compile_options(without=["dtype", "speculation_length"])
def accuracy(
    model: Model,
    reference: Reference = None,
    reference_by: ReferenceBy = "graphgen",
    mode: Mode = "logit-matching",
    prompt: Prompts = None,
    num_tokens_to_check: Steps = None,
    expected: Expected = None,
    save_expected: SaveExpected = None,
    tol_map: TolMap = None,
    divergence_difference_tol: DivergenceTol = 0.001,
    layers: Layers = "on-failure",
    capture: Capture = None,
    dtype: DType = None,
    max_len: MaxLen = None,
    compile_options: CompileOptions = NO_OPTIONS,
    as_json: AsJson = False,
) -> None:
    """Compare a model's tokens or logits with a reference's; exit status 1 says they differ.

    The reference generates greedily; its tokens are fed to the model, so that steps after a
    divergence are compared too. Of a failure the first wrong layer is found. Errors are accepted
    as NxD Inference does, and 100 times less in f32.

    \b
    Examples:
      graphgen accuracy smollm2 --dtype bf16
      graphgen accuracy smollm2 --tp 2 --reference-by graphgen --layers always
      graphgen accuracy smollm2.art --reference smollm2 --mode token-matching
      graphgen accuracy smollm2 --save-expected smollm2.npz --prompt "Once upon"
      graphgen accuracy smollm2 --quantized --expected smollm2.npz --capture failed
    """
    from graphgen.runtime.accuracy.check_model import AccuracyRequest, check_model
    from graphgen.runtime.accuracy.tolerances import parse_tolerance_map
    from graphgen.runtime.engine import EngineOptions
    from graphgen.runtime.terminal_progress import TerminalProgress

    check_dtype(dtype)
    requested = {**compile_options, **({} if dtype is None else {"dtype": dtype})}
    request = AccuracyRequest(
        model,
        EngineOptions(requested, max_len=max_len),
        reference,
        reference_by,
        expected,
        save_expected,
        prompt or (),
        num_tokens_to_check,
        mode,
        None if tol_map is None else parse_tolerance_map(tol_map),
        divergence_difference_tol,
        layers,
        capture,
    )
    checked = check_model(request, TerminalProgress())
    note_remarks(checked.remarks)
    emit(as_json, lambda: _facts(checked), lambda: _report(checked))
    if not checked.report.passed:
        raise typer.Exit(1)


def _facts(checked: CheckedModel) -> Json:
    return {
        "tested": checked.tested,
        "reference": checked.reference,
        **checked.report.to_json(),
    }


def _report(checked: CheckedModel) -> Report:
    from graphgen.runtime.accuracy.accuracy_tables import accuracy_tables

    blocks = accuracy_tables(checked.report, lambda token: checked.tokenizer.decode([token]))
    sides = f"{checked.tested} against {checked.reference}\n"
    return [sides, *([blocks] if isinstance(blocks, str) else list(blocks))]  # pyright: ignore
