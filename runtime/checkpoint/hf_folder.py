"""Read a model from a Hugging Face folder: ``config.json`` and weights in one file or in several.

Weights in several files come with ``NAME.index.json``; its ``weight_map`` maps tensors to files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from graphgen.atomic_write import plain_name
from graphgen.errors import GraphgenError
from graphgen.read_file import is_file, is_there
from graphgen.runtime.checkpoint.config_file import read_config, read_json_object
from graphgen.runtime.checkpoint.interfaces import Array, TensorFile, TensorInfo
from graphgen.runtime.checkpoint.mapped_file import no_such_tensor, unreadable
from graphgen.runtime.checkpoint.safetensors_file import SafetensorsFile
from graphgen.runtime.checkpoint.torch_file import TorchFile


@dataclass(frozen=True, slots=True)
class _WeightFormat:
    """A weight format: the name of a single file, whose index names the files of several."""

    whole: str
    opener: Callable[[Path], TensorFile]

    @property
    def index(self) -> str:
        return f"{self.whole}.index.json"


_WEIGHT_FORMATS: Final = (
    _WeightFormat("model.safetensors", SafetensorsFile),
    _WeightFormat("pytorch_model.bin", TorchFile),
)
"""In the search order of transformers."""

WEIGHT_FILES: Final = tuple(name for kind in _WEIGHT_FORMATS for name in (kind.whole, kind.index))
"""The file names by which a folder with readable weights is recognised."""


class FolderCheckpoint:
    """The weights and the configuration of a folder, or of one file of weights.

    Args:
        path: the folder, or the file: a PyTorch file unless it ends in ``.safetensors``.
        config: the model as a ``config.json``; ``None`` for that of the folder.

    Raises:
        GraphgenError: GG0601 for a missing or damaged file, or an index that contradicts its
            files; GG0604 for a PyTorch file whose pickle calls a function.
    """

    def __init__(self, path: Path, config: Mapping[str, object] | None = None) -> None:
        self.path: Final = path
        self.config: Final[Mapping[str, object]] = read_config(path) if config is None else config
        self._files: Final = _open_files(path)
        self._file_of: Final = _files_of(path, self._files)

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor by its Hugging Face name, in file order; reads no tensor data."""
        known = {name: file.tensors() for name, file in self._files.files.items()}
        return {name: known[file][name] for name, file in self._file_of.items()}

    def read(self, name: str) -> Array:
        """The tensor ``name``: a read-only view of its file.

        Raises:
            GraphgenError: GG0602 if there is no such tensor.
        """
        file = self._file_of.get(name)
        if file is None:
            raise no_such_tensor(self.path, name)
        return self._files.files[file].read(name)

    def fingerprint(self) -> str:
        """Identity of the contents as 64 hexadecimal digits; see :class:`Checkpoint`."""
        hasher = hashlib.sha256(json.dumps(self.config, sort_keys=True).encode())
        for name, file in sorted(self._files.files.items()):
            hasher.update(f"\n{name} {file.digest()}".encode())
        return hasher.hexdigest()


@dataclass(frozen=True, slots=True)
class _Files:
    """The opened files by name, and the index's file name of each tensor (empty without index)."""

    files: Mapping[str, TensorFile]
    stated: Mapping[str, str]
    index: str = ""


def _open_files(folder: Path) -> _Files:
    if is_file(folder):
        opener = SafetensorsFile if folder.suffix == ".safetensors" else TorchFile
        return _Files({folder.name: opener(folder)}, {})
    for kind in _WEIGHT_FORMATS:
        if is_there(folder / kind.whole):
            return _Files({kind.whole: kind.opener(folder / kind.whole)}, {})
        if is_there(folder / kind.index):
            stated = read_index(folder / kind.index)
            _require_all(folder, kind.index, stated)
            names = dict.fromkeys(stated.values())
            return _Files({name: kind.opener(folder / name) for name in names}, stated, kind.index)
    raise unreadable(folder, f"the folder has none of {', '.join(WEIGHT_FILES)}")


def tensor_names(folder: Path) -> list[str]:
    """The names of a folder's tensors, by its index or the header of its file (GG0601).

    Files that the index names need not be there. Empty for a folder without weights.
    """
    for kind in _WEIGHT_FORMATS:
        if is_there(folder / kind.whole):
            return list(kind.opener(folder / kind.whole).tensors())
        if is_there(folder / kind.index):
            return list(read_index(folder / kind.index))
    return []


def absent_files(folder: Path) -> list[str]:
    """The files that the index of a folder names and that are not there (GG0601).

    Empty where one file has all weights.
    """
    for kind in _WEIGHT_FORMATS:
        if is_there(folder / kind.whole):
            return []
        if is_there(folder / kind.index):
            names = dict.fromkeys(read_index(folder / kind.index).values())
            return [name for name in names if not is_file(folder / name)]
    return []


def read_index(path: Path) -> dict[str, str]:
    """The ``weight_map`` of an index: the file each tensor is in (GG0601)."""
    found = read_json_object(path).get("weight_map")
    if not isinstance(found, dict) or not found:
        raise unreadable(path, f"{path.name} has no weight_map of tensors and files")
    for tensor, name in cast("dict[str, object]", found).items():
        # Only files of this folder: the index is untrusted.
        try:
            known = plain_name(name) == Path(str(name)).name
        except ValueError:
            known = False
        if not known:
            raise unreadable(
                path, f"{path.name} says tensor '{tensor}' is in {name!r:.80}, no file"
            )
    return cast("dict[str, str]", found)


def _require_all(folder: Path, index: str, stated: Mapping[str, str]) -> None:
    """Refuse a folder that lacks some of its files; the error lists all of them (GG0601)."""
    names = list(dict.fromkeys(stated.values()))
    missing = [name for name in names if not is_file(folder / name)]
    if not missing:
        return
    lines: list[str] = []
    for name in missing[:20]:
        inside = [tensor for tensor, file in stated.items() if file == name]
        more = f" and {len(inside) - 1} more" if len(inside) > 1 else ""
        lines.append(f"missing: {name} with '{inside[0]}'{more}")
    if len(missing) > 20:
        lines.append(f"missing: and {len(missing) - 20} more files")
    raise GraphgenError(
        "GG0601",
        f"{len(missing)} of the {len(names)} files that {index} names are not there",
        where=str(folder / index),
        note="\n".join(lines),
        help="copy or download what is missing into the folder",
    )


def _files_of(folder: Path, found: _Files) -> dict[str, str]:
    """The file of every tensor (GG0601 if index and files disagree)."""
    file_of: dict[str, str] = {}
    for name, file in found.files.items():
        for tensor in file.tensors():
            stated = found.stated.get(tensor, name)
            if stated == name and file_of.setdefault(tensor, name) != name:
                other = file_of[tensor]
                what = f"tensor '{tensor}' is in {other} too, and {found.index} names neither"
                raise unreadable(folder / name, what)
    absent = [tensor for tensor in found.stated if tensor not in file_of]
    if absent:
        raise GraphgenError(
            "GG0601",
            f"{found.index} is wrong about {len(absent)} of its {len(found.stated)} tensors",
            where=str(folder / found.index),
            note="\n".join(
                f"'{tensor}' is not in {found.stated[tensor]}" for tensor in absent[:20]
            ),
            help="index and files come from different checkpoints, or one is incomplete: "
            "get them all again",
        )
    return file_of
