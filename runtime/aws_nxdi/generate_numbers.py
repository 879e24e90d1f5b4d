"""Types of the numbers that ``generate`` takes."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Final, SupportsFloat, SupportsIndex, cast

from graphgen.errors import GraphgenError

# Whole numbers, each with the least one that transformers' code can do with.
_WHOLE: Final[Mapping[str, int | None]] = {
    "num_beams": 1,
    "num_return_sequences": None,
    "max_length": None,
    "max_new_tokens": None,
    "min_length": None,
    "min_new_tokens": None,
    "no_repeat_ngram_size": None,
    "num_assistant_tokens": None,
    "prompt_lookup_num_tokens": None,
    "max_matching_ngram_size": None,
    "pad_token_id": None,
    "bos_token_id": None,
}
_NUMBERS: Final = (
    "temperature",
    "top_p",
    "min_p",
    "top_h",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
    "repetition_penalty",
    "encoder_repetition_penalty",
    "length_penalty",
    "max_time",
    "assistant_confidence_threshold",
)


def check_numbers(settings: Mapping[str, object]) -> None:
    """Refuse settings of ``generate`` that are not numbers of their kind (GG0705).

    Args:
        settings: by name; ``None``, and those of other names, pass.
    """
    for name, value in settings.items():
        wanted = "" if value is None else _wanted(name, value)
        if wanted:
            raise GraphgenError(
                "GG0705",
                f"{name} of generate is {value!r}, expected {wanted}",
                help=f"give {wanted}",
            )


def _wanted(name: str, value: object) -> str:
    """Return what is expected, in words; nothing for a value of the type."""
    if name == "eos_token_id":
        items = cast("list[object]", value) if isinstance(value, list | tuple) else [value]
        return "" if all(map(_is_whole, items)) else "an integer or a list of them"
    if name in _WHOLE:
        least = _WHOLE[name]
        kind = "an integer" if least is None else f"an integer >= {least}"
        too_small = _is_whole(value) and least is not None and cast(int, value) < least
        return "" if _is_whole(value) and not too_small else kind
    return "a number" if name in _NUMBERS and not _is_number(value) else ""


def _is_whole(value: object) -> bool:
    """True for integers, also those of NumPy and PyTorch, and lists of these libraries."""
    if getattr(value, "ndim", 0):
        return True
    try:
        index(cast(SupportsIndex, value))
    except TypeError:
        return False
    return True


def _is_number(value: object) -> bool:
    """True for what is a float or becomes one, but text."""
    try:
        float(cast(SupportsFloat, value))
    except (TypeError, ValueError):
        return False
    return not isinstance(value, str | bytes)
