"""Checkpoints that cannot be used: what is wrong, where, what to do next, and nothing is left."""

from __future__ import annotations

import json
import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_torch

from tests.graphgen.cli.conftest import facts, graphgen
from tests.oracles.families import ORACLES, save_as, save_tokenizer

PARTS = "model.safetensors.index.json"
NORM = "model.layers.1.input_layernorm.weight"
ASK = ["--prompt", "the cat", "--max-new-tokens", "2", "--max-len", "16"]
KEEP = [*ASK, "--artifact", "NEW"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Llama as ``single``, ``sharded`` and ``torch``, and its artifact for one prompt."""
    folder = tmp_path_factory.mktemp("models")
    model = ORACLES["llama"].model(vocab_size=301)
    for name, form in (("single", "safetensors single"), ("sharded", "safetensors sharded"),
                       ("torch", "torch single")):  # fmt: skip
        save_as(model, folder / name, form)
        save_tokenizer(folder / name)
    made = [*ASK, "--artifact", folder / "kept"]
    assert graphgen("generate", folder / "single", *made).exit_code == 0
    return folder


def change_json(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def config(folder: Path, **values: object) -> None:
    change_json(folder / "config.json", lambda found: found.update(values))


def tensors(folder: Path, change: Callable[[dict[str, np.ndarray]], object]) -> None:
    found = load_file(folder / "model.safetensors")
    change(found)
    save_file(found, folder / "model.safetensors")


def missing_shard(folder: Path) -> None:
    (folder / "model-00003-of-00006.safetensors").unlink()


def misplaced(folder: Path) -> None:
    def move(index: dict[str, Any]) -> None:
        homes = index["weight_map"]
        homes[NORM] = "model-00001-of-00006.safetensors"
        homes["model.extra"] = "model-00002-of-00006.safetensors"

    change_json(folder / PARTS, move)


class Attack:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch attacked",)


def attacked(folder: Path) -> None:
    torch.save({"model.norm.weight": torch.ones(32), "x": Attack()}, folder / "pytorch_model.bin")


def quantized(folder: Path) -> None:
    with warnings.catch_warnings(action="ignore"):
        state = {"w": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)}
        torch.save(state, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)


def narrow(folder: Path) -> None:
    save_torch(
        {"model.norm.weight": torch.ones(32).to(torch.float8_e4m3fn)},
        folder / "model.safetensors",
    )


def narrow_torch(folder: Path) -> None:
    state = {"model.norm.weight": torch.ones(32).to(torch.float8_e4m3fn)}
    torch.save(state, folder / "pytorch_model.bin")


def cut_off(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])


def one_nan(folder: Path) -> None:
    def change(found: dict[str, np.ndarray]) -> None:
        found["model.layers.1.mlp.up_proj.weight"][3, 5] = np.nan

    tensors(folder, change)


def large(folder: Path) -> None:
    def change(found: dict[str, np.ndarray]) -> None:
        found["model.layers.0.mlp.down_proj.weight"][2, 7] = -7e4

    tensors(folder, change)


def many_nans(folder: Path) -> None:
    def change(found: dict[str, np.ndarray]) -> None:
        name = "model.layers.0.self_attn.v_proj.weight"
        found[name][4:6] = np.nan
        found[name] = found[name].astype(ml_dtypes.bfloat16)

    tensors(folder, change)


def one_infinity(folder: Path) -> None:
    def change(found: dict[str, np.ndarray]) -> None:
        found["model.norm.weight"][5] = np.inf

    tensors(folder, change)


def another_head(folder: Path) -> None:
    config(folder, tie_word_embeddings=True)


def same_head(folder: Path) -> None:
    another_head(folder)

    def change(found: dict[str, np.ndarray]) -> None:
        found["lm_head.weight"] = found["model.embed_tokens.weight"]

    tensors(folder, change)


def unknown_activation(folder: Path) -> None:
    config(folder, hidden_act="swiglu9")


def unknown_family(folder: Path) -> None:
    config(folder, model_type="mamba9")


def no_layers(folder: Path) -> None:
    config(folder, num_hidden_layers=0)


def nested_attack(folder: Path) -> None:
    deep = {"step": [{"x": ("y", [Attack()])}], "model.norm.weight": torch.ones(32)}
    torch.save(deep, folder / "pytorch_model.bin")


def empty_index(folder: Path) -> None:
    (folder / PARTS).write_text("{}")


def outside(folder: Path) -> None:
    def move(index: dict[str, Any]) -> None:
        index["weight_map"][NORM] = "../../secret"

    change_json(folder / PARTS, move)


def no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def misshapen(folder: Path) -> None:
    config(folder, intermediate_size=40)


def more_layers(folder: Path) -> None:
    config(folder, num_hidden_layers=3)


def fewer_layers(folder: Path) -> None:
    config(folder, num_hidden_layers=1)


def another_tensor(folder: Path) -> None:
    tensors(folder, lambda found: found.update({NORM.replace("input", "other"): found[NORM]}))


def declares_double(folder: Path) -> None:
    config(folder, dtype="float64")


def as_it_is(folder: Path) -> None:
    """Nothing is wrong with the checkpoint; the request is."""


# What is done to which checkpoint, and what is asked of it.
CASES: dict[str, tuple[str, Callable[[Path], None], list[str]]] = {
    "a missing shard": ("sharded", missing_shard, KEEP),
    "tensors that are not where the index says": ("sharded", misplaced, KEEP),
    "a pickle that wants to run code": ("torch", attacked, KEEP),
    "quantized tensors of PyTorch": ("torch", quantized, KEEP),
    "an unknown dtype in a file": ("single", narrow, KEEP),
    "an unknown dtype in a PyTorch file": ("torch", narrow_torch, KEEP),
    "an unknown dtype on the command line": ("single", as_it_is, [*KEEP, "--dtype", "fp8"]),
    "a dtype that models are not run in": (
        "single",
        declares_double,
        [*KEEP, "--dtype", "as-declared"],
    ),
    "a file that is cut off": ("single", cut_off, KEEP),
    "one NaN": ("single", one_nan, ASK),
    "one infinity": ("single", one_infinity, ASK),
    "a tied head that differs from the embedding": ("single", another_head, KEEP),
    "an activation that is none": ("single", unknown_activation, KEEP),
    "a family that is none": ("single", unknown_family, KEEP),
    "no layers": ("single", no_layers, KEEP),
    "a pickle that wants to run code deep inside": ("torch", nested_attack, KEEP),
    "an index without names": ("sharded", empty_index, KEEP),
    "an index that leads outside": ("sharded", outside, KEEP),
    "no tokenizer": ("single", no_tokenizer, KEEP),
    "no prompt": ("single", as_it_is, ["--max-new-tokens", "2"]),
    "an empty prompt": ("single", as_it_is, [*KEEP, "--prompt", " "]),
    "a prompt that is too long": (
        "single",
        as_it_is,
        ["--prompt", "the cat " * 9, "--max-len", "16"],
    ),
    "more positions than the model has": (
        "single",
        as_it_is,
        ["--prompt", "x", "--max-len", "9999"],
    ),
    "a temperature below zero": (
        "single",
        as_it_is,
        [*KEEP, "--do-sample", "--temperature", "-1"],
    ),
    "a temperature nearly zero": (
        "single",
        as_it_is,
        [*KEEP, "--do-sample", "--temperature", "1e-320"],
    ),
    "a probability above one": ("single", as_it_is, [*KEEP, "--do-sample", "--top-p", "1,2"]),
    "a seed below zero": ("single", as_it_is, [*KEEP, "--do-sample", "--seed", "-1"]),
    "options that exclude each other": (
        "single",
        as_it_is,
        [*KEEP, "--do-sample", "--on-device-sampling", "--min-p", "0.1"],
    ),
    "weights that are not there": ("single", as_it_is, [*ASK, "--weights", "OTHER"]),
    "NaN into an artifact": ("single", many_nans, [*KEEP, "--dtype", "bf16"]),
    "NaN into 8 bits": ("single", one_nan, [*ASK, "--quantized"]),
    "NaN into the weights of ranks": ("single", many_nans, ["--tp", "2", "-o", "NEW"]),
    "a value too large for f16": ("single", large, [*KEEP, "--dtype", "f16"]),
    "another shape": ("single", misshapen, KEEP),
    "a missing layer": ("single", more_layers, KEEP),
    "a layer too many": ("single", fewer_layers, KEEP),
    "a tensor too many": ("single", another_tensor, KEEP),
    "more prompts than rows": ("kept", as_it_is, [*ASK, "--prompt", "on the mat"]),
    "an artifact of another dtype": ("kept", as_it_is, [*ASK, "--dtype", "bf16"]),
    "an artifact of an artifact": ("kept", as_it_is, KEEP),
    "an artifact and weights": ("single", as_it_is, [*KEEP, "--weights", "OTHER"]),
    "how to quantize, without quantizing": (
        "single",
        as_it_is,
        [*KEEP, "--quantization-dtype", "int8"],
    ),
    "how to draw, without drawing": ("single", as_it_is, [*KEEP, "--temperature", "0.7"]),
}


def outcome(models: Path, here: Path, case: str) -> str:
    """What the user reads; everything else is checked."""
    name, damage, arguments = CASES[case]
    folder = copytree(models / name, here / "MODEL")
    damage(folder)
    before = sorted(here.rglob("*"))
    command = "shard-weights" if "-o" in arguments else "generate"
    words = [str(here / word) if word in ("NEW", "OTHER") else word for word in arguments]
    result = graphgen(command, folder, *words)
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    # Nothing written, nothing half-written, nothing run.
    assert sorted(here.rglob("*")) == before
    return result.stderr[result.stderr.index("error[") :].replace(str(here), "HERE").rstrip()


def test_bad_input(
    models: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    golden: Callable[[str, str], None],
):
    texts: list[str] = []
    for number, case in enumerate(CASES):
        here = tmp_path / str(number)
        here.mkdir()
        monkeypatch.chdir(here)
        texts.append(f"--- {case}\n{outcome(models, here, case)}\n")
    golden("cli/bad_checkpoints.txt", "\n".join(texts))


def test_a_tied_head_may_be_stored_again(models: Path, tmp_path: Path):
    folder = copytree(models / "single", tmp_path / "MODEL")
    same_head(folder)
    assert graphgen("generate", folder, *ASK).exit_code == 0


def test_an_attack_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(Attack()))
    assert (tmp_path / "attacked").exists()


def test_an_error_as_json(models: Path, tmp_path: Path):
    folder = copytree(models / "sharded", tmp_path / "MODEL")
    missing_shard(folder)
    result = graphgen("generate", folder, *ASK, "--json")
    assert result.exit_code == 1
    error = json.loads(result.stdout)["error"]
    assert error["code"] == "GG0601"
    assert error["where"] == str(folder / PARTS)


def test_the_models_are_good_before_they_are_damaged(models: Path, tmp_path: Path):
    prepared: set[bytes] = set()
    for name in ("single", "sharded", "torch"):
        (file,) = facts("shard-weights", models / name, "-o", tmp_path / name)["files"]
        prepared.add(Path(file).read_bytes())
    assert len(prepared) == 1
    (answer,) = facts("generate", models / "kept", *ASK, "--ignore-eos")["outputs"]
    assert len(answer["tokens"]) == 2
