"""Build the tokenizer described by the metadata of a GGUF file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from gguf.constants import TokenType
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend

from graphgen.errors import GraphgenError
from graphgen.eval.arithmetic import Array
from graphgen.foreign_calls import ForeignCalls
from graphgen.runtime.checkpoint.gguf_header import GgufHeader, part_files, read_header
from graphgen.runtime.tokenizer.tokenizer_parts import (
    TokenizerParts,
    add_tokens,
    surround,
    unusable,
)

# The split of Llama 3's own tokenizer.
_LLAMA3_SPLIT: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class _PreTokenizer:
    """A pre-tokenizer of byte-level BPE.

    Attributes:
        split: cuts the text before merges.
        ignore_merges: a piece that is a whole token stays one token.
        add_bos: default of ``tokenizer.ggml.add_bos_token``.
    """

    split: pre_tokenizers.PreTokenizer
    ignore_merges: bool = False
    add_bos: bool = False


_GPT2: Final = pre_tokenizers.ByteLevel(add_prefix_space=False)
_PRE_TOKENIZERS: Final[Mapping[str, _PreTokenizer]] = {
    # As in transformers. llama.cpp also splits at punctuation and digits here, and warns that the
    # file does not say how its text is to be split.
    "default": _PreTokenizer(_GPT2),
    "gpt-2": _PreTokenizer(_GPT2),
    "llama-bpe": _PreTokenizer(
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(_LLAMA3_SPLIT), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        ),
        ignore_merges=True,
        add_bos=True,
    ),
    "smollm": _PreTokenizer(
        pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _GPT2])
    ),
}
# Byte-level BPE, and SentencePiece's BPE.
_KINDS: Final = ("gpt2", "llama")
_SPACE: Final = "\u2581"
# Types of tokens that merges make.
_MERGED: Final = (TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNUSED)
# Characters; SentencePiece's own limit is 16 for what it learns.
_LONGEST_PIECE: Final = 256
_SPECIAL: Final = (TokenType.CONTROL, TokenType.UNKNOWN)
# Named tokens of templates, by the keys of the format, one of which is misspelled there.
_OTHER_TOKENS: Final = {
    "unk_token": "unknown_token_id",
    "sep_token": "seperator_token_id",
    "pad_token": "padding_token_id",
    "cls_token": "cls_token_id",
    "mask_token": "mask_token_id",
}
_END_KEYS: Final = ("eos_token_id", "eot_token_id", "eom_token_id")


def read_gguf_tokenizer(path: Path) -> TokenizerParts:
    """Build the tokenizer of the GGUF file ``path``, or of the model that it is a part of.

    Raises:
        GraphgenError: GG0603 for a tokenizer that is damaged or of an unknown kind, GG0601 for a
            file that is not a readable GGUF file.
    """
    path = part_files(path)[0]
    header = read_header(path)
    try:
        return _build(path, header)
    except GraphgenError as error:
        if error.code == "GG0603":
            raise
        # A missing or odd metadata value: here it is the tokenizer that cannot be read.
        raise unusable(path, error.what) from error


def _build(path: Path, header: GgufHeader) -> TokenizerParts:
    kind = header.string("tokenizer.ggml.model")
    if kind not in _KINDS:
        what = f"the GGUF file's tokenizer is of kind '{kind}'; supported: {', '.join(_KINDS)}"
        raise unusable(path, what, help="put the model's tokenizer.json beside the file")
    tokens = header.strings("tokenizer.ggml.tokens")
    if kind == "llama":
        backend, add_bos = _piece_backend(path, header, tokens), True
    else:
        pre_tokenizer = _pre_tokenizer(path, header)
        backend = _backend(path, header, pre_tokenizer, tokens)
        add_bos = pre_tokenizer.add_bos
    _add_special_tokens(path, header, backend, tokens)
    bos_id = _token_id(path, header, "bos_token_id", tokens)
    eos_id = _token_id(path, header, "eos_token_id", tokens)
    ends = [_token_id(path, header, key, tokens) for key in _END_KEYS]
    before = _token_around(path, header, "bos", bos_id, tokens, add_bos)
    after = _token_around(path, header, "eos", eos_id, tokens, False)
    if before or after:
        surround(backend, before, after)
    template_key = "tokenizer.chat_template"
    return TokenizerParts(
        source=path,
        backend=backend,
        bos_token=None if bos_id is None else tokens[bos_id],
        eos_token=None if eos_id is None else tokens[eos_id],
        bos_id=bos_id,
        eos_ids=frozenset(end for end in ends if end is not None),
        chat_template=header.string(template_key) if template_key in header.metadata else None,
        other_tokens={
            name: tokens[found]
            for name, key in _OTHER_TOKENS.items()
            if (found := _token_id(path, header, key, tokens)) is not None
        },
    )


def _pre_tokenizer(path: Path, header: GgufHeader) -> _PreTokenizer:
    name = header.string("tokenizer.ggml.pre")
    found = _PRE_TOKENIZERS.get(name)
    if found is None:
        raise unusable(
            path,
            f"the GGUF file's pre-tokenizer is '{name}'; supported: {', '.join(_PRE_TOKENIZERS)}",
            help="put the model's tokenizer.json and the .gguf file into one folder",
        )
    if header.optional_bool("tokenizer.ggml.add_space_prefix"):
        raise unusable(path, "'tokenizer.ggml.add_space_prefix' is true; supported: false")
    return found


def _vocabulary(path: Path, tokens: list[str]) -> dict[str, int]:
    vocab = {token: index for index, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        token, _ = Counter(tokens).most_common(1)[0]
        raise unusable(path, f"the GGUF file's vocabulary has token {token!r} twice")
    return vocab


def _piece_backend(path: Path, header: GgufHeader, tokens: list[str]) -> Backend:
    """SentencePiece's BPE: of adjacent pieces those whose join has the best score merge first."""
    vocab = _vocabulary(path, tokens)
    stated = header.optional_bool("tokenizer.ggml.add_space_prefix")
    prefix = True if stated is None else stated
    unknown = _token_id(path, header, "unknown_token_id", tokens) or 0
    with ForeignCalls(lambda text: unusable(path, f"the GGUF file's pieces do not fit: {text}")):
        model = models.BPE(
            vocab=vocab,
            merges=_piece_merges(path, header, tokens, vocab),
            unk_token=tokens[unknown],
            fuse_unk=True,
            byte_fallback=all(f"<0x{byte:02X}>" in vocab for byte in range(256)),
        )
    backend = Backend(model)
    spaces = normalizers.Replace(" ", _SPACE)
    backend.normalizer = (
        normalizers.Sequence([normalizers.Prepend(_SPACE), spaces]) if prefix else spaces
    )
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    backend.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return backend


