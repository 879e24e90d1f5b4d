"""Quantization options of the commands that open models, under AWS's names."""

from __future__ import annotations

from typing import Annotated

import typer

Quantized = Annotated[bool, typer.Option("--quantized", help="Keep weights in 8 or 4 bits.")]
QuantizationType = Annotated[
    str | None,
    typer.Option(
        "--quantization-type",
        help="per_channel_symmetric (default), per_tensor_symmetric, or group (int4): what has a "
        "scale.",
    ),
]
QuantizationDtype = Annotated[
    str | None,
    typer.Option("--quantization-dtype", help="int8 (default), f8e4m3, f8e5m2 or int4."),
]
GroupSize = Annotated[
    int | None,
    typer.Option("--group-size", min=2, help="Inputs that share a scale in groups; default: 64."),
]
ModulesToNotConvert = Annotated[
    list[str] | None,
    typer.Option(
        "--modules-to-not-convert",
        help="Parts of names that keep their type, such as layers.0.mlp; default: lm_head.",
    ),
]
