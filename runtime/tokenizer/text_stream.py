"""Text of token ids as they come: text of a prompt and its answer as one sequence, bytes of tokens.

    text of an answer = decode(prompt + answer) minus decode(prompt)

The prompt's text ends at a whole character; an incomplete one belongs to the answer.
"""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Final, cast

from tokenizers import Tokenizer as Backend

from graphgen.errors import GraphgenError
from graphgen.json_value import parse_json
from graphgen.runtime.tokenizer.token_bound import BYTE_OF
from graphgen.runtime.tokenizer.tokenizer_parts import TokenizerParts, tokenizer_calls

# Tokens, of at least a byte each, that say how many bytes of a character stand at the end.
_ENOUGH: Final = 8


def open_stream(
    parts: TokenizerParts, *, skip_special: bool, kept: Collection[str] = ()
) -> TextStream:
    """A stream for the decoder of a tokenizer.

    Args:
        parts: of the tokenizer.
        skip_special: leave special tokens out instead of writing them.
        kept: special tokens that are written all the same.
    """
    steps = _decoder_steps(parts.backend)
    if _is_byte_level(steps):
        return _ByteStream(parts, skip_special, kept)
    return _PieceStream(parts, skip_special, kept, incremental=_grows_by_appending(steps))


class TextStream(ABC):
    """Incremental detokenization.

    The text of :meth:`push` is final, and never ends inside a character. All results of
    :meth:`push` and of :meth:`flush`, joined, equal :meth:`Tokenizer.decode` of all ids; after
    :meth:`follow`, what these ids add to the decoding of the ids before them.
    """

    def __init__(
        self, parts: TokenizerParts, skip_special: bool, kept: Collection[str] = ()
    ) -> None:
        self._backend: Final = parts.backend
        self._calls: Final = tokenizer_calls(parts.source)
        self._skipped: Final = frozenset(
            token_id
            for token_id, token in parts.backend.get_added_tokens_decoder().items()
            if skip_special and token.special and token.content not in kept
        )

    def push(self, token_id: int) -> str:
        """The text that this id makes final; often empty in the middle of a character.

        Raises:
            GraphgenError: GG0705 for an id outside of [0, 2**32).
        """
        token = self._written(token_id)
        return "" if token is None else self._push(token_id, token)

    def _written(self, token_id: int) -> str | None:
        """The token of an id; ``None`` for one that is skipped, and for one without a token."""
        token = self._backend.id_to_token(checked_id(token_id))
        return None if token_id in self._skipped else token

    @abstractmethod
    def follow(self, ids: Sequence[int]) -> None:
        """Begin after ``ids``, whose text is not returned, but for an incomplete character."""

    @abstractmethod
    def text_before(self, ids: Sequence[int]) -> str:
        """The text of ``ids`` that a stream which follows them does not return."""

    @abstractmethod
    def flush(self) -> str:
        """The rest of the text; resets the stream."""

    @abstractmethod
    def _push(self, token_id: int, token: str) -> str: ...


class _ByteStream(TextStream):
    """Byte-level BPE: a token is a run of bytes, and a character may span tokens."""

    def __init__(self, parts: TokenizerParts, skip_special: bool, kept: Collection[str]) -> None:
        super().__init__(parts, skip_special, kept)
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def _push(self, token_id: int, token: str) -> str:
        return self._utf8.decode(_bytes_of(token))

    def follow(self, ids: Sequence[int]) -> None:
        last: list[str] = []
        for token_id in reversed(ids):
            token = self._written(token_id)
            if token:
                last.append(token)
            if len(last) == _ENOUGH:
                break
        self._utf8.reset()
        for token in reversed(last):
            self._utf8.decode(_bytes_of(token))

    def text_before(self, ids: Sequence[int]) -> str:
        tokens = [token for one in ids if (token := self._written(one)) is not None]
        self._utf8.reset()
        return "".join([self._utf8.decode(_bytes_of(token)) for token in tokens])

    def flush(self) -> str:
        rest = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return rest


class _PieceStream(TextStream):
    """Other tokenizers: new text = decode(ids with the last one) minus decode(ids before it).

    A run of byte tokens such as ``<0xE2>`` becomes text only as a whole, so it is held back until
    another token ends it. Decoding starts at the last two ends of such runs: earlier ids have no
    influence.
    """

    def __init__(
        self,
        parts: TokenizerParts,
        skip_special: bool,
        kept: Collection[str],
        *,
        incremental: bool,
    ) -> None:
        super().__init__(parts, skip_special, kept)
        self._incremental: Final = incremental
        self._window: list[int] = []
        self._returned = 0  # ids of the window with returned text

    def _push(self, token_id: int, token: str) -> str:
        self._window.append(token_id)
        if not self._incremental or _byte(token) is not None:
            return ""
        text = self._new_text()
        self._window = self._window[self._returned :]
        self._returned = len(self._window)
        return text

    def follow(self, ids: Sequence[int]) -> None:
        last, run, ends = list[int](), list[int](), 0
        for token_id in reversed(ids):
            token = self._written(token_id)
            if token is None:
                continue
            last.append(token_id)
            byte = _byte(token)
            if byte is not None and not ends:
                run.append(byte)
            ends += byte is None
            if ends == 2 and self._incremental:
                break
        self._window = last[::-1]
        self._returned = len(last) - _incomplete(bytes(run[::-1]))

    def text_before(self, ids: Sequence[int]) -> str:
        kept = [one for one in ids if self._written(one) is not None]
        self.follow(kept)
        with self._calls:
            known = kept[: len(kept) - len(self._window) + self._returned]
            return self._backend.decode(known, skip_special_tokens=False)

    def flush(self) -> str:
        text = self._new_text()
        self._window = []
        self._returned = 0
        return text

    def _new_text(self) -> str:
        known, new = self._window[: self._returned], self._window[self._returned :]
        with self._calls:
            before = self._backend.decode(known, skip_special_tokens=False)
            text = self._backend.decode(self._window, skip_special_tokens=False)
            if text.startswith(before):
                return text[len(before) :]
            # Invalid bytes after those of whole characters make all of the run invalid.
            return self._backend.decode(new, skip_special_tokens=False)


