"""Open a model and its reference, and check one against the other: ``graphgen accuracy``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, cast

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.lowering.cpu import processes
from graphgen.report.table import Report, Table
from graphgen.runtime.accuracy.accuracy_check import (
    AccuracyReport,
    LayerSearch,
    Spell,
    check_logits,
    check_tokens,
    describe_failure,
    token_text,
)
from graphgen.runtime.accuracy.expected_outputs import (
    ExpectedOutputs,
    check_ending,
    expect,
    read_expected,
    write_expected,
)
from graphgen.runtime.accuracy.graph_layers import artifact_layers, checkpoint_layers
from graphgen.runtime.accuracy.layer_comparison import LayerComparison
from graphgen.runtime.accuracy.logit_matching import LogitMatch, StepLogitsCheck
from graphgen.runtime.accuracy.step_model import LayerModel, SessionModel, StepModel
from graphgen.runtime.accuracy.token_matching import TokenMatch
from graphgen.runtime.accuracy.tolerances import (
    DIVERGENCE_DIFFERENCE_TOL,
    ToleranceMap,
    default_tolerances,
)
from graphgen.runtime.artifact import is_artifact, open_artifact
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.distributed.process_group import current_group
from graphgen.runtime.engine import Engine, EngineOptions, locate_checkpoint, open_engine
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.model import PassStep, build_model
from graphgen.runtime.progress import Progress
from graphgen.runtime.session.session import Session
from graphgen.runtime.tokenizer.tokenizer import Tokenizer
from graphgen.runtime.weights.rank_weights import put_weights, weights_of

# Failed steps in the table; the JSON form has all.
_SHOWN = 10


def accuracy_tables(report: AccuracyReport, spell: Spell = str) -> Report:
    """The verdict, errors by k or by row, failed steps, and the layers if they were compared."""
    verdict = "passed" if report.passed else f"FAILED: {describe_failure(report, spell)}"
    if isinstance(report.match, LogitMatch):
        blocks = [_errors(report.match), *_failures(report.match, spell)]
    else:
        blocks = [_rows(report.match, spell)]
    if report.layers is not None:
        blocks.append(_layers(report.layers))
    captured = [f"captured {one.file}\n" for one in report.captured]
    # A block ends in a newline; one more makes an empty line between two.
    return [*blocks, *captured, f"{verdict}\n"]


def _errors(match: LogitMatch) -> Table:
    """For each k the largest error and its place."""
    rows: list[list[str]] = []
    for index, (key, check) in enumerate(match.largest().items()):
        error = check.errors[index]
        relative = error.allowed / error.scale if error.scale else error.allowed
        rows.append(
            [
                key if error.tolerance.top_k is None else f"top {key}",
                f"{error.relative:.2e}",
                f"{relative:.2e}",
                str(check.row),
                str(check.step),
                "ok" if error.passed else "WRONG",
            ]
        )
    return Table(("logits", "largest error", "allowed", "row", "step", ""), rows, 4)


def _failures(match: LogitMatch, spell: Spell) -> list[Table]:
    failed = [check for check in match.steps if not check.passed]
    if not failed:
        return []
    rows = [_failure(check, spell) for check in failed[:_SHOWN]]
    if len(failed) > _SHOWN:
        rows.append([f"... {len(failed) - _SHOWN} more", "", "", "", ""])
    return [Table(("step", "row", "expected", "got", "error"), rows, 1)]


def _failure(check: StepLogitsCheck, spell: Spell) -> list[str]:
    worst = check.worst
    error = f"{worst.relative:.2e} in {worst.tolerance.name}"
    if worst.passed:
        error = f"{check.divergence_difference:.2e} below the best"
    tokens = [token_text(token, spell) for token in (check.expected_token, check.actual_token)]
    return [str(check.step), str(check.row), *tokens, error]


def _rows(match: TokenMatch, spell: Spell) -> Table:
    rows: list[list[str]] = []
    for row in match.rows:
        wanted, got = (row.token(side, row.step) for side in (row.expected, row.actual))
        differs = row.step >= 0
        rows.append(
            [
                str(row.row),
                str(len(row.expected)),
                str(row.step) if differs else "-",
                token_text(wanted, spell) if differs else "",
                token_text(got, spell) if differs else "",
            ]
        )
    return Table(("row", "tokens", "first difference", "expected", "got"), rows, 2)


def _layers(comparison: LayerComparison) -> Table:
    rows = [
        [
            layer.name,
            f"{layer.relative:.2e}",
            f"{layer.allowed:.2e}",
            "ok" if layer.explained else "first WRONG" if layer is comparison.first else "wrong",
        ]
        for layer in comparison.layers
    ]
    return Table((f"output of ({comparison.dtype})", "error", "allowed", ""), rows, 2)


Mode = Literal["token-matching", "logit-matching"]
ReferenceBy = Literal["graphgen", "transformers"]
Layers = Literal["on-failure", "always", "never"]
_STEPS: Final = 16
DEFAULT_PROMPT: Final = "The keeper of the lighthouse climbed the stairs and"


@dataclass(frozen=True, slots=True)
class AccuracyRequest:
    """The request to check a model.

    Attributes:
        model: a checkpoint, an artifact folder or a known name.
        options: how to open it.
        reference: a checkpoint; ``None`` for the checkpoint of ``model`` itself.
        reference_by: runs the reference in f32, on one rank.
        expected: a file of expected outputs, in place of the reference's.
        save_expected: file to write the reference's outputs to.
        prompts: texts; empty for :data:`DEFAULT_PROMPT`, or those of ``expected``.
        steps: tokens to check per prompt; all of ``expected`` by default, else 16.
        mode: ``token-matching`` or ``logit-matching``.
        tolerances: of logits; by default those of the tested element type.
        divergence_difference_tol: accepted gap between the best and the expected token, in logits.
        layers: when to compare the layers of both sides.
        capture: folder for the inputs of the failing step.
    """

    model: str
    options: EngineOptions
    reference: str | None = None
    reference_by: ReferenceBy = "graphgen"
    expected: Path | None = None
    save_expected: Path | None = None
    prompts: Sequence[str] = ()
    steps: int | None = None
    mode: Mode = "logit-matching"
    tolerances: ToleranceMap | None = None
    divergence_difference_tol: float = DIVERGENCE_DIFFERENCE_TOL
    layers: Layers = "on-failure"
    capture: Path | None = None


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """A check and the models it compared.

    Attributes:
        report: the result.
        expected: the reference's outputs.
        tokenizer: of the tested model.
        tested: the tested model's configuration in words.
        reference: the reference in words.
        remarks: reports of the tested model's passes.
    """

    report: AccuracyReport
    expected: ExpectedOutputs
    tokenizer: Tokenizer
    tested: str
    reference: str
    remarks: Sequence[PassStep] = ()


@dataclass(frozen=True, slots=True)
class OpenedCheck:
    """The tested model, opened to be compared with a reference.

    Attributes:
        request: as given.
        engine: of the tested model.
        prompts: token ids.
        steps: tokens to check per prompt.
        known: expected outputs of a file.
        progress: notified of long tasks.
    """

    request: AccuracyRequest
    engine: Engine
    prompts: list[list[int]]
    steps: int
    known: ExpectedOutputs | None
    progress: Progress

    def run(self) -> CheckedModel:
        """Run the reference, then the tested model, and compare (GG05xx to GG07xx)."""
        request, engine = self.request, self.engine
        side = _reference(request, len(self.prompts), engine.session.slots, self.progress)
        known = self.known
        if known is None:
            assert side is not None
            known = self._expected(side)
        known = known.first(self.steps)
        search = _search(request, engine, side, self.progress)
        report = _compare(request, engine, known, search)
        source = str(request.expected) if side is None or request.expected else side.words
        remarks = engine.model.reports
        return CheckedModel(report, known, engine.tokenizer, _words(engine), source, remarks)

    def _expected(self, side: _Side) -> ExpectedOutputs:
        """The reference's outputs; no other process of a launch has a part of that model."""
        with self.progress.task("running the reference"), processes.alone():
            made = expect(
                side.step_model(),
                self.prompts,
                self.steps,
                with_logits=self.request.mode == "logit-matching",
            )
        if self.request.save_expected is not None:
            write_expected(self.request.save_expected, made)
        return made


