"""Write the int4 checkpoint that graphgen reads: groups of 64, rounded by GPTQ."""

from __future__ import annotations

from pathlib import Path

from graphgen.passes.quantization.schemes import weight_scheme
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.progress import Silent
from graphgen.runtime.quantization.calibration import calibration_windows
from graphgen.runtime.quantization.quantize_checkpoint import (
    QuantizationRequest,
    quantize_checkpoint,
)

# Not the text whose perplexity is measured.
CALIBRATION = Path(__file__).resolve().parents[2] / "tests" / "data" / "calibration.txt"
WINDOW = 256


def write_int4_folder(checkpoint: Checkpoint, folder: Path) -> str:
    """Write what ``graphgen quantize --quantization-dtype int4 --calibrate TEXT`` writes.

    Args:
        checkpoint: in floats.
        folder: made if it is not there yet.
    """
    if not folder.exists():
        windows = calibration_windows(checkpoint, CALIBRATION.read_text(), WINDOW)
        request = QuantizationRequest(weight_scheme("int4"), windows=windows)
        quantize_checkpoint(checkpoint, folder, request, Silent())
    return str(folder)
