"""``graphgen shard-weights``: pre-sharded weights, one file per rank."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from graphgen.cli.compile_options import NO_OPTIONS, CompileOptions, takes_compile_options
from graphgen.cli.console import note, write_json
from graphgen.cli.shared_options import WrittenAsJson
from graphgen.compile_config import CompileConfig


@takes_compile_options("tp", "heads", "dtype", "quantization")
def shard_weights(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A checkpoint folder, a GGUF file, or smollm2.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FOLDER", help="A new or empty folder.")
    ],
    compile_options: CompileOptions = NO_OPTIONS,
    as_json: WrittenAsJson = False,
) -> None:
    """Write weights/tp{r}_sharded_checkpoint.safetensors for every rank r, and weights.json.

    'graphgen generate --weights FOLDER' then reads them as they are, for any batch and length.

    \b
    Examples:
      graphgen shard-weights smollm2 --tp 3 --dtype bf16 -o smollm2-tp3
      graphgen generate smollm2 --tp 3 --dtype bf16 --weights smollm2-tp3 --prompt "Hello"
    """
    from graphgen.runtime.checkpoint.dtype_policy import chosen_dtype
    from graphgen.runtime.checkpoint.validate_tensors import check_checkpoint
    from graphgen.runtime.engine import locate_checkpoint
    from graphgen.runtime.model import build_model
    from graphgen.runtime.terminal_progress import TerminalProgress
    from graphgen.runtime.weights.presharded import rank_file
    from graphgen.runtime.weights.presharded import shard_weights as write

    checkpoint = locate_checkpoint(model)
    config = CompileConfig().updated(compile_options).serving(batch=1, max_len=256)
    config = replace(config, dtype=chosen_dtype(config.dtype, checkpoint))
    built = build_model(checkpoint.config, config)
    check_checkpoint(checkpoint, built.module)
    write(output, built.module, checkpoint, TerminalProgress())
    files = [rank_file(output, rank) for rank in range(config.tp)]
    sizes = [file.stat().st_size for file in files]
    if as_json:
        write_json({"tp": config.tp, "files": [str(file) for file in files], "bytes": sizes})
    else:
        note(f"wrote {output}: {config.tp} files of {max(sizes) / 1e6:.1f} MB")
