"""``graphgen perplexity``: how well a model foresees a text, quantized or not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from graphgen.cli.console import table, write_json, write_stdout
from graphgen.cli.model.quantization_options import (
    ModulesToNotConvert,
    QuantizationDtype,
    QuantizationType,
    Quantized,
    quantization,
)
from graphgen.errors import GraphgenError


def perplexity(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A checkpoint folder, a GGUF file, or smollm2.")
    ],
    text: Annotated[Path, typer.Option("--text", metavar="FILE", help="UTF-8 text to foresee.")],
    window: Annotated[int, typer.Option("--window", help="Tokens that are read together.")] = 256,
    dtype: Annotated[
        Literal["f32", "bf16", "f16", "as-declared"],
        typer.Option("--dtype", help="Element type; as-declared is the checkpoint's own."),
    ] = "f32",
    tp: Annotated[int, typer.Option("--tp", min=1, help="Ranks to split the model over.")] = 1,
    quantized: Quantized = False,
    quantization_type: QuantizationType = None,
    quantization_dtype: QuantizationDtype = None,
    modules_to_not_convert: ModulesToNotConvert = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Tell how well a model foresees a text: the perplexity, 1 for a text foreseen for certain.

    The text is cut into windows; in each, every token but the first is predicted from those before
    it. Compare runs of one text, tokenizer and window only.

    \b
    Examples:
      graphgen perplexity smollm2 --text story.txt
      graphgen perplexity smollm2 --text story.txt --quantized
      graphgen perplexity smollm2 --text story.txt --quantized --quantization-dtype f8e4m3
    """
    from graphgen.cli.progress import TerminalProgress
    from graphgen.runtime.checkpoint.dtype_policy import chosen_dtype
    from graphgen.runtime.engine import locate_checkpoint
    from graphgen.runtime.model import Settings
    from graphgen.runtime.perplexity import perplexity as measure

    quantize = quantization(
        quantized, quantization_type, quantization_dtype, modules_to_not_convert
    )
    read, checkpoint = _read(text), locate_checkpoint(model)
    element = chosen_dtype(dtype, checkpoint)
    settings = Settings(element, tp=tp, quantization=quantize or "")
    found = measure(checkpoint, read, window, settings, TerminalProgress())
    if as_json:
        write_json(
            {
                "perplexity": found.value,
                "tokens": found.tokens,
                "window": window,
                "weight_bytes": found.weight_bytes,
                "quantization": quantize,
            }
        )
        return
    rows = [
        ("perplexity", f"{found.value:.4f}"),
        ("tokens predicted", str(found.tokens)),
        ("weights", f"{found.weight_bytes / 1e6:.1f} MB, {quantize or element}"),
    ]
    write_stdout(table(("", ""), rows, stream=sys.stdout))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise GraphgenError("GG0705", f"cannot read {path}: {what}") from error
