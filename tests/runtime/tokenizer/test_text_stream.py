"""Prompt and answer are one text: split anywhere, their texts and token bytes join to it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from graphgen.runtime.tokenizer import Tokenizer
from graphgen.runtime.tokenizer.tokenizer_parts import TokenizerParts
from tests.runtime.tokenizer.test_tokenizer_folder import byte_level

WORDS = ("the", "user", "a", "b", "in", "ing", ".", "é", "日")
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))


def of(backend: Backend) -> Tokenizer:
    """A tokenizer with a special token at the end of its vocabulary."""
    backend.add_special_tokens([AddedToken("<|end|>", special=True)])
    return Tokenizer(TokenizerParts(Path(), backend, None, None, None, frozenset(), None))


@cache
def made(kind: str) -> Tokenizer:
    """A small tokenizer of a kind."""
    if kind == "byte-level BPE":
        return of(byte_level())
    if kind == "WordPiece":
        names = ["[UNK]", *WORDS, *(f"##{word}" for word in WORDS)]
        pieces = models.WordPiece(vocab={name: n for n, name in enumerate(names)})
        backend = Backend(pieces)
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        backend.decoder = decoders.WordPiece(cleanup=False)
        return of(backend)
    names = ["<unk>", *BYTES, "▁", *WORDS, *(f"▁{word}" for word in WORDS)]
    if kind == "Unigram":
        scores = [(name, -float(n)) for n, name in enumerate(names)]
        backend = Backend(models.Unigram(vocab=scores, unk_id=0, byte_fallback=True))
        backend.pre_tokenizer = pre_tokenizers.Metaspace()
        backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
        return of(backend)
    letters = dict.fromkeys(letter for name in names for letter in name if name not in BYTES)
    vocabulary = {name: n for n, name in enumerate(dict.fromkeys([*names, *letters]))}
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("i", "n"), ("▁", "a")]
    vocabulary |= {"th": len(vocabulary)}
    backend = Backend(
        models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True, unk_token="<unk>")
    )
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return of(backend)


KINDS = ("byte-level BPE", "SentencePiece BPE", "Unigram", "WordPiece")
texts = st.lists(st.sampled_from([*WORDS, " ", "日本", "🌶", "<|end|>", "\n"]), max_size=12)


@pytest.mark.parametrize("kind", KINDS)
@given(texts.map("".join), st.integers(0, 60))
@settings(deadline=None)
def test_prompt_and_answer_join_to_the_whole_text(kind: str, text: str, at: int):
    tokenizer = made(kind)
    ids = tokenizer.encode(text)
    prompt, answer = ids[:at], ids[at:]
    before, whole = tokenizer.prompt_text(prompt), tokenizer.decode(ids)
    assert before + tokenizer.text_after(prompt, answer) == whole
    assert tokenizer.text_after((), ids) == whole
    stream = tokenizer.stream(prompt)
    pieces = [*map(stream.push, answer), stream.flush()]
    assert before + "".join(pieces) == whole
    if "�" not in whole:
        assert all("�" not in piece for piece in pieces)


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
@settings(deadline=None)
def test_any_ids_give_an_answer_beside_the_text_of_the_prompt(kind: str, data: st.DataObject):
    """Also bytes that end in the middle of a character, or that no character has."""
    tokenizer = made(kind)
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=8))
    at = data.draw(st.integers(0, len(ids)))
    before, after = tokenizer.prompt_text(ids[:at]), tokenizer.text_after(ids[:at], ids[at:])
    whole = tokenizer.decode(ids)
    if "�" not in whole:
        assert before + after == whole
    assert tokenizer.text_after(ids, ()) == whole[len(tokenizer.prompt_text(ids)) :] or "�" in whole


@pytest.mark.parametrize("kind", KINDS)
@given(texts.map("".join))
@settings(deadline=None)
def test_bytes_of_tokens_join_to_the_text(kind: str, text: str):
    tokenizer = made(kind)
    ids = tokenizer.encode(text)
    joined = b"".join(tokenizer.token_bytes(one) for one in ids).decode()
    whole = tokenizer.decode(ids, skip_special=False)
    # The decoders of pieces and words drop the space at the beginning of a text.
    assert joined in (whole, f" {whole}")


def test_a_character_over_the_seam_is_in_the_answer_once():
    pieces = made("SentencePiece BPE")
    ids = [pieces.vocabulary()[f"<0x{byte:02X}>"] for byte in "日".encode()]
    prompt = [*pieces.encode("the"), *ids[:2]]
    assert pieces.prompt_text(prompt) == "the"
    assert pieces.text_after(prompt, ids[2:]) == "日"
    assert pieces.text_after(prompt, ()) == "��"
    whole = [*pieces.encode("the"), *ids]
    assert pieces.prompt_text(whole) == "the日"
    assert pieces.text_after(whole, ids) == "日"
    # Bytes that are not a character's do not take back the prompt's.
    assert pieces.text_after(whole, ids[:1]) == "�"


def test_texts_of_tokens_are_those_of_the_vocabulary():
    pieces = made("SentencePiece BPE")
    known = pieces.vocabulary()
    assert pieces.token_text(known["▁the"]) == " the"
    assert pieces.token_text(known["the"]) == "the"
    assert pieces.token_text(known["<0xE6>"]) == "bytes:\\xe6"
    assert pieces.token_bytes(known["<0xE6>"]) == b"\xe6"
    assert pieces.token_text(known["<|end|>"]) == "<|end|>"
    assert pieces.token_bytes(pieces.vocab_size + 5) == b""
    words = made("WordPiece")
    assert words.token_text(words.vocabulary()["##ing"]) == "ing"
    assert words.token_text(words.vocabulary()["in"]) == " in"
