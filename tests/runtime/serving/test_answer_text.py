"""Pieces of an answer's text, joined, are the decoding of its tokens up to a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

from graphgen.runtime.serving.answer_text import AnswerText
from graphgen.runtime.tokenizer.tokenizer import TextStream, Tokenizer, load_tokenizer
from graphgen.runtime.tokenizer.tokenizer_parts import TokenizerParts
from tests.oracles.smollm2 import smollm2_path
from tests.runtime.serving.fake_session import cut


@cache
def smollm2() -> Tokenizer:
    return load_tokenizer(smollm2_path())


@cache
def with_byte_tokens() -> Tokenizer:
    """A vocabulary as SentencePiece writes it: pieces with U+2581, and a token for every byte."""
    names = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁a", "b", "▁", "é", "ab"]
    vocab = {name: index for index, name in enumerate(names)}
    backend = Backend(models.BPE(vocab=vocab, merges=[], byte_fallback=True, unk_token="<unk>"))
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return Tokenizer(TokenizerParts(Path(), backend, None, None, None, frozenset(), None))


class Pieces:
    """A stream whose n-th token is the n-th piece of a text."""

    def __init__(self, pieces: Sequence[str], rest: str) -> None:
        self._pieces, self._rest = pieces, rest

    def push(self, token_id: int) -> str:
        return self._pieces[token_id]

    def flush(self) -> str:
        rest, self._rest = self._rest, ""
        return rest


def joined(text: AnswerText, tokens: Sequence[int], whole: str) -> str:
    """All pieces of a text; none of them may have to be taken back."""
    out = ""
    for token in tokens:
        out += text.push(token)
        assert whole.startswith(out)
    return out + text.end()


few = st.text("ab", max_size=4)
stops = st.lists(st.text("ab", min_size=1, max_size=4), max_size=3)


@given(st.lists(few, max_size=8), few, stops)
@settings(deadline=None)
def test_the_cut_depends_on_characters_only(pieces: list[str], rest: str, stop: list[str]):
    whole, stopped = cut("".join(pieces) + rest, stop)
    text = AnswerText(cast("TextStream", Pieces(pieces, rest)), stop)
    assert joined(text, range(len(pieces)), whole) == whole
    assert text.stopped == stopped
    if stopped and pieces:
        assert text.push(0) == ""
    assert text.end() == ""


@given(st.lists(st.integers(0, 49151) | st.integers(0, 300), max_size=30), st.data())
@settings(deadline=None)
def test_pieces_of_smollm2_are_the_decoding(ids: list[int], data: st.DataObject):
    check(smollm2(), ids, data)


@given(st.text(max_size=30), st.data())
@settings(deadline=None)
def test_pieces_of_real_text_have_whole_characters(text: str, data: st.DataObject):
    ids = smollm2().encode(text)
    check(smollm2(), ids, data)
    pieces = AnswerText(smollm2().stream())
    if "\ufffd" not in smollm2().decode(ids):
        assert all("\ufffd" not in pieces.push(token) for token in ids)


@given(st.lists(st.integers(0, 261), max_size=30), st.data())
@settings(deadline=None)
def test_pieces_of_byte_tokens_are_the_decoding(ids: list[int], data: st.DataObject):
    check(with_byte_tokens(), ids, data)


def test_a_character_of_byte_tokens_comes_whole():
    ids = [257, *(1 + byte for byte in "é🦙".encode()), 258]
    text = AnswerText(with_byte_tokens().stream())
    assert [text.push(token) for token in ids] == ["a", *[""] * 6, "é🦙b"]


def check(tokenizer: Tokenizer, ids: list[int], data: st.DataObject) -> None:
    """Compare the pieces with the decoding, without and with stop strings out of the text."""
    decoded = tokenizer.decode(ids)
    assert joined(AnswerText(tokenizer.stream()), ids, decoded) == decoded
    if not decoded:
        return
    start = data.draw(st.integers(0, len(decoded) - 1))
    stop = [decoded[start : start + data.draw(st.integers(1, 4))], "never so"]
    whole, stopped = cut(decoded, stop)
    text = AnswerText(tokenizer.stream(), stop)
    assert joined(text, ids, whole) == whole
    assert text.stopped
    assert stopped
