"""Sampling options of ``graphgen generate``, under Hugging Face's names."""

from __future__ import annotations

from typing import Annotated

import typer

DoSample = Annotated[
    bool, typer.Option("--do-sample", help="Draw tokens instead of taking the best one.")
]
Temperature = Annotated[
    str | None,
    typer.Option(
        "--temperature",
        metavar="FLOAT[,FLOAT...]",
        help="Divides scores; above 1 is more random, 0 takes the best token. Like the next six: "
        "one value, or one a prompt.",
    ),
]
TopK = Annotated[
    str | None,
    typer.Option(
        "--top-k", metavar="INT[,INT...]", help="Keep this many best tokens; 0 or -1: all."
    ),
]
TopP = Annotated[
    str | None,
    typer.Option(
        "--top-p",
        metavar="FLOAT[,FLOAT...]",
        help="Keep the best tokens that reach this probability.",
    ),
]
TopPMinTokens = Annotated[
    str | None,
    typer.Option(
        "--top-p-min-tokens",
        metavar="INT[,INT...]",
        help="Let --top-p keep at least this many tokens.",
    ),
]
MinP = Annotated[
    str | None,
    typer.Option(
        "--min-p",
        metavar="FLOAT[,FLOAT...]",
        help="Drop tokens below this part of the best one's probability.",
    ),
]
RepetitionPenalty = Annotated[
    str | None,
    typer.Option(
        "--repetition-penalty",
        metavar="FLOAT[,FLOAT...]",
        help="Above 1 makes tokens that are there less likely.",
    ),
]
NoRepeatNgram = Annotated[
    str | None,
    typer.Option(
        "--no-repeat-ngram-size",
        metavar="INT[,INT...]",
        help="No run of so many tokens comes twice.",
    ),
]
Seed = Annotated[int | None, typer.Option("--seed", help="Of the random numbers.  [default: 0]")]
Deterministic = Annotated[
    bool,
    typer.Option("--deterministic", help="Draw with the number 0.5 each time: no randomness."),
]
OnDevice = Annotated[
    bool,
    typer.Option("--on-device-sampling", help="Let the programs choose tokens, not the host."),
]
GlobalTopK = Annotated[
    int | None,
    typer.Option(
        "--global-topk",
        min=0,
        help="How many best tokens programs that draw look at; 0: all.  "
        "[default: 256 if every --top-k is within, else all]",
    ),
]
ReturnSequences = Annotated[
    int,
    typer.Option(
        "--num-return-sequences",
        min=1,
        max=4096,
        help="Answers to each prompt; each has a row of the batch.",
    ),
]
