"""``graphgen shard-weights``: a checkpoint's weights as each rank reads them, in files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from graphgen.cli.console import note, write_json
from graphgen.cli.model.quantization_options import (
    ModulesToNotConvert,
    QuantizationDtype,
    QuantizationType,
    Quantized,
    quantization,
)


def shard_weights(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A checkpoint folder, a GGUF file, or smollm2.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FOLDER", help="A new or empty folder.")
    ],
    tp: Annotated[int, typer.Option("--tp", min=1, help="Ranks to split the weights over.")] = 1,
    dtype: Annotated[
        Literal["f32", "bf16", "f16", "as-declared"],
        typer.Option("--dtype", help="Element type; as-declared is the checkpoint's own."),
    ] = "f32",
    quantized: Quantized = False,
    quantization_type: QuantizationType = None,
    quantization_dtype: QuantizationDtype = None,
    modules_to_not_convert: ModulesToNotConvert = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was written as JSON.")
    ] = False,
) -> None:
    """Write weights/tp{r}_sharded_checkpoint.safetensors for every rank r, and weights.json.

    'graphgen generate --weights FOLDER' then reads them as they are, for any batch and length.

    \b
    Examples:
      graphgen shard-weights smollm2 --tp 3 --dtype bf16 -o smollm2-tp3
      graphgen generate smollm2 --tp 3 --dtype bf16 --weights smollm2-tp3 --prompt "Hello"
    """
    from graphgen.cli.progress import TerminalProgress
    from graphgen.runtime.checkpoint.dtype_policy import chosen_dtype
    from graphgen.runtime.checkpoint.validate_tensors import check_checkpoint
    from graphgen.runtime.engine import locate_checkpoint
    from graphgen.runtime.model import Settings, build_model
    from graphgen.runtime.weights.presharded import rank_file
    from graphgen.runtime.weights.presharded import shard_weights as write

    checkpoint = locate_checkpoint(model)
    quantize = quantization(
        quantized, quantization_type, quantization_dtype, modules_to_not_convert
    )
    settings = Settings(chosen_dtype(dtype, checkpoint), tp=tp, quantization=quantize or "")
    built = build_model(checkpoint.config, settings)
    check_checkpoint(checkpoint, built.module)
    write(output, built.module, checkpoint, TerminalProgress())
    files = [rank_file(output, rank) for rank in range(tp)]
    sizes = [file.stat().st_size for file in files]
    if as_json:
        write_json({"tp": tp, "files": [str(file) for file in files], "bytes": sizes})
    else:
        note(f"wrote {output}: {tp} files of {max(sizes) / 1e6:.1f} MB")
