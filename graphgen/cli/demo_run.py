"""The steps of ``inference_demo run``: compile, load, check the accuracy, answer, measure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from graphgen.cli.console import note, write_report, write_stdout
from graphgen.cli.demo_arguments import DemoArguments
from graphgen.cli.demo_draft import (
    draft_speculator,
    is_eagle,
    loops_to_tokens,
    make_draft,
    prepare_draft,
)
from graphgen.cli.demo_settings import adapters_of_prompts, make_config, model_class
from graphgen.errors import GraphgenError
from graphgen.runtime.accuracy.accuracy_check import (
    AccuracyReport,
    LayerSearch,
    check_logits,
    check_tokens,
)
from graphgen.runtime.accuracy.draft_step_model import DraftStepModel
from graphgen.runtime.accuracy.expected_outputs import ExpectedOutputs, expect, read_expected
from graphgen.runtime.accuracy.graph_layers import GraphLayers
from graphgen.runtime.accuracy.hugging_face_model import HuggingFaceModel, load_hugging_face
from graphgen.runtime.accuracy.input_capture import InputCapture
from graphgen.runtime.accuracy.step_model import LayerModel, SessionModel, StepModel
from graphgen.runtime.accuracy.tolerances import (
    DIVERGENCE_DIFFERENCE_TOL,
    default_tolerances,
    parse_tolerance_map,
)
from graphgen.runtime.aws_config.compile_settings import sampling_defaults
from graphgen.runtime.aws_config.draft_checks import fused_draft, is_fused
from graphgen.runtime.aws_config.model_checks import quantized_checkpoint
from graphgen.runtime.aws_nxdi.causal_lm import NeuronBaseForCausalLM
from graphgen.runtime.aws_nxdi.state_dict import open_path
from graphgen.runtime.benchmark.benchmark_report import benchmark_tables, run_benchmark
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.generation import Completion, GenerationRequest, generate
from graphgen.runtime.sampling import GREEDY, Sampling
from graphgen.runtime.speculation.draft_model import DraftModel
from graphgen.runtime.tokenizer.tokenizer import Tokenizer, load_tokenizer

_SKIP, _TOKENS, _DRAFT = "skip-accuracy-check", "token-matching", "draft-logit-matching"


def check_accuracy(demo: Demo) -> None:
    """Check tokens or logits as ``--check-accuracy-mode`` says.

    Raises:
        GraphgenError: GG0907 if they differ, naming step, token and layer; GG0705 without the
            packages that the reference needs.
    """
    mode = str(demo.given.get("--check-accuracy-mode", _SKIP))
    if mode == _SKIP:
        return
    path = demo.given.get("--expected-outputs-path")
    # The application whose outputs are checked.
    app = demo.app if mode != _DRAFT or demo.draft is None else demo.draft
    reference = None if path is not None else load_hugging_face(_checkpoint(app))
    expected = _expected(demo, reference, mode)
    search = None if reference is None else _layer_search(app, reference)
    check = _check_tokens if mode == _TOKENS else _check_logits
    report = check(demo, expected, search)
    report.require_passed(demo.tokenizer.token_text)
    steps = max(len(row) for row in expected.tokens)
    write_stdout(f"The accuracy check passed: {mode} of {steps} tokens\n")


def _checkpoint(app: NeuronBaseForCausalLM) -> Path:
    return locate(app.model_path, plain_names=True) or Path(app.model_path)


def _expected(demo: Demo, reference: HuggingFaceModel | None, mode: str) -> ExpectedOutputs:
    """The outputs of the file, or those of the reference."""
    most = cast("int | None", demo.given.get("--num-tokens-to-check"))
    if mode == _DRAFT:
        most = most or loops_to_tokens(demo.given)
    if reference is None:
        found = read_expected(Path(str(demo.given.get("--expected-outputs-path"))))
        return found if most is None else found.first(most)
    config, prompts = demo.app.neuron_config, demo.prompts
    room = cast(int, config.value("max_length")) - max(map(len, prompts))
    steps = most or cast("int | None", config.value("max_new_tokens")) or room
    return expect(reference, prompts, min(steps, room), with_logits=mode != _TOKENS)


def _layer_search(app: NeuronBaseForCausalLM, reference: HuggingFaceModel) -> LayerSearch:
    """The comparison of layers after a failure."""
    model = app.running().model

    def both() -> tuple[LayerModel, LayerModel]:
        checkpoint = app.checkpoint(model.module)
        return reference, GraphLayers(app.model_config(), model.settings, checkpoint, app.progress)

    return LayerSearch(both, model.settings.dtype)


def _check_tokens(
    demo: Demo, expected: ExpectedOutputs, search: LayerSearch | None
) -> AccuracyReport:
    steps = max(len(row) for row in expected.tokens)
    request = demo.request(greedy=True, most=steps)
    made = demo.generated(expected.prompts, request)
    return check_tokens(expected, [completion.tokens for completion in made], layers=search)


def _check_logits(
    demo: Demo, expected: ExpectedOutputs, search: LayerSearch | None
) -> AccuracyReport:
    given = demo.given
    app, tested = _tested(demo, len(expected.prompts))
    dtype = app.running().model.settings.dtype
    text = given.get("--tol-map")
    tolerances = default_tolerances(dtype) if text is None else parse_tolerance_map(str(text))
    gap = given.get("--divergence-difference-tol", DIVERGENCE_DIFFERENCE_TOL)
    auto = "auto" in cast("list[object]", given.get("--capture-indices", []))
    return check_logits(
        tested,
        expected,
        tolerances,
        cast(float, gap),
        search,
        demo.captures() if auto else None,
    )


def _tested(demo: Demo, rows: int) -> tuple[NeuronBaseForCausalLM, StepModel]:
    """The application whose logits are checked, and its steps; a draft's are those of proposals."""
    if demo.given.get("--check-accuracy-mode") != _DRAFT or demo.draft is None:
        return demo.app, SessionModel(demo.app.running().session)
    speculator = draft_speculator(demo.app, demo.draft, rows)
    assert isinstance(speculator.proposer, DraftModel)
    return demo.draft, DraftStepModel(speculator.proposer, speculator.length - 1)


