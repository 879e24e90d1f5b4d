"""Build the tokenizer that the metadata of a GGUF file describes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from gguf.constants import TokenType
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.gguf.gguf_header import read_header
from graphgen.runtime.checkpoint.gguf.gguf_metadata import Metadata
from graphgen.runtime.checkpoint.gguf.gguf_parts import first_part
from graphgen.runtime.checkpoint.tokenizer.tokenizer_parts import (
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
class _Style:
    """How text is cut before BPE.

    Attributes:
        split: makes the pre-tokenizer.
        ignore_merges: a piece that is a token as a whole is taken as it is.
        add_bos: whether a text begins with BOS, where the file does not say.
    """

    split: Callable[[], pre_tokenizers.PreTokenizer]
    ignore_merges: bool = False
    add_bos: bool = False


def _gpt2_split() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def _smollm_split() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2_split()])


def _llama3_split() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_LLAMA3_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


_STYLES: Final[Mapping[str, _Style]] = {
    # As in transformers. llama.cpp also splits at punctuation and digits here, and warns that the
    # file does not say how its text is to be split.
    "default": _Style(_gpt2_split),
    "gpt-2": _Style(_gpt2_split),
    "llama-bpe": _Style(_llama3_split, ignore_merges=True, add_bos=True),
    "smollm": _Style(_smollm_split),
}
_SPECIAL: Final = (TokenType.CONTROL, TokenType.UNKNOWN)
_END_KEYS: Final = ("eos_token_id", "eot_token_id", "eom_token_id")


def read_gguf_tokenizer(path: Path) -> TokenizerParts:
    """Build the tokenizer of the GGUF file ``path``, or of the model that it is a part of.

    Raises:
        GraphgenError: GG0603 for a tokenizer that is damaged or of an unknown kind, GG0601 for a
            file that is no readable GGUF file.
    """
    path = first_part(path)
    metadata = Metadata(path, read_header(path).metadata)
    try:
        return _build(metadata)
    except GraphgenError as error:
        if error.code == "GG0603":
            raise
        # A missing or odd metadata value: here it is the tokenizer that cannot be read.
        raise unusable(path, error.what) from error


def _build(metadata: Metadata) -> TokenizerParts:
    style = _style(metadata)
    tokens = metadata.strings("tokenizer.ggml.tokens")
    backend = _backend(metadata, style, tokens)
    _add_special_tokens(metadata, backend, tokens)
    bos_id = _token_id(metadata, "bos_token_id", tokens)
    eos_id = _token_id(metadata, "eos_token_id", tokens)
    ends = [_token_id(metadata, key, tokens) for key in _END_KEYS]
    _surround_with_bos_eos(metadata, backend, style, tokens, bos_id, eos_id)
    template_key = "tokenizer.chat_template"
    return TokenizerParts(
        source=metadata.path,
        backend=backend,
        bos_token=None if bos_id is None else tokens[bos_id],
        eos_token=None if eos_id is None else tokens[eos_id],
        bos_id=bos_id,
        eos_ids=frozenset(end for end in ends if end is not None),
        chat_template=metadata.string(template_key) if template_key in metadata else None,
    )


def _style(metadata: Metadata) -> _Style:
    model = metadata.string("tokenizer.ggml.model")
    if model != "gpt2":
        raise unusable(
            metadata.path,
            f"the GGUF file's tokenizer is of kind '{model}'; supported: gpt2 (byte-level BPE)",
        )
    name = metadata.string("tokenizer.ggml.pre")
    style = _STYLES.get(name)
    if style is None:
        raise unusable(
            metadata.path,
            f"the GGUF file's pre-tokenizer is '{name}'; supported: {', '.join(_STYLES)}",
            help="put the model's tokenizer.json and the .gguf file into one folder",
        )
    if metadata.optional_bool("tokenizer.ggml.add_space_prefix"):
        raise unusable(metadata.path, "'tokenizer.ggml.add_space_prefix' is true; supported: false")
    return style


def _backend(metadata: Metadata, style: _Style, tokens: list[str]) -> Backend:
    vocab = {token: index for index, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        token, _ = Counter(tokens).most_common(1)[0]
        raise unusable(metadata.path, f"the GGUF file's vocabulary has token {token!r} twice")
    merges = [_merge(metadata, line) for line in metadata.strings("tokenizer.ggml.merges")]
    try:
        model = models.BPE(vocab=vocab, merges=merges, ignore_merges=style.ignore_merges)
    except Exception as error:  # what the tokenizers package raises has no narrower type
        raise unusable(metadata.path, f"the GGUF file's merges do not fit: {error}") from error
    backend = Backend(model)
    backend.pre_tokenizer = style.split()
    backend.decoder = decoders.ByteLevel()
    return backend


def _merge(metadata: Metadata, line: str) -> tuple[str, str]:
    left, blank, right = line.partition(" ")
    if not (left and blank and right) or " " in right:
        raise unusable(metadata.path, f"the GGUF file has the merge {line!r}, not two tokens")
    return left, right


def _add_special_tokens(metadata: Metadata, backend: Backend, tokens: list[str]) -> None:
    """Tokens that are matched in the text as they are, before BPE."""
    key = "tokenizer.ggml.token_type"
    if key not in metadata:
        return
    kinds = metadata.get(key)
    if not isinstance(kinds, np.ndarray) or kinds.shape != (len(tokens),):
        raise unusable(metadata.path, f"'{key}' is not an array of {len(tokens)} numbers")
    special = np.flatnonzero(np.isin(kinds, _SPECIAL)).tolist()
    plain = np.flatnonzero(kinds == TokenType.USER_DEFINED).tolist()
    add_tokens(backend, [AddedToken(tokens[i], normalized=False, special=True) for i in special])
    add_tokens(backend, [AddedToken(tokens[i], normalized=False) for i in plain])


def _token_id(metadata: Metadata, name: str, tokens: list[str]) -> int | None:
    key = f"tokenizer.ggml.{name}"
    token_id = metadata.optional_int(key)
    if token_id is not None and not 0 <= token_id < len(tokens):
        raise unusable(
            metadata.path, f"'{key}' is {token_id}, outside the vocabulary of {len(tokens)}"
        )
    return token_id


def _surround_with_bos_eos(
    metadata: Metadata,
    backend: Backend,
    style: _Style,
    tokens: list[str],
    bos_id: int | None,
    eos_id: int | None,
) -> None:
    add_bos = metadata.optional_bool("tokenizer.ggml.add_bos_token")
    wanted = {
        "bos": (style.add_bos if add_bos is None else add_bos, bos_id),
        "eos": (metadata.optional_bool("tokenizer.ggml.add_eos_token"), eos_id),
    }
    pairs: dict[str, list[tuple[str, int]]] = {"bos": [], "eos": []}
    for name, (add, token_id) in wanted.items():
        if not add:
            continue
        if token_id is None:
            raise unusable(
                metadata.path,
                f"every text gets {name.upper()}, but 'tokenizer.ggml.{name}_token_id' is missing",
            )
        pairs[name].append((tokens[token_id], token_id))
    if pairs["bos"] or pairs["eos"]:
        surround(backend, pairs["bos"], pairs["eos"])
