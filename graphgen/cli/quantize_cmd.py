"""``graphgen quantize``: write a checkpoint with quantized weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from graphgen.atomic_write import unreadable
from graphgen.cli.command_table import Command
from graphgen.cli.console import note, write_json
from graphgen.cli.flags import ModulesToNotConvert
from graphgen.cli.shared_options import WrittenAsJson
from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.read_file import read_named
from graphgen.report.units import size

if TYPE_CHECKING:
    from graphgen.runtime.quantization.quantize_checkpoint import QuantizedCheckpoint

COMMAND: Final = Command("quantization", "Write a checkpoint with quantized weights.")


WeightDtype = Annotated[
    str, typer.Option("--quantization-dtype", help="int8, f8e4m3, f8e5m2, int4 or mxfp4.")
]
WeightBlocks = Annotated[
    str | None,
    typer.Option(
        "--quantization-type",
        help="per_tensor_symmetric, per_channel_symmetric (default of 8 bits), blockwise "
        "(128 x 128), or group (default of 4 bits): what has a scale.",
    ),
]
GroupSize = Annotated[
    int, typer.Option("--group-size", min=0, help="Inputs to a scale; 64 for int4, 32 for mxfp4.")
]
CalibrationText = Annotated[
    Path | None,
    typer.Option(
        "--calibrate", metavar="FILE", help="UTF-8 text: round by GPTQ for inputs like its."
    ),
]
CalibrationWindow = Annotated[
    int, typer.Option("--window", min=2, help="Tokens of the text that are read together.")
]
NamesOfTensors = Annotated[
    Literal["huggingface", "nxdi"],
    typer.Option("--format", help="Names of tensors: Hugging Face's or AWS's."),
]


def quantize(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A checkpoint folder, a GGUF file, or smollm2.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FOLDER", help="A new or empty folder.")
    ],
    dtype: WeightDtype = "int8",
    scheme: WeightBlocks = None,
    group_size: GroupSize = 0,
    calibrate: CalibrationText = None,
    window: CalibrationWindow = 256,
    skip: ModulesToNotConvert = None,
    form: NamesOfTensors = "huggingface",
    as_json: WrittenAsJson = False,
) -> None:
    """Write a checkpoint with quantized weights, for transformers or for AWS's libraries.

    The weights of products are quantized; embeddings, norms and biases stay as they are. Tensors
    are read, rounded and written one after the other. 'graphgen perplexity --compare' says what a
    scheme costs; --calibrate loses much less with 4 bits.

    \b
    Examples:
      graphgen quantize smollm2 -o smollm2-int8
      graphgen quantize smollm2 -o smollm2-int4 --quantization-dtype int4 --calibrate prose.txt
      graphgen quantize CHECKPOINT -o fp8 --quantization-dtype f8e4m3 --quantization-type blockwise
      graphgen quantize CHECKPOINT -o aws --quantization-dtype f8e4m3 --format nxdi
    """
    from graphgen.passes.quantization.schemes import weight_scheme
    from graphgen.runtime.engine import locate_checkpoint
    from graphgen.runtime.progress import TerminalProgress
    from graphgen.runtime.quantization.calibration import calibration_windows
    from graphgen.runtime.quantization.quantize_checkpoint import (
        QuantizationRequest,
        quantize_checkpoint,
    )

    chosen = weight_scheme(dtype, scheme, group_size)
    if calibrate is None and window != 256:
        what = "--window has no effect without --calibrate"
        raise GraphgenError("GG0705", what, help="add --calibrate FILE")
    text = None if calibrate is None else _read(calibrate)
    checkpoint = locate_checkpoint(model)
    windows = () if text is None else calibration_windows(checkpoint, text, window)
    request = QuantizationRequest(
        chosen, ("lm_head",) if skip is None else tuple(skip), form, windows
    )
    made = quantize_checkpoint(checkpoint, output, request, TerminalProgress())
    _tell(output, chosen.text, made, as_json=as_json)


def _tell(output: Path, scheme: str, made: QuantizedCheckpoint, *, as_json: bool) -> None:
    if as_json:
        facts: dict[str, Json] = {
            "folder": str(output),
            "scheme": scheme,
            "quantized": made.quantized,
            "kept": list(made.kept),
            "bytes": made.nbytes,
        }
        write_json(facts)
        return
    kept = f", {len(made.kept)} kept" if made.kept else ""
    note(f"wrote {output}: {made.quantized} weights in {scheme}{kept}, {size(made.nbytes)}")


def _read(path: Path) -> str:
    try:
        return read_named(path).decode("utf-8")
    except (OSError, ValueError) as error:
        raise unreadable(str(path), error) from error
