"""A head and an embedding that are one table, stored under either name, as in transformers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.ir.dtype import f32
from graphgen.models import build
from graphgen.models.registry import FAMILIES
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint, read_config
from graphgen.runtime.checkpoint.validate_tensors import check_checkpoint
from tests.oracles.families import ORACLES

HEAD = "lm_head.weight"


def write(folder: Path, family: str, form: str, *, tied: bool = True) -> str:
    """A checkpoint of a tied model that has the head alone; the name of the embedding."""
    import torch
    from safetensors.torch import save_file

    model, table = ORACLES[family].model(tie_word_embeddings=True), FAMILIES[family].embedding
    tensors = {name: one.clone().contiguous() for name, one in model.state_dict().items()}
    tensors.pop(HEAD, None)
    tensors[HEAD] = tensors.pop(table)
    folder.mkdir()
    config = {**model.config.to_dict(), "tie_word_embeddings": tied}
    (folder / "config.json").write_text(json.dumps(config, default=str))
    names = [*tensors]
    parts = [names] if form.endswith("single") else [names[::2], names[1::2]]
    stem, end = ("model", "safetensors") if form.startswith("safe") else ("pytorch_model", "bin")
    files = [f"{stem}.{end}"] if len(parts) == 1 else [f"{stem}-{n}-of-2.{end}" for n in (1, 2)]
    for file, part in zip(files, parts, strict=True):
        kept = {name: tensors[name] for name in part}
        if end == "bin":
            torch.save(kept, folder / file)
        else:
            save_file(kept, folder / file)
    if len(parts) > 1:
        index = {name: file for file, part in zip(files, parts, strict=True) for name in part}
        (folder / f"{stem}.{end}.index.json").write_text(json.dumps({"weight_map": index}))
    return table


@pytest.mark.parametrize("form", ["safetensors single", "torch single", "safetensors sharded"])
@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma2", "gpt2", "opt", "bloom", "smollm3"])
def test_a_tied_table_may_be_stored_as_the_head(tmp_path: Path, family: str, form: str):
    folder = tmp_path / "model"
    table = write(folder, family, form)
    opened = open_checkpoint(folder)
    check_checkpoint(opened, build(read_config(folder), f32))
    assert opened.tensors()[table].name == table
    np.testing.assert_array_equal(opened.read(table), opened.read(HEAD))


def test_two_tables_need_both(tmp_path: Path):
    folder = tmp_path / "model"
    table = write(folder, "llama", "safetensors single", tied=False)
    with pytest.raises(GraphgenError) as caught:
        check_checkpoint(open_checkpoint(folder), build(read_config(folder), f32))
    assert f"missing: '{table}'" in str(caught.value)
    assert "tie_word_embeddings" in caught.value.help
