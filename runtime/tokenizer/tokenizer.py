"""Encode text to token ids, decode token ids to text, and stream text from token ids."""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, cast

from tokenizers import Tokenizer as Backend

from graphgen.errors import GraphgenError
from graphgen.json_value import parse_json
from graphgen.read_file import is_folder, is_there
from graphgen.runtime.checkpoint.open_checkpoint import only_gguf
from graphgen.runtime.tokenizer.chat_template import render_chat
from graphgen.runtime.tokenizer.message_markup import MessageMarkup
from graphgen.runtime.tokenizer.token_bound import BYTE_OF, TokenBound, token_bound
from graphgen.runtime.tokenizer.tokenizer_parts import TokenizerParts, tokenizer_calls, unusable

# Longer texts are tokenized while other threads run.
_LONG_TEXT: Final = 1 << 14
# Where characters do not bound tokens, a text may have this many characters a token, but not fewer
# than this many: more takes seconds to tokenize, and real texts have some four.
_CHARACTERS_PER_TOKEN: Final = 256
_ALWAYS_TOKENIZED: Final = 1 << 16


class Tokenizer:
    """The tokenizer of one model.

    Args:
        parts: the parts read from the checkpoint.
    """

    def __init__(self, parts: TokenizerParts) -> None:
        self.parts: Final = parts
        self._backend: Final = parts.backend
        self.bos_id: Final = parts.bos_id
        self.eos_ids: Final = parts.eos_ids
        self.chat_template: Final = parts.chat_template
        self.vocab_size: Final[int] = parts.backend.get_vocab_size(with_added_tokens=True)
        self._calls: Final = tokenizer_calls(parts.source)

    def vocabulary(self) -> Mapping[str, int]:
        """Token ids by the text that the tokenizer keeps of each."""
        return self._backend.get_vocab(with_added_tokens=True)

    @cached_property
    def bound(self) -> TokenBound | None:
        """The characters that tokens stand for at most; ``None`` for any number. Made once."""
        with self._calls:
            return token_bound(self._backend)

    @cached_property
    def message_markup(self) -> MessageMarkup:
        """The special tokens that messages cannot write; made once."""
        return MessageMarkup(self._backend, self.chat_template)

    def encode(self, text: str, *, add_special: bool = True, most: int | None = None) -> list[int]:
        """The token ids of ``text``.

        Special tokens written out in the text, such as ``<|im_start|>``, become their ids. A byte
        without a token in the vocabulary is dropped, as in Hugging Face.

        Args:
            text: any text, also the empty one.
            add_special: add the tokens that this tokenizer puts around a text, such as BOS.
            most: refuse a text that has more tokens by its characters, before it is tokenized; one
                that is not refused may have more, too.

        Raises:
            GraphgenError: GG0701 for a text of more than ``most`` tokens, GG0705 for a lone
                surrogate, which is not a character.
        """
        self._check(text, most)
        with self._calls:
            return _encoded(self._backend, text, add_special=add_special)

    def _check(self, text: str, most: int | None) -> None:
        """Refuse a text that cannot be tokenized, or has too many tokens by its characters."""
        bound = self.bound if most is not None else None
        if most is not None and bound is not None and bound.exceeds(text, most):
            raise GraphgenError(
                "GG0701",
                f"the prompt has at least {bound.least(text)} tokens, and {most} fit",
                help="shorten it",
            )
        longest = _CHARACTERS_PER_TOKEN if bound is None else bound.longest
        if most is not None and len(text) > max(_ALWAYS_TOKENIZED, most * longest):
            raise GraphgenError(
                "GG0701",
                f"the prompt has {len(text)} characters, too many for the {most} tokens that fit",
                help="shorten it",
            )
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise GraphgenError(
                "GG0705",
                f"the text has a lone surrogate, {text[error.start]!r}, at index {error.start}",
            ) from error

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """The text of ``ids``; invalid UTF-8 becomes U+FFFD.

        An id without a token (the padding of a vocabulary) has no text.

        Args:
            ids: token ids.
            skip_special: leave special tokens out instead of writing them.

        Raises:
            GraphgenError: GG0705 for an id outside of [0, 2**32).
        """
        checked = [_checked_id(i) for i in ids]
        with self._calls:
            return self._backend.decode(checked, skip_special_tokens=skip_special)

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        add_generation_prompt: bool = True,
        most: int | None = None,
        special_in_messages: bool = True,
    ) -> list[int]:
        """The token ids of a conversation, rendered with the model's chat template.

        Args:
            messages: the turns, each with the keys ``role`` and ``content``.
            add_generation_prompt: end the prompt with the beginning of the model's answer.
            most: as of :meth:`encode`, of the rendered text.
            special_in_messages: special tokens that a message spells out become their ids, as in
                Hugging Face by default. Else they are text, so that a message cannot begin a turn.

        Raises:
            GraphgenError: GG0701 as of :meth:`encode`, GG0603 if the model has no chat template or
                the template fails.
        """
        marks = None if special_in_messages else self.message_markup.marks(messages)
        try:
            text = render_chat(
                self.chat_template,
                messages,
                bos_token=self.parts.bos_token,
                eos_token=self.parts.eos_token,
                add_generation_prompt=add_generation_prompt,
                marks=marks,
            )
        except GraphgenError as error:
            raise unusable(self.parts.source, error.what, help=error.help) from error
        # The template writes BOS itself.
        if marks is None:
            return self.encode(text, add_special=False, most=most)
        self._check(text.replace(marks.mark, ""), most)
        named = self.message_markup.named(text, marks.mark)
        with self._calls:
            return self.message_markup.encode(lambda copy: _encoded(copy, named, add_special=False))

    def stream(self, *, skip_special: bool = True) -> TextStream:
        """A new stream from ids, one at a time, to text.

        Args:
            skip_special: leave special tokens out instead of writing them.
        """
        steps = _decoder_steps(self._backend)
        if steps == ["ByteLevel"]:
            return _ByteStream(self.parts, skip_special)
        return _PieceStream(self.parts, skip_special, incremental=_grows_by_appending(steps))


