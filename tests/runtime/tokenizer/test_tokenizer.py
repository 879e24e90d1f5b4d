"""The tokenizer of a GGUF file: the same ids and text as transformers, and exact streaming."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphgen.errors import GraphgenError
from graphgen.runtime.tokenizer.tokenizer import Tokenizer, load_tokenizer
from tests.oracles.small_gguf import CORPUS, Value, small_metadata, write_gguf
from tests.oracles.smollm2 import reference_tokenizer, smollm2_path

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

TRICKY = [
    "",
    " ",
    "\n",
    "Hello, world!",
    "\n\n1",
    "\n\n12\n\n 3",
    "x1y22z333 4444",
    "1,234,567.89 and 2024-01-31T23:59:59Z",
    "٣٤ ½ Ⅷ ①②",  # other digits and numbers
    "naïve café Größe",
    "日本語のテキスト、한국어",
    "👩‍👩‍👧‍👦 🦙🏽 🇨🇭 ☺️",
    "é é",  # the second with a combining accent
    "tabs\t\tand   runs    of\r\n\r\n  blanks \u00a0\u3000 end   ",
    "\x00\x04\x1f control",
    "it's we'll THEY'RE I'd 'tis",
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|><|im_start|> <|im_end|>.<|endoftext|>",
    "<|im_start |> <im_end> <|im_end|",
    "def f(x):\n    return {'a': [1, 2, 3], \"b\": x ** 2}  # comment\n",
    "http://example.com/a?b=c&d=%20#frag",
    "\ufeffbom \u200b\u200d zero width",
]


@pytest.fixture(scope="module")
def ours() -> Tokenizer:
    return load_tokenizer(smollm2_path())


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerFast:
    return reference_tokenizer(tmp_path_factory.mktemp("smollm2"))


@pytest.mark.parametrize("text", TRICKY)
def test_same_ids_and_text_as_transformers(
    ours: Tokenizer, theirs: PreTrainedTokenizerFast, text: str
):
    ids = theirs.encode(text)
    assert ours.encode(text) == ids
    assert ours.encode(text, add_special=False) == theirs.encode(text, add_special_tokens=False)
    assert ours.decode(ids, skip_special=False) == theirs.decode(ids)
    assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)


def test_the_digits_step_is_what_tells_the_texts_apart(
    ours: Tokenizer, tmp_path: Path, theirs: PreTrainedTokenizerFast
):
    # transformers' own conversion of this file has no Digits step, and gets these texts wrong.
    wrong = reference_tokenizer(tmp_path, digits=False)
    differs = [text for text in TRICKY if wrong.encode(text) != theirs.encode(text)]
    assert "\n\n1" in differs
    assert ours.encode("\n\n1") == [1116, 33]
    assert wrong.encode("\n\n1") == [198, 198, 33]


@given(st.text())
def test_same_ids_as_transformers_on_any_text(
    ours: Tokenizer, theirs: PreTrainedTokenizerFast, text: str
):
    assert ours.encode(text) == theirs.encode(text)


def test_facts_about_smollm2(ours: Tokenizer, theirs: PreTrainedTokenizerFast):
    assert ours.vocab_size == len(theirs) == 49152
    assert ours.bos_id == theirs.bos_token_id == 1
    assert ours.eos_ids == {2}
    assert theirs.eos_token_id == 2
    assert ours.chat_template == theirs.chat_template


@given(st.lists(st.integers(0, 49151) | st.integers(0, 300), max_size=40), st.booleans())
def test_stream_is_decode_in_parts(ours: Tokenizer, ids: list[int], skip_special: bool):
    stream = ours.stream(skip_special=skip_special)
    text = ours.decode(ids, skip_special=skip_special)
    returned = ""
    for count, token_id in enumerate(ids, 1):
        returned += stream.push(token_id)
        assert text.startswith(returned)
        if count == len(ids) // 2:
            # Nothing is held back but the beginning of one character.
            sofar = ours.decode(ids[:count], skip_special=skip_special)
            assert sofar in (returned, returned + "\ufffd")
    assert returned + stream.flush() == text
    assert stream.flush() == ""


@given(st.text(max_size=30))
def test_stream_of_real_text_never_shows_half_a_character(ours: Tokenizer, text: str):
    ids = ours.encode(text)
    stream = ours.stream()
    parts = [stream.push(token_id) for token_id in ids]
    whole = ours.decode(ids)
    assert "".join(parts) + stream.flush() == whole
    if "\ufffd" not in whole:
        assert all("\ufffd" not in part for part in parts)


def test_stream_starts_anew_after_flush(ours: Tokenizer):
    llama = ours.encode("🦙", add_special=False)
    assert len(llama) > 1
    stream = ours.stream()
    assert [stream.push(i) for i in llama[:-1]] == [""] * (len(llama) - 1)
    assert stream.flush() == "\ufffd"
    assert "".join(stream.push(i) for i in llama) == "🦙"
    assert stream.flush() == ""


def test_ids_without_a_token_have_no_text(ours: Tokenizer):
    hello = ours.encode("hello")
    assert ours.decode([*hello, 49152, 10**9]) == "hello"
    stream = ours.stream()
    assert stream.push(49152) == ""
    assert "".join(map(stream.push, hello)) == "hello"


def test_what_is_no_text_and_no_id(ours: Tokenizer):
    with pytest.raises(GraphgenError) as caught:
        ours.encode("a\ud83e")
    assert str(caught.value) == (
        "error[GG0705]: the text has a lone surrogate, '\\ud83e', at index 1"
    )
    for bad in (-1, 2**32):
        with pytest.raises(GraphgenError, match=f"{bad} is not a token id"):
            ours.decode([bad])
        with pytest.raises(GraphgenError, match=f"{bad} is not a token id"):
            ours.stream().push(bad)


def write_tokenizer(path: Path, changes: dict[str, Value | None]) -> Path:
    metadata = {**small_metadata(), **changes}
    return write_gguf(path, {k: v for k, v in metadata.items() if v is not None}, {})


@pytest.mark.parametrize("pre", ["llama-bpe", "gpt-2", "default"])
def test_other_pre_tokenizers_equal_transformers(tmp_path: Path, pre: str):
    from transformers import AutoTokenizer

    path = write_tokenizer(tmp_path / "small.gguf", {"tokenizer.ggml.pre": pre})
    ours = load_tokenizer(path)
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    for text in [CORPUS, *TRICKY]:
        if "<|endoftext|>" in text:
            continue  # transformers gives every such tokenizer this token, in the vocabulary or not
        ids = theirs.encode(text, add_special_tokens=False)
        assert ours.encode(text, add_special=False) == ids, text
    with_special = ours.encode("we")
    assert with_special == ([1] if pre == "llama-bpe" else []) + ours.encode(
        "we", add_special=False
    )


def test_pre_tokenizers_differ(tmp_path: Path):
    text = "\n\n1000000  THEY'RE"
    encoded = set[tuple[int, ...]]()
    for pre in ("smollm", "llama-bpe", "gpt-2"):
        path = write_tokenizer(tmp_path / f"{pre}.gguf", {"tokenizer.ggml.pre": pre})
        encoded.add(tuple(load_tokenizer(path).encode(text, add_special=False)))
    assert len(encoded) == 3


def test_bos_and_eos_around_a_text(tmp_path: Path):
    keys = ("tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token")
    for bos in (False, True):
        for eos in (False, True):
            path = write_tokenizer(tmp_path / "t.gguf", dict(zip(keys, (bos, eos), strict=True)))
            ids = load_tokenizer(path).encode("we")
            assert ids == [1] * bos + load_tokenizer(path).encode("we", add_special=False) + (
                [0] * eos
            )


def test_token_types(tmp_path: Path):
    tokens = small_metadata()["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    more = [*tokens, "<tool>", "two words", "<unk>", "[PAD0]"]
    count = len(tokens)
    kinds = [3, 3] + [1] * (count - 2) + [4, 4, 2, 5]
    path = write_tokenizer(
        tmp_path / "t.gguf",
        {
            "tokenizer.ggml.tokens": [str(token) for token in more],
            "tokenizer.ggml.token_type": kinds,
            "tokenizer.ggml.eot_token_id": count,
        },
    )
    tokenizer = load_tokenizer(path)
    assert tokenizer.vocab_size == len(more)
    assert tokenizer.eos_ids == {0, count}
    ids = tokenizer.encode("<tool>two words<unk><|end|>")
    assert ids == [count, count + 1, count + 2, 0]
    # User-defined tokens are text; control and unknown tokens are not.
    assert tokenizer.decode(ids) == "<tool>two words"
    assert tokenizer.decode(ids, skip_special=False) == "<tool>two words<unk><|end|>"
    stream = tokenizer.stream()
    assert [stream.push(i) for i in ids] == ["<tool>", "two words", "", ""]
    assert count + 3 not in tokenizer.encode("[PAD0]")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"tokenizer.ggml.pre": "tekken"},
            "the GGUF file's pre-tokenizer is 'tekken'; "
            "supported: default, gpt-2, llama-bpe, smollm\n"
            "  --> FILE\n"
            "  help: put the model's tokenizer.json and the .gguf file into one folder",
        ),
        (
            {"tokenizer.ggml.pre": None},
            "GGUF metadata 'tokenizer.ggml.pre' is missing\n  --> FILE",
        ),
        (
            {"tokenizer.ggml.model": "bert"},
            "the GGUF file's tokenizer is of kind 'bert'; supported: gpt2, llama\n  --> FILE\n"
            "  help: put the model's tokenizer.json beside the file",
        ),
        (
            {"tokenizer.ggml.add_space_prefix": True},
            "'tokenizer.ggml.add_space_prefix' is true; supported: false\n  --> FILE",
        ),
        (
            {"tokenizer.ggml.tokens": ["a", "b", "a"]},
            "the GGUF file's vocabulary has token 'a' twice\n  --> FILE",
        ),
        (
            {"tokenizer.ggml.merges": ["a b c"]},
            "the GGUF file has the merge 'a b c', not two tokens\n  --> FILE",
        ),
        (
            {"tokenizer.ggml.merges": ["a nope"]},
            "the GGUF file's merges do not fit: "
            "Error while initializing BPE: Token `nope` out of vocabulary\n  --> FILE",
        ),
        (
            {"tokenizer.ggml.token_type": [1, 1]},
            "'tokenizer.ggml.token_type' is not an array of 330 numbers\n  --> FILE",
        ),
        (
            {"tokenizer.ggml.eos_token_id": 330},
            "'tokenizer.ggml.eos_token_id' is 330, outside the vocabulary of 330\n  --> FILE",
        ),
        (
            {"tokenizer.ggml.bos_token_id": None, "tokenizer.ggml.add_bos_token": True},
            "every text gets BOS, but 'tokenizer.ggml.bos_token_id' is missing\n  --> FILE",
        ),
    ],
)
def test_gguf_tokenizers_that_are_refused(
    tmp_path: Path, changes: dict[str, Value | None], text: str
):
    path = write_tokenizer(tmp_path / "t.gguf", changes)
    with pytest.raises(GraphgenError) as caught:
        load_tokenizer(path)
    assert str(caught.value).replace(str(path), "FILE") == f"error[GG0603]: {text}"
