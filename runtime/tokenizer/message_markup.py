"""Tokenize conversations whose messages cannot write special tokens: only the template can.

A message such as ``<|im_end|><|im_start|>system ...`` would otherwise begin a turn. Texts
of messages are marked before the template is rendered; the marks tell what the template wrote from
what a message has. The template's special tokens are then tokenized under other names, which cannot
be guessed, by a copy of the tokenizer that does not know the usual ones.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.runtime.tokenizer.marked_text import Marks

_State = dict[str, Any]
# Code points that are never characters: programs may use them inside of themselves.
_NONCHARACTERS: Final = [
    *range(0xFDD0, 0xFDF0),
    *(plane << 16 | end for plane in range(17) for end in (0xFFFE, 0xFFFF)),
]


class MessageMarkup:
    """The special tokens of a tokenizer, as text and as what a template writes.

    They are those that the tokenizer calls special, and the added ones that the template spells.

    Args:
        backend: the tokenizer.
        template: the chat template.
    """

    def __init__(self, backend: Backend, template: str | None) -> None:
        secret = secrets.token_hex(12)
        found = {
            number: token
            for number, token in backend.get_added_tokens_decoder().items()
            if (token.special or token.content in (template or ""))
            and token.content.strip()
            and _is_matched(backend, token.content, number)
        }
        # A name ends with a letter, so that none begins another one.
        names = {token.content: f"z{secret}{number}z" for number, token in found.items()}
        self._names: Final = names
        self._firsts: Final = _any_of({text[0] for text in names})
        ends = {char for text in names for char in (text[0], text[-1])}
        self._ends: Final = re.compile(_any_of(ends))
        self._tokens: Final = list(found.values())
        self._backend: Final = _renamed(backend, names)
        self._ids: Final = {
            self._backend.token_to_id(names[token.content]): number
            for number, token in found.items()
        }

    def marks(
        self, messages: Sequence[Mapping[str, Json]], tools: Sequence[Json] = ()
    ) -> Marks | None:
        """The marks of these messages and tools; ``None`` if there is nothing to mark.

        Raises:
            GraphgenError: GG0705 for messages that have every noncharacter of Unicode.
        """
        texts = [text for value in (*messages, *tools) for text in _texts(value)]
        if not any(map(self._ends.search, texts)):
            return None
        free = (char for char in map(chr, _NONCHARACTERS) if not any(char in t for t in texts))
        mark = next(free, None)
        if mark is None:
            raise GraphgenError("GG0705", "the messages have every noncharacter of Unicode")
        return Marks(self._firsts, mark)

    def named(self, text: str, mark: str) -> str:
        """A rendered conversation without marks, with the names of the template's tokens."""
        pattern = re.compile("|".join(_pattern(token, mark) for token in self._longest_first()))
        return pattern.sub(lambda found: self._names[found[0]], text).replace(mark, "")

    def encode(self, encode: Callable[[Backend], list[int]]) -> list[int]:
        """The token ids that the copy gives, as the tokenizer numbers them."""
        return [self._ids.get(number, number) for number in encode(self._backend)]

    def _longest_first(self) -> Iterator[AddedToken]:
        return iter(sorted(self._tokens, key=lambda token: -len(token.content)))


def _texts(value: Json) -> Iterator[str]:
    """All texts of a value, names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield name
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def _any_of(chars: set[str]) -> str:
    return f"[{''.join(map(re.escape, sorted(chars)))}]" if chars else "(?!)"


def _pattern(token: AddedToken, mark: str) -> str:
    text = re.escape(token.content)
    if len(token.content) == 1:
        # No mark is inside of it; those of a message come after it.
        text += f"(?!{mark}{mark})"
    return rf"(?<!\w){text}(?!\w)" if token.single_word else text


def _is_matched(backend: Backend, text: str, number: int) -> bool:
    """True if a tokenizer finds an added token in texts; some are only numbers of the model."""
    return all(
        number in backend.encode(around, add_special_tokens=False).ids
        for around in (text, f" {text} ")
    )


def _renamed(backend: Backend, names: Mapping[str, str]) -> Backend:
    """A copy of a tokenizer that has other texts for some tokens."""
    state: _State = json.loads(backend.to_str())
    # Templates write what belongs around a text.
    state["post_processor"] = None
    for token in cast("list[_State]", state["added_tokens"]):
        token["content"] = names.get(token["content"], token["content"])
    model: _State = state["model"]
    vocabulary = model["vocab"]
    if isinstance(vocabulary, list):
        pieces = cast("list[tuple[str, float]]", vocabulary)
        model["vocab"] = [[names.get(piece, piece), score] for piece, score in pieces]
    else:
        numbers = cast("dict[str, int]", vocabulary)
        model["vocab"] = {names.get(piece, piece): number for piece, number in numbers.items()}
    if model.get("unk_token") in names:
        model["unk_token"] = names[model["unk_token"]]
    if "merges" in model:
        merges = cast("list[str | list[str]]", model["merges"])
        model["merges"] = [merge for merge in merges if not _makes(merge, names)]
    return Backend.from_str(json.dumps(state))


def _makes(merge: str | list[str], names: Mapping[str, str]) -> bool:
    """True if a merge of BPE makes one of these tokens of text, or goes on from it."""
    parts = merge.split(" ", 1) if isinstance(merge, str) else merge
    return "".join(parts) in names or any(part in names for part in parts)
