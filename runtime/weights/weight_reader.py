"""Read weight files in threads into huge pages, and compare the checksum of every tensor.

The files are read, not mapped: a mapped file has small pages, which costs more at every token than
reading costs once, see :func:`graphgen.runtime.weights.huge_pages.huge_pages`. Reading needs no
interpreter, so that other work of opening a model goes on beside it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from io import RawIOBase
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from graphgen.atomic_write import open_readable
from graphgen.eval import Array
from graphgen.runtime.weights.aligned_safetensors import PIECE, Tensor, damaged, read_header
from graphgen.runtime.weights.huge_pages import huge_pages
from graphgen.runtime.weights.weight_checks import Checksum


class WeightReader:
    """Files that are being read from the moment this is made; the end of ``with`` gives up.

    Args:
        paths: files of :func:`~graphgen.runtime.weights.aligned_safetensors.write_aligned`, each
            with the names of the tensors to read; ``None`` for all.
        root: the folder that they are in, out of which no link is followed; ``None`` for the folder
            of each.

    Raises:
        GraphgenError: GG0703 for a damaged header.
    """

    def __init__(
        self, paths: Mapping[Path, Collection[str] | None], root: Path | None = None
    ) -> None:
        self._root = root
        headers = [(path, read_header(path, root), names) for path, names in paths.items()]
        self._pool = ThreadPoolExecutor(os.cpu_count(), "weights")
        self._files = [
            self._start(path, [each for each in tensors if names is None or each.name in names])
            for path, tensors, names in headers
        ]

    def _start(self, path: Path, tensors: Sequence[Tensor]) -> dict[str, Future[Array]]:
        first = tensors[0].start if tensors else 0
        home = huge_pages(tensors[-1].end - first if tensors else 0)
        # Largest first: no thread starts a large tensor at the end.
        order = sorted(tensors, key=lambda tensor: -tensor.nbytes)
        started = {
            tensor.name: self._pool.submit(
                _read, path, self._root, tensor, _part(home, tensor, first)
            )
            for tensor in order
        }
        return {tensor.name: started[tensor.name] for tensor in tensors}

    def arrays(self) -> list[dict[str, Array]]:
        """The tensors of each file by name, aligned, in huge pages, when all are read.

        Raises:
            GraphgenError: GG0703 naming the file and the tensor that was changed.
        """
        return [{name: each.result() for name, each in file.items()} for file in self._files]

    def close(self) -> None:
        """Leave out what no thread has begun to read."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


def read_aligned(path: Path) -> dict[str, Array]:
    """The tensors of one file by name (GG0703 if the file is damaged)."""
    with WeightReader({path: None}) as reader:
        return reader.arrays()[0]


def _part(home: Array, tensor: Tensor, first: int) -> Array:
    return home[tensor.start - first : tensor.end - first]


def _read(path: Path, root: Path | None, tensor: Tensor, home: Array) -> Array:
    """Read a tensor and what fills it up into u8 ``home``, piece by piece as they are checked."""
    made = Checksum()
    try:
        with open_readable(root or path.parent, path) as buffered:
            file = cast(RawIOBase, buffered.raw)
            file.seek(tensor.start)
            for start in range(0, len(home), PIECE):
                piece = home[start : start + PIECE]
                if not _filled(file, piece):
                    raise damaged(path, f"it ends within the tensor {tensor.name}")
                made.update(piece)
    except OSError as error:
        raise damaged(path, error.strerror or str(error)) from error
    if made.hexdigest() != tensor.checksum:
        raise damaged(path, f"the tensor {tensor.name} was changed")
    return home[: tensor.nbytes].view(tensor.dtype).reshape(tensor.shape)


def _filled(file: RawIOBase, home: Array) -> bool:
    """Read until u8 ``home`` is full; False at the end of the file."""
    done = 0
    while done < len(home) and (count := file.readinto(home[done:].data)):
        done += count
    return done == len(home)
