"""No prompt that fits is refused by its number of characters, whatever its tokenizer does."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import cache
from itertools import starmap

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from graphgen.errors import GraphgenError
from graphgen.runtime.tokenizer.token_bound import BYTE_OF, TokenBound, token_bound
from graphgen.runtime.tokenizer.tokenizer import Tokenizer as ModelTokenizer
from graphgen.runtime.tokenizer.tokenizer import load_tokenizer
from tests.oracles.smollm2 import smollm2_path

CORPUS = [
    "the cat sat on the mat, and the other cat did not sit",
    "        indented   text\n\n\twith   blanks",
    "Ångström façade ﬁne 한국어 ǖber the the the the thethethe",
]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
BLANK = normalizers.Replace(" ", "▁")
Make = Callable[[], Tokenizer]


def byte_level(missing: str = "", normalizer: normalizers.Normalizer | None = None) -> Tokenizer:
    """Byte-level BPE without the tokens of some bytes."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    gone = set(missing.encode("latin-1"))
    alphabet = [char for char, byte in BYTE_OF.items() if byte not in gone]
    trainer = trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator([text for text in CORPUS if gone.isdisjoint(text.encode())], trainer)
    if normalizer is not None:
        made.normalizer = normalizer
    return made


def bytes_behind(*steps: normalizers.Normalizer) -> Tokenizer:
    """BPE as of Llama 2: blanks are written out, unknown characters are bytes."""
    names = ["<unk>", *BYTES, *"abcdehinost▁.", "th", "the", "▁the", "▁▁", "▁▁▁▁"]
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("▁", "▁"), ("▁▁", "▁▁")]
    vocabulary = {name: place for place, name in enumerate(names)}
    model = models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    made = Tokenizer(model)
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), *steps, BLANK])
    return made


def unknown_each(
    normalizer: normalizers.Normalizer, split: pre_tokenizers.PreTokenizer | None = None
):
    """BPE of characters that has one token for each unknown one."""
    names = ["?", *"abcdehinost", "th", "the", "b\u0301"]
    vocabulary = {name: place for place, name in enumerate(names)}
    made = Tokenizer(models.BPE(vocabulary, [("t", "h"), ("th", "e")], unk_token="?"))
    made.normalizer = normalizer
    if split is not None:
        made.pre_tokenizer = split
    return made


def pieces(byte_fallback: bool, *steps: normalizers.Normalizer) -> Tokenizer:
    rows = [("<unk>", 0.0), *((name, -8.0) for name in BYTES)]
    rows += [("▁", -2.0), ("the", -2.5), ("▁the", -2.0), *((char, -4.0) for char in "aehstn")]
    made = Tokenizer(models.Unigram(rows, 0, byte_fallback))
    made.normalizer = normalizers.Sequence([*steps, BLANK])
    return made


