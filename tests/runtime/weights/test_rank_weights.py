"""What opening a model says about files that do not fit it; and weights split over ranks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Role
from graphgen.models import FAMILIES
from graphgen.nn import ACTIVATIONS
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.engine import EngineOptions, open_engine
from graphgen.runtime.model import build_model
from graphgen.runtime.progress import Silent
from graphgen.runtime.weights.rank_weights import (
    RankWeights,
    program_weights,
    put_weights,
    read_weight,
)
from tests.oracles.families import save_tokenizer
from tests.oracles.small_gguf import write_small_model
from tests.runtime.test_tp import write_mini


@pytest.fixture(scope="module")
def tokenizer_json(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(folder)
    return (folder / "tokenizer.json").read_text()


@pytest.fixture
def folder(tmp_path: Path, tokenizer_json: str) -> Path:
    write_mini(tmp_path)
    (tmp_path / "tokenizer.json").write_text(tokenizer_json)
    return tmp_path


def refused(path: Path) -> str:
    with pytest.raises(GraphgenError) as caught:
        open_engine(str(path), EngineOptions(max_len=64), lambda _: [[1, 2]], 4, Silent())
    return str(caught.value).replace(str(path), "DIR")


def change_config(folder: Path, **changes: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_a_model_that_fits_opens(folder: Path):
    engine, prompts = open_engine(
        str(folder), EngineOptions(max_len=64), lambda _: [[1, 2]], 4, Silent()
    )
    assert prompts == [[1, 2]]
    assert engine.model.vocab_size == 258
    assert not engine.from_artifact


def test_an_unknown_architecture(folder: Path):
    change_config(folder, model_type="mamba", architectures=["MambaForCausalLM"])
    assert refused(folder) == (
        "error[GG0501]: unknown architecture: model_type = 'mamba', "
        "architectures = ['MambaForCausalLM']\n  help: supported model types: "
        + ", ".join([*FAMILIES, *(kind for row in FAMILIES.values() for kind in row.other_types)])
    )


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"hidden_act": "prelu"},
            "error[GG0502]: config: hidden_act = 'prelu' changes the mathematics and is not "
            "supported\n  help: supported: " + " or ".join(map(repr, ACTIVATIONS)),
        ),
        (
            {"logit_scale": 2.0},
            "error[GG0502]: config: not understood and possibly part of the mathematics: "
            "logit_scale = 2.0\n"
            "  help: remove keys that do not matter for inference from config.json",
        ),
    ],
)
def test_a_value_that_changes_the_mathematics(folder: Path, changes: dict[str, Any], text: str):
    change_config(folder, **changes)
    assert refused(folder) == text


def test_a_truncated_safetensors_file(folder: Path):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    assert re.fullmatch(
        r"error\[GG0601\]: the safetensors file is cut off: the data of tensor '[a-z0-9_.]+' needs "
        r"\d+ bytes here, the file ends at byte \d+\n  --> DIR/model.safetensors, byte \d+"
        r"\n  help: the file is incomplete: copy or download it again",
        refused(folder),
    ), refused(folder)


def test_a_corrupt_gguf_file(tmp_path: Path):
    file = tmp_path / "small.gguf"
    write_small_model(file)
    file.write_bytes(b"GGML" + file.read_bytes()[4:])
    assert refused(file) == (
        "error[GG0601]: not a GGUF file: it starts with b'GGML', not b'GGUF'\n  --> DIR, byte 0"
    )


def test_tensors_missing_extra_and_misshapen_are_one_error(folder: Path):
    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    del weights["model.layers.1.mlp.up_proj.weight"]
    weights["model.layers.0.self_attn.q_proj.bias"] = np.zeros(3, np.float32)
    weights["lm_head.weight"] = weights["lm_head.weight"][:100]
    save_file(weights, folder / "model.safetensors")
    size, inner = (
        weights["lm_head.weight"].shape[1],
        weights["model.layers.0.mlp.up_proj.weight"].shape[0],
    )
    assert refused(folder) == (
        "error[GG0602]: the checkpoint's tensors do not fit the model: "
        "2 missing, 1 unexpected, 1 wrong shape\n"
        "  --> DIR\n"
        f"   |  missing: 'model.layers.1.mlp.up_proj.weight' [{inner},{size}]\n"
        f"   |  missing: 'model.norm.weight' [{size}]\n"
        "   |  unexpected: 'model.layers.0.self_attn.q_proj.bias' [3]\n"
        f"   |  wrong shape: 'lm_head.weight' is [100,{size}], the model wants [258,{size}]\n"
        "  help: configuration and weights are not of one model: take both from the same place"
    )


def test_a_stored_copy_of_a_tied_head_is_no_mistake(folder: Path):
    write_mini(folder, tie_word_embeddings=True)
    weights = load_file(folder / "model.safetensors")
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].copy()
    save_file(weights, folder / "model.safetensors")
    open_engine(str(folder), EngineOptions(max_len=64), lambda _: [[1, 2]], 4, Silent())


@pytest.mark.parametrize("stored", [True, False])
def test_a_table_that_is_not_stored_is_named_with_the_key_that_ties_it(folder: Path, stored: bool):
    """The configuration says that there are two tables."""
    weights = load_file(folder / "model.safetensors")
    del weights["model.embed_tokens.weight" if stored else "lm_head.weight"]
    save_file(weights, folder / "model.safetensors")
    assert refused(folder).endswith(
        "help: set tie_word_embeddings to true in config.json if head and embedding are one table"
    )


@pytest.mark.parametrize(
    ("prompts", "options", "text"),
    [
        (
            [[]],
            EngineOptions(),
            "error[GG0702]: prompt 1 is empty\n  help: a prompt needs at least one token",
        ),
        (
            [[1] * 65],
            EngineOptions(max_len=64),
            "error[GG0701]: a prompt of 65 tokens is longer than the largest bucket, 64\n"
            "  help: compile for longer sequences, e.g. --max-len 128",
        ),
        (
            [[1]],
            EngineOptions(max_len=513),
            "error[GG0705]: --max-len 513 is more than the model's 512 positions",
        ),
    ],
)
def test_prompts_that_do_not_fit(
    folder: Path, prompts: list[list[int]], options: EngineOptions, text: str
):
    with pytest.raises(GraphgenError) as caught:
        open_engine(str(folder), options, lambda _: prompts, 4, Silent())
    assert str(caught.value) == text


def test_the_ranks_together_hold_each_split_tensor_once(folder: Path):
    checkpoint = open_checkpoint(folder)
    built = build_model(
        checkpoint.config,
        CompileConfig(dtype="f32", tp=2, kernels="off").serving(batch=1, max_len=64),
    )
    weights = RankWeights(built.module, lambda row: read_weight(checkpoint, row))
    params = [row for row in program_weights(built.module) if row.role is Role.PARAM]
    parts = np.concatenate(
        [part.array().ravel() for row in params for part in weights.on_ranks(row)]
    )
    for row in params:
        for rank, part in enumerate(weights.on_ranks(row)):
            np.testing.assert_array_equal(weights.on_rank(row, rank).array(), part.array())
    shared = {row.name for row in program_weights(built.module) if row.role is Role.WEIGHT}
    split = [name for name in checkpoint.tensors() if name not in shared]
    whole = np.concatenate([checkpoint.read(name).ravel() for name in split])
    assert len(split) > 7
    np.testing.assert_array_equal(np.sort(parts), np.sort(whole))


def test_what_all_ranks_hold_is_in_memory_once(folder: Path):
    checkpoint = open_checkpoint(folder)
    module = build_model(
        checkpoint.config, CompileConfig(dtype="f32", tp=2).serving(batch=1, max_len=64)
    ).module
    weights = RankWeights(module, lambda row: read_weight(checkpoint, row))
    placed = put_weights(weights, Silent())
    same = 0
    for row in program_weights(module):
        parts = [shard.data for shard in placed[row.name].addressable_shards]
        places = {part.unsafe_buffer_pointer() for part in parts}
        same += weights.same_on_ranks(row)
        assert len(places) == (1 if weights.same_on_ranks(row) else 2), row.name
        for rank, part in enumerate(parts):
            np.testing.assert_array_equal(np.asarray(part), weights.on_rank(row, rank).array())
    # The norms at least, and not the projections.
    assert 5 <= same < len(program_weights(module)) - 4


def test_progress_is_reported_in_parts_of_one(folder: Path):
    checkpoint = open_checkpoint(folder)
    module = build_model(
        checkpoint.config, CompileConfig(dtype="f32").serving(batch=1, max_len=64)
    ).module
    seen: list[float] = []

    class Recorded(Silent):
        @contextmanager
        def task(self, title: str) -> Generator[Callable[[float], None]]:
            yield seen.append

    put_weights(RankWeights(module, lambda row: read_weight(checkpoint, row)), Recorded())
    count = len(program_weights(module))
    assert seen == [(number + 1) / count for number in range(count)]
