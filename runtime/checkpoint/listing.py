"""List the tensors of checkpoint files: names, types and sizes, from the headers alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import cast

from graphgen.atomic_write import open_regular
from graphgen.json_value import OTHER_FORM
from graphgen.numbers import MOST_SIZE, is_whole
from graphgen.runtime.checkpoint.interfaces import NUMPY_DTYPES, TensorInfo
from graphgen.runtime.checkpoint.mapped_file import unreadable
from graphgen.runtime.checkpoint.safetensors_file import safetensors_header
from graphgen.runtime.checkpoint.torch_file import TorchFile, looks_like_torch


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor in its stored form.

    Attributes:
        name: the file's own name for it.
        shape: the sizes, outermost first.
        type: the file's own name for how elements are stored, such as ``BF16`` or ``Q4_K``.
        nbytes: the number of bytes of its data.
        file: the name of its file.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    nbytes: int
    file: str


@dataclass(frozen=True, slots=True)
class Listing:
    """The contents of one checkpoint.

    Attributes:
        kind: ``safetensors``, ``PyTorch`` or ``GGUF``, or several of them joined by "and".
        facts: (key, value) pairs of the headers' other entries, as text.
        tensors: in the order of the files.
    """

    kind: str
    facts: tuple[tuple[str, str], ...]
    tensors: tuple[Stored, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(item.nbytes for item in self.tensors)


def is_checkpoint(head: bytes) -> bool:
    """True if a file with these first bytes is a GGUF or a safetensors file."""
    return head[:4] == b"GGUF" or (len(head) > 8 and head[7] == 0 and head[8:9] == b"{")


def checkpoint_files(folder: Path) -> list[Path]:
    """The files with tensors in a folder; PyTorch's only without others.

    PyTorch files beside safetensors repeat the weights, and ``training_args.bin`` holds none.
    """
    found = [*folder.glob("*.safetensors"), *folder.glob("*.gguf")]
    found = found or [*folder.glob("pytorch_model*.bin")]
    return sorted(path for path in found if path.is_file())


def is_torch_file(path: Path) -> bool:
    """True if the name and the first bytes of a file are those of ``torch.save``."""
    if path.suffix not in (".bin", ".pt", ".pth"):
        return False
    with open_regular(path) as opened:
        return looks_like_torch(opened.read(16))


def list_checkpoint(files: list[Path]) -> Listing:
    """The joint contents of these files, without reading a tensor (GG0601 for a damaged file)."""
    listings = [_one(file) for file in files]
    facts = tuple(dict(fact for item in listings for fact in item.facts).items())
    tensors = tuple(tensor for item in listings for tensor in item.tensors)
    return Listing(" and ".join(sorted({item.kind for item in listings})), facts, tensors)


def _one(path: Path) -> Listing:
    if is_torch_file(path):
        return _torch(path)
    with open_regular(path) as opened:
        head = opened.read(4)
    return _gguf(path) if head == b"GGUF" else _safetensors(path)


def _nbytes(info: TensorInfo) -> int:
    return prod(info.shape) * NUMPY_DTYPES[info.dtype].itemsize


def _torch(path: Path) -> Listing:
    file = TorchFile(path)
    stored, known = file.stored, file.tensors()
    tensors = tuple(
        Stored(name, item.shape, item.type, _nbytes(known[name]), path.name)
        for name, item in stored.items()
    )
    shared = len(stored) - len({item.storage.key for item in stored.values()})
    facts = (("tensors that share bytes with others", str(shared)),) if shared else ()
    return Listing("PyTorch", facts, tensors)


def _safetensors(path: Path) -> Listing:
    header = safetensors_header(path)
    free = header.pop("__metadata__", {})
    facts = cast("dict[str, object]", free) if isinstance(free, dict) else {}
    tensors: list[Stored] = []
    for name, value in header.items():
        try:
            entry = cast(Mapping[str, object], value)
            shape = tuple([_size(size) for size in cast("list[object]", entry["shape"])])
            begin, end = (_size(place) for place in cast("list[object]", entry["data_offsets"]))
            tensors.append(Stored(name, shape, str(entry["dtype"]), end - begin, path.name))
        except OTHER_FORM as error:
            raise unreadable(path, f"tensor '{name}' is not described as it should be") from error
    return Listing("safetensors", tuple((k, str(v)) for k, v in facts.items()), tuple(tensors))


def _gguf(path: Path) -> Listing:
    # Only here: the gguf package is not needed to read safetensors.
    from graphgen.runtime.checkpoint.gguf_header import read_header

    header = read_header(path)
    facts = tuple(
        (key, str(value))
        for key, value in header.metadata.items()
        if isinstance(value, bool | int | float | str) and len(str(value)) < 100
    )
    tensors = tuple(
        Stored(name, tensor.shape, tensor.kind.name, tensor.nbytes, path.name)
        for name, tensor in header.tensors.items()
    )
    return Listing("GGUF", facts, tensors)


def _size(value: object) -> int:
    if not is_whole(value, MOST_SIZE):
        raise ValueError(value)
    return cast(int, value)