def words() -> Tokenizer:
    made = Tokenizer(models.WordPiece({"[UNK]": 0, "the": 1, "##a": 2}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def with_added(made: Tokenizer, *tokens: AddedToken) -> Tokenizer:
    made.add_tokens(list(tokens))
    return made


NFC, NFKC, NFD, LOWER = (getattr(normalizers, name) for name in ("NFC", "NFKC", "NFD", "Lowercase"))
BOUNDED: dict[str, Make] = {
    "bytes": byte_level,
    "bytes without controls": lambda: byte_level("\x04\x06\xc0\xf1"),
    "bytes, NFC": lambda: byte_level(normalizer=NFC()),
    "bytes, NFKC, no controls": lambda: byte_level("\x04\x06", NFKC()),
    "bytes, longer added": lambda: with_added(byte_level(), AddedToken("<|" + "x" * 99 + "|>")),
    "bytes, stripping": lambda: with_added(
        byte_level(normalizer=NFKC()), AddedToken("<m>", lstrip=True, rstrip=True)
    ),
    "bytes, normalized added": lambda: with_added(
        byte_level(normalizer=normalizers.NFKD()), AddedToken("\ufdfa", normalized=True)
    ),
    "fallback": bytes_behind,
    "fallback, NFKC": lambda: bytes_behind(NFKC()),
    "fallback, shortened": lambda: bytes_behind(normalizers.Replace("aaa", "t"), NFC()),
    "unknown": lambda: unknown_each(NFD()),
    "unknown, NFC": lambda: unknown_each(NFC()),
    "unknown, shortened": lambda: unknown_each(normalizers.Replace("aaaa", "t")),
    "unknown, strip": lambda: unknown_each(normalizers.Sequence([normalizers.Strip(), LOWER()])),
    "unknown, split": lambda: unknown_each(LOWER(), pre_tokenizers.Whitespace()),
    "pieces": lambda: pieces(True, NFKC()),
}
UNBOUNDED: dict[str, tuple[Make, str]] = {
    "words": (words, "é" * 3000),
    "pieces": (lambda: pieces(False), "é" * 3000),
    "bytes without a letter": (lambda: byte_level("z", LOWER()), "Z" * 3000),
    "no following bytes": (
        lambda: byte_level("".join(map(chr, range(0x80, 0x100)))),
        "é" * 3000,
    ),
    "accents": (lambda: byte_level(normalizer=normalizers.StripAccents()), "\u0301" * 3000),
    "pattern": (lambda: byte_level(normalizer=normalizers.Replace(Regex("a+"), "a")), "a" * 3000),
    "removed": (lambda: byte_level(normalizer=normalizers.Replace("a", "")), "a" * 3000),
    "made white": (
        lambda: unknown_each(normalizers.Replace("a", " "), pre_tokenizers.Whitespace()),
        "a" * 3000,
    ),
    "split off": (lambda: unknown_each(LOWER(), pre_tokenizers.Split("a", "removed")), "a" * 3000),
    "controls": (lambda: byte_level(normalizer=normalizers.Nmt()), "\x01" * 3000),
}


@cache
def backend(name: str) -> Tokenizer:
    return load_tokenizer(smollm2_path()).parts.backend if name == "smollm2" else BOUNDED[name]()


@cache
def bound_of(name: str) -> TokenBound | None:
    return token_bound(backend(name))


# Runs, since they are what tokens merge and what normalizers and splits drop.
RUN = st.tuples(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from(
            [*"aehstz \n\t\x00\x04\x06", "the ", " the", "<m>", "\u0301", "\ufb01", "\ufdfa"]
        ),
        st.sampled_from(
            ["\u1f82", "\u03b1\u0313\u0300\u0345", "\u1112\u1161\u11ab", "<|" + "x" * 99 + "|>"]
        ),
        st.sampled_from(CORPUS),
    ),
    st.integers(1, 90),
)
TEXT = st.lists(RUN, max_size=6).map(lambda runs: "".join(starmap(str.__mul__, runs)))


@pytest.mark.parametrize("name", ["smollm2", *BOUNDED])
@example(text="\t" * 900 + "<m>" + " " * 900)
@example(text="a" * 900)
@example(text="\u03b1\u0313\u0300\u0345" * 900)
@example(text="\x04\x06" * 900)
@given(text=TEXT)
@settings(max_examples=150, deadline=None)
def test_no_text_that_fits_is_refused(name: str, text: str):
    bound, count = bound_of(name), len(backend(name).encode(text, add_special_tokens=False).ids)
    assert bound is not None
    assert bound.least(text) <= count
    for most in (0, 1, count // 2, count, count + 1):
        assert not bound.exceeds(text, most) or count > most


@pytest.mark.parametrize("name", ["smollm2", *BOUNDED])
def test_a_long_text_is_refused(name: str):
    bound = bound_of(name)
    assert bound is not None
    assert 1 <= bound.longest <= 400
    assert bound.exceeds("ab" * bound.longest * 8, 15)
    assert not bound.exceeds("ab" * bound.longest * 8, 16)


@pytest.mark.parametrize("name", UNBOUNDED)
def test_without_a_bound_a_text_of_any_length_may_have_few_tokens(name: str):
    make, text = UNBOUNDED[name]
    made = make()
    assert token_bound(made) is None
    assert len(made.encode(text, add_special_tokens=False).ids) <= 1


def test_composition_takes_four_characters_for_one_at_most():
    longest = max(
        len(unicodedata.normalize("NFD", char)) for char in map(chr, range(0x110000)) if char
    )
    assert longest == 4


def test_a_prompt_above_the_bound_is_not_tokenized(monkeypatch: pytest.MonkeyPatch):
    tokenizer = load_tokenizer(smollm2_path())
    assert tokenizer.bound is not None
    most = tokenizer.bound.longest * 8

    class Backend:
        """Tells that a text was tokenized."""

        def encode(self, text: str, *, add_special_tokens: bool) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(tokenizer, "_backend", Backend())
    with pytest.raises(GraphgenError) as caught:
        tokenizer.encode("a" * (most + 1), most=8)
    assert str(caught.value).splitlines()[0] == (
        "error[GG0701]: the prompt has at least 9 tokens, and 8 fit"
    )
    with pytest.raises(KeyboardInterrupt):
        tokenizer.encode("a" * most, most=8)


def test_a_long_text_has_the_tokens_of_the_library():
    tokenizer: ModelTokenizer = load_tokenizer(smollm2_path())
    text = "".join(CORPUS) * 200
    assert len(text) > 1 << 14
    for special in (False, True):
        wanted = tokenizer.parts.backend.encode(text, add_special_tokens=special).ids
        assert tokenizer.encode(text, add_special=special) == wanted
