"""``graphgen inspect`` of a checkpoint: its quantization, and how large its 8-bit floats are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from graphgen.errors import GraphgenError
from graphgen.json_value import Json

if TYPE_CHECKING:
    from graphgen.runtime.checkpoint.quantized.stored_range import StoredReport


@dataclass(frozen=True, slots=True)
class CheckpointQuantization:
    """The quantization of a checkpoint in both forms of a command's output.

    Attributes:
        report: reads the 8-bit floats and reports; ``None`` for weights in floats. Raises GG0502
            for a scheme that is not read.
    """

    report: Callable[[], StoredReport | None]

    def lines(self) -> list[str]:
        """For people; none of weights in floats."""
        try:
            found = self.report()
        except GraphgenError as error:
            return [f"  quantization: not read: {error.what}"]
        if found is None:
            return []
        lines = [f"  quantization: {form}" for form in found.forms]
        lines += [f"  range: {item.text}" for item in found.ranges]
        return [*lines, f"  on Neuron: {found.load}"] if found.load else lines

    def facts(self) -> Json:
        """For ``--json``: ``null`` of weights in floats, the error of a scheme that is not read."""
        try:
            found = self.report()
        except GraphgenError as error:
            return {"not_read": error.what}
        return None if found is None else found.to_json()


def quantization_of(path: Path) -> CheckpointQuantization:
    """The quantization of a checkpoint folder, or of a GGUF file as it can be kept.

    A single file of tensors states nothing: its quantization is in the folder's ``config.json``.

    Args:
        path: of a checkpoint.
    """

    def report() -> StoredReport | None:
        # Only here: most files that are inspected hold programs.
        from graphgen.runtime.checkpoint.open_checkpoint import as_stored, open_checkpoint
        from graphgen.runtime.checkpoint.quantized.stored_range import stored_report

        if path.is_dir() and not (path / "config.json").exists() and not _one_gguf(path):
            return None
        if path.is_file() and path.suffix != ".gguf":
            return None
        checkpoint = open_checkpoint(path)
        if checkpoint.path.suffix == ".gguf":
            try:
                checkpoint = as_stored(checkpoint, keep=True)
            except GraphgenError:
                return None
        return stored_report(checkpoint)

    return CheckpointQuantization(report)


def _one_gguf(folder: Path) -> bool:
    return len(list(folder.glob("*.gguf"))) == 1