_REPORT, _CAPTURES = "benchmark_report.json", "captured_inputs"


def run_demo(given: DemoArguments) -> None:
    """Run a checked command line.

    Raises:
        GraphgenError: of each step; GG0907 if the accuracy check fails.
    """
    config = make_config(given)
    if "--pad-token-id" in given.values:
        note("--pad-token-id has no effect: padding is masked, whatever its token")
    app = model_class(given)(str(given.get("--model-path")), config)
    draft = make_draft(given)
    goes_on = _prepare(app, given)
    if draft is not None:
        prepare_draft(draft, given)
    if not goes_on:
        return
    demo = Demo(app, _tokenizer(app, given), given, draft)
    check_accuracy(demo)
    demo.answer()
    if given.get("--benchmark"):
        demo.benchmark()


def _prepare(app: NeuronBaseForCausalLM, given: DemoArguments) -> bool:
    """Compile and load; False if the command line ends there."""
    if given.get("--compile-dry-run"):
        for missing in missing_weights(app):
            note(f"{missing.where}: {missing.what}: the programs are built, and nothing else")
        built = app.build()
        programs = ", ".join(function.name for function in built.module.programs())
        write_stdout(f"Dry run: the programs {programs} were built\n")
        return False
    if given.get("--on-cpu"):
        app.to_cpu()
        return True
    folder = str(given.get("--compiled-model-path"))
    if not given.get("--skip-compile"):
        for missing in missing_weights(app):
            # Before minutes of work for programs that no weights fit.
            raise missing
        app.compile(folder, debug=bool(given.get("--hlo-debug")))
        write_stdout(f"Compiled into {folder}\n")
    if given.get("--compile-only"):
        return False
    app.load(folder)
    return True


def missing_weights(app: NeuronBaseForCausalLM) -> Iterator[GraphgenError]:
    """Errors of opening the checkpoint and that of a draft in its programs (GG06xx)."""
    path = quantized_checkpoint(app.neuron_config) or app.model_path
    try:
        open_path(str(path), app.model_config())
    except GraphgenError as error:
        yield error
    if is_fused(app.neuron_config):
        try:
            fused_draft(app.config)
        except GraphgenError as error:
            yield error


def _tokenizer(app: NeuronBaseForCausalLM, given: DemoArguments) -> Tokenizer:
    """The tokenizer of the compiled folder, or of the checkpoint where there is none."""
    compiled = Path(str(given.get("--compiled-model-path"))) / "tokenizer"
    if not given.get("--on-cpu") and compiled.is_dir():
        return load_tokenizer(compiled)
    return load_tokenizer(locate(app.model_path, plain_names=True) or Path(app.model_path))


