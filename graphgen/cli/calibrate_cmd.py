"""``graphgen calibrate``: write ranges, which fixed scales come from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from graphgen.atomic_write import unreadable
from graphgen.cli.command_table import Command
from graphgen.cli.console import note, write_json
from graphgen.cli.shared_options import WrittenAsJson
from graphgen.read_file import read_named

COMMAND: Final = Command("quantization", "Write ranges of caches and activations on a text.")


def calibrate(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A checkpoint folder, a GGUF file, or smollm2.")
    ],
    text: Annotated[
        Path, typer.Option("--text", metavar="FILE", help="UTF-8 text like the model's own.")
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", metavar="FILE", help="File to write the ranges to, as JSON."
        ),
    ],
    window: Annotated[
        int, typer.Option("--window", min=2, help="Tokens that are read together.")
    ] = 256,
    as_json: WrittenAsJson = False,
) -> None:
    """Write the largest numbers of a text, for caches and activations in 8 bits with fixed scales.

    The model runs over the text in f32. The file has the largest magnitude of each channel of each
    cache; --kv-cache-ranges of the commands that run models takes it, for any --kv-cache-dtype and
    --kv-cache-scale per_tensor, per_key or per_channel. How many numbers are beyond the range of
    each 8-bit float, where caches without scales clamp them, is reported too. It also has the
    largest input of each product, which --activation-ranges takes for
    --activation-quantization-type static.

    \b
    Examples:
      graphgen calibrate smollm2 --text prose.txt -o ranges.json
      graphgen generate smollm2 --prompt "Once" --kv-cache-quant --kv-cache-scale per_key \\
        --kv-cache-ranges ranges.json
    """
    from graphgen.passes.quantization.cache_ranges import write_ranges
    from graphgen.runtime.accuracy.perplexity import read_windows
    from graphgen.runtime.engine import locate_checkpoint
    from graphgen.runtime.progress import TerminalProgress
    from graphgen.runtime.quantization.calibration import calibrate_caches, calibrate_inputs

    try:
        read = read_named(text).decode("utf-8")
    except (OSError, ValueError) as error:
        raise unreadable(str(text), error) from error
    checkpoint, progress = locate_checkpoint(model), TerminalProgress()
    found = calibrate_caches(checkpoint, read, window, progress)
    inputs = calibrate_inputs(checkpoint, read_windows(checkpoint, read, window), progress)
    write_ranges(output, found.ranges, inputs)
    if as_json:
        counts = {"numbers": found.numbers, "beyond": dict(found.beyond)}
        write_json(
            {"file": str(output), "caches": len(found.ranges), "inputs": len(inputs), **counts}
        )
        return
    note(f"wrote {output}: ranges of {len(found.ranges)} caches and {len(inputs)} inputs")
    for name, count in found.beyond.items():
        note(f"cast to {name}, {count:,} of {found.numbers:,} numbers would be clamped")
