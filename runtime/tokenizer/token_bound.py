"""A lower bound of the number of tokens of a text, from its characters, without tokenizing it.

A tokenizer takes seconds for megabytes. The bound takes no more than a count of characters: a token
stands for a limited number of them, unless the tokenizer drops or merges characters without limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, cast

from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE, Unigram

from graphgen.json_value import parse_json

# The longest canonical decomposition of a character, which NFC and NFKC may compose again.
_COMPOSED: Final = 4
# Factors by which normalizers may shorten a text; those that are not here drop characters.
_FACTORS: Final = {
    **dict.fromkeys(("NFC", "NFKC"), _COMPOSED),
    **dict.fromkeys(("NFD", "NFKD", "Lowercase", "Prepend", "ByteLevel", "Strip"), 1),
}
# Normalizers that leave the characters of a text as they are, and may add some.
_LITERAL: Final = {"Prepend", "ByteLevel", "Strip"}
# Steps that drop white space, and those that drop nothing unless they remove what they match.
_DROP_SPACE: Final = {"Strip", "Whitespace", "WhitespaceSplit", "BertPreTokenizer"}
_KEEP: Final = {
    *("ByteLevel", "Digits", "FixedLength", "Metaspace", "Punctuation", "Split", "UnicodeScripts")
}
# All white space of Unicode is below.
_SPACE: Final = frozenset(filter(str.isspace, map(chr, range(0x3001))))
_ASCII: Final = range(0x80)
# Bytes of characters beyond ASCII in UTF-8: those that begin one, and those that follow.
_LEADS, _FOLLOWING = range(0xC2, 0xF5), range(0x80, 0xC0)

_State = Mapping[str, object]
# Of a loaded tokenizer, whose file was read within limits.
_MOST_STATE: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class TokenBound:
    """The characters that tokens can stand for.

    Attributes:
        longest: largest number of characters of a text that one token stands for.
        dropped: characters that may be in a text without any token.
    """

    longest: int
    dropped: str = ""

    def least(self, text: str) -> int:
        """A number of tokens that ``text`` has at least."""
        kept = len(text) - sum(map(text.count, self.dropped))
        return -(-kept // self.longest)

    def exceeds(self, text: str, most: int) -> bool:
        """True if ``text`` has more than ``most`` tokens, whatever its characters are."""
        return len(text) > most * self.longest and self.least(text) > most


def token_bound(backend: Backend) -> TokenBound | None:
    """The bound of a tokenizer; ``None`` where a token may stand for any number of characters.

    That is so where words or runs of unknown characters become one token (WordPiece, WordLevel,
    Unigram without bytes), and where characters other than white space are dropped.
    """
    normalizers, splits = _steps(backend.normalizer), _steps(backend.pre_tokenizer)
    factor = _shortening(normalizers)
    byte_level = any(step["type"] == "ByteLevel" for step in (*normalizers, *splits))
    vocabulary = backend.get_vocab(with_added_tokens=True)
    unknown = _without_token(backend, vocabulary, byte_level=byte_level)
    if factor is None or unknown is None or not all(map(_keeps, splits)):
        return None
    added = backend.get_added_tokens_decoder().values()
    strips = any(token.lstrip or token.rstrip for token in added)
    spaces = strips or any(step["type"] in _DROP_SPACE for step in (*normalizers, *splits))
    dropped = unknown | _SPACE if spaces else unknown
    if _makes_any_of(normalizers, unknown, dropped):
        return None
    lengths = [1, *map(len, vocabulary)]
    if backend.normalizer is not None:
        # The text of an added token may be longer as it is looked for.
        lengths += [len(backend.normalizer.normalize_str(token.content)) for token in added]
    return TokenBound(max(lengths) * factor, "".join(sorted(dropped)))


def _steps(part: object) -> list[_State]:
    """The steps of a normalizer or a pre-tokenizer, in order; of a sequence those inside."""
    if part is None:
        return []
    state = parse_json(cast("bytes", part.__getstate__()), most=_MOST_STATE)
    return list(_flat(cast(_State, state)))


def _flat(state: _State) -> Iterable[_State]:
    if state["type"] != "Sequence":
        yield state
        return
    inside = state.get("normalizers", state.get("pretokenizers"))
    for item in cast("list[_State]", inside):
        yield from _flat(item)


def _shortening(steps: Iterable[_State]) -> int | None:
    """By how much normalizers shorten a text at most; ``None`` for no bound."""
    factor = 1
    for step in steps:
        own = _replaced(step) if step["type"] == "Replace" else _FACTORS.get(str(step["type"]))
        if own is None:
            return None
        factor *= own
    return factor


def _replaced(step: _State) -> int | None:
    """As :func:`_shortening`, of a replacement; a regular expression matches any length."""
    pattern = cast("Mapping[str, str]", step["pattern"]).get("String")
    content = str(step["content"])
    return -(-max(len(pattern), len(content)) // len(content)) if pattern and content else None


def _keeps(step: _State) -> bool:
    """True for a pre-tokenizer that drops nothing but white space."""
    kind = step["type"]
    return kind in _DROP_SPACE or (kind in _KEEP and step.get("behavior") != "Removed")


def _makes_any_of(
    steps: Iterable[_State], unknown: frozenset[str], dropped: frozenset[str]
) -> bool:
    """True if normalizers may make dropped characters of others.

    Those of Unicode make white space of white space, and no control character.
    """
    printed = any(map(str.isprintable, unknown))
    for step in steps:
        if step["type"] == "Replace" and not dropped.isdisjoint(str(step["content"])):
            return True
        if step["type"] not in _LITERAL and printed:
            return True
    return False


def _without_token(
    backend: Backend, vocabulary: Mapping[str, int], *, byte_level: bool
) -> frozenset[str] | None:
    """The characters that a model drops; ``None`` where any number of others has one token."""
    model = backend.model
    if isinstance(model, Unigram):
        state = cast(_State, parse_json(cast("bytes", model.__getstate__()), most=_MOST_STATE))
        return frozenset[str]() if state["byte_fallback"] and _has_bytes(vocabulary) else None
    if not isinstance(model, BPE):
        return None
    if model.byte_fallback and _has_bytes(vocabulary):
        return frozenset()
    if model.unk_token is not None:
        return None if model.fuse_unk else frozenset()
    if not byte_level or model.continuing_subword_prefix or model.end_of_word_suffix:
        return None
    has = {byte for char, byte in BYTE_OF.items() if char in vocabulary}
    if not (has.issuperset(_LEADS) or has.issuperset(_FOLLOWING)):
        return None
    return frozenset(chr(byte) for byte in _ASCII if byte not in has)


def _has_bytes(vocabulary: Mapping[str, int]) -> bool:
    return all(f"<0x{byte:02X}>" in vocabulary for byte in range(256))


def _byte_alphabet() -> dict[str, int]:
    """The byte of each character of byte-level BPE's alphabet.

    Printable Latin-1 characters map to themselves; the other bytes, in order, are the characters
    from U+0100 on. Source: ``bytes_to_unicode`` of the GPT-2 release.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return alphabet


BYTE_OF: Final = _byte_alphabet()
