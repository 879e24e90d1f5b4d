"""Generating and serving from a folder of compiled programs, with a stand-in for the plugin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import httpx2
import numpy as np
import pytest
from safetensors.numpy import save_file

from graphgen.cli.model_flags import check_device
from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module
from graphgen.runtime.artifact import is_for_device, open_artifact
from graphgen.runtime.artifact.artifact_folder import DEVICE_KIND
from graphgen.runtime.artifact.device_artifact import LoadedPrograms
from graphgen.runtime.artifact.device_folder import DeviceFolder, open_device_folder
from graphgen.runtime.folders import sealed
from graphgen.runtime.progress import Silent
from graphgen.version import __version__
from tests.fake_compiler.fake_neuron import FakeNeuron
from tests.oracles.small_gguf import write_small_model

ROOT = Path(__file__).parents[3]
PLUGIN = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "fake_plugin")])}
ALONE = {"PYTHONPATH": str(ROOT)}
COMPILED = ("--seq-len", "64", "--context-encoding-buckets", "16", "--dtype", "f32", "--tp", "2")
ANSWER = ("--tp", "2", "--prompt", "Hello", "--max-new-tokens", "8", "--ignore-eos", "--json")


def run(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """A process of Python; ``variables`` are those it has more."""
    command = [sys.executable, "-m", *map(str, words)]
    environment = {**os.environ, **variables}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def answered(ran: subprocess.CompletedProcess[str]) -> Any:
    """The JSON that a process printed."""
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A folder of programs without weights."""
    content: dict[str, object] = {"kind": DEVICE_KIND, "graphgen": __version__, "files": {}}
    (tmp_path / "manifest.json").write_bytes(sealed(content))
    return tmp_path


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str], list[int]]:
    """A compiled folder with weights, the variables of its ``env.sh``, and tokens of the CPU."""
    root = tmp_path_factory.mktemp("device")
    model, out, fake = root / "small.gguf", root / "out", FakeNeuron(root / "fake")
    write_small_model(model)
    cache = ("--cache-dir", root / "cache", "--target", "trn1", "--weights", "-o", out)
    ran = run("graphgen", "compile", model, *COMPILED, *cache, **ALONE, **fake.environment)
    assert ran.returncode == 0, ran.stderr
    wanted = open_device_folder(out).manifest["environment"]
    here = answered(run("graphgen", "generate", model, *ANSWER, **ALONE))
    return out, cast("dict[str, str]", wanted), here["outputs"][0]["tokens"]


@pytest.mark.slow
def test_a_folder_generates_on_the_device_what_the_cpu_does(
    compiled: tuple[Path, dict[str, str], list[int]],
):
    out, wanted, tokens = compiled
    words = ("graphgen", "generate", out, *ANSWER)
    answer = answered(run(*words, "--device", "neuron", **PLUGIN, **wanted))
    assert answer["outputs"][0]["tokens"] == tokens
    # Chosen for what it was compiled for; refused with what is missing.
    refused = run(*words, **ALONE, **wanted)
    assert refused.returncode == 1
    error = json.loads(refused.stdout)["error"]
    assert error["code"] == "GG1005"
    assert "the package libneuronxla is missing" in error["what"]
    assert "jax-neuronx is missing" in error["what"]
    key = out.with_name("other.key")
    key.write_text("f" * 64)
    other = {**wanted, "GRAPHGEN_ARTIFACT_KEY": str(key)}
    error = json.loads(run(*words, **PLUGIN, **other).stdout)["error"]
    assert error["code"] == "GG0703"
    assert "not signed with your key" in error["what"]
    assert "--trust-artifacts" in error["help"]
    answer = answered(run(*words, "--trust-artifacts", **PLUGIN, **other))
    assert answer["outputs"][0]["tokens"] == tokens
    few = {**wanted, "NEURON_RT_NUM_CORES": "1"}
    error = json.loads(run(*words, **PLUGIN, **few).stdout)["error"]
    assert error["code"] == "GG1005"
    assert error["note"] == "NEURON_RT_NUM_CORES is 1, not 2"


@pytest.mark.slow
def test_weights_and_caches_stay_on_the_device(compiled: tuple[Path, dict[str, str], list[int]]):
    out, wanted, tokens = compiled
    said = answered(run("tests.runtime.artifact.generate_on_device", out, 2, **PLUGIN, **wanted))
    assert said["first"] == said["again"] == tokens
    # Each program is loaded once, as the NEFF of its own.
    assert said["loaded"] == ["prefill.b1.s16", "decode.b1.c64"]
    # A step sends its own inputs: a token, its position, row and length for each rank.
    assert said["sent"] == 4 * 4 * 2
    assert said["sent"] < said["states"]
    assert said["kept"]
    assert said["donated"]
    # Rows are copied by a program that was not compiled.
    assert (said["copies"], said["copy"]) == (False, "GG1005")


