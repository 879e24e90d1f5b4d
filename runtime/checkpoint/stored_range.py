"""The quantization that a checkpoint states, and the range of its 8-bit floats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.passes.quantization.stored_readings import StoredReading, stored_readings
from graphgen.read_file import is_file, is_folder, is_there
from graphgen.runtime.checkpoint.interfaces import NUMPY_DTYPES, Array, Checkpoint

if TYPE_CHECKING:
    pass


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

        if is_folder(path) and not is_there(path / "config.json") and not _one_gguf(path):
            return None
        if is_file(path) and path.suffix != ".gguf":
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


# Bytes that are looked at together.
_PIECE: Final = 1 << 24
_MAGNITUDE: Final = np.uint8(0x7F)
# The largest number of each type; Neuron's f8e4m3 has an infinity and ends earlier than OCP's.
_NEURON, _OCP, _E5M2 = 240.0, 448.0, 57344.0


@dataclass(frozen=True, slots=True)
class FloatRange:
    """The 8-bit floats of a checkpoint.

    Attributes:
        dtype: ``f8e4m3fn`` or ``f8e5m2``.
        tensors: number of tensors of this type.
        largest: largest magnitude of a finite number.
        not_finite: number of elements that are NaN or infinite.
    """

    dtype: str
    tensors: int
    largest: float
    not_finite: int

    @property
    def fits_neuron(self) -> bool:
        """True if Neuron's type of the name has every number."""
        return self.largest <= (_NEURON if self.dtype == "f8e4m3fn" else _E5M2)

    @property
    def text(self) -> str:
        """One line for people."""
        more = f", {self.not_finite} not finite" if self.not_finite else ""
        return f"max |w| {self.largest:g} in {self.tensors} tensors{more}: {self._verdict()}"

    def _verdict(self) -> str:
        if self.dtype != "f8e4m3fn":
            return f"{self.dtype} ends at {_E5M2:g} everywhere, nothing is rescaled"
        if self.fits_neuron:
            return f"within Neuron's {_NEURON:g}, as a checkpoint that was rescaled already"
        return f"OCP's {self.dtype}, which ends at {_OCP:g}; Neuron's ends at {_NEURON:g}"


@dataclass(frozen=True, slots=True)
class StoredReport:
    """The quantization of a checkpoint.

    Attributes:
        forms: each form of its weights, in words.
        ranges: of its 8-bit floats; empty without any.
        rescaled: whether numbers are rescaled while they are loaded for Neuron's devices.
    """

    forms: tuple[str, ...]
    ranges: tuple[FloatRange, ...]
    rescaled: bool

    @property
    def load(self) -> str:
        """The rescaling of numbers that are loaded for Neuron; empty for none."""
        if not self.rescaled:
            return ""
        return "loading divides numbers by 448 / 240 and multiplies scales by it; the CPU does not"

    def to_json(self) -> dict[str, Json]:
        """The attributes by name, with those of each range."""
        ranges: list[Json] = [
            {
                "dtype": item.dtype,
                "tensors": item.tensors,
                "largest": item.largest,
                "not_finite": item.not_finite,
                "fits_neuron": item.fits_neuron,
            }
            for item in self.ranges
        ]
        return {
            "forms": [*self.forms],
            "ranges": ranges,
            "rescaled_on_neuron": self.rescaled,
        }


def stored_report(checkpoint: Checkpoint) -> StoredReport | None:
    """The quantization of a checkpoint, or ``None`` of one in floats; reads all 8-bit floats.

    Args:
        checkpoint: as :func:`~graphgen.runtime.checkpoint.open_checkpoint.open_checkpoint` gives
            it.

    Raises:
        GraphgenError: GG0502 for a scheme that is not read.
    """
    readings = stored_readings(checkpoint.config)
    if not readings:
        return None
    tensors = checkpoint.tensors()
    counts = Counter[str]()
    for each in readings:
        ending = each.found.scheme.tensor("", each.found.scheme.payload)
        counts[each.found.scheme.name] = sum(name.endswith(ending) for name in tensors)
    forms = tuple([_form(each, counts[each.found.scheme.name]) for each in readings])
    elements = {each.found.form.element.name for each in readings}
    return StoredReport(forms, _ranges(checkpoint), "f8e4m3fn" in elements)


def _form(reading: StoredReading, count: int) -> str:
    form = reading.found.form
    rows, columns = form.block
    each = {(0, 0): "tensor", (1, 0): "row"}.get((rows, columns), f"{rows} x {columns}")
    zero = " and a zero point" if form.zero_points else ""
    text = f"{reading.found.scheme.name}: {count} weights in {form.element.name}"
    return f"{text}, a scale{zero} a {each}"


def _ranges(checkpoint: Checkpoint) -> tuple[FloatRange, ...]:
    found: dict[str, FloatRange] = {}
    for name, info in checkpoint.tensors().items():
        if info.dtype not in ("f8e4m3fn", "f8e5m2"):
            continue
        largest, bad = _magnitudes(checkpoint.read(name), info.dtype)
        before = found.get(info.dtype, FloatRange(info.dtype, 0, 0.0, 0))
        found[info.dtype] = FloatRange(
            info.dtype,
            before.tensors + 1,
            max(before.largest, largest),
            before.not_finite + bad,
        )
    return tuple(found.values())


def _magnitudes(array: Array, dtype: str) -> tuple[float, int]:
    """The largest finite magnitude and the count of other elements, a piece at a time.

    Without its sign a code is the larger the larger its number is.
    """
    codes = array.reshape(-1).view(np.uint8)
    last = int(_codes(dtype)[-1])
    largest = bad = 0
    for start in range(0, codes.size, _PIECE):
        magnitudes = codes[start : start + _PIECE] & _MAGNITUDE
        finite = magnitudes[magnitudes <= last]
        largest = max(largest, int(finite.max(initial=0)))
        bad += magnitudes.size - finite.size
    return float(np.uint8(largest).view(NUMPY_DTYPES[dtype])), bad


def _codes(dtype: str) -> Array:
    """The codes of finite numbers without a sign, in order."""
    codes = np.arange(128, dtype=np.uint8)
    return codes[np.isfinite(codes.view(NUMPY_DTYPES[dtype]).astype(np.float32))]