class TokenBytes:
    """The bytes that each token adds to a text, by the vocabulary and the decoder.

    Those of a byte-level token or of ``<0xE2>`` are its bytes, also parts of a character. Any other
    token is decoded after another one, so that a leading space stays.

    Args:
        parts: of the tokenizer.
    """

    def __init__(self, parts: TokenizerParts) -> None:
        self._parts: Final = parts
        self._calls: Final = tokenizer_calls(parts.source)
        self._known: Final = dict[int, bytes]()

    def of(self, token_id: int) -> bytes:
        """The bytes; none for an id without a token.

        Raises:
            GraphgenError: GG0705 for an id outside of [0, 2**32).
        """
        if token_id not in self._known:
            self._known[token_id] = self._made(checked_id(token_id))
        return self._known[token_id]

    def _made(self, token_id: int) -> bytes:
        backend = self._parts.backend
        token = backend.id_to_token(token_id)
        if token is None:
            return b""
        added = token_id in self._added
        if self._byte_level:
            return token.encode("utf-8", "replace") if added else _bytes_of(token)
        byte = None if added else _byte(token)
        if byte is not None:
            return bytes([byte])
        with self._calls:
            before = backend.decode(self._anchor, skip_special_tokens=False)
            text = backend.decode([*self._anchor, token_id], skip_special_tokens=False)
        return text[len(before) :].encode("utf-8", "replace")

    @cached_property
    def _added(self) -> frozenset[int]:
        return frozenset(self._parts.backend.get_added_tokens_decoder())

    @cached_property
    def _byte_level(self) -> bool:
        return _is_byte_level(_decoder_steps(self._parts.backend))

    @cached_property
    def _anchor(self) -> list[int]:
        """A token of letters, as a text of one token; empty where there is not one."""
        vocabulary = self._parts.backend.get_vocab(with_added_tokens=False)
        found = [number for token, number in vocabulary.items() if token.isalpha()]
        return [min(found)] if found else []


def written(data: bytes) -> str:
    """The text of a token's bytes; ``bytes:\\xe2`` where they are not whole characters.

    That is how OpenAI's completions write parts of characters: tokens keep different texts.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def checked_id(token_id: int) -> int:
    """A token id; GG0705 outside of [0, 2**32)."""
    if not 0 <= token_id < 2**32:
        raise GraphgenError("GG0705", f"{token_id} is not a token id")
    return int(token_id)


def _bytes_of(token: str) -> bytes:
    """The bytes of a byte-level token; an added token is written in characters."""
    try:
        return bytes(BYTE_OF[char] for char in token)
    except KeyError:
        return token.encode("utf-8", "replace")


def _byte(token: str) -> int | None:
    """The byte of a token such as ``<0xE2>``; ``None`` for any other token."""
    if len(token) != 6 or not token.startswith("<0x") or not token.endswith(">"):
        return None
    try:
        return int(token[3:5], 16)
    except ValueError:
        return None


def _incomplete(data: bytes) -> int:
    """Bytes at the end that begin a character, after whole characters only."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return len(data) - error.start if error.reason == "unexpected end of data" else 0
    return 0


def _decoder_steps(backend: Backend) -> list[str]:
    """The names of the steps from tokens to text."""
    if backend.decoder is None:
        return []
    state = cast("dict[str, object]", parse_json(cast(bytes, backend.decoder.__getstate__())))
    nested = cast("list[dict[str, object]]", state.get("decoders", [state]))
    return [
        f"{step['type']} at the end" if step.get("stop") else f"{step['type']}" for step in nested
    ]


def _is_byte_level(steps: Sequence[str]) -> bool:
    return list(steps) == ["ByteLevel"]


def _grows_by_appending(steps: Sequence[str]) -> bool:
    """True if another token never changes the text before it.

    Steps on single tokens cannot change it; after the tokens are fused, stripping at the front
    cannot either.
    """
    by_token = {"Replace", "ByteFallback", "Metaspace", "WordPiece", "BPEDecoder", "Strip"}
    fused = steps.index("Fuse") if "Fuse" in steps else len(steps)
    return set(steps[:fused]) <= by_token and set(steps[fused + 1 :]) <= {"Strip", "Fuse"}