def _piece_merges(
    path: Path, header: GgufHeader, tokens: list[str], vocab: Mapping[str, int]
) -> list[tuple[str, str]]:
    """The merges of pieces, the best score first, as transformers makes them of SentencePiece's."""
    scores = _numbers(path, header, "scores", len(tokens))
    kinds = _numbers(path, header, "token_type", len(tokens))
    if not np.isfinite(scores).all():
        raise unusable(path, "'tokenizer.ggml.scores' has numbers that are not finite")
    found: list[tuple[float, int, int, str, str]] = []
    for index in np.flatnonzero(np.isin(kinds, _MERGED)).tolist():
        piece = tokens[index]
        if len(piece) > _LONGEST_PIECE:
            what = f"a piece has {len(piece)} characters, and {_LONGEST_PIECE} are read"
            raise unusable(path, f"the GGUF file's vocabulary: {what}")
        score = float(scores[index])
        for at in range(1, len(piece)):
            left, right = piece[:at], piece[at:]
            if left in vocab and right in vocab:
                found.append((-score, -len(left), -len(right), left, right))
    return [(left, right) for *_, left, right in sorted(found)]


def _numbers(path: Path, header: GgufHeader, name: str, count: int) -> Array:
    """An array of metadata with a number a token."""
    key = f"tokenizer.ggml.{name}"
    found = header.metadata.get(key)
    if not isinstance(found, np.ndarray) or found.shape != (count,):
        raise unusable(path, f"'{key}' is not an array of {count} numbers")
    return found


def _backend(
    path: Path, header: GgufHeader, pre_tokenizer: _PreTokenizer, tokens: list[str]
) -> Backend:
    vocab = _vocabulary(path, tokens)
    merges: list[tuple[str, str]] = []
    for line in header.strings("tokenizer.ggml.merges"):
        left, _, right = line.partition(" ")
        if not (left and right) or " " in right:
            raise unusable(path, f"the GGUF file has the merge {line!r}, not two tokens")
        merges.append((left, right))
    with ForeignCalls(lambda text: unusable(path, f"the GGUF file's merges do not fit: {text}")):
        model = models.BPE(vocab=vocab, merges=merges, ignore_merges=pre_tokenizer.ignore_merges)
    backend = Backend(model)
    backend.pre_tokenizer = pre_tokenizer.split
    backend.decoder = decoders.ByteLevel()
    return backend


def _add_special_tokens(
    path: Path, header: GgufHeader, backend: Backend, tokens: list[str]
) -> None:
    """Add the tokens that are matched in the text as they are, before BPE."""
    if "tokenizer.ggml.token_type" not in header.metadata:
        return
    kinds = _numbers(path, header, "token_type", len(tokens))
    special = np.flatnonzero(np.isin(kinds, _SPECIAL)).tolist()
    plain = np.flatnonzero(kinds == TokenType.USER_DEFINED).tolist()
    add_tokens(backend, [AddedToken(tokens[i], normalized=False, special=True) for i in special])
    add_tokens(backend, [AddedToken(tokens[i], normalized=False) for i in plain])


def _token_id(path: Path, header: GgufHeader, name: str, tokens: list[str]) -> int | None:
    key = f"tokenizer.ggml.{name}"
    token_id = header.optional_int(key)
    if token_id is not None and not 0 <= token_id < len(tokens):
        raise unusable(path, f"'{key}' is {token_id}, outside the vocabulary of {len(tokens)}")
    return token_id


def _token_around(
    path: Path, header: GgufHeader, name: str, token_id: int | None, tokens: list[str], add: bool
) -> list[tuple[str, int]]:
    """The (token, id) pair that every text gets as BOS or EOS, if any.

    Args:
        path: the file.
        header: of the file; ``add_bos_token`` or ``add_eos_token`` overrides ``add``.
        name: ``bos`` or ``eos``.
        token_id: of that token, if the file names it.
        tokens: the vocabulary.
        add: the default.
    """
    stated = header.optional_bool(f"tokenizer.ggml.add_{name}_token")
    if not (add if stated is None else stated):
        return []
    if token_id is None:
        what = f"every text gets {name.upper()}, but 'tokenizer.ggml.{name}_token_id' is missing"
        raise unusable(path, what)
    return [(tokens[token_id], token_id)]
