"""Encode text to token ids, and decode token ids to text."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from tokenizers import Tokenizer as Backend

from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.read_file import is_folder, is_there
from graphgen.runtime.checkpoint.open_checkpoint import only_gguf
from graphgen.runtime.tokenizer.chat_template import render_chat
from graphgen.runtime.tokenizer.message_markup import MessageMarkup
from graphgen.runtime.tokenizer.text_stream import (
    TextStream,
    TokenBytes,
    checked_id,
    open_stream,
    written,
)
from graphgen.runtime.tokenizer.token_bound import TokenBound, token_bound
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
        self._token_bytes: Final = TokenBytes(parts)

    def vocabulary(self) -> Mapping[str, int]:
        """Token ids by the text that the tokenizer keeps of each."""
        return self._backend.get_vocab(with_added_tokens=True)

    @cached_property
    def special_ids(self) -> Mapping[str, int]:
        """Ids of special tokens, by their text; made once."""
        added = self._backend.get_added_tokens_decoder()
        return {token.content: number for number, token in added.items() if token.special}

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
        checked = [checked_id(i) for i in ids]
        with self._calls:
            return self._backend.decode(checked, skip_special_tokens=skip_special)

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Json]],
        *,
        add_generation_prompt: bool = True,
        most: int | None = None,
        special_in_messages: bool = True,
        arguments: Mapping[str, Json] | None = None,
        tools: Sequence[Json] = (),
    ) -> list[int]:
        """The token ids of a conversation, rendered with the model's chat template.

        Args:
            messages: the turns, each with the keys ``role`` and ``content``, and others that the
                template reads.
            add_generation_prompt: end the prompt with the beginning of the model's answer.
            most: as of :meth:`encode`, of the rendered text.
            special_in_messages: special tokens that a message spells out become their ids, as in
                Hugging Face by default. Else they are text, so that a message cannot begin a turn.
            arguments: names that the template reads, such as ``enable_thinking``.
            tools: functions that the model may call, as OpenAI's API describes them.

        Raises:
            GraphgenError: GG0705 for arguments that cannot be given, GG0701 as of :meth:`encode`,
                GG0603 if the model has no chat template or the template fails.
        """
        marks = None if special_in_messages else self.message_markup.marks(messages, tools)
        try:
            text = render_chat(
                self.chat_template,
                messages,
                bos_token=self.parts.bos_token,
                eos_token=self.parts.eos_token,
                add_generation_prompt=add_generation_prompt,
                marks=marks,
                other_tokens=self.parts.other_tokens,
                arguments=arguments,
                tools=tools,
            )
        except GraphgenError as error:
            if error.code != "GG0603":
                raise
            raise unusable(self.parts.source, error.what, help=error.help) from error
        # The template writes BOS itself.
        if marks is None:
            return self.encode(text, add_special=False, most=most)
        self._check(text.replace(marks.mark, ""), most)
        named = self.message_markup.named(text, marks.mark)
        with self._calls:
            return self.message_markup.encode(lambda copy: _encoded(copy, named, add_special=False))

    def stream(
        self,
        after: Sequence[int] = (),
        *,
        skip_special: bool = True,
        kept: Collection[str] = (),
    ) -> TextStream:
        """A new stream from ids, one at a time, to text.

        Args:
            after: the ids of the prompt that the text goes on from; empty for a text of its own.
            skip_special: leave special tokens out instead of writing them.
            kept: special tokens that are written all the same.
        """
        made = open_stream(self.parts, skip_special=skip_special, kept=kept)
        made.follow(after)
        return made

    def text_after(self, prompt: Sequence[int], ids: Sequence[int]) -> str:
        """decode(prompt + ids) minus decode(prompt): what :meth:`stream` gives after the prompt.

        A character that the prompt begins and ``ids`` end is part of the result.
        """
        stream = self.stream(prompt)
        return "".join([*map(stream.push, ids), stream.flush()])

    def prompt_text(self, prompt: Sequence[int]) -> str:
        """decode(prompt) without a character that is incomplete at its end."""
        return open_stream(self.parts, skip_special=True).text_before(prompt)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token adds to a text; see :class:`TokenBytes`."""
        return self._token_bytes.of(token_id)

    def token_text(self, token_id: int) -> str:
        """The text that a token adds; ``bytes:\\xe2`` for a part of a character."""
        return written(self.token_bytes(token_id))


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
