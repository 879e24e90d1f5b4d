"""``graphgen shard-weights``: pre-sharded weights, one file per rank."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import note, write_json
from graphgen.cli.flags import NO_OPTIONS, with_compile_flags
from graphgen.cli.shared_options import WrittenAsJson
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.read_file import is_file
from graphgen.report.units import size

if TYPE_CHECKING:
    from graphgen.ir import Module
    from graphgen.runtime.checkpoint.interfaces import Checkpoint

COMMAND: Final = Command("model", "Write a checkpoint's weights per rank.")


@with_compile_flags(
    *("tp", "moe_ep_degree", "moe_prefill_ep_degree", "heads", "flash_decoding"),
    *("dtype", "quantization", "keep_quantized"),
)
def shard_weights(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A checkpoint folder, a GGUF file, or smollm2; for --for also .safetensors, .npz.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FOLDER", help="A new or empty folder.")
    ],
    programs: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="PROGRAMS",
            help="A program that 'graphgen lower' wrote, or its folder, instead of the options.",
        ),
    ] = None,
    compile_options: CompileConfig = NO_OPTIONS,
    as_json: WrittenAsJson = False,
) -> None:
    """Write weights/tp{r}_sharded_checkpoint.safetensors for every rank r, and weights.json.

    'graphgen generate --weights FOLDER' then reads them as they are, for any batch and length. With
    --for they are the weights of lowered programs, which may be of any graph: MODEL has arrays with
    the names of its weights. weights.json lists the arguments of each program in order.

    \b
    Examples:
      graphgen shard-weights smollm2 --tp 3 --dtype bf16 -o smollm2-tp3
      graphgen generate smollm2 --tp 3 --dtype bf16 --weights smollm2-tp3 --prompt "Hello"
      graphgen lower mine.gg --target trn2 --to hlo -o programs/
      graphgen shard-weights mine.npz --for programs/ -o weights
    """
    from graphgen.runtime.progress import TerminalProgress
    from graphgen.runtime.weights.presharded import rank_file
    from graphgen.runtime.weights.presharded import shard_weights as write

    checkpoint, module = (
        _of_model(model, compile_options)
        if programs is None
        else _of_programs(model, programs, compile_options)
    )
    write(output, module, checkpoint, TerminalProgress())
    files = [rank_file(output, rank) for rank in range(module.ranks)]
    sizes = [file.stat().st_size for file in files]
    if as_json:
        write_json({"tp": module.ranks, "files": [str(file) for file in files], "bytes": sizes})
    else:
        count = f"{len(files)} file{'s' if len(files) > 1 else ''}"
        note(f"wrote {output}: {count} of {size(max(sizes))}")


def _of_model(model: str, compile_options: CompileConfig) -> tuple[Checkpoint, Module]:
    """A checkpoint, and its model as the options compile it."""
    from graphgen.runtime.checkpoint.dtype_policy import chosen_types
    from graphgen.runtime.checkpoint.open_checkpoint import as_stored
    from graphgen.runtime.checkpoint.validate_tensors import check_checkpoint
    from graphgen.runtime.engine import locate_checkpoint
    from graphgen.runtime.model import build_model

    checkpoint = locate_checkpoint(model)
    config = compile_options.serving(batch=1, max_len=256)
    config = config.updated(chosen_types(config.dtype, checkpoint))
    checkpoint = as_stored(checkpoint, keep=config.keep_quantized)
    built = build_model(checkpoint.config, config)
    check_checkpoint(checkpoint, built.module)
    return checkpoint, built.module


def _of_programs(
    model: str, programs: str, compile_options: CompileConfig
) -> tuple[Checkpoint, Module]:
    """Arrays of any file, and the module of lowered programs."""
    from graphgen.lowering.lowered_module import open_lowered
    from graphgen.runtime.checkpoint.array_file import ENDINGS, ArrayFileCheckpoint
    from graphgen.runtime.checkpoint.validate_tensors import check_arrays
    from graphgen.runtime.engine import locate_checkpoint

    if compile_options != CompileConfig():
        raise GraphgenError(
            "GG0705",
            "--for and options of a compilation exclude each other",
            help="the programs were lowered with theirs: say them to 'graphgen opt' or 'build'",
        )
    file = Path(model)
    alone = file.suffix in ENDINGS and is_file(file)
    checkpoint = ArrayFileCheckpoint(file) if alone else locate_checkpoint(model)
    module = open_lowered(programs)
    unread = check_arrays(checkpoint, module)
    if unread:
        many = f" and {len(unread) - 3} more" if len(unread) > 3 else ""
        note(f"the programs do not read {', '.join(unread[:3])}{many}")
    return checkpoint, module
