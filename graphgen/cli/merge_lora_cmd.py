"""``graphgen merge-lora``: write a checkpoint with an adapter in its weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import note, write_json
from graphgen.cli.shared_options import WrittenAsJson
from graphgen.json_value import Json
from graphgen.report.units import size

if TYPE_CHECKING:
    from graphgen.runtime.lora.merge_adapter import MergedCheckpoint

COMMAND: Final = Command("model", "Write a checkpoint with an adapter in its weights.")


def merge_lora(
    model: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT", help="A checkpoint folder, a GGUF file, or a known name."
        ),
    ],
    adapter: Annotated[
        Path, typer.Argument(metavar="ADAPTER", help="A folder of PEFT, or a .pt file of NxD.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FOLDER", help="A new or empty folder.")
    ],
    dequantize: Annotated[
        bool, typer.Option("--dequantize", help="Take the weights of a quantized GGUF file in f32.")
    ] = False,
    as_json: WrittenAsJson = False,
) -> None:
    """Write a checkpoint whose weights have a low-rank adapter in them, for any runtime.

    Each weight W with an adapter becomes W + scale B A, summed in float32 and rounded once. Tensors
    are read, changed and written one after the other. DoRA and tensors that the adapter holds whole
    (modules_to_save) are merged too.

    \b
    Examples:
      graphgen merge-lora smollm2 my-adapter -o smollm2-mine
      graphgen merge-lora model.Q8_0.gguf my-adapter -o merged --dequantize
    """
    from graphgen.runtime.engine import locate_checkpoint
    from graphgen.runtime.lora.adapter_file import open_adapter
    from graphgen.runtime.lora.merge_adapter import merge_adapter, open_merge_base
    from graphgen.runtime.progress import TerminalProgress

    opened = open_adapter(adapter)
    base = open_merge_base(locate_checkpoint(model).path, dequantize=dequantize)
    made = merge_adapter(base, opened, output, TerminalProgress())
    _tell(output, made, as_json=as_json)


def _tell(output: Path, made: MergedCheckpoint, *, as_json: bool) -> None:
    if as_json:
        facts: dict[str, Json] = {
            "folder": str(output),
            "merged": list(made.merged),
            "replaced": list(made.replaced),
            "untied": made.untied,
            "bytes": made.nbytes,
        }
        write_json(facts)
        return
    replaced = f", {len(made.replaced)} tensors replaced" if made.replaced else ""
    head = "; the head is apart from the embedding now" if made.untied else ""
    note(f"wrote {output}: {len(made.merged)} weights merged{replaced}, {size(made.nbytes)}{head}")
