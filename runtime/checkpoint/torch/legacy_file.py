"""The form that ``torch.save`` wrote before PyTorch 1.6: five pickles, then the storages.

The pickles are a magic number, the version of the form, facts of the machine, the value with its
tensors, and the keys of the storages. Of each storage follow its number of elements as s64, and its
bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, cast

from graphgen.runtime.checkpoint.interfaces import NUMPY_DTYPES
from graphgen.runtime.checkpoint.mapped_file import ByteCursor, MappedFile
from graphgen.runtime.checkpoint.torch.torch_pickle import (
    STORAGE_TYPES,
    TORCH_DTYPES,
    StoredTensor,
    read_pickle,
)

# First bytes of such a file: the pickle of the magic number.
LEGACY: Final = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_VERSION: Final = 1001

Span = tuple[int, int]


def read_legacy(file: MappedFile) -> tuple[dict[str, Span], Span, object]:
    """Read the pickles of a file, and find its storages; runs nothing and reads no tensor data.

    Returns:
        (first byte, size) of each storage by its key; those of the value's pickle; and the value.

    Raises:
        GraphgenError: GG0601 for a damaged file, GG0604 for a pickle that wants to run something.
    """
    with file.path.open("rb") as opened:
        _, version, machine = (read_pickle(opened, file.path, 0) for _ in range(3))
        start = opened.tell()
        value = read_pickle(opened, file.path, 0)
        size = opened.tell() - start
        keys = read_pickle(opened, file.path, 0)
        end = opened.tell()
    if version != _VERSION or not isinstance(keys, list):
        raise file.error(f"the file is of version {version} of the old form, not {_VERSION}")
    if isinstance(machine, Mapping) and machine.get("little_endian") is False:  # pyright: ignore[reportUnknownMemberType]
        raise file.error("its byte order is big-endian; only little-endian files can be read")
    kinds = {tensor.storage.key: tensor.storage.kind for tensor in _stored(value)}
    cursor, spans = ByteCursor(file, end), dict[str, Span]()
    for key in cast("list[object]", keys):
        name = str(key)
        element = TORCH_DTYPES.get(STORAGE_TYPES.get(kinds.get(name, ""), ""))
        if element is None:
            raise file.error(f"storage '{name}' is of type {kinds.get(name, 'unknown')}")
        count = cursor.unsigned(8, f"the size of storage '{name}'")
        bytes_ = count * NUMPY_DTYPES[element].itemsize
        file.require(cursor.pos, bytes_, f"storage '{name}'")
        spans[name] = (cursor.pos, bytes_)
        cursor.pos += bytes_
    return spans, (start, size), value


def _stored(value: object) -> Iterator[StoredTensor]:
    """The tensors of a value, those in containers too."""
    if isinstance(value, StoredTensor):
        yield value
    elif isinstance(value, Mapping):
        for item in cast("Mapping[object, object]", value).values():
            yield from _stored(item)
    elif isinstance(value, list | tuple):
        for item in cast("list[object]", value):
            yield from _stored(item)
