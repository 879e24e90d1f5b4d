"""The part of transformers that applications use; imported when it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from graphgen.errors import GraphgenError


def load_causal_lm(model_path: str) -> object:
    """``AutoModelForCausalLM.from_pretrained(model_path)`` in f32 (GG0908 without transformers)."""
    try:
        from transformers import AutoModelForCausalLM
    except ImportError as error:
        raise GraphgenError(
            "GG0908",
            f"load_hf_model needs transformers: {error}",
            help="pip install transformers torch",
        ) from error
    load = cast("Callable[[str], object]", AutoModelForCausalLM.from_pretrained)  # pyright: ignore[reportUnknownMemberType]
    return load(model_path)
