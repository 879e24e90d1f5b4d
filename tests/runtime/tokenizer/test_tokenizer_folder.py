"""The tokenizer of a Hugging Face folder: the same as transformers makes of the same files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from graphgen.errors import GraphgenError
from graphgen.runtime.tokenizer.tokenizer import Tokenizer, load_tokenizer
from graphgen.runtime.tokenizer.tokenizer_parts import TokenizerParts
from tests.oracles.small_gguf import CORPUS, SPECIAL, small_vocabulary, write_small_model

TEXTS = ["", "we'll count to 1000000!", CORPUS, "a<|end|>b <|begin|>c<tool> <pad>d"]


def byte_level() -> Backend:
    tokens, merges = small_vocabulary()
    vocab = {token: i for i, token in enumerate(tokens)}
    backend = Backend(models.BPE(vocab=vocab, merges=[(*m.split(" "),) for m in merges]))  # pyright: ignore[reportArgumentType]
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def write_folder(
    folder: Path, tokenizer_config: dict[str, Any] | None = None, **files: object
) -> Path:
    byte_level().save(str(folder / "tokenizer.json"))
    if tokenizer_config is not None:
        kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
        files["tokenizer_config"] = {**kind, **tokenizer_config}
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_tokens_that_tokenizer_json_has_are_those_of_tokenizer_json(tmp_path: Path):
    """Declared once more, with other properties or without a text, they change nothing."""
    plain = byte_level()
    plain.add_tokens([AddedToken("<tool>", normalized=False)])
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "added_tokens_decoder": {
            "7": {"content": "<tool>", "lstrip": True, "rstrip": True, "special": True},
            "331": {"special": True},
            "332": "<pad>",
        },
    }
    write_folder(tmp_path, config)
    plain.save(str(tmp_path / "tokenizer.json"))
    ours = load_tokenizer(tmp_path)
    for text in (*TEXTS, "a <tool> b"):
        assert ours.encode(text) == plain.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize(
    "config",
    [
        None,
        {},
        {"bos_token": "<|begin|>", "eos_token": "<|end|>"},
        {"bos_token": {"__type": "AddedToken", "content": "<|begin|>"}},
        {"bos_token": "<|begin|>", "eos_token": "<|end|>", "add_bos_token": True},
        {"eos_token": "<|end|>", "add_bos_token": True, "add_eos_token": True},
        {"bos_token": "<|begin|>", "add_bos_token": False},
        {"extra_special_tokens": ["<|end|>"]},
        {
            "eos_token": "<tool>",
            "added_tokens_decoder": {
                "330": {"content": "<tool>", "lstrip": False, "rstrip": True, "special": False},
                "331": {"content": "<pad>", "special": True},
            },
        },
    ],
)
def test_same_ids_and_text_as_transformers(tmp_path: Path, config: dict[str, Any] | None):
    from transformers import PreTrainedTokenizerFast

    folder = write_folder(tmp_path, config)
    ours = load_tokenizer(folder)
    theirs = PreTrainedTokenizerFast.from_pretrained(folder)
    for text in TEXTS:
        for special in (True, False):
            ids = theirs.encode(text, add_special_tokens=special)
            assert ours.encode(text, add_special=special) == ids
            assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
            assert ours.decode(ids, skip_special=False) == theirs.decode(ids)
    assert ours.bos_id == theirs.bos_token_id
    assert ours.eos_ids == {theirs.eos_token_id} - {None}


def test_truncation_and_padding_of_training_are_off(tmp_path: Path):
    backend = byte_level()
    backend.enable_truncation(4)
    backend.enable_padding(length=64)
    backend.save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer(tmp_path).decode(load_tokenizer(tmp_path).encode(CORPUS)) == CORPUS
    assert len(load_tokenizer(tmp_path).encode("we")) < 4


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({}, {0}),
        ({"config": {"eos_token_id": 7}}, {7}),
        ({"config": {"eos_token_id": 7}, "generation_config": {"eos_token_id": [5, 6]}}, {5, 6}),
        ({"config": {"eos_token_id": 7}, "generation_config": {}}, {7}),
    ],
)
def test_which_ids_end_generation(tmp_path: Path, files: dict[str, Any], wanted: set[int]):
    write_folder(tmp_path, {"eos_token": "<|end|>"}, **files)
    assert load_tokenizer(tmp_path).eos_ids == wanted


@pytest.mark.parametrize(
    ("config", "jinja", "wanted"),
    [
        ({}, None, None),
        ({"chat_template": "one"}, None, "one"),
        ({"chat_template": "one"}, "two", "two"),
        (
            {
                "chat_template": [
                    {"name": "tool_use", "template": "x"},
                    {"name": "default", "template": "y"},
                ]
            },
            None,
            "y",
        ),
    ],
)
def test_where_the_chat_template_comes_from(
    tmp_path: Path, config: dict[str, Any], jinja: str | None, wanted: str | None
):
    write_folder(tmp_path, config)
    if jinja is not None:
        (tmp_path / "chat_template.jinja").write_text(jinja)
    assert load_tokenizer(tmp_path).chat_template == wanted


def test_gguf_in_a_folder_unless_tokenizer_json_is_there(tmp_path: Path):
    write_small_model(tmp_path / "small.gguf", {"tokenizer.ggml.add_bos_token": True})
    assert load_tokenizer(tmp_path).encode("we")[0] == 1
    write_folder(tmp_path)
    assert load_tokenizer(tmp_path).bos_id is None


NOT_FOUND = (
    "error[GG0603]: there is not a tokenizer\n"
    "  --> DIR\n"
    "  help: looked for: a folder with tokenizer.json; a .gguf file; "
    "a folder with exactly one .gguf file"
)


@pytest.mark.parametrize(
    ("config", "files", "text"),
    [
        (
            {"bos_token": "<s>"},
            {},
            "error[GG0603]: tokenizer_config.json's bos_token '<s>' is not in the vocabulary\n"
            "  --> DIR",
        ),
        (
            {"added_tokens_decoder": {"7": {"content": "<tool>"}}},
            {},
            "error[GG0603]: tokenizer_config.json gives token '<tool>' the id 7; "
            "by tokenizer.json it is 330\n  --> DIR",
        ),
        (
            {"chat_template": 3},
            {},
            "error[GG0603]: tokenizer_config.json's chat_template is not text\n  --> DIR",
        ),
        (
            {},
            {"generation_config": {"eos_token_id": [1, "2"]}},
            "error[GG0603]: eos_token_id is [1, '2'], not token ids\n"
            "  --> DIR/generation_config.json",
        ),
        (
            {},
            {"generation_config": []},
            "error[GG0603]: generation_config.json holds no JSON object\n"
            "  --> DIR/generation_config.json",
        ),
    ],
)
def test_folders_that_are_refused(
    tmp_path: Path, config: dict[str, Any], files: dict[str, Any], text: str
):
    write_folder(tmp_path, config, **files)
    with pytest.raises(GraphgenError) as caught:
        load_tokenizer(tmp_path)
    assert str(caught.value).replace(str(tmp_path), "DIR") == text


def test_no_tokenizer(tmp_path: Path):
    with pytest.raises(GraphgenError) as caught:
        load_tokenizer(tmp_path)
    assert str(caught.value).replace(str(tmp_path), "DIR") == NOT_FOUND
    with pytest.raises(GraphgenError, match="there is not a tokenizer"):
        load_tokenizer(tmp_path / "nope")


@pytest.mark.parametrize("data", [b"", b"{", b'{"model": 3}', b"\xff\xfe"])
def test_damaged_tokenizer_json(tmp_path: Path, data: bytes):
    (tmp_path / "tokenizer.json").write_bytes(data)
    with pytest.raises(GraphgenError) as caught:
        load_tokenizer(tmp_path)
    assert caught.value.code == "GG0603"
    known = ("tokenizer.json cannot be read: ", "the file is not UTF-8 at byte 0")
    assert caught.value.what.startswith(known)
    assert caught.value.where == str(tmp_path / "tokenizer.json")


def from_backend(backend: Backend) -> Tokenizer:
    return Tokenizer(
        TokenizerParts(Path("test"), backend, None, None, None, frozenset(), chat_template=None)
    )


def sentencepiece_like() -> Backend:
    """As Llama 2's: blanks are a character of their own, and unknown characters become bytes."""
    tokens = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens += ["\u2581", "a", "b", "\u2581a", "ab", "\u2581ab"]
    vocab = {token: i for i, token in enumerate(tokens)}
    merges = [("\u2581", "a"), ("a", "b"), ("\u2581a", "b")]
    backend = Backend(models.BPE(vocab=vocab, merges=merges, byte_fallback=True, unk_token="<unk>"))
    backend.add_special_tokens([AddedToken("<s>", normalized=False)])
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return backend