def check_model(request: AccuracyRequest, progress: Progress) -> CheckedModel:
    """Open the model and its reference, run both, and compare.

    Raises:
        GraphgenError: as :func:`open_check` and :meth:`OpenedCheck.run`.
    """
    return open_check(request, progress).run()


def open_check(request: AccuracyRequest, progress: Progress) -> OpenedCheck:
    """Open the model; in a launch for the prompts of process 0, which compares.

    Raises:
        GraphgenError: GG0705 for a request that contradicts itself; GG05xx to GG07xx as
            :func:`~graphgen.runtime.engine.open_engine` raises them.
    """
    _check_request(request)
    group = current_group()
    known, follows = None, group is not None and group.place.index > 0
    if request.expected is not None and not follows:
        known = read_expected(request.expected)
    steps = request.steps
    if steps is None:
        steps = _STEPS if known is None else max(map(len, known.tokens))
    texts, tokens = list(request.prompts), [] if known is None else known.prompts
    if group is not None:
        given = group.shared_values("prompts", [texts, tokens, steps])
        texts, tokens, steps = cast("tuple[list[str], list[list[int]], int]", tuple(given))

    def encode(tokenizer: Tokenizer) -> list[list[int]]:
        return tokens or [tokenizer.encode(text) for text in texts or (DEFAULT_PROMPT,)]

    engine, prompts = open_engine(request.model, request.options, encode, steps, progress)
    return OpenedCheck(request, engine, prompts, steps, known, progress)


