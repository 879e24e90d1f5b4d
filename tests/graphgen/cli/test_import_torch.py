"""``graphgen import`` of programs that torch exported, and of models that it exports itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from graphgen.ir import Role
from graphgen.text import parse
from tests.graphgen.cli.conftest import done, error, facts
from tests.oracles import exported
from tests.oracles.exported import NINE
from tests.oracles.saved_arrays import saved_arrays

FILE = """
import torch
from tests.oracles import exported
from tests.oracles.exported import NINE

ids = torch.zeros(2, 8, dtype=torch.long)
made = exported.model("llama", "eager", **NINE)


def model():
    return made, (ids,)


def program():
    return exported.export(made, ids)


def three():
    return made, 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "theirs.py"
    file.write_text(FILE)
    return file


def test_a_model_is_imported_split_and_run(file: Path, tmp_path: Path):
    one, two, weights = tmp_path / "one.gg", tmp_path / "two.gg", tmp_path / "weights.npz"
    result = done("import", f"{file}:model", "--save-weights", weights, "-o", one)
    assert "found 1 embedding, 5 rms_norm, 4 rope, 2 attention, 2 silu" in result.stderr
    assert len(parse(one.read_text()).entries(Role.WEIGHT)) == 21
    split = "heads{tp=2},shard{tp=2},pad-to-mesh,partition,cse"
    done("opt", one, "-p", split, "-o", two)
    done("equiv", one, two)
    made, ids = exported.model("llama", "eager", **NINE), torch.randint(0, 61, (2, 8))
    arrays, saved = saved_arrays(weights), tmp_path / "logits.npz"
    np.savez(weights, **arrays, input_ids=ids.numpy())
    with torch.no_grad():
        wanted = made(ids).logits.numpy()
    for module in (one, two):
        done("run", module, "--inputs", weights, "--save", saved)
        np.testing.assert_allclose(saved_arrays(saved)["logits"], wanted, rtol=1e-4, atol=1e-4)


def test_a_program_is_imported_from_a_function_and_from_a_file(file: Path, tmp_path: Path):
    archive, out = tmp_path / "theirs.pt2", tmp_path / "theirs.gg"
    made = exported.model("llama", "eager", **NINE)
    torch.export.save(exported.export(made, torch.zeros(2, 8, dtype=torch.long)), archive)
    told = facts("import", archive, "-o", out)
    assert told["found"]["attention"] == 2
    again = tmp_path / "again.gg"
    done("import", f"{file}:program", "-o", again)
    done("equiv", out, again)


def test_mistakes_are_told(file: Path, tmp_path: Path):
    out = tmp_path / "x.gg"
    assert "a LlamaForCausalLM and a int are not a model" in error(
        "import", f"{file}:three", "-o", out
    )
    done("import", f"{file}:model", "-o", tmp_path / "one.gg")
    text = error("import", tmp_path / "one.gg", "--save-weights", tmp_path / "w.npz", "-o", out)
    assert "no weights come with these programs" in text
    assert not out.exists()
    (tmp_path / "cut.pt2").write_bytes(b"PK\3\4" + bytes(22) + b"\x10\0\0\0l/archive_format")
    assert "the archive is damaged" in error("import", tmp_path / "cut.pt2", "-o", out)
