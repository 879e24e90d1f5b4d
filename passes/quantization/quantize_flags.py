"""The weight quantization pass from options as users write them, with the errors of options."""

from __future__ import annotations

from graphgen.errors import GraphgenError
from graphgen.passes.quantization.quantize_weights import QuantizeWeights
from graphgen.passes.quantization.schemes import GROUP, loaded_scheme


def quantization_pass(
    quantized: bool,
    scheme: str | None,
    dtype: str | None,
    skip: list[str] | None,
    group_size: int | None = None,
) -> str | None:
    """The pass with these options, as text for a pipeline; ``None`` without ``--quantized``.

    Raises:
        GraphgenError: GG0705 for options without effect, for an unknown scheme or dtype, and for
            two that do not go together.
    """
    given = {
        "--quantization-type": scheme,
        "--quantization-dtype": dtype,
        "--group-size": group_size,
        "--modules-to-not-convert": skip,
    }
    if not quantized:
        for option, value in given.items():
            if value is not None:
                raise GraphgenError(
                    "GG0705", f"{option} has no effect without --quantized", help="add --quantized"
                )
        return None
    default = QuantizeWeights()
    chosen = loaded_scheme(dtype or default.dtype, scheme, group_size or 0)
    size = chosen.group_size if chosen.scheme == GROUP else default.group_size
    kept = default.skip if skip is None else tuple(skip)
    return str(QuantizeWeights(chosen.dtype, chosen.scheme, kept, size))
