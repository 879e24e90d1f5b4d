"""Flags of ``graphgen load-test``: those of LLMPerf's token benchmark, and more."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Literal, TypeVar, cast

import typer

from graphgen.errors import GraphgenError
from graphgen.json_value import Json

N = TypeVar("N", int, float)

ModelName = Annotated[
    str, typer.Option("--model", metavar="NAME", help="The model, as the server calls it.")
]
MeanInput = Annotated[
    int, typer.Option("--mean-input-tokens", min=1, help="Tokens of a prompt, on average.")
]
StddevInput = Annotated[
    int, typer.Option("--stddev-input-tokens", min=0, help="Their standard deviation.")
]
MeanOutput = Annotated[
    int, typer.Option("--mean-output-tokens", min=1, help="Most tokens of an answer, on average.")
]
StddevOutput = Annotated[
    int, typer.Option("--stddev-output-tokens", min=0, help="Their standard deviation.")
]
Concurrent = Annotated[
    str | None,
    typer.Option(
        "--num-concurrent-requests",
        metavar="N,N,...",
        help="Users who each send a request when the last is answered; default 10.",
    ),
]
RequestRate = Annotated[
    str | None,
    typer.Option(
        "--request-rate", metavar="R,R,...", help="Requests a second that arrive at random instead."
    ),
]
TestTimeout = Annotated[
    float, typer.Option("--timeout", min=0.0, help="Seconds of each load, at most.")
]
MostRequests = Annotated[
    int, typer.Option("--max-num-completed-requests", min=1, help="Requests of each load.")
]
Sampling = Annotated[
    str,
    typer.Option(
        "--additional-sampling-params", metavar="JSON", help="More fields of each request."
    ),
]
ResultsDir = Annotated[
    str,
    typer.Option("--results-dir", metavar="FOLDER", help="Write LLMPerf's two JSON files here."),
]
LlmApi = Annotated[Literal["openai"], typer.Option("--llm-api", help="The kind of server.")]
Metadata = Annotated[
    str,
    typer.Option("--metadata", metavar="NAME=VALUE,...", help="More entries of the summary."),
]
TokenizerName = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        metavar="CHECKPOINT",
        help="Counts tokens; by default MODEL where that is a checkpoint here, else the server.",
    ),
]
EndpointName = Annotated[
    Literal["chat", "completions"],
    typer.Option("--endpoint", help="Send prompts as messages of a chat, or as they are."),
]


SeedOfLoad = Annotated[
    int, typer.Option("--seed", metavar="N", min=0, help="Of prompts and of arrival times.")
]


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