def word_level(decoder: decoders.Decoder | None) -> Backend:
    tokens = ["<unk>", "<s>", "\u2581a", "b", "##c", ".", "d</w>", "\u2581\u2581", " "]
    backend = Backend(models.WordLevel({t: i for i, t in enumerate(tokens)}, unk_token="<unk>"))
    backend.add_special_tokens([AddedToken("<s>", normalized=False)])
    if decoder is not None:
        backend.decoder = decoder
    return backend


OTHER_KINDS = {
    "sentencepiece": sentencepiece_like(),
    "metaspace": word_level(decoders.Metaspace()),
    "wordpiece": word_level(decoders.WordPiece()),
    "bpe": word_level(decoders.BPEDecoder()),
    "none": word_level(None),
    "ctc": word_level(decoders.CTC(pad_token="b", word_delimiter_token="\u2581a")),
}


@pytest.mark.parametrize("kind", OTHER_KINDS)
@given(data=st.data())
def test_stream_of_other_kinds_is_decode_in_parts(kind: str, data: st.DataObject):
    tokenizer = from_backend(OTHER_KINDS[kind])
    llama = [0xF0 + 2, 0x9F + 2, 0xA6 + 2, 0x99 + 2]
    ids = st.lists(st.integers(0, tokenizer.vocab_size + 2) | st.sampled_from(llama), max_size=20)
    drawn = data.draw(ids)
    skip_special = data.draw(st.booleans())
    text = tokenizer.decode(drawn, skip_special=skip_special)
    stream = tokenizer.stream(skip_special=skip_special)
    returned = ""
    for token_id in drawn:
        returned += stream.push(token_id)
        assert text.startswith(returned)
    assert returned + stream.flush() == text
    assert stream.flush() == ""


def test_stream_of_byte_tokens_waits_for_the_whole_run():
    tokenizer = from_backend(sentencepiece_like())
    ids = tokenizer.encode("ab 🦙 ab")
    assert len(ids) == 7
    stream = tokenizer.stream()
    parts = [stream.push(token_id) for token_id in ids]
    assert parts == ["ab", " ", "", "", "", "", "🦙 ab"]
    assert stream.flush() == ""


def test_stream_of_a_known_kind_holds_nothing_back():
    tokenizer = from_backend(OTHER_KINDS["metaspace"])
    stream = tokenizer.stream()
    assert [stream.push(i) for i in (2, 3, 2)] == ["a", "b", " a"]


def test_special_tokens_are_the_first_two():
    assert small_vocabulary()[0][:2] == list(SPECIAL)
