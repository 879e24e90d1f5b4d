"""The checksum of weights beside one in Python's integers, and the damage that it finds."""

from __future__ import annotations

import hashlib
import random
import struct

import numpy as np
import pytest

from graphgen.runtime.weights.weight_checks import Checksum, checksum

SIZES = (0, 8, 64, 4088, 4096, 4104, 8192, 40_000)


def plain(data: bytes) -> str:
    words = struct.unpack(f"<{len(data) // 8}Q", data)
    rows = [words[at : at + 512] for at in range(0, len(words), 512)]
    columns = [sum(row[k] for row in rows if k < len(row)) for k in range(512)]
    sums = [*(sum(row) for row in rows), *columns]
    return hashlib.sha256(b"".join(struct.pack("<Q", n % 2**64) for n in sums)).hexdigest()[:32]


@pytest.mark.parametrize("size", SIZES)
def test_it_is_that_of_plain_integers(size: int):
    data = random.randbytes(size)
    assert checksum(np.frombuffer(data, np.uint8)) == plain(data)


def test_pieces_make_no_difference():
    data = np.frombuffer(random.randbytes(6 * 4096 + 72), np.uint8)
    for cuts in ([4096], [8192, 12288], [6 * 4096]):
        made = Checksum()
        for piece in np.split(data, cuts):
            made.update(piece)
        assert made.hexdigest() == checksum(data)


def test_up_to_three_changed_words_are_always_found():
    data = np.frombuffer(random.randbytes(5 * 4096 + 512), np.uint8)
    before = checksum(data)
    for _ in range(300):
        words = data.copy().view(np.uint64)
        gain = 1 << random.randrange(63)
        # As a plain sum would not notice: what one word gains two others lose.
        changes = zip(random.sample(range(len(words)), 3), (2 * gain, -gain, -gain), strict=True)
        for place, change in changes:
            words[place] = (int(words[place]) + change) % 2**64
        assert checksum(words.view(np.uint8)) != before


def test_any_change_within_a_row_and_exchanged_rows_are_found():
    rows = np.frombuffer(random.randbytes(8 * 4096), np.uint8).reshape(8, 4096)
    before = checksum(rows.reshape(-1))
    for row in range(8):
        shuffled = rows.copy()
        shuffled[row] = np.random.default_rng(row).permutation(rows[row].view(np.uint64)).view("u1")
        zeroed = rows.copy()
        zeroed[row] = 0
        for damaged in (shuffled, zeroed, rows[[*range(row), *range(row + 1, 8), row]]):
            same = np.array_equal(damaged, rows)
            assert (checksum(damaged.reshape(-1)) == before) is same
