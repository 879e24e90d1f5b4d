"""``graphgen accuracy``: compare a compiled model with a reference, token by token."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import emit, note, note_remarks
from graphgen.cli.flags import (
    NO_OPTIONS,
    with_compile_flags,
    with_field_flags,
)
from graphgen.cli.generate_cmd import DType, check_dtype
from graphgen.cli.model_flags import MaxLen, TrustArtifacts
from graphgen.cli.shared_options import AsJson
from graphgen.config.compile_config import CompileConfig
from graphgen.config.fields import integer, number, option, optional
from graphgen.json_value import Json

if TYPE_CHECKING:
    from graphgen.report.table import Report
    from graphgen.runtime.accuracy.check_model import AccuracyRequest, CheckedModel
    from graphgen.runtime.distributed.process_group import ProcessGroup
    from graphgen.runtime.engine import EngineOptions

COMMAND: Final = Command("model", "Compare a model with a reference.", error_status=2)

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="A checkpoint folder, a GGUF file, an artifact folder, or smollm2."
    ),
]


@dataclass(frozen=True, slots=True)
class AccuracyFlags:
    """The values of the flags for the comparison."""

    reference: str | None = option(
        None, None, "Checkpoint to compare with; default: MODEL.", metavar="MODEL"
    )
    reference_by: Literal["graphgen", "transformers"] = option(
        None, "graphgen", "Runs the reference, in f32 on one rank."
    )
    mode: Literal["token-matching", "logit-matching"] = option(
        None, "logit-matching", "Compare tokens, or the logits of each step."
    )
    prompt: list[str] | None = option(None, None, "A text to go on from; may be repeated.")
    num_tokens_to_check: int | None = option(
        optional(integer(1)), None, "New tokens a prompt; default: 16."
    )
    expected: Path | None = option(
        None, None, "Expected outputs, in place of a reference's.", metavar="FILE"
    )
    save_expected: Path | None = option(
        None,
        None,
        "Write the reference's outputs: .json, or with logits .npz or .safetensors.",
        metavar="FILE",
    )
    tol_map: str | None = option(
        None,
        None,
        "Accepted errors of the k largest logits: '{5: (1e-5, 0.01), None: (1e-5, 0.05)}'.",
        metavar="MAP",
    )
    divergence_difference_tol: float = option(
        number(0), 0.001, "Accepted gap of two best tokens, in logits."
    )
    layers: Literal["on-failure", "always", "never"] = option(
        None, "on-failure", "When to compare the output of each layer."
    )
    capture: Path | None = option(
        None, None, "Write the inputs of the failing step, for 'run'.", metavar="FOLDER"
    )

    def request(self, model: str, options: EngineOptions) -> AccuracyRequest:
        """The request to check a model that is opened with these options (GG0705)."""
        from graphgen.runtime.accuracy.check_model import AccuracyRequest
        from graphgen.runtime.accuracy.tolerances import parse_tolerance_map

        return AccuracyRequest(
            model,
            options,
            self.reference,
            self.reference_by,
            self.expected,
            self.save_expected,
            self.prompt or (),
            self.num_tokens_to_check,
            self.mode,
            None if self.tol_map is None else parse_tolerance_map(self.tol_map),
            self.divergence_difference_tol,
            self.layers,
            self.capture,
        )


_BY_DEFAULT = AccuracyFlags()


@with_field_flags("flags", AccuracyFlags)
@with_compile_flags(without=["dtype", "speculation_length"])
def accuracy(
    model: Model,
    flags: AccuracyFlags = _BY_DEFAULT,
    dtype: DType = None,
    max_len: MaxLen = None,
    trust_artifacts: TrustArtifacts = False,
    compile_options: CompileConfig = NO_OPTIONS,
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
    from graphgen.cli.launched_inputs import end_process
    from graphgen.runtime.distributed.process_group import launched
    from graphgen.runtime.engine import EngineOptions

    check_dtype(dtype)
    asked = compile_options.updated({"dtype": dtype})
    options = EngineOptions(asked, max_len=max_len, trust_artifacts=trust_artifacts)
    request = flags.request(model, options)
    with launched(end_process) as group:
        if group is not None:
            request = _in_launch(group, request)
        checked = _checked(request)
    if checked is None:
        return
    note_remarks(checked.remarks)
    emit(as_json, lambda: _facts(checked), lambda: _report(checked))
    if not checked.report.passed:
        if group is not None and flags.layers != "never":
            note("layers are compared in one process only: run without 'graphgen launch'")
        raise typer.Exit(1)


def _in_launch(group: ProcessGroup, request: AccuracyRequest) -> AccuracyRequest:
    """The request of a launch; what compares a second model of the same ranks is refused (GG0705).

    Layers and captured states would need tensors of all ranks in process 0.
    """
    from graphgen.cli.launched_inputs import launch_options

    more = {"--layers always": request.layers == "always", "--capture": request.capture}
    options = launch_options(group, request.model, request.options, more)
    return replace(request, options=options, layers="never")


def _checked(request: AccuracyRequest) -> CheckedModel | None:
    """Check a model; ``None`` in processes of a launch that do not report."""
    from graphgen.runtime.accuracy.check_model import open_check
    from graphgen.runtime.distributed.led_session import lead
    from graphgen.runtime.progress import TerminalProgress

    opened = open_check(request, TerminalProgress())
    return lead(opened.engine.session, opened.run)


def _facts(checked: CheckedModel) -> Json:
    return {
        "tested": checked.tested,
        "reference": checked.reference,
        **checked.report.to_json(),
    }


def _report(checked: CheckedModel) -> Report:
    from graphgen.runtime.accuracy.check_model import accuracy_tables

    blocks = accuracy_tables(checked.report, checked.tokenizer.token_text)
    sides = f"{checked.tested} against {checked.reference}\n"
    return [sides, *([blocks] if isinstance(blocks, str) else list(blocks))]  # pyright: ignore
