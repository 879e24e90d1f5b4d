"""The steps of ``inference_demo run``: compile, load, check the accuracy, answer, measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from graphgen.cli.aws.demo_accuracy import check_accuracy
from graphgen.cli.aws.demo_adapters import adapters_of_prompts
from graphgen.cli.aws.demo_arguments import DemoArguments
from graphgen.cli.aws.demo_draft import draft_speculator, is_eagle, make_draft, prepare_draft
from graphgen.cli.aws.demo_settings import make_config, model_class
from graphgen.cli.console import note, write_report, write_stdout
from graphgen.runtime.accuracy.input_capture import InputCapture
from graphgen.runtime.aws.application.causal_lm import NeuronBaseForCausalLM
from graphgen.runtime.aws.config.compile_settings import sampling_defaults
from graphgen.runtime.benchmark.benchmark_report import run_benchmark
from graphgen.runtime.benchmark.benchmark_tables import benchmark_tables
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.generation import Completion, GenerationRequest, generate
from graphgen.runtime.sampling import GREEDY, Sampling
from graphgen.runtime.tokenizer import Tokenizer, load_tokenizer

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
        built = app.build()
        programs = ", ".join(function.name for function in built.module.programs())
        write_stdout(f"Dry run: the programs {programs} were built\n")
        return False
    if given.get("--on-cpu"):
        app.to_cpu()
        return True
    folder = str(given.get("--compiled-model-path"))
    if not given.get("--skip-compile"):
        app.compile(folder, debug=bool(given.get("--hlo-debug")))
        write_stdout(f"Compiled into {folder}\n")
    if given.get("--compile-only"):
        return False
    app.load(folder)
    return True


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
        for row, (text, completion) in enumerate(zip(self.texts, made, strict=True)):
            write_stdout(f"Output {row}: {text}{self.tokenizer.decode(completion.tokens)}\n")

    def generated(
        self, prompts: Sequence[Sequence[int]], request: GenerationRequest
    ) -> list[Completion]:
        """The answers, with the draft's proposals where there is one."""
        decode = None
        if self.draft is not None or is_eagle(self.given):
            decode = draft_speculator(self.app, self.draft, len(prompts)).decode
        if self.app.adapters is not None:
            self.app.adapters.use(adapters_of_prompts(self.given, len(prompts)))
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