class TextStream(ABC):
    """Incremental detokenization.

    The text of :meth:`push` is final, and never ends inside a character. All results of
    :meth:`push` and of :meth:`flush`, joined, equal :meth:`Tokenizer.decode` of all ids.
    """

    def __init__(self, parts: TokenizerParts, skip_special: bool) -> None:
        self._backend: Final = parts.backend
        self._calls: Final = tokenizer_calls(parts.source)
        self._skipped: Final = frozenset(
            token_id
            for token_id, token in parts.backend.get_added_tokens_decoder().items()
            if skip_special and token.special
        )

    def push(self, token_id: int) -> str:
        """The text that this id makes final; often empty in the middle of a character.

        Raises:
            GraphgenError: GG0705 for an id outside of [0, 2**32).
        """
        token = self._backend.id_to_token(_checked_id(token_id))
        if token is None or token_id in self._skipped:
            return ""
        return self._push(token_id, token)

    @abstractmethod
    def flush(self) -> str:
        """The rest of the text; resets the stream."""

    @abstractmethod
    def _push(self, token_id: int, token: str) -> str: ...


class _ByteStream(TextStream):
    """Byte-level BPE: a token is a run of bytes, and a character may span tokens."""

    def __init__(self, parts: TokenizerParts, skip_special: bool) -> None:
        super().__init__(parts, skip_special)
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def _push(self, token_id: int, token: str) -> str:
        try:
            data = bytes(BYTE_OF[char] for char in token)
        except KeyError:
            # An added token is written in characters, not in the byte alphabet.
            data = token.encode("utf-8")
        return self._utf8.decode(data)

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

    def __init__(self, parts: TokenizerParts, skip_special: bool, *, incremental: bool) -> None:
        super().__init__(parts, skip_special)
        self._incremental: Final = incremental
        self._window: list[int] = []
        self._returned = 0  # ids of the window with returned text

    def _push(self, token_id: int, token: str) -> str:
        self._window.append(token_id)
        is_byte = len(token) == 6 and token.startswith("<0x") and token.endswith(">")
        if is_byte or not self._incremental:
            return ""
        text = self._new_text()
        self._window = self._window[self._returned :]
        self._returned = len(self._window)
        return text

    def flush(self) -> str:
        text = self._new_text()
        self._window = []
        self._returned = 0
        return text

    def _new_text(self) -> str:
        known = self._window[: self._returned]
        with self._calls:
            before = self._backend.decode(known, skip_special_tokens=False)
            return self._backend.decode(self._window, skip_special_tokens=False)[len(before) :]


def load_tokenizer(checkpoint_path: str | Path) -> Tokenizer:
    """Load the tokenizer of a checkpoint.

    Args:
        checkpoint_path: a folder with ``tokenizer.json``, a ``.gguf`` file, or a folder with one
            ``.gguf`` file. ``tokenizer.json`` takes precedence.

    Raises:
        GraphgenError: GG0603 if the tokenizer is missing or unusable, GG0601 if the GGUF file
            is damaged.
    """
    path = Path(checkpoint_path)
    gguf = path if path.suffix == ".gguf" and not is_folder(path) else None
    if gguf is None and is_folder(path) and not is_there(path / "tokenizer.json"):
        gguf = only_gguf(path)
    if gguf is not None:
        # Only here: the gguf package is not needed to read tokenizer.json.
        from graphgen.runtime.tokenizer.gguf_tokenizer import read_gguf_tokenizer

        return Tokenizer(read_gguf_tokenizer(gguf))
    if not is_there(path / "tokenizer.json"):
        raise unusable(
            path,
            "there is not a tokenizer",
            help="looked for: a folder with tokenizer.json; a .gguf file; "
            "a folder with exactly one .gguf file",
        )
    from graphgen.runtime.tokenizer.hf_tokenizer import read_hf_tokenizer

    return Tokenizer(read_hf_tokenizer(path))


def _encoded(backend: Backend, text: str, *, add_special: bool) -> list[int]:
    if len(text) < _LONG_TEXT:
        return backend.encode(text, add_special_tokens=add_special).ids
    # Unlike encode, it releases the interpreter's lock.
    (found,) = backend.encode_batch_fast([text], add_special_tokens=add_special)
    return found.ids


def _checked_id(token_id: int) -> int:
    if not 0 <= token_id < 2**32:
        raise GraphgenError("GG0705", f"{token_id} is not a token id")
    return int(token_id)


def _decoder_steps(backend: Backend) -> list[str]:
    """The names of the steps from tokens to text."""
    if backend.decoder is None:
        return []
    state = cast("dict[str, object]", parse_json(cast(bytes, backend.decoder.__getstate__())))
    nested = cast("list[dict[str, object]]", state.get("decoders", [state]))
    return [
        f"{step['type']} at the end" if step.get("stop") else f"{step['type']}" for step in nested
    ]


def _grows_by_appending(steps: Sequence[str]) -> bool:
    """True if another token never changes the text before it.

    Steps on single tokens cannot change it; after the tokens are fused, stripping at the front
    cannot either.
    """
    by_token = {"Replace", "ByteFallback", "Metaspace", "WordPiece", "BPEDecoder", "Strip"}
    fused = steps.index("Fuse") if "Fuse" in steps else len(steps)
    return set(steps[:fused]) <= by_token and set(steps[fused + 1 :]) <= {"Strip", "Fuse"}
