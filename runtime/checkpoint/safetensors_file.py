"""Read the tensors of one safetensors file, memory-mapped.

The format: https://huggingface.co/docs/safetensors. The header is parsed here, not by the
``safetensors`` package, so that errors name the damaged tensor and bf16 needs no PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Final, cast

from graphgen.errors import GraphgenError
from graphgen.json_value import parse_json
from graphgen.limits import TENSORS
from graphgen.runtime.checkpoint.interfaces import CONVERT, NUMPY_DTYPES, Array, TensorInfo
from graphgen.runtime.checkpoint.mapped_file import MappedFile, no_such_tensor

_DTYPES: Final[Mapping[str, str]] = {
    "F64": "f64",
    "F32": "f32",
    "F16": "f16",
    "BF16": "bf16",
    "I64": "s64",
    "I32": "s32",
    "I16": "s16",
    "I8": "s8",
    "U8": "u8",
    "BOOL": "pred",
    "F8_E4M3": "f8e4m3fn",
    "F8_E5M2": "f8e5m2",
    "F8_E8M0": "f8e8m0fnu",
}
_MAX_DIMS: Final = 32
# The checkpoints with the most tensors have 2^18 in all files together.
# Lists and objects beside those of tensors, each of which has three.
_SPARE: Final = 1 << 10
# The format's own limit.
_MAX_HEADER_BYTES: Final = 100_000_000


@dataclass(frozen=True)
class _TensorSpan:
    info: TensorInfo
    offset: int
    nbytes: int


class SafetensorsFile:
    """The tensors of one file.

    Args:
        path: the file, such as ``model.safetensors``.

    Raises:
        GraphgenError: GG0601 for a missing or damaged file, naming the tensor at fault.
    """

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self._file: Final = MappedFile(path, "safetensors")
        self._data_offset, header = _read_header(self._file)
        self._entries: Final = _read_entries(self._file, self._data_offset, header)

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor by its Hugging Face name, in file order; reads no tensor data."""
        return {name: entry.info for name, entry in self._entries.items()}

    def read(self, name: str) -> Array:
        """The tensor ``name``: a read-only view of the file (GG0602 if there is none)."""
        entry = self._entries.get(name)
        if entry is None:
            raise no_such_tensor(self.path, name)
        what = f"the data of tensor '{name}'"
        if entry.info.dtype == "pred":
            # NumPy keeps the byte of a bool as it is: 2 would be neither True nor False.
            raw = self._file.array(entry.offset, entry.nbytes, NUMPY_DTYPES["u8"], what)
            return (raw != 0).reshape(entry.info.shape)
        dtype = NUMPY_DTYPES[entry.info.dtype]
        count = entry.nbytes // dtype.itemsize
        return self._file.array(entry.offset, count, dtype, what).reshape(entry.info.shape)

    def digest(self, extra: bytes = b"") -> str:
        """Identity of the contents and of ``extra`` as 64 hexadecimal digits."""
        spans = ((entry.offset, entry.nbytes) for entry in self._entries.values())
        return self._file.digest(self._data_offset, spans, extra)


def safetensors_header(path: Path) -> dict[str, object]:
    """The header of one file by tensor name; ``__metadata__`` is free text (GG0601)."""
    return _read_header(MappedFile(path, "safetensors"))[1]


def _read_header(file: MappedFile) -> tuple[int, dict[str, object]]:
    """The offset of the data and the header's JSON object."""
    length = int.from_bytes(file.take(0, 8, "the length of the header"), "little")
    if length > _MAX_HEADER_BYTES:
        what = f"the header's length is {length} bytes; the format allows {_MAX_HEADER_BYTES}"
        raise file.error(what, 0)
    text = file.take(8, length, "the header")
    try:
        header = parse_json(
            text, most=_MAX_HEADER_BYTES, objects=3 * TENSORS.most + _SPARE, unique=True
        )
    except ValueError as error:
        raise file.error(f"the header is not valid JSON: {error}", 8) from error
    if not isinstance(header, dict):
        raise file.error("the header is not a JSON object", 8)
    return 8 + length, cast("dict[str, object]", header)


def _read_entries(
    file: MappedFile, data_offset: int, header: Mapping[str, object]
) -> dict[str, _TensorSpan]:
    entries = {
        name: _read_entry(file, data_offset, name, value)
        for name, value in header.items()
        if name != "__metadata__"
    }
    _require_packed(file, data_offset, entries)
    return entries


def _read_entry(file: MappedFile, data_offset: int, name: str, value: object) -> _TensorSpan:
    def bad(what: str) -> GraphgenError:
        return file.error(f"tensor '{name}' {what}")

    if not isinstance(value, dict):
        raise bad("is not described by a JSON object")
    fields = cast("dict[str, object]", value)
    stored = fields.get("dtype")
    dtype = _DTYPES.get(stored) if isinstance(stored, str) else None
    if dtype is None:
        what = f"tensor '{name}' has dtype {stored!r}; supported: {', '.join(_DTYPES)}"
        raise file.error(what, help=CONVERT)
    shape = _sizes(fields.get("shape"))
    if shape is None or len(shape) > _MAX_DIMS or prod(max(size, 1) for size in shape) > 2**60:
        raise bad(f"has shape {fields.get('shape')!r}, which is not a list of sizes")
    span = _sizes(fields.get("data_offsets"))
    if span is None or len(span) != 2:
        raise bad(f"has data_offsets {fields.get('data_offsets')!r}, which are not two offsets")
    begin, end = span
    nbytes = prod(shape) * NUMPY_DTYPES[dtype].itemsize
    if end - begin != nbytes:
        raise bad(f"needs {nbytes} bytes, but its data_offsets [{begin}, {end}] hold {end - begin}")
    file.require(data_offset + begin, nbytes, f"the data of tensor '{name}'")
    return _TensorSpan(TensorInfo(name, shape, dtype), data_offset + begin, nbytes)


def _sizes(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list):
        return None
    items = cast("list[object]", value)
    sizes = tuple(item for item in items if isinstance(item, int) and not isinstance(item, bool))
    return sizes if len(sizes) == len(items) and all(size >= 0 for size in sizes) else None


def _require_packed(file: MappedFile, data_offset: int, entries: Mapping[str, _TensorSpan]) -> None:
    """Require the format's rule: the tensors fill the data without overlap, gap or rest."""
    end, last = data_offset, ""
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].offset, item[1].nbytes)):
        if entry.offset < end:
            what = f"the data of tensors '{last}' and '{name}' overlap"
            raise file.error(what, entry.offset)
        if entry.offset > end:
            gap = entry.offset - end
            what = f"{gap} bytes before the data of tensor '{name}' belong to no tensor"
            raise file.error(what, end)
        end, last = entry.offset + entry.nbytes, name
    if end != file.size:
        raise file.error(f"the last {file.size - end} bytes of the file belong to no tensor", end)
