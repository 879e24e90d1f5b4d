"""Mini checkpoints that the schemes' own libraries wrote give the logits that transformers has.

``tests/oracles/foreign_checkpoints.py`` made them, and says with which versions.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphgen.eval import Array
from graphgen.ir import Role
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from tests.runtime.checkpoint.test_quantized_checkpoints import logical, prefill

FOREIGN = Path(__file__).parents[2] / "data" / "foreign"
# Bits of the numbers that a weight of a product is stored in.
BITS = {
    "awq-int4": 4,
    "bitsandbytes-int8": 8,
    "ct-float8-channel": 8,
    "ct-float8-tensor": 8,
    "ct-int4-group": 4,
    "ct-int4-group-zero": 4,
    "ct-int8-channel": 8,
    "ct-int8-packed": 8,
    "fbgemm-float8": 8,
    "fp8-blocks": 8,
    "gptq-int4": 4,
    "gptq-int4-zero-order": 4,
    "gptq-int8": 8,
}


def ours(name: str) -> Array:
    checkpoint = open_checkpoint(FOREIGN / name)
    module = logical(checkpoint)
    wide = [row.name for row in module.entries(Role.WEIGHT) if row.name.endswith("_proj.weight")]
    floats = [name for name in wide if module.interface[name].logical.dtype.bits > 8]
    assert floats == []
    return prefill(module, checkpoint.read)


def expected(name: str, what: str = "logits") -> Array:
    with np.load(FOREIGN / name / "expected.npz") as found:
        return found[what]


def test_every_folder_is_tested():
    assert {path.name for path in FOREIGN.iterdir() if path.is_dir()} == BITS.keys()


@pytest.mark.parametrize("name", BITS)
def test_the_logits_are_those_of_the_library(name: str):
    """Both widen the same numbers: only f32's own rounding is between them."""
    wanted = expected(name)
    np.testing.assert_allclose(ours(name), wanted, rtol=1e-4, atol=2e-5 * np.abs(wanted).max())


def test_the_kernels_of_bitsandbytes_round_activations_to_8_bits():
    """LLM.int8() multiplies 8-bit activations; ours stay wide. The difference is that rounding.

    Each of the 14 products rounds by up to half a step of 127 in the largest of a row, which is
    less than 2 / 127 of the whole; errors of that many add up like a random walk.
    """
    own, made = expected("bitsandbytes-int8", "own_kernels"), ours("bitsandbytes-int8")
    size = np.linalg.norm(made)
    assert 1e-4 < np.linalg.norm(own - made) / size < 2 / 127 * 14**0.5
    assert (own.argmax(-1) == made.argmax(-1)).all()


def test_the_logits_are_not_those_of_another_scheme():
    """The tolerance above tells the schemes apart."""
    four, eight = ours("ct-int4-group"), ours("ct-int8-channel")
    assert np.abs(four - eight).max() > 1e-3 * np.abs(eight).max()
