"""``graphgen perplexity``: perplexity of a text, with or without quantized weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from graphgen.cli.compile_options import NO_OPTIONS, CompileOptions, takes_compile_options
from graphgen.cli.console import emit
from graphgen.cli.shared_options import AsJson
from graphgen.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.report.table import Table


@takes_compile_options("dtype", "tp", "heads", "quantization")
def perplexity(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A checkpoint folder, a GGUF file, or smollm2.")
    ],
    text: Annotated[Path, typer.Option("--text", metavar="FILE", help="UTF-8 text to foresee.")],
    window: Annotated[int, typer.Option("--window", help="Tokens that are read together.")] = 256,
    compile_options: CompileOptions = NO_OPTIONS,
    as_json: AsJson = False,
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
    from graphgen.runtime.checkpoint.dtype_policy import chosen_dtype
    from graphgen.runtime.engine import locate_checkpoint
    from graphgen.runtime.perplexity import perplexity as measure
    from graphgen.runtime.terminal_progress import TerminalProgress

    read, checkpoint = _read(text), locate_checkpoint(model)
    config = CompileConfig().updated(compile_options)
    config = replace(config, dtype=chosen_dtype(config.dtype, checkpoint))
    found = measure(checkpoint, read, window, config, TerminalProgress())
    facts: dict[str, Json] = {
        "perplexity": found.value,
        "tokens": found.tokens,
        "window": window,
        "weight_bytes": found.weight_bytes,
        "quantization": config.quantization or None,
    }
    rows = [
        ("perplexity", f"{found.value:.4f}"),
        ("tokens predicted", str(found.tokens)),
        ("weights", f"{found.weight_bytes / 1e6:.1f} MB, {config.quantization or config.dtype}"),
    ]
    emit(as_json, lambda: facts, lambda: Table(("", ""), rows))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        what = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise GraphgenError("GG0705", f"cannot read {path}: {what}") from error
