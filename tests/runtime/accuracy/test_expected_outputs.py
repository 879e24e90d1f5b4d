"""Files of expected outputs: what is written is read, and damage is named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.accuracy.expected_outputs import (
    ExpectedOutputs,
    read_expected,
    write_expected,
)

TOKENS = ExpectedOutputs([[1, 2, 3], [4]], [[5, 6], [7]])
LOGITS = ExpectedOutputs(
    [[1, 2, 3], [4]],
    [[5, 6], [7, 8]],
    np.random.default_rng(0).normal(size=(2, 2, 11)).astype(np.float32),
)


@pytest.mark.parametrize("ending", ["json", "npz", "safetensors"])
def test_tokens_come_back(ending: str, tmp_path: Path):
    path = tmp_path / f"expected.{ending}"
    write_expected(path, TOKENS)
    assert read_expected(path) == TOKENS


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_logits_come_back_bit_by_bit(ending: str, tmp_path: Path):
    path = tmp_path / f"expected.{ending}"
    write_expected(path, LOGITS)
    back = read_expected(path)
    assert (back.prompts, back.tokens) == (LOGITS.prompts, LOGITS.tokens)
    np.testing.assert_array_equal(back.logits, LOGITS.logits)


def test_the_first_steps_are_a_part():
    part = LOGITS.first(1)
    assert part.tokens == [[5], [7]]
    assert part.logits is not None
    assert part.logits.shape == (1, 2, 11)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("{", "Expecting"),
        ("[]", "its format is not"),
        ('{"format": "other"}', "its format is not"),
        ({"prompts": [[1]], "tokens": [["a"]]}, "'tokens' must be a list"),
        ({"prompts": [[-1]], "tokens": [[1]]}, "'prompts' must be a list"),
        ({"prompts": [1], "tokens": [[1]]}, "'prompts' must be a list"),
        ({"tokens": [[1]]}, "'prompts' must be a list"),
        ({"prompts": [[1]], "tokens": []}, "0 rows for 1 prompts"),
    ],
)
def test_a_damaged_json_file_is_named(content: str | dict[str, object], what: str, tmp_path: Path):
    path = tmp_path / "expected.json"
    whole = {"format": "graphgen-expected-outputs-1"}
    path.write_text(content if isinstance(content, str) else json.dumps(whole | content))
    with pytest.raises(GraphgenError) as caught:
        read_expected(path)
    assert caught.value.code == "GG0705"
    assert what in caught.value.what


def test_other_damage_is_named(tmp_path: Path):
    for name, what in (
        ("expected.pt", "ending says no known format"),
        ("missing.json", "No such file"),
        ("missing.safetensors", "No such file"),
    ):
        with pytest.raises(GraphgenError, match=what):
            read_expected(tmp_path / name)
    with pytest.raises(GraphgenError, match="no known format"):
        write_expected(tmp_path / "expected.txt", TOKENS)
    (tmp_path / "cut.safetensors").write_bytes(b"\0" * 20)
    with pytest.raises(GraphgenError, match="cannot read"):
        read_expected(tmp_path / "cut.safetensors")
    np.savez(tmp_path / "half.npz", prompts=np.zeros((1, 1), np.int32))
    with pytest.raises(GraphgenError, match="no array 'tokens'"):
        read_expected(tmp_path / "half.npz")
    np.savez(tmp_path / "real.npz", prompts=np.zeros((1, 1)), tokens=np.zeros((1, 1)))
    with pytest.raises(GraphgenError, match="type float64"):
        read_expected(tmp_path / "real.npz")


def test_logits_of_another_shape_are_refused():
    with pytest.raises(GraphgenError, match=r"shape \[3, 1, 9\]; 1 prompts with 2 new tokens"):
        ExpectedOutputs([[1]], [[2, 3]], np.zeros((3, 1, 9), np.float32))
    with pytest.raises(GraphgenError, match="prompt of row 1 has no token"):
        ExpectedOutputs([[1], []], [[2], [3]])
