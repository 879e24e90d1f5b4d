"""The parts of a tokenizer, common to all file formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend
from tokenizers.processors import TemplateProcessing

from graphgen.errors import GraphgenError
from graphgen.foreign_calls import ForeignCalls


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
        other_tokens: named tokens that the template has beside BOS and EOS, such as ``pad_token``.
    """

    source: Path
    backend: Backend
    bos_token: str | None
    eos_token: str | None
    bos_id: int | None
    eos_ids: frozenset[int]
    chat_template: str | None
    other_tokens: Mapping[str, str] = field(default_factory=dict[str, str])


def unusable(source: Path, what: str, *, help: str = "") -> GraphgenError:
    """GG0603: the tokenizer in ``source`` cannot be used."""
    return GraphgenError("GG0603", what, where=str(source), help=help)


def tokenizer_calls(source: Path) -> ForeignCalls:
    """A block of calls of the ``tokenizers`` package; its errors and panics become GG0603."""
    return ForeignCalls(lambda text: unusable(source, f"the tokenizer fails: {text}"))


def add_tokens(backend: Backend, tokens: Sequence[AddedToken]) -> None:
    """Make ``backend`` match ``tokens`` in the text as they are; special ones can be skipped.

    Raises:
        GraphgenError: GG0603 for a normalizer that fails on them.
    """
    with ForeignCalls(lambda text: GraphgenError("GG0603", f"a token cannot be added: {text}")):
        backend.add_tokens(list(tokens))  # pyright: ignore[reportUnknownMemberType]


def surround(
    backend: Backend, before: Sequence[tuple[str, int]], after: Sequence[tuple[str, int]]
) -> None:
    """Make ``backend`` put the (token, id) pairs ``before`` and ``after`` every encoded text."""
    # A list, not one string: a token may contain a blank.
    single = [token for token, _ in before] + ["$A"] + [token for token, _ in after]
    added = [*dict([*before, *after]).items()]
    with ForeignCalls(lambda text: GraphgenError("GG0603", f"BOS and EOS cannot be added: {text}")):
        pair = [*single, "$B"]
        made = TemplateProcessing(single=single, pair=pair, special_tokens=added)
        backend.post_processor = made
