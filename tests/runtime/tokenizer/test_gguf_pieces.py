"""GGUF tokenizers of kind ``llama``: SentencePiece's BPE, by its definition."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphgen.errors import GraphgenError
from graphgen.runtime.tokenizer import Tokenizer, load_tokenizer
from tests.oracles.small_gguf import Value, write_small_model

SPACE = "\u2581"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
# By score, the best first; some joins overlap.
WORDS = [
    *("th", "in", "he", "the", SPACE + "t", SPACE + "the", "ing", "er", SPACE + "a", "re"),
    *("here", SPACE + SPACE, "日本", "is", "his", "this", SPACE + "this", "\n\n", "us", "user"),
]
LETTERS = [*"abeghinrstu", SPACE, "日", "本", "é", "\n", ".", "1", "2"]
NAMES = ["<unk>", "<s>", "</s>", *BYTES, *WORDS, *LETTERS, "<|end|>", "<tool>"]
KINDS = [2, 3, 3, *[6] * 256, *[1] * (len(WORDS) + len(LETTERS)), 3, 4]
SCORES = [0.0] * 259 + [-float(n) for n in range(len(WORDS))] + [-1e4] * (len(LETTERS) + 2)


def write(path: Path, **changes: Value | None) -> Tokenizer:
    """A tokenizer of pieces, with other metadata."""
    stated: dict[str, Value | None] = {
        "model": "llama",
        "pre": "default",
        "tokens": NAMES,
        "scores": SCORES,
        "token_type": KINDS,
        "merges": None,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
        "add_bos_token": None,
        **changes,
    }
    write_small_model(path, {f"tokenizer.ggml.{name}": value for name, value in stated.items()})
    return load_tokenizer(path)


def merged(text: str) -> list[int]:
    """Ids by the definition: of adjacent pieces the best join first, the leftmost of equal ones."""
    best = {name: score for name, score in zip(NAMES, SCORES, strict=True) if name in WORDS}
    pieces = list(text)
    while True:
        joins = [(best[a + b], -n) for n, (a, b) in enumerate(pairwise(pieces)) if a + b in best]
        if not joins:
            break
        at = -max(joins)[1]
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
    names = [name for piece in pieces for name in ([piece] if piece in NAMES else bytes_of(piece))]
    return [NAMES.index(name) for name in names]


def bytes_of(piece: str) -> list[str]:
    return [f"<0x{byte:02X}>" for byte in piece.encode()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pieces")


texts = st.lists(
    st.sampled_from(
        ["the", " ", "this", "his", "in", "g", "日本", "é", "🌶", "\n", ".", "1", "user"]
    ),
    max_size=10,
).map("".join)


@pytest.mark.parametrize("prefix", [None, True, False])
def test_ids_are_those_of_the_definition(folder: Path, prefix: bool | None):
    tokenizer = write(folder / f"{prefix}.gguf", add_space_prefix=prefix)

    @given(texts)
    @settings(deadline=None)
    def check(text: str) -> None:
        begin = SPACE if text and prefix is not False else ""
        ids = merged(begin + text.replace(" ", SPACE))
        assert tokenizer.encode(text) == [1, *ids]
        assert tokenizer.encode(text, add_special=False) == ids
        assert tokenizer.decode(ids) == text
        stream = tokenizer.stream()
        assert "".join([*map(stream.push, ids), stream.flush()]) == text

    check()


def test_special_and_user_defined_tokens_are_cut_out_first(folder: Path):
    tokenizer = write(folder / "special.gguf", add_bos_token=False)
    end, tool = NAMES.index("<|end|>"), NAMES.index("<tool>")
    the = NAMES.index(SPACE + "the")
    assert tokenizer.encode("the<|end|>the<tool>") == [the, end, the, tool]
    assert tokenizer.decode([the, end, the, tool]) == "the the<tool>"
    assert tokenizer.encode("") == []


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"scores": SCORES[:-1]}, "'tokenizer.ggml.scores' is not an array of"),
        ({"scores": [float("nan"), *SCORES[1:]]}, "has numbers that are not finite"),
        ({"scores": None}, "'tokenizer.ggml.scores' is not an array of"),
        ({"token_type": None}, "'tokenizer.ggml.token_type' is not an array of"),
        ({"tokens": [*NAMES[:-1], "the"]}, "has token 'the' twice"),
        ({"unknown_token_id": 9999}, "outside the vocabulary"),
        (
            {"tokens": [*NAMES[:-1], 300 * "a"], "token_type": [*KINDS[:-1], 1]},
            "a piece has 300 characters, and 256 are read",
        ),
        ({"model": "bert"}, "is of kind 'bert'; supported: gpt2, llama"),
        ({"model": "t5"}, "is of kind 't5'; supported: gpt2, llama"),
    ],
)
def test_damaged_pieces_are_refused(tmp_path: Path, changes: dict[str, Value | None], what: str):
    with pytest.raises(GraphgenError) as caught:
        write(tmp_path / "bad.gguf", **changes)
    assert caught.value.code == "GG0603"
    assert what in caught.value.what
