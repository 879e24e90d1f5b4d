"""Files of PyTorch by their names and first bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from graphgen.runtime.checkpoint.listing import is_torch_file


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.bin", True), ("a.pt", True), ("a.pth", True), ("a.txt", False), ("a", False)],
)
def test_a_file_of_torch_has_one_of_three_endings(tmp_path: Path, name: str, expected: bool):
    path = tmp_path / name
    torch.save({"w": torch.ones(2)}, path)
    assert is_torch_file(path) == expected


def test_other_bytes_are_no_file_of_torch(tmp_path: Path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"plain text, long enough for any magic number")
    assert not is_torch_file(path)
