"""The options that say how tokens are chosen, under Hugging Face's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from graphgen.errors import GraphgenError

if TYPE_CHECKING:
    from runtime.sampling import Sampling

DoSample = Annotated[
    bool, typer.Option("--do-sample", help="Draw tokens instead of taking the best one.")
]
Temperature = Annotated[
    float | None, typer.Option("--temperature", help="Divides scores; above 1 is more random.")
]
TopK = Annotated[int | None, typer.Option("--top-k", help="Keep this many best tokens; 0: all.")]
TopP = Annotated[
    float | None,
    typer.Option("--top-p", help="Keep the best tokens that reach this probability."),
]
MinP = Annotated[
    float | None,
    typer.Option("--min-p", help="Drop tokens below this part of the best one's probability."),
]
RepetitionPenalty = Annotated[
    float | None,
    typer.Option("--repetition-penalty", help="Above 1 makes tokens that are there less likely."),
]
NoRepeatNgram = Annotated[
    int | None,
    typer.Option("--no-repeat-ngram-size", help="No run of so many tokens comes twice."),
]
Seed = Annotated[int | None, typer.Option("--seed", help="Of the random numbers.  [default: 0]")]
OnDevice = Annotated[
    bool,
    typer.Option("--on-device-sampling", help="Let the programs choose tokens, not the host."),
]
ReturnSequences = Annotated[
    int, typer.Option("--num-return-sequences", min=1, help="Answers to each prompt.")
]


def sampling(
    do_sample: bool,
    drawing: dict[str, float | int | None],
    rules: dict[str, float | int | None],
    sequences: int,
) -> Sampling:
    """How tokens are chosen.

    Args:
        do_sample: whether they are drawn.
        drawing: by field of :class:`~runtime.sampling.Sampling`, options that draws alone need.
        rules: by field, the others.
        sequences: answers to each prompt.

    Raises:
        GraphgenError: GG0705 for options that would have no effect, or a value without meaning.
    """
    from runtime.sampling import Sampling

    given = {name: value for name, value in drawing.items() if value is not None}
    if not do_sample and given:
        option = f"--{next(iter(given)).replace('_', '-')}"
        raise GraphgenError(
            "GG0705", f"{option} has no effect without --do-sample", help="add --do-sample"
        )
    if not do_sample and sequences > 1:
        raise GraphgenError(
            "GG0705",
            f"--num-return-sequences {sequences} would give the same answer {sequences} times",
            help="add --do-sample",
        )
    given |= {name: value for name, value in rules.items() if value is not None}
    return Sampling(do_sample=do_sample, **given)  # pyright: ignore[reportArgumentType]


def on_device(how: Sampling) -> str:
    """The pass that makes programs choose as ``how`` says, as pipelines write it.

    Raises:
        GraphgenError: GG0705 for what programs do not do.
    """
    for name, given, none in (
        ("--repetition-penalty", how.repetition_penalty, 1),
        ("--no-repeat-ngram-size", how.no_repeat_ngram_size, 0),
        ("--min-p", how.min_p, 0),
    ):
        if given != none:
            raise GraphgenError(
                "GG0705",
                f"{name} and --on-device-sampling exclude each other",
                help="leave one of them out: the host has this rule, programs have not",
            )
    return "on-device-sampling{do_sample=true}" if how.do_sample else "on-device-sampling"
