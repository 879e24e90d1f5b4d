"""``graphgen shard-weights --for``: weights of any source as the arguments of lowered programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import graphgen as gg
from graphgen.lowering.cpu import pjrt
from tests.graphgen.cli.conftest import done, error
from tests.oracles.small_gguf import write_small_model

F32 = gg.dtype("f32")
SIZES = {"gate.weight": (16, 8), "up.weight": (16, 8), "down.weight": (8, 16)}


@pytest.fixture
def lowered(tmp_path: Path) -> Path:
    """A gated layer over two ranks as an HLO protobuf; its source is ``mine.gg``."""
    module = gg.Module("mine")
    with gg.Builder(module.add(gg.Function("main", phase="main")), module) as b:
        x = b.input("x", F32, (4, 8))
        gate, up, down = (b.weight(name, F32, size) for name, size in SIZES.items())
        b.output("y", b.dot(b.silu(b.dot(x, gate)) * b.dot(x, up), down))
    source, split, path = (tmp_path / name for name in ("mine.gg", "split.gg", "mine.pb"))
    source.write_text(gg.print_module(module), encoding="utf-8")
    rules = "gate.weight:{tp,-},up.weight:{tp,-},down.weight:{-,tp}"
    done("opt", source, "-p", f"default{{tp=2,target=trn2,rules=[{rules}]}}", "-o", split)
    done("lower", split, "--target", "trn2", "--to", "hlo", "-o", path)
    return path


def arrays() -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    return {name: random.standard_normal(size).astype(np.float32) for name, size in SIZES.items()}


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_the_file_runs_by_position(lowered: Path, ending: str, tmp_path: Path):
    file, folder, weights = tmp_path / f"own.{ending}", tmp_path / "weights", arrays()
    if ending == "npz":
        np.savez(file, **weights)  # pyright: ignore[reportArgumentType]
    else:
        save_file(weights, file)
    done("shard-weights", file, "--for", lowered, "-o", folder)
    listed = json.loads((folder / "weights.json").read_text())["programs"]["main"]
    prepared = [
        load_file(folder / "weights" / f"tp{rank}_sharded_checkpoint.safetensors")
        for rank in range(2)
    ]
    x = np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)
    given = {"input": lambda name, rank: x, "weight": lambda name, rank: prepared[rank][name]}
    given["rank"] = lambda name, rank: np.array([rank], np.int32)
    pjrt.configure(2)
    executable = pjrt.compile_text(pjrt.stablehlo_of(lowered.read_bytes()), 2)
    placed = [
        pjrt.put([given[row["role"]](row["name"], rank) for rank in range(2)])
        for row in listed["arguments"]
    ]
    ((found, _),) = pjrt.launch(executable, placed)
    assert listed["results"] == [{"name": "y", "type": "f32[4,8]", "role": "output"}]
    gate = x @ weights["gate.weight"].T
    wanted = (gate / (1 + np.exp(-gate)) * (x @ weights["up.weight"].T)) @ weights["down.weight"].T
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=2e-5, atol=1e-5)


def test_a_gguf_file_gives_what_its_tensors_give(tmp_path: Path):
    gguf, source, folder = tmp_path / "small.gguf", tmp_path / "small.gg", tmp_path / "programs"
    save_file(write_small_model(gguf), tmp_path / "same.safetensors")
    done("build", gguf, "--dtype", "f32", "-o", source)
    done("lower", source, "--dims", "B=1,S=16,C=16,M=16", "--to", "hlo", "-o", f"{folder}/")
    made: list[dict[str, np.ndarray[Any, Any]]] = []
    for model in (gguf, tmp_path / "same.safetensors"):
        out = tmp_path / model.suffix
        done("shard-weights", model, "--for", folder, "-o", out)
        made.append(load_file(out / "weights" / "tp0_sharded_checkpoint.safetensors"))
    assert any(name.endswith(".prepared") for name in made[0])
    for name, array in made[0].items():
        np.testing.assert_array_equal(array, made[1][name])


def test_weights_that_do_not_fit(lowered: Path, tmp_path: Path):
    file, folder = tmp_path / "own.npz", tmp_path / "weights"
    full = arrays()
    np.savez(file, **{**full, "more": np.ones(2)})
    assert (
        "the programs do not read more"
        in done("shard-weights", file, "--for", lowered, "-o", folder).stderr
    )
    np.savez(file, **{"gate.weight": full["gate.weight"], "up.weight": np.ones((2, 2))})
    found = error("shard-weights", file, "--for", lowered, "-o", tmp_path / "other")
    assert "missing: 'down.weight' [8,16]" in found
    assert "wrong shape: 'up.weight' is [2,2], the model wants [16,8]" in found
    np.savez(file, **{**full, "up.weight": np.ones((16, 8), np.complex64)})  # pyright: ignore[reportArgumentType]
    found = error("shard-weights", file, "--for", lowered, "-o", tmp_path / "other")
    assert found.startswith("error[GG0601]: the array 'up.weight' has elements of type complex64")
    assert not (tmp_path / "other").exists()


def test_options_of_a_compilation_are_those_of_the_programs(lowered: Path, tmp_path: Path):
    found = error("shard-weights", "x.npz", "--for", lowered, "--tp", 2, "-o", tmp_path / "out")
    assert "--for and options of a compilation exclude each other" in found


def test_programs_without_their_module(lowered: Path, tmp_path: Path):
    Path(f"{lowered}.gg").unlink()
    np.savez(tmp_path / "own.npz", **arrays())  # pyright: ignore[reportArgumentType]
    found = error("shard-weights", tmp_path / "own.npz", "--for", lowered, "-o", tmp_path / "out")
    assert f"there is no mine.pb.gg beside '{lowered}'" in found
