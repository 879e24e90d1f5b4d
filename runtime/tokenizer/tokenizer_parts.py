"""The parts of a tokenizer, common to all file formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend
from tokenizers.processors import TemplateProcessing

from graphgen.errors import GraphgenError


@dataclass(frozen=True)
class TokenizerParts:
    """A tokenizer and its attributes outside of the ``tokenizers`` package.

    Attributes:
        source: the file or folder it was read from.
        backend: encodes and decodes; truncation and padding are off.
        bos_token: the token that begins a text, if there is one.
        eos_token: the token that ends a text, if there is one.
        bos_id: the id of ``bos_token``.
        eos_ids: every id that ends generation.
        chat_template: Jinja2 text that renders messages to one prompt, if there is one.
    """

    source: Path
    backend: Backend
    bos_token: str | None
    eos_token: str | None
    bos_id: int | None
    eos_ids: frozenset[int]
    chat_template: str | None


def unusable(source: Path, what: str, *, help: str = "") -> GraphgenError:
    """GG0603: the tokenizer in ``source`` cannot be used."""
    return GraphgenError("GG0603", what, where=str(source), help=help)


def add_tokens(backend: Backend, tokens: Sequence[AddedToken]) -> None:
    """Make ``backend`` match ``tokens`` in the text as they are; special ones can be skipped."""
    backend.add_tokens(list(tokens))  # pyright: ignore[reportUnknownMemberType]


def surround(
    backend: Backend, before: Sequence[tuple[str, int]], after: Sequence[tuple[str, int]]
) -> None:
    """Make ``backend`` put the (token, id) pairs ``before`` and ``after`` every encoded text."""
    # A list, not one string: a token may contain a blank.
    single = [token for token, _ in before] + ["$A"] + [token for token, _ in after]
    backend.post_processor = TemplateProcessing(
        single=single, pair=[*single, "$B"], special_tokens=[*dict([*before, *after]).items()]
    )
