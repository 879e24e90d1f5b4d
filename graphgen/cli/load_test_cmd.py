"""``graphgen load-test``: latencies and throughput of a server of OpenAI's API under load."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeVar, cast

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import emit, note
from graphgen.cli.files import write_bytes
from graphgen.cli.flags import with_field_flags
from graphgen.cli.shared_options import AsJson, PlotFile, check_plot
from graphgen.cli.step_progress import StepProgress
from graphgen.config.fields import integer, number, option
from graphgen.errors import GraphgenError
from graphgen.json_value import Json, parse_json
from graphgen.read_file import is_there

if TYPE_CHECKING:
    from graphgen.runtime.benchmark.llmperf_report import LoadReport
    from graphgen.runtime.benchmark.load_prompts import CountTokens, LoadPrompt, PromptSizes
    from graphgen.runtime.benchmark.load_run import Load
    from graphgen.runtime.benchmark.openai_client import Api

COMMAND: Final = Command("model", "Measure a server of OpenAI's API under load.")

N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class LoadFlags:
    """The values of the flags, but for the model."""

    mean_input_tokens: int = option(integer(1), 550, "Tokens of a prompt, on average.")
    stddev_input_tokens: int = option(integer(0), 150, "Their standard deviation.")
    mean_output_tokens: int = option(integer(1), 150, "Most tokens of an answer, on average.")
    stddev_output_tokens: int = option(integer(0), 80, "Their standard deviation.")
    num_concurrent_requests: str | None = option(
        None,
        None,
        "Users who each send a request when the last is answered; default 10.",
        metavar="N,N,...",
    )
    request_rate: str | None = option(
        None, None, "Requests a second that arrive at random instead.", metavar="R,R,..."
    )
    timeout: float = option(number(0.0), 90, "Seconds of each load, at most.")
    max_num_completed_requests: int = option(integer(1), 10, "Requests of each load.")
    additional_sampling_params: str = option(
        None, "{}", "More fields of each request.", metavar="JSON"
    )
    results_dir: str = option(None, "", "Write LLMPerf's two JSON files here.", metavar="FOLDER")
    llm_api: Literal["openai"] = option(None, "openai", "The kind of server.")
    metadata: str = option(None, "", "More entries of the summary.", metavar="NAME=VALUE,...")
    tokenizer: str | None = option(
        None,
        None,
        "Counts tokens; by default MODEL where that is a checkpoint here, else the server.",
        metavar="CHECKPOINT",
    )
    endpoint: Literal["chat", "completions"] = option(
        None, "chat", "Send prompts as messages of a chat, or as they are."
    )
    seed: int = option(integer(0), 0, "Of prompts and of arrival times.", metavar="N")

    @property
    def sizes(self) -> PromptSizes:
        """The sizes of prompts and answers."""
        from graphgen.runtime.benchmark.load_prompts import PromptSizes

        return PromptSizes(
            self.mean_input_tokens,
            self.stddev_input_tokens,
            self.mean_output_tokens,
            self.stddev_output_tokens,
        )

    def loads(self) -> list[Load]:
        """The loads, one after the other (GG0705)."""
        from graphgen.runtime.benchmark.load_run import Load

        users, rates, seed = self.num_concurrent_requests, self.request_rate, self.seed
        if rates is None:
            counts = read_numbers("--num-concurrent-requests", users or "10", int)
            return [Load(users=count, seed=seed) for count in counts]
        if users is not None:
            raise GraphgenError(
                "GG0705",
                "--num-concurrent-requests and --request-rate exclude each other",
                help="give one of them: requests of a rate arrive whether others are answered or "
                "not",
            )
        return [Load(rate=rate, seed=seed) for rate in read_numbers("--request-rate", rates, float)]


def read_numbers(flag: str, text: str, kind: Callable[[str], N]) -> list[N]:
    """The positive numbers of a list such as ``1,2,4``.

    Args:
        flag: the option, for the error.
        text: its value.
        kind: ``int`` or ``float``.

    Raises:
        GraphgenError: GG0705 for other text, for numbers that are not positive and finite, and for
            one that is given twice.
    """
    try:
        numbers = [kind(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    fine = all(0 < number < float("inf") for number in numbers)
    if not numbers or not fine or len(set(numbers)) < len(numbers):
        raise GraphgenError(
            "GG0705",
            f"{flag} {text} is not a list of positive numbers",
            help=f"numbers with commas, each once: {flag} 1,2,4",
        )
    return numbers


def read_sampling(text: str) -> dict[str, Json]:
    """The fields of a JSON object (GG0705 for other text)."""
    try:
        found: object = parse_json(text)
    except ValueError as error:
        raise _not_an_object(text, str(error)) from error
    if not isinstance(found, dict):
        raise _not_an_object(text, "it is JSON of another kind")
    return cast("dict[str, Json]", found)


def _not_an_object(text: str, why: str) -> GraphgenError:
    return GraphgenError(
        "GG0705",
        f"--additional-sampling-params {text} is not a JSON object: {why}",
        help="""for example --additional-sampling-params '{"temperature": 0}'""",
    )


def read_metadata(text: str) -> dict[str, str]:
    """The entries of ``name=value,name=value`` (GG0705 for other text)."""
    found: dict[str, str] = {}
    for item in text.split(",") if text else []:
        name, equals, value = item.partition("=")
        if not equals or not name.strip() or name.strip() in found:
            raise GraphgenError(
                "GG0705",
                f"--metadata {text}: '{item}' is not name=value with a name of its own",
                help="for example --metadata machine=trn1,run=3",
            )
        found[name.strip()] = value
    return found


_BY_DEFAULT = LoadFlags()


@with_field_flags("flags", LoadFlags)
def load_test(
    model: Annotated[
        str, typer.Option("--model", metavar="NAME", help="The model, as the server calls it.")
    ],
    flags: LoadFlags = _BY_DEFAULT,
    plot: PlotFile = None,
    as_json: AsJson = False,
) -> None:
    """Measure a server of OpenAI's API under load, with LLMPerf's arguments and report.

    OPENAI_API_BASE names the server, OPENAI_API_KEY its key. Several numbers of users, or several
    rates, are measured one after the other; --plot draws latencies against them. Ctrl-C ends the
    test and reports what was measured.

    \b
    Examples:
      export OPENAI_API_BASE=http://localhost:8000/v1
      graphgen load-test --model smollm2 --num-concurrent-requests 4 --results-dir results
      graphgen load-test --model smollm2 --request-rate 0.5,1,2,4 --plot load.svg
    """
    from graphgen.runtime.benchmark.load_prompts import make_prompts
    from graphgen.runtime.benchmark.openai_client import api_from_environment

    check_plot(plot)
    sampling = read_sampling(flags.additional_sampling_params)
    entries, loads = read_metadata(flags.metadata), flags.loads()
    api = api_from_environment(model, flags.endpoint, sampling, os.environ)
    test = _Test(api, flags.sizes, _counter(model, flags.tokenizer), flags.timeout)
    count = flags.max_num_completed_requests * len(loads)
    prompts = make_prompts(count, test.sizes, flags.seed, test.count_tokens)
    with StepProgress() as progress:
        asyncio.run(test.run(loads, prompts, progress.step))
    _check_answers(test.reports, api)
    _note_losses(test.reports)
    emit(as_json, test.json, test.text)
    if flags.results_dir:
        _write(test.reports, flags.results_dir, entries, several=len(loads) > 1)
    if plot is not None:
        from graphgen.runtime.benchmark.llmperf_report import load_picture

        write_bytes(plot, [load_picture(plot, test.reports)])
        note(f"wrote {plot}")
    if test.interrupted:
        raise KeyboardInterrupt


def _counter(model: str, tokenizer: str | None) -> CountTokens | None:
    """The tokens of a text; ``None`` where the server has to count."""
    from graphgen.runtime.tokenizer.tokenizer import load_tokenizer

    if tokenizer is None and not is_there(Path(model)):
        return None
    found = load_tokenizer(tokenizer or model)
    return lambda text: len(found.encode(text, add_special=False))


@dataclass(slots=True)
class _Test:
    """Loads, one after the other.

    Attributes:
        api, sizes, count_tokens, timeout: of every load.
        reports: of the loads that have ended.
        interrupted: whether the user ended the test.
    """

    api: Api
    sizes: PromptSizes
    count_tokens: CountTokens | None
    timeout: float
    reports: list[LoadReport] = field(default_factory=list["LoadReport"])
    interrupted: bool = False

    async def run(
        self, loads: Sequence[Load], prompts: Sequence[LoadPrompt], show: Callable[[str], None]
    ) -> None:
        """Run the loads, each with its own part of the prompts, until one is interrupted."""
        from graphgen.runtime.benchmark.llmperf_report import LoadReport
        from graphgen.runtime.benchmark.load_run import run_load
        from graphgen.runtime.benchmark.openai_client import OpenAIClient

        stop = asyncio.Event()
        each = len(prompts) // len(loads)
        with _stopped_by_interrupt(stop):
            for number, load in enumerate(loads):
                own = prompts[number * each : (number + 1) * each]
                report = _shown(load, each, show)
                async with OpenAIClient(self.api, self.count_tokens, time.perf_counter()) as client:
                    result = await run_load(client.send, own, load, self.timeout, stop, report)
                self.reports.append(LoadReport(self.api, self.sizes, result))
                self.interrupted = stop.is_set()
                if self.interrupted:
                    break

    def json(self) -> Json:
        """The summary of each load."""
        return [report.summary() for report in self.reports]

    def text(self) -> str:
        """LLMPerf's report of each load; several have headings."""
        heads = [f"{report.result.load}\n\n" * (len(self.reports) > 1) for report in self.reports]
        texts = [report.text() for report in self.reports]
        return "\n".join(map("".join, zip(heads, texts, strict=True)))


