"""Checksum of weights at the speed of memory: sums of rows and columns of words.

The bytes are little-endian words of 64 bits in rows of 512, which is 4 KiB. The checksum is SHA-256
over the sum of each row and the sum of each column, all modulo 2^64: a product code of distance
four. It finds with certainty any change of up to three words, any change within one row and any
change that leaves a word alone in its row or column among the changed ones; other damage passes
only where the differences cancel in every row and every column.

NumPy adds 10 GB/s on one core, which is the speed of XXH3 and five times that of CRC-32 and
SHA-256 in Python's library (``python -m benchmarks.artifact_load``).
"""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np

from graphgen.eval import Array

COLUMNS: Final = 512
ROW_BYTES: Final = COLUMNS * 8
DIGITS: Final = 32
_WORD: Final = np.dtype("<u8")


class Checksum:
    """Checksum of bytes that come in pieces."""

    def __init__(self) -> None:
        self._columns = np.zeros(COLUMNS, np.uint64)
        self._rows = hashlib.sha256()
        self._ended = False

    def update(self, piece: Array) -> None:
        """Add the next bytes.

        Args:
            piece: u8 [n], n a multiple of 8; only the last piece may end within a row.
        """
        assert not self._ended, "a piece after one that ends within a row"
        words = piece.view(_WORD)
        whole = len(words) // COLUMNS * COLUMNS
        rows = words[:whole].reshape(-1, COLUMNS)
        self._rows.update(rows.sum(1, dtype=np.uint64).astype(_WORD).data)
        self._columns += rows.sum(0, dtype=np.uint64)
        rest = words[whole:]
        if len(rest):
            self._ended = True
            self._rows.update(rest.sum(keepdims=True, dtype=np.uint64).astype(_WORD).data)
            self._columns[: len(rest)] += rest

    def hexdigest(self) -> str:
        """The checksum of all pieces, 32 hexadecimal digits."""
        whole = self._rows.copy()
        whole.update(self._columns.astype(_WORD).data)
        return whole.hexdigest()[:DIGITS]


def checksum(data: Array) -> str:
    """The checksum of u8 [n], n a multiple of 8."""
    made = Checksum()
    made.update(data)
    return made.hexdigest()
