"""The options that quantize weights, under AWS's names, shared by the commands that open models."""

from __future__ import annotations

from typing import Annotated

import typer

from graphgen.errors import GraphgenError

Quantized = Annotated[bool, typer.Option("--quantized", help="Keep weights in 8 bits.")]
QuantizationType = Annotated[
    str | None,
    typer.Option(
        "--quantization-type",
        help="per_channel_symmetric (default) or per_tensor_symmetric: what has a scale.",
    ),
]
QuantizationDtype = Annotated[
    str | None,
    typer.Option("--quantization-dtype", help="int8 (default), f8e4m3 or f8e5m2."),
]
ModulesToNotConvert = Annotated[
    list[str] | None,
    typer.Option(
        "--modules-to-not-convert",
        help="Parts of names that keep their type, such as layers.0.mlp; default: lm_head.",
    ),
]


def quantization(
    quantized: bool,
    scheme: str | None,
    dtype: str | None,
    skip: list[str] | None,
) -> str | None:
    """The pass that quantizes as the options say, as text; ``None`` where they say nothing.

    Raises:
        GraphgenError: GG0705 for options that would have no effect, or a word that is none of
            theirs.
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
    from graphgen.passes.quantize.quantize_weights import QuantizeWeights
    from graphgen.passes.quantize.schemes import DTYPES, SCHEMES

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