@dataclass(slots=True)
class Demo:
    """A loaded application with its prompts.

    Attributes:
        app: the application.
        tokenizer: of its model.
        given: the flags.
        draft: proposes tokens, where it is given.
    """

    app: NeuronBaseForCausalLM
    tokenizer: Tokenizer
    given: DemoArguments
    draft: NeuronBaseForCausalLM | None = None

    @property
    def texts(self) -> list[str]:
        """The prompts."""
        return cast("list[str]", self.given.get("--prompt"))

    @property
    def prompts(self) -> list[list[int]]:
        """Token ids of the prompts."""
        return [self.tokenizer.encode(text) for text in self.texts]

    def request(self, *, greedy: bool = False, most: int | None = None) -> GenerationRequest:
        """The settings of an answer; a greedy one of ``most`` tokens does not end early."""
        config = self.app.neuron_config
        limit = config.value("max_new_tokens") or config.value("max_length")
        ends = () if most is not None else self.tokenizer.eos_ids
        how = GREEDY if greedy else self.sampling()
        side = str(config.value("padding_side"))
        return GenerationRequest(cast(int, most or limit), ends, side, how)

    def sampling(self) -> Sampling:
        """The sampling settings: of the programs, or those that the flags give the host."""
        session, config = self.app.running().session, self.app.neuron_config
        if session.chooses:
            if not session.draws:
                return GREEDY
            top_k, top_p, temperature = sampling_defaults(config)
            fixed = session.deterministic
            return Sampling(
                do_sample=True,
                top_k=top_k,
                top_p=top_p,
                temperature=temperature,
                deterministic=fixed,
            )
        given = self.given
        return Sampling(
            do_sample=bool(given.get("--do-sample")),
            top_k=cast(int, given.get("--top-k", 1)),
            top_p=cast(float, given.get("--top-p", 1.0)),
            temperature=cast(float, given.get("--temperature", 1.0)),
            global_topk=cast(int, given.get("--global-topk", 0)),
        )

    def answer(self) -> None:
        """Generate and print the answers; capture inputs if requested."""
        indices = cast("list[object]", self.given.get("--capture-indices", []))
        steps = [index for index in indices if isinstance(index, int)]
        session = self.app.running().session
        capture = InputCapture(self.captures(), steps=steps) if steps else None
        if capture is not None:
            session.observers.append(capture)
        try:
            made = self.generated(self.prompts, self.request())
        finally:
            if capture is not None:
                session.observers.remove(capture)
        for captured in capture.captured if capture is not None else ():
            note(f"inputs of step {captured.step} are in {self.captures() / captured.file}")
        write_stdout("Generated outputs:\n")
        rows = zip(self.texts, self.prompts, made, strict=True)
        for row, (text, prompt, completion) in enumerate(rows):
            answer = self.tokenizer.text_after(prompt, completion.tokens)
            write_stdout(f"Output {row}: {text}{answer}\n")

    def generated(
        self, prompts: Sequence[Sequence[int]], request: GenerationRequest
    ) -> list[Completion]:
        """The answers, with the draft's proposals where there is one."""
        decode = None
        if self.draft is not None or is_eagle(self.given):
            decode = draft_speculator(self.app, self.draft, len(prompts)).decode
        if self.app.adapters is not None:
            self.app.adapters.use(adapters_of_prompts(self.given, len(prompts)), len(prompts))
        session = self.app.running().session
        mode = self.in_flight
        return generate(session, prompts, request, async_mode=mode, decode=decode)[0]

    @property
    def in_flight(self) -> bool:
        """``async_mode`` of the configuration."""
        return bool(self.app.neuron_config.value("async_mode"))

    def captures(self) -> Path:
        """The folder of captured inputs."""
        return Path(str(self.given.get("--input-capture-save-dir", _CAPTURES)))

    def benchmark(self) -> None:
        """Answer again and again, print the latencies and write the report."""
        session, prompts = self.app.running().session, self.prompts
        request = self.request()

        def run() -> Sequence[int]:
            made = self.generated(prompts, request)
            return [len(completion.tokens) for completion in made]

        length = cast(int, self.app.neuron_config.value("max_length"))
        report = run_benchmark(run, session, [len(prompt) for prompt in prompts], length)
        path = Path(str(self.given.get("--benchmark-report-path", _REPORT)))
        report.write(path)
        write_stdout("Benchmark report:\n")
        write_report(benchmark_tables(report))
        note(f"the report is in {path}")
