"""The module of transformers-neuronx's names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from graphgen.runtime.aws import tnx
from tests.oracles.families import ORACLES, save

PAGE = Path(__file__).parents[3] / "docs" / "aws-transformers-neuronx.md"


def test_names_are_found_and_others_are_not():
    for name in tnx.__all__:
        assert getattr(tnx, name).__name__.removeprefix("Tnx") == name
    assert set(tnx.__all__) <= set(dir(tnx))
    with pytest.raises(AttributeError, match="LamaForSampling"):
        _ = tnx.LamaForSampling


def test_configurations_need_neither_torch_nor_transformers():
    code = (
        "import sys; from graphgen.runtime.aws.tnx import NeuronConfig; NeuronConfig(); "
        "print([name for name in ('torch', 'transformers', 'jax') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_the_page_maps_every_name():
    table = PAGE.read_text().partition("```python")[0]
    named = set(re.findall(r"`(\w+)`", table))
    assert named - {"transformers_neuronx"} == set(tnx.__all__)


def test_the_program_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    save(
        ORACLES["llama"].model(max_position_embeddings=64, eos_token_id=None),
        tmp_path / "Llama-mini",
    )
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(program, names)
    assert list(getattr(names["tokens"], "shape", ())) == [1, 16]