def _shown(load: Load, count: int, show: Callable[[str], None]) -> Callable[[int], None]:
    """A step for every twentieth of the requests, so that a log stays short."""
    step = -(-count // 20)

    def report(done: int) -> None:
        if done % step == 0 or done == count:
            show(f"{load}: {done} of {count} requests")

    show(f"{load}: 0 of {count} requests")
    return report


@contextmanager
def _stopped_by_interrupt(stop: asyncio.Event) -> Generator[None]:
    """Let Ctrl-C set ``stop``; a second one ends the program as ever."""
    loop = asyncio.get_running_loop()

    def interrupted() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        stop.set()

    loop.add_signal_handler(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _check_answers(reports: Sequence[LoadReport], api: Api) -> None:
    """Refuse to report on a server that has answered no request (GG0705)."""
    outcomes = [each for report in reports for each in report.result.outcomes]
    if not outcomes or any(each.error_code is None for each in outcomes):
        return
    words = " ".join(outcomes[0].error_msg.split())
    raise GraphgenError(
        "GG0705",
        f"{api.base} answered none of {len(outcomes)} requests: {words}",
        help="OPENAI_API_BASE names the server; is it there, and does it know --model and the key?",
    )


def _note_losses(reports: Sequence[LoadReport]) -> None:
    """Say on stderr what the report leaves out, and the first words of errors."""
    for report in reports:
        result = report.result
        if result.unfinished:
            why = "interrupted" if result.interrupted else "timed out"
            note(f"{result.load}: {why}; {result.unfinished} requests had not ended, left out")
        # One line each, of the first error of a code.
        messages = {o.error_code: " ".join(o.error_msg.split()) for o in result.outcomes[::-1]}
        for code in report.errors():
            note(f"{result.load}: error {code}: {messages[code]}")


def _write(
    reports: Sequence[LoadReport], folder: str, metadata: dict[str, str], *, several: bool
) -> None:
    from graphgen.runtime.benchmark.llmperf_report import write_report

    for report in reports:
        now = int(time.time())
        for path in write_report(report, Path(folder), metadata, now, several=several):
            note(f"wrote {path}")
