"""Families whose structure another family has as well.

Their cases of a test over all families are slow, except in tests marked ``every_family``.
"""

from __future__ import annotations

import pytest

# By model_type: the family whose cases are in `make test` instead.
VARIANTS = {
    "dbrx": "mixtral",
    "deepseek_v2": "deepseek_v3",
    "gemma2": "gemma3_text",
    "gptj": "gpt_neox",
    "phi3": "mistral",
    "glm": "glm4",
    "granite": "llama",
    "granitemoe": "mixtral",
    "qwen3_moe": "qwen2_moe",
    "stablelm": "gpt_neox",
}


def is_variant(item: pytest.Function) -> bool:
    """True if the case is about a family, or a model, that is in ``VARIANTS``."""
    from graphgen.models.named_shapes import SHAPES

    call = getattr(item, "callspec", None)
    names = [value for value in call.params.values() if isinstance(value, str)] if call else []
    kinds = {str(SHAPES[name]["model_type"]) if name in SHAPES else name for name in names}
    return not kinds.isdisjoint(VARIANTS)
