"""Flags of ``graphgen load-test``: LLMPerf's token benchmark, and more."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar, cast

from graphgen.cli.flag_group import flag_field
from graphgen.errors import GraphgenError
from graphgen.json_value import Json

if TYPE_CHECKING:
    from graphgen.runtime.load_test.load_prompts import PromptSizes
    from graphgen.runtime.load_test.load_run import Load

N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class LoadFlags:
    """The values of the flags, but for the model."""

    mean_input_tokens: int = flag_field(550, "Tokens of a prompt, on average.", min=1)
    stddev_input_tokens: int = flag_field(150, "Their standard deviation.", min=0)
    mean_output_tokens: int = flag_field(150, "Most tokens of an answer, on average.", min=1)
    stddev_output_tokens: int = flag_field(80, "Their standard deviation.", min=0)
    num_concurrent_requests: str | None = flag_field(
        None,
        "Users who each send a request when the last is answered; default 10.",
        metavar="N,N,...",
    )
    request_rate: str | None = flag_field(
        None, "Requests a second that arrive at random instead.", metavar="R,R,..."
    )
    timeout: float = flag_field(90, "Seconds of each load, at most.", min=0.0)
    max_num_completed_requests: int = flag_field(10, "Requests of each load.", min=1)
    additional_sampling_params: str = flag_field(
        "{}", "More fields of each request.", metavar="JSON"
    )
    results_dir: str = flag_field("", "Write LLMPerf's two JSON files here.", metavar="FOLDER")
    llm_api: Literal["openai"] = flag_field("openai", "The kind of server.")
    metadata: str = flag_field("", "More entries of the summary.", metavar="NAME=VALUE,...")
    tokenizer: str | None = flag_field(
        None,
        "Counts tokens; by default MODEL where that is a checkpoint here, else the server.",
        metavar="CHECKPOINT",
    )
    endpoint: Literal["chat", "completions"] = flag_field(
        "chat", "Send prompts as messages of a chat, or as they are."
    )
    seed: int = flag_field(0, "Of prompts and of arrival times.", metavar="N", min=0)

    @property
    def sizes(self) -> PromptSizes:
        """The sizes of prompts and answers."""
        from graphgen.runtime.load_test.load_prompts import PromptSizes

        return PromptSizes(
            self.mean_input_tokens,
            self.stddev_input_tokens,
            self.mean_output_tokens,
            self.stddev_output_tokens,
        )

    def loads(self) -> list[Load]:
        """The loads, one after the other (GG0705)."""
        from graphgen.runtime.load_test.load_run import Load

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
        found: object = json.loads(text)
    except (ValueError, RecursionError) as error:
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