@pytest.mark.slow
def test_programs_choose_and_verify_tokens_on_the_device(
    compiled: tuple[Path, dict[str, str], list[int]], tmp_path: Path
):
    plain, _, tokens = compiled
    out, fake = tmp_path / "out", FakeNeuron(tmp_path / "fake")
    # Kernels of Neuron and marks of layers are in these programs.
    more = ("--target", "trn2", "--on-device-sampling", "--speculation-length", "4")
    more = (*more, "--layer-markers", "--cache-dir", tmp_path / "cache", "--weights", "-o", out)
    ran = run(
        "graphgen", "compile", plain.with_name("small.gguf"), *COMPILED, *more,
        **ALONE, **fake.environment,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    wanted = cast("dict[str, str]", open_device_folder(out).manifest["environment"])
    words = ("graphgen", "generate", out, *ANSWER)
    proposed = ("--prompt-lookup", "2", "--speculation-length", "4")
    for given in ((), proposed):
        answer = answered(run(*words, *given, **PLUGIN, **wanted))
        assert answer["outputs"][0]["tokens"] == tokens
    for given in (
        ("--async-mode",),
        ("--draft-model-path", plain.with_name("small.gguf"), *proposed[2:]),
    ):
        error = json.loads(run(*words, *given, **PLUGIN, **wanted).stdout)["error"]
        assert error["code"] == "GG1005"
        assert "nothing is compiled here" in error["what"]


def write_adapter(folder: Path, weights: dict[str, Any], rank: int) -> str:
    """An adapter of the queries and of the way down, as PEFT writes it."""
    random, found = np.random.default_rng(rank), dict[str, Any]()
    targets = ["q_proj", "down_proj"]
    for name, weight in weights.items():
        base, _, last = name.rpartition(".")
        if last == "weight" and base.rpartition(".")[2] in targets:
            for part, shape in (("A", (rank, weight.shape[1])), ("B", (weight.shape[0], rank))):
                numbers = random.normal(0, 1, shape).astype(np.float32)
                found[f"base_model.model.{base}.lora_{part}.weight"] = numbers
    folder.mkdir()
    save_file(found, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 8, "target_modules": targets}
    (folder / "adapter_config.json").write_text(json.dumps({**config, "bias": "none"}))
    return f"{folder.name}={folder}"


@pytest.mark.slow
def test_adapters_are_written_into_slots_on_the_device(tmp_path: Path):
    model, out, fake = tmp_path / "small.gguf", tmp_path / "out", FakeNeuron(tmp_path / "fake")
    weights = write_small_model(model)
    given = [write_adapter(tmp_path / name, weights, rank) for name, rank in (("a", 2), ("b", 4))]
    more = ("--batch", 3, "--max-loras", 2, "--max-lora-rank", 4, "--target", "trn1", "--weights")
    words = (*COMPILED, *more, "--cache-dir", tmp_path / "cache", "-o", out)
    ran = run("graphgen", "compile", model, *words, **ALONE, **fake.environment)
    assert ran.returncode == 0, ran.stderr
    folder = open_device_folder(out)
    assert folder.neffs.keys() == {"prefill.b3.s16", "decode.b3.c64", "write_slot"}
    files = [word for text in given for word in ("--lora", text)]
    ids = [word for name in ("a", "b", "none") for word in ("--adapter-id", name)]
    answer = (*ANSWER, "--prompt", "Hello", "--prompt", "Hello", *files, *ids)
    here = answered(run("graphgen", "generate", model, *answer, **ALONE))
    wanted = cast("dict[str, str]", folder.manifest["environment"])
    there = answered(
        run("graphgen", "generate", out, *answer, "--device", "neuron", **PLUGIN, **wanted)
    )
    tokens = [[row["tokens"] for row in said["outputs"]] for said in (here, there)]
    assert tokens[0] == tokens[1]
    # Each row is answered with another adapter, the last with none.
    assert len(set(map(str, tokens[0]))) == 3


@pytest.mark.slow
def test_a_folder_is_served_on_the_device(compiled: tuple[Path, dict[str, str], list[int]]):
    out, wanted, _ = compiled
    command = [sys.executable, "-m", "graphgen", "serve", str(out), "--port", "0", "--json"]
    server = subprocess.Popen(
        [*command, "--tensor-parallel-size", "2", "--device", "neuron"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **PLUGIN, **wanted},
    )
    assert server.stdout is not None
    line = server.stdout.readline()
    assert line, server.communicate()[1]
    facts = json.loads(line)
    body = {"model": facts["model"], "prompt": "Hello", "max_tokens": 8, "temperature": 0}
    body |= {"ignore_eos": True}
    url = f"{facts['url']}/v1/completions"
    texts = [httpx2.post(url, json=body, timeout=120).json()["choices"][0]["text"] for _ in "ab"]
    server.terminate()
    assert server.communicate(timeout=120)[1].count("compiling") == 0
    assert server.returncode == 0
    here = answered(run("graphgen", "generate", out, *ANSWER, **PLUGIN, **wanted))
    assert texts == [here["outputs"][0]["text"]] * 2


def test_a_folder_without_weights_is_refused(bare: Path):
    assert is_for_device(bare)
    with pytest.raises(GraphgenError, match="has programs alone") as caught:
        open_artifact(bare)
    assert caught.value.code == "GG0703"
    assert "graphgen compile CHECKPOINT --weights" in caught.value.help


def test_a_device_is_chosen_by_what_the_model_was_compiled_for(bare: Path, tmp_path: Path):
    check_device(str(bare), "auto")
    check_device(str(bare), "neuron")
    check_device(str(tmp_path / "none"), "cpu")
    with pytest.raises(GraphgenError, match=r"--device cpu: .*was compiled for a device"):
        check_device(str(bare), "cpu")
    with pytest.raises(GraphgenError, match="is not compiled for it") as caught:
        check_device("smollm2", "neuron")
    assert "graphgen compile smollm2 --weights" in caught.value.help


def test_programs_of_another_module_are_refused_on_a_device():
    folder = DeviceFolder(Path(), {"programs": []})
    programs = LoadedPrograms(Module("m"), Silent(), compiled_for=folder)
    other = Module("other")
    other.add(Function("copies", "copies"))
    with pytest.raises(GraphgenError, match=r"copies was not .*nothing is compiled here") as caught:
        programs.beside(other)
    with pytest.raises(GraphgenError, match="the draft was not compiled for the device"):
        programs.require_open("the draft")
    assert caught.value.code == "GG1005"
