"""Checkpoints with Medusa heads: a model's tensors joined with a file or folder of heads.

Known are ``medusa_lm_head.safetensors`` and ``.pt`` of the published heads, whose tensors are
``<i>.<block>.linear.weight``, AWS's ``medusa_heads.pt``, and whole models with ``medusa_head.<i>``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol, cast

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.models.medusa import MEDUSA_SCOPE
from graphgen.read_file import is_folder, is_there
from graphgen.runtime.checkpoint.interfaces import Array, Checkpoint, TensorInfo
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.checkpoint.safetensors_file import SafetensorsFile
from graphgen.runtime.checkpoint.torch_file import TorchFile

FILES: Final = ("medusa_lm_head.safetensors", "medusa_lm_head.pt", "medusa_heads.pt")
# Bytes at both ends of a tensor that its fingerprint covers.
_EDGE: Final = 1 << 16
_NAME: Final = re.compile(
    r"^(?P<scope>(?:medusa_heads?|medusa_lm_heads?|heads)[._])?"
    r"(?P<rest>(?P<head>\d+)\.(?P<block>\d+)\.(?:linear\.weight|linear\.bias|weight))$"
)


class TensorSource(Protocol):
    """A file, or a checkpoint, with tensors."""

    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor by its name."""
        ...

    def read(self, name: str) -> Array:
        """One tensor."""
        ...


class MedusaCheckpoint:
    """A model with heads.

    Args:
        model: the checkpoint of the model.
        source: has the heads.
        where: path of the source.
        heads: number of heads to take; 0 for all.

    Raises:
        GraphgenError: GG0602 for a source with fewer heads, or with heads of different kinds.
    """

    def __init__(self, model: Checkpoint, source: TensorSource, where: Path, heads: int) -> None:
        self._model, self._source = model, source
        self.path: Final = model.path
        self._stored: Final = _chosen(source, where, heads)
        form = _form(self._stored, where, heads)
        self.heads: Final = cast(int, form["medusa_num_heads"])
        self.config: Final[Mapping[str, object]] = {**model.config, **form}

    def tensors(self) -> Mapping[str, TensorInfo]:
        """The model's tensors, and those of the heads; reads no data."""
        own = self._source.tensors()
        plain = {n: info for n, info in self._model.tensors().items() if not _NAME.match(n)}
        heads = {
            name: TensorInfo(name, own[stored].shape, own[stored].dtype)
            for name, stored in self._stored.items()
        }
        return {**plain, **heads}

    def read(self, name: str) -> Array:
        """The tensor ``name`` (GG0602 if there is none)."""
        if name in self._stored:
            return self._source.read(self._stored[name])
        return self._model.read(name)

    def fingerprint(self) -> str:
        """See :class:`~graphgen.runtime.checkpoint.interfaces.Checkpoint`."""
        known = hashlib.sha256(self._model.fingerprint().encode())
        for name in sorted(self._stored):
            known.update(name.encode())
            data = np.ascontiguousarray(self.read(name)).view(np.uint8).reshape(-1)
            known.update(f"{data.size}".encode() + data[:_EDGE].tobytes() + data[-_EDGE:].tobytes())
        return known.hexdigest()


def with_medusa(model: Checkpoint, path: str | Path, heads: int = 0) -> MedusaCheckpoint:
    """A model with the heads in a file or folder.

    Args:
        model: the checkpoint of the model.
        path: a file of heads, a folder with one, or a checkpoint with heads, perhaps the model's.
        heads: number of heads to take; 0 for all.

    Raises:
        GraphgenError: GG06xx for a path without heads.
    """
    return MedusaCheckpoint(model, _source(Path(path)), Path(path), heads)


def heads_form(path: str | Path, heads: int) -> Mapping[str, object]:
    """The keys of a configuration that say how heads are made, read from their names (GG06xx)."""
    return _form(_chosen(_source(Path(path)), Path(path), heads), Path(path), heads)


def count_heads(path: str | Path) -> int:
    """The number of heads in a file or folder, as :func:`with_medusa` takes it (GG06xx)."""
    places = [_place(name)[0] for name in _head_names(_source(Path(path)).tensors())]
    return max(places, default=-1) + 1


def _source(path: Path) -> TensorSource:
    """The file, or the checkpoint, with the heads (GG0601)."""
    if is_folder(path):
        found = next((path / name for name in FILES if is_there(path / name)), None)
        if found is None:
            return open_checkpoint(path)
        path = found
    if not is_there(path):
        raise GraphgenError(
            "GG0601",
            f"{path}: there is no such file or folder",
            help=f"give a file of heads of Medusa, or a folder with {' or '.join(FILES)}",
        )
    return SafetensorsFile(path) if path.suffix == ".safetensors" else TorchFile(path)


def _head_names(stored: Mapping[str, object]) -> dict[str, str]:
    """Stored name of every tensor of a head by the model's name of it."""
    matches = [(name, match) for name in stored if (match := _NAME.match(name))]
    return {f"{MEDUSA_SCOPE}.{match['rest']}": name for name, match in matches}


def _chosen(source: TensorSource, where: Path, heads: int) -> dict[str, str]:
    """Stored names of the tensors of the first ``heads``, or of all (GG0602 for none)."""
    names = _head_names(source.tensors())
    if not names:
        raise GraphgenError(
            "GG0602",
            f"{where} has no heads of Medusa",
            help="its tensors are called 0.0.linear.weight or medusa_head.0.0.linear.weight",
        )
    return {name: own for name, own in names.items() if not heads or _place(name)[0] < heads}


def _form(names: Mapping[str, str], where: Path, heads: int) -> Mapping[str, object]:
    """The keys of a configuration that say how heads are made (GG0602)."""
    count = heads or 1 + max(_place(name)[0] for name in names)
    blocks, own = _shape(names, count, where)
    return {"medusa_num_heads": count, "medusa_num_layers": blocks, "medusa_own_heads": own}


def _place(name: str) -> tuple[int, int]:
    """Head and block of a tensor by the model's name."""
    _, head, block, *_ = name.split(".")
    return int(head), int(block)


def _shape(names: Mapping[str, str], heads: int, where: Path) -> tuple[int, bool]:
    """Residual blocks of each head, and whether each has a head for the vocabulary (GG0602)."""
    kinds: dict[int, set[str]] = {}
    for name in names:
        _, head, rest = name.split(".", 2)
        kinds.setdefault(int(head), set()).add(rest)
    if len(kinds) < heads:
        raise GraphgenError(
            "GG0602",
            f"{where} has {len(kinds)} heads of Medusa, not {heads}",
            help=f"give --num-medusa-heads {len(kinds)}, or leave it out",
        )
    first = kinds[0]
    if any(kind != first for kind in kinds.values()):
        other = next(head for head, kind in kinds.items() if kind != first)
        raise GraphgenError(
            "GG0602", f"{where}: head {other} of Medusa has other tensors than head 0"
        )
    return sum(rest.endswith("linear.weight") for rest in first), any(
        not rest.split(".", 1)[1].startswith("linear") for rest in first
    )