def _check_request(request: AccuracyRequest) -> None:
    given = (request.reference is not None, request.expected is not None)
    if not any(given) and is_artifact(Path(request.model)):
        raise GraphgenError(
            "GG0705",
            f"{request.model} is an artifact: its weights are prepared, and there is no reference",
            help="give --reference CHECKPOINT, or --expected FILE",
        )
    if request.expected is not None and request.prompts:
        raise GraphgenError(
            "GG0705", "--prompt has no effect: the prompts are those of the expected outputs"
        )
    if request.expected is not None and request.save_expected is not None:
        raise GraphgenError("GG0705", "--save-expected has no effect beside --expected")
    if request.save_expected is not None:
        check_ending(request.save_expected)
    if request.layers == "always" and not _has_reference(request):
        raise GraphgenError(
            "GG0705",
            "--layers always needs a reference: expected outputs hold no hidden states",
            help="give --reference CHECKPOINT",
        )


def _has_reference(request: AccuracyRequest) -> bool:
    """True if layers can be compared: expected outputs may be those of any checkpoint."""
    own = request.expected is None and not is_artifact(Path(request.model))
    return request.reference is not None or own


@dataclass(frozen=True, slots=True)
class _Side:
    """The reference, opened as far as it is used."""

    name: str
    checkpoint: Checkpoint
    by: ReferenceBy
    rows: int
    slots: int
    progress: Progress

    @property
    def words(self) -> str:
        return f"{self.name} in f32 by {self.by}"

    @property
    def settings(self) -> CompileConfig:
        return CompileConfig().serving(batch=self.rows, max_len=self.slots)

    def step_model(self) -> StepModel:
        """The model that makes expected outputs."""
        if self.by == "transformers":
            from graphgen.runtime.accuracy.hugging_face_model import load_hugging_face

            return load_hugging_face(self.checkpoint.path)
        built = build_model(self.checkpoint.config, self.settings)
        weights = put_weights(weights_of(self.checkpoint, built.module), self.progress)
        return SessionModel(Session(ExecutableCache(built.module, self.progress), weights))

    def layer_model(self) -> LayerModel:
        """The model that gives hidden states."""
        if self.by == "transformers":
            from graphgen.runtime.accuracy.hugging_face_model import load_hugging_face

            return load_hugging_face(self.checkpoint.path)
        return checkpoint_layers(self.checkpoint, self.settings, self.progress)


def _reference(request: AccuracyRequest, rows: int, slots: int, progress: Progress) -> _Side | None:
    """The reference; ``None`` where only a file of expected outputs is given."""
    if not _has_reference(request):
        return None
    name = request.reference or request.model
    return _Side(name, locate_checkpoint(name), request.reference_by, rows, slots, progress)


def _search(
    request: AccuracyRequest, engine: Engine, side: _Side | None, progress: Progress
) -> LayerSearch | None:
    if request.layers == "never" or side is None:
        return None

    def models() -> tuple[LayerModel, LayerModel]:
        return side.layer_model(), _tested_layers(request, engine, progress)

    return LayerSearch(models, coarsest_type(engine.model.settings), request.layers == "always")


def _tested_layers(request: AccuracyRequest, engine: Engine, progress: Progress) -> LayerModel:
    path = request.options.artifact or Path(request.model)
    if is_artifact(path):
        return artifact_layers(open_artifact(path), progress)
    checkpoint = locate_checkpoint(request.model)
    return checkpoint_layers(checkpoint, engine.model.settings, progress)


def coarsest_type(settings: CompileConfig) -> str:
    """The element type that rounds most: of quantized weights, or of activations."""
    for name, written in (("f8e5m2", "f8e5m2"), ("f8e4m3", "f8e4m3")):
        if written in settings.quantization:
            return name
    if settings.quantization:
        return "s8"
    return settings.dtype


def _compare(
    request: AccuracyRequest,
    engine: Engine,
    known: ExpectedOutputs,
    search: LayerSearch | None,
) -> AccuracyReport:
    if request.mode == "logit-matching":
        kind = coarsest_type(engine.model.settings)
        return check_logits(
            SessionModel(engine.session),
            known,
            request.tolerances or default_tolerances(kind),
            request.divergence_difference_tol,
            search,
            request.capture,
        )
    most = max(map(len, known.tokens))
    result = engine.generate(known.prompts, GenerationRequest(most))
    actual = [
        row.tokens[: len(tokens)]
        for row, tokens in zip(result.completions, known.tokens, strict=True)
    ]
    tested = None if request.capture is None else SessionModel(engine.session)
    return check_tokens(known, actual, tested, search, request.capture)


def _words(engine: Engine) -> str:
    settings = engine.model.settings
    parts = [settings.dtype, *([settings.quantization] if settings.quantization else [])]
    stages = f" of each of {settings.pp_degree} stages" if settings.pp_degree > 1 else ""
    return f"{' '.join(parts)} on {settings.tp} rank{'s' if settings.tp > 1 else ''}{stages}"
