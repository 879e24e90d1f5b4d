"""docs/aws-compatibility.md: its names exist, and its programs run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from graphgen.runtime.aws import nxdi
from tests.oracles.families import ORACLES, save

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "aws-compatibility.md").read_text(encoding="utf-8")
ROWS = [line.split("|") for line in PAGE.splitlines() if line.rstrip().endswith("`nxdi` |")]
NAMES = sorted({name for row in ROWS for name in re.findall(r"`(\w+)`", row[2])})
# The application of the first block is run by tests/test_docs.py.
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[1:]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_the_page_exist(name: str):
    assert getattr(nxdi, name).__name__ == name


def test_every_class_of_a_model_is_on_the_page():
    assert {name for name in nxdi.__all__ if name.endswith("ForCausalLM")} <= set(NAMES)


def test_the_programs_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from safetensors.torch import save_file

    model = ORACLES["llama"].model()
    save(model, tmp_path / "Llama-mini")
    new = tmp_path / "New-mini"
    new.mkdir()
    config = json.loads((tmp_path / "Llama-mini" / "config.json").read_text())
    config |= {"model_type": "new", "width": config.pop("hidden_size")}
    (new / "config.json").write_text(json.dumps(config))
    tensors = {
        re.sub("weight$", "weights", name.replace("model.", "backbone.", 1)): tensor.clone()
        for name, tensor in model.state_dict().items()
    }
    save_file(tensors, new / "model.safetensors")
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {}
    for block in BLOCKS:
        exec(compile(block, "aws-compatibility.md", "exec"), space)
    assert (tmp_path / "compiled" / "manifest.json").is_file()
