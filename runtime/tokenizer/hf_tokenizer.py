"""Read the tokenizer of a Hugging Face folder: ``tokenizer.json`` and its companion files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from graphgen.errors import GraphgenError
from graphgen.foreign_calls import ForeignCalls
from graphgen.limits import TOKENIZER_BYTES
from graphgen.read_file import is_there, read_text_file
from graphgen.runtime.checkpoint.config_file import read_json_object
from graphgen.runtime.tokenizer.normalizer_growth import require_bounded
from graphgen.runtime.tokenizer.tokenizer_parts import TokenizerParts, add_tokens, unusable

# The largest vocabularies have about 40 MB.
_NAMED: Final = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
_LISTED: Final = ("additional_special_tokens", "extra_special_tokens")


def read_hf_tokenizer(folder: Path) -> TokenizerParts:
    """Read the tokenizer of ``folder``.

    ``tokenizer.json`` defines the encoding and the tokens around a text; ``add_bos_token`` and
    ``add_eos_token`` are ignored beside it, as in transformers 5. ``tokenizer_config.json`` adds
    special tokens and names BOS, EOS and the chat template (``chat_template.jinja`` takes
    precedence). The ids that end generation are those of ``generation_config.json``, else of
    ``config.json``, else the EOS token, as in Hugging Face.

    Raises:
        GraphgenError: GG0603 if a file is missing, damaged or contradicts another.
    """
    backend = _read_backend(folder / "tokenizer.json")
    config = _optional_json(folder / "tokenizer_config.json")
    _add_declared_tokens(folder, backend, config)
    bos = _token(config.get("bos_token"))
    eos = _token(config.get("eos_token"))
    bos_id = _require_id(folder, backend, "bos_token", bos)
    eos_id = _require_id(folder, backend, "eos_token", eos)
    return TokenizerParts(
        source=folder,
        backend=backend,
        bos_token=bos,
        eos_token=eos,
        bos_id=bos_id,
        eos_ids=_end_ids(folder, eos_id),
        chat_template=_chat_template(folder, config),
        other_tokens={
            name: token
            for name in _NAMED
            if name not in ("bos_token", "eos_token")
            and (token := _token(config.get(name))) is not None
        },
    )


def _read_backend(path: Path) -> Backend:
    text = read_text_file(path, TOKENIZER_BYTES, "GG0603")
    with ForeignCalls(lambda reason: unusable(path, f"tokenizer.json cannot be read: {reason}")):
        backend = Backend.from_str(text)
    require_bounded(path, backend)
    # Left over from training; a prompt must never be cut or padded in silence.
    backend.no_truncation()
    backend.no_padding()
    return backend


def _optional_json(path: Path) -> dict[str, object]:
    if not is_there(path):
        return {}
    try:
        return read_json_object(path)
    except GraphgenError as error:
        raise GraphgenError("GG0603", error.what, where=error.where) from error


def _token(value: object) -> str | None:
    """The text of a token, stored as a string or as an object with ``content``."""
    if isinstance(value, dict):
        value = cast("dict[str, object]", value).get("content")
    return value if isinstance(value, str) else None


def _add_declared_tokens(folder: Path, backend: Backend, config: Mapping[str, object]) -> None:
    """Match the tokens that only ``tokenizer_config.json`` declares literally in the text."""
    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    decoder = config.get("added_tokens_decoder")
    declared = cast("dict[str, object]", decoder) if isinstance(decoder, dict) else {}
    special = _special_contents(config)
    for key, value in sorted(declared.items(), key=lambda item: (len(item[0]), item[0])):
        fields = dict(cast("dict[str, object]", value)) if isinstance(value, dict) else {}
        content = _token(fields)
        if content is None or content in known:
            continue
        fields["special"] = fields.get("special") or content in special
        add_tokens(backend, [_added_token(content, fields)])
        if str(backend.token_to_id(content)) != key:
            raise unusable(
                folder,
                f"tokenizer_config.json gives token {content!r} the id {key}; "
                f"by tokenizer.json it is {backend.token_to_id(content)}",
            )
        known.add(content)
    for content in special:
        # A token outside the vocabulary would get an id without an embedding.
        if content not in known and backend.token_to_id(content) is not None:
            add_tokens(backend, [AddedToken(content, normalized=False, special=True)])


def _added_token(content: str, fields: Mapping[str, object]) -> AddedToken:
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return AddedToken(content, **{flag: bool(fields[flag]) for flag in flags if flag in fields})


def _special_contents(config: Mapping[str, object]) -> list[str]:
    values = [config.get(name) for name in _NAMED]
    for name in _LISTED:
        listed = config.get(name)
        if isinstance(listed, list):
            values.extend(cast("list[object]", listed))
        elif isinstance(listed, dict):
            values.extend(cast("dict[str, object]", listed).values())
    return [content for value in values if (content := _token(value)) is not None]


def _require_id(folder: Path, backend: Backend, name: str, token: str | None) -> int | None:
    if token is None:
        return None
    token_id = backend.token_to_id(token)
    if token_id is None:
        raise unusable(folder, f"tokenizer_config.json's {name} {token!r} is not in the vocabulary")
    return token_id


def _end_ids(folder: Path, eos_id: int | None) -> frozenset[int]:
    for name in ("generation_config.json", "config.json"):
        value = _optional_json(folder / name).get("eos_token_id")
        if value is None:
            continue
        ids = cast("list[object]", value) if isinstance(value, list) else [value]
        ends = frozenset(i for i in ids if isinstance(i, int) and not isinstance(i, bool))
        if len(ends) != len(set(map(repr, ids))):
            raise unusable(folder / name, f"eos_token_id is {value!r}, not token ids")
        return ends
    return frozenset() if eos_id is None else frozenset((eos_id,))


def _chat_template(folder: Path, config: Mapping[str, object]) -> str | None:
    path = folder / "chat_template.jinja"
    if is_there(path):
        return read_text_file(path, TOKENIZER_BYTES, "GG0603")
    value = config.get("chat_template")
    if isinstance(value, list):
        # Several named templates; the one called "default" is for plain conversations.
        value = next(
            (
                cast("dict[str, object]", item).get("template")
                for item in cast("list[object]", value)
                if isinstance(item, dict)
                and cast("dict[str, object]", item).get("name") == "default"
            ),
            None,
        )
    if value is not None and not isinstance(value, str):
        raise unusable(folder, "tokenizer_config.json's chat_template is not text")
    return value
