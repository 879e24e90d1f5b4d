"""The weight quantization pass from options as users write them, with the errors of options."""

from __future__ import annotations

from graphgen.errors import GraphgenError
from graphgen.passes.quantize.quantize_weights import QuantizeWeights
from graphgen.passes.quantize.schemes import DTYPES, SCHEMES


def quantization_pass(
    quantized: bool,
    scheme: str | None,
    dtype: str | None,
    skip: list[str] | None,
) -> str | None:
    """The pass with these options, as text for a pipeline; ``None`` without ``--quantized``.

    Raises:
        GraphgenError: GG0705 for options without effect, or an unknown scheme or dtype.
    """
    given = {
        "--quantization-type": scheme,
        "--quantization-dtype": dtype,
        "--modules-to-not-convert": skip,
    }
    if not quantized:
        for option, value in given.items():
            if value is not None:
                raise GraphgenError(
                    "GG0705", f"{option} has no effect without --quantized", help="add --quantized"
                )
        return None
    for option, value, known in (
        ("--quantization-type", scheme, SCHEMES),
        ("--quantization-dtype", dtype, DTYPES),
    ):
        if value is not None and value not in known:
            raise GraphgenError(
                "GG0705", f"{option} {value} is unknown", help=f"one of {', '.join(known)}"
            )
    default = QuantizeWeights()
    return str(
        QuantizeWeights(
            dtype or default.dtype,
            scheme or default.scheme,
            default.skip if skip is None else tuple(skip),
        )
    )
