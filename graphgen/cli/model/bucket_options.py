"""Flags for the sizes that the programs of a model are compiled for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, cast

import typer

from graphgen.cli.flag_group import Command, flag, option, options, takes_flags
from graphgen.errors import GraphgenError

MaxLen = Annotated[
    int | None,
    typer.Option(
        "--max-len", "--seq-len", min=1, help="Longest sequence to compile for; default: enough."
    ),
]
_FLAGS = options(
    flag("max_len", MaxLen, None),
    option(
        int | None,
        "--max-context-length",
        min=1,
        help="Longest prompt to compile for; default: --max-len.",
    ),
    option(
        str | None,
        "--context-encoding-buckets",
        metavar="N,N,...",
        help="Prompt lengths that have a program; default: powers of two.",
    ),
    option(
        str | None,
        "--token-generation-buckets",
        metavar="N,N,...",
        help="Sequence lengths that have a program for the next token; default: powers of two.",
    ),
    option(
        str | None,
        "--chunked-prefill-size",
        metavar="N,N,...",
        help="Split long prompts into chunks of this many tokens; default: no split.",
    ),
    option(
        bool,
        "--no-bucketing",
        default=False,
        help="One program for prompts and one for the next token.",
    ),
)


@dataclass(frozen=True, slots=True)
class CallSizes:
    """The values of the flags, under the names of the engine's options."""

    max_len: int | None = None
    max_context: int | None = None
    context: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    chunk: tuple[int, ...] = ()
    bucketing: bool = True


NO_SIZES = CallSizes()


def takes_sizes() -> Callable[[Command], Command]:
    """Give a command these flags in place of its parameter ``sizes``, a :class:`CallSizes`."""
    return takes_flags("sizes", _FLAGS, _collected)


def _collected(given: Mapping[str, object]) -> CallSizes:
    context, tokens = (f"{name}_buckets" for name in ("context_encoding", "token_generation"))
    chunk = "chunked_prefill_size"
    return CallSizes(
        max_len=cast("int | None", given["max_len"]),
        max_context=cast("int | None", given["max_context_length"]),
        context=read_buckets("--context-encoding-buckets", cast("str | None", given[context])),
        tokens=read_buckets("--token-generation-buckets", cast("str | None", given[tokens])),
        chunk=read_buckets("--chunked-prefill-size", cast("str | None", given[chunk])),
        bucketing=not given["no_bucketing"],
    )


def read_buckets(flag: str, text: str | None) -> tuple[int, ...]:
    """The sizes of a list such as ``128,512``; empty for no list.

    Raises:
        GraphgenError: GG0705 for what is not a list of numbers.
    """
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise GraphgenError(
            "GG0705",
            f"{flag} {text} is not a list of sizes",
            help=f"numbers of tokens with commas: {flag} 128,512",
        )
    return tuple(int(part) for part in parts)
