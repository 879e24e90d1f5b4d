"""``graphgen compile`` and ``graphgen cache``, with the stand-in for neuronx-cc."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import pytest
from safetensors.numpy import load_file

from graphgen.cli.compile_progress import CompileProgress
from graphgen.errors import GraphgenError
from graphgen.lowering.neuron import read_neff
from graphgen.lowering.open import open_module
from graphgen.models import known_shape
from graphgen.runtime.artifact.device_folder import open_device_folder
from graphgen.runtime.folders import sealed
from tests.fake_compiler.fake_neuron import FakeNeuron
from tests.graphgen.cli.conftest import ROOT, done, error, facts, graphgen
from tests.oracles.small_gguf import write_small_model

SMALL = {
    "num_hidden_layers": 1,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 256,
}
SIZES = ("--seq-len", "256", "--context-encoding-buckets", "128")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The configuration of a mini Llama."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**known_shape("llama-3.1-8b"), **SMALL}))
    return file


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNeuron:
    made = FakeNeuron(tmp_path / "fake")
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(tmp_path / "cache"))
    monkeypatch.delenv("NEURON_CC_FLAGS", raising=False)
    return made


def flags_of(program: dict[str, Any]) -> dict[str, tuple[str, list[str]]]:
    """Origin and replaced options of each flag."""
    return {
        item["flag"]: (item["origin"], [before["flag"] for before in item["replaced"]])
        for item in program["flags"]
    }


def test_a_dry_run_shows_each_flag_with_its_origin(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("NEURON_CC_FLAGS", "-O3 --enable-saturate-infinity")
    command = ("compile", model, *SIZES, "--target", "trn2", "--tp", 2, "--dry-run")
    said = facts(*command, "--flags", "-O2 --tensorizer-options='--cc-pipeline-tiling-factor=4'")
    assert said["compiler"] is None
    assert [(item["sub_model"], item["name"]) for item in said["programs"]] == [
        ("context_encoding_model", "prefill.b1.s128"),
        ("token_generation_model", "decode.b1.c128"),
        ("token_generation_model", "decode.b1.c256"),
    ]
    prefill, decode = said["programs"][:2]
    assert flags_of(prefill)["-O2"] == ("--flags", ["-O1", "-O3"])
    assert flags_of(decode)["-O2"] == ("--flags", ["-O2", "-O3"])
    assert flags_of(decode)["--lnc=2"] == ("logical cores", [])
    assert flags_of(decode)["--enable-saturate-infinity"] == ("NEURON_CC_FLAGS", [])
    assert flags_of(decode)["--cc-pipeline-tiling-factor=4"] == (
        "--flags",
        ["--cc-pipeline-tiling-factor=1"],
    )
    assert [*tmp_path.iterdir()] == [model]
    # With a folder, HLO and command lines are written.
    text = done(*command, "-o", tmp_path / "out").stdout
    assert "no neuronx-cc is here" in text
    assert "no Neuron device and no neuronx-cc has verified it" in text
    folder = tmp_path / "out" / "programs" / "token_generation_model" / "decode.b1.c256"
    assert open_module(folder / "graph.hlo").functions
    assert (folder / "command.txt").read_text().startswith("neuronx-cc compile --framework XLA")
    assert "there is no neuronx-cc here" in error("compile", model, *SIZES, "-o", tmp_path / "x")


def test_outlined_layers_are_compiled_once(tmp_path: Path, fake: FakeNeuron):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**known_shape("llama-3.1-8b"), **SMALL, "num_hidden_layers": 3}))
    command = ("compile", file, "--seq-len", 128, "--target", "trn2", "-o", tmp_path / "out")
    facts(*command, "--outline-layers")
    for phase, name in (("context_encoding", "prefill.b1.s128"), ("token_generation", "decode")):
        (home,) = (tmp_path / "out" / "programs" / f"{phase}_model").glob(f"{name}*")
        words = (home / "command.txt").read_text()
        assert " -O1 " in words
        assert "--modular-flow-mac-threshold=10" in words
        module = open_module(home / "graph.hlo")
        (program,) = module.programs()
        calls = [op.attrs.text("to_apply") for op in program.block if op.name == "call"]
        assert len(calls) == 3
        assert len({*calls}) == 1
        assert any(op.name == "dot_general" for op in module.function(calls[0]).block)
    plain = facts(*command, "--dry-run")
    assert "-O2" in flags_of(plain["programs"][1])


def test_layers_are_marked_for_the_compiler(model: Path, tmp_path: Path, fake: FakeNeuron):
    out, target = tmp_path / "out", ("--target", "trn2")
    command = ("compile", model, *SIZES, *target, "--layer-markers")
    said = facts(*command, "-o", out, "--dry-run")
    origin, _ = flags_of(said["programs"][0])["--recursive-layer-det=false"]
    assert origin == "marks of layers"
    done(*command, "-o", out)
    for file in out.rglob("graph.hlo"):
        for end in ("Start", "End"):
            # A layer, and the call's name once.
            assert file.read_bytes().count(f"AwsNeuronModuleMarker{end}-Forward".encode()) == 1
    assert done("inspect", out).stdout.startswith("compiler work folder: 3 programs")
    # The configuration asks AWS's way for the same programs; they are others without marks.
    again = ("compile", out / "neuron_config.json", *target, "-o")
    twice = facts(*again, tmp_path / "twice")
    assert {item["origin"] for item in twice["programs"]} == {"cache"}
    plain = facts("compile", model, *SIZES, *target, "-o", tmp_path / "plain")
    assert {item["origin"] for item in plain["programs"]} == {"compiled"}
    assert "has the sizes and options" in error(*again, tmp_path / "x", "--layer-markers")


def test_a_model_is_compiled_and_its_cache_looked_after(
    model: Path, tmp_path: Path, fake: FakeNeuron
):
    command = ("compile", model, *SIZES, "--target", "trn1", "-o")
    first = facts(*command, tmp_path / "one")
    assert {item["origin"] for item in first["programs"]} == {"compiled"}
    for item in first["programs"]:
        assert read_neff(item["neff"]).members
    ended = graphgen(*command, tmp_path / "two")
    assert "[3/3] " in ended.stderr
    assert "from the cache" in ended.stderr
    assert len(fake.calls) == 3

    listed = facts("cache", "list")["entries"]
    assert {item["state"] for item in listed} == {"done"}
    assert {item["program"] for item in listed} == {*fake.calls}
    assert "3 done" in done("cache", "list").stdout
    assert facts("cache", "export", "-o", tmp_path / "copy")["there_before"] == 0
    assert facts("cache", "export", "-o", tmp_path / "copy")["there_before"] == 3
    assert facts("cache", "verify", tmp_path / "copy") == {"verified": 3, "damaged": {}}
    # A copied cache is found: nothing is compiled.
    facts(*command, tmp_path / "three", "--cache-dir", tmp_path / "copy")
    assert len(fake.calls) == 3

    broken, unfinished = (tmp_path / "copy" / item["name"] for item in listed[:2])
    (broken / "model.neff").write_bytes(b"")
    (unfinished / "model.done").unlink()
    ended = graphgen("cache", "verify", tmp_path / "copy")
    assert ended.exit_code == 1
    assert "1 of 2 compilations are whole" in ended.stdout
    assert facts("cache", "prune", tmp_path / "copy", "--dry-run")["removed"].keys() == {
        listed[0]["name"],
        listed[1]["name"],
    }
    assert len(facts("cache", "prune", tmp_path / "copy")["removed"]) == 2
    assert not broken.exists()
    gone = facts("cache", "prune", tmp_path / "copy", "--unused-days", 0)["removed"]
    assert gone == {listed[2]["name"]: "not used for 0 days"}


@pytest.mark.slow
def test_weights_are_stored_in_the_layouts_of_the_compiler(tmp_path: Path, fake: FakeNeuron):
    checkpoint = tmp_path / "small.gguf"
    write_small_model(checkpoint)
    fake.order(layouts="mixed")
    command = ("compile", checkpoint, *SIZES, "--target", "trn2", "--tp", 2, "--weights", "-o")
    done(*command, tmp_path / "plain")
    ended = graphgen(*command, tmp_path / "out", "--optimize-layouts", "--keep-layouts", "*norm*")
    assert "weights have the layout that the compiler prefers" in ended.stderr
    asked = json.loads((tmp_path / "out" / "layouts" / "weight_layouts.json").read_text())
    laid_out: dict[str, Any] = {}
    for rank in range(2):
        name = f"weights/tp{rank}_sharded_checkpoint.safetensors"
        plain, laid_out = (load_file(tmp_path / home / name) for home in ("plain", "out"))
        for key, steps in asked["layouts"].items():
            value = plain[key]
            for step, *values in steps:
                value = value.reshape(values) if step == "reshape" else value.transpose(values)
            assert (laid_out[f"{key}.laid_out"].view("u1") == value.copy().view("u1")).all()
        assert len(laid_out) == len(plain)
    # The programs take them in that form.
    module = open_module(next((tmp_path / "out").glob("programs/*/decode*/graph.hlo")))
    shapes = {value.name: value.type.shape for value in module.programs()[0].args}
    for key in asked["layouts"]:
        assert shapes[f"{key}.laid_out"] == laid_out[f"{key}.laid_out"].shape
    folder = open_device_folder(tmp_path / "out")
    assert module.programs()[0].name in folder.neffs
    assert "--keep-layouts has no effect" in error(*command, tmp_path / "x", "--keep-layouts", "w")


@pytest.mark.slow
def test_the_folder_is_complete_and_can_be_moved(tmp_path: Path, fake: FakeNeuron):
    checkpoint, out = tmp_path / "small.gguf", tmp_path / "out"
    write_small_model(checkpoint)
    command = ("compile", checkpoint, *SIZES, "--target", "trn2", "--tp", 2, "--weights")
    command = (*command, "--kv-cache-quant", "-o", out)
    done(*command)
    for rank in range(2):
        assert (out / "weights" / f"tp{rank}_sharded_checkpoint.safetensors").is_file()
    script = (out / "env.sh").read_text()
    ran = subprocess.run(
        ["sh", "-c", ". ./env.sh && env"], cwd=out, capture_output=True, text=True, check=True
    )
    for line in (
        *("NEURON_RT_NUM_CORES=2", "NEURON_RT_VIRTUAL_CORE_SIZE=2", "NEURON_RT_EXEC_TIMEOUT=600"),
        *("XLA_HANDLE_SPECIAL_SCALAR=1", "UNSAFE_FP8FNCAST=1", "NEURON_LOGICAL_NC_CONFIG=2"),
    ):
        assert line in ran.stdout.splitlines(), script
    moved = tmp_path / "moved"
    out.rename(moved)
    read = open_device_folder(moved)
    assert {*read.neffs} == {"prefill.b1.s128", "decode.b1.c128", "decode.b1.c256"}
    assert all(path.is_file() for path in read.neffs.values())
    for file in moved.rglob("*.json"):
        assert str(tmp_path) not in file.read_text()
    interface = json.loads((moved / "interfaces.json").read_text())["decode.b1.c256"]
    for pair in interface["aliases"]:
        argument, result = interface["arguments"][pair["argument"]], interface["results"]
        assert argument["role"] == "state"
        assert argument["name"] == result[pair["result"]]["name"]
    # The configuration asks AWS's way for the same programs.
    twice = facts("compile", moved / "neuron_config.json", "--target", "trn2", "-o", out)
    assert {item["origin"] for item in twice["programs"]} == {"cache"}
    (moved / "env.sh").write_text(script + " ")
    with pytest.raises(GraphgenError, match=r"env.sh was changed"):
        open_device_folder(moved)
    (moved / "env.sh").write_text(script)
    # Each program is bound to its place, and none is without a hash.
    one, other = (read.neffs[f"decode.b1.c{size}"] for size in (128, 256))
    kept = other.rename(moved / "kept")
    one.rename(other)
    kept.rename(one)
    with pytest.raises(GraphgenError, match=r"graph.neff was changed"):
        open_device_folder(moved)
    known = cast("dict[str, str]", read.manifest["files"])
    files = {name: found for name, found in known.items() if "c128" not in name}
    (moved / "manifest.json").write_bytes(sealed({**read.manifest, "files": files}))
    with pytest.raises(GraphgenError, match=r"manifest.json has no hash of programs/.*c128/graph"):
        open_device_folder(moved)


def test_failures_are_one_error(model: Path, tmp_path: Path, fake: FakeNeuron):
    fake.order({"program": "decode", "how": "NCC_EVRF007"})
    text = error("compile", model, *SIZES, "--target", "trn2", "-o", tmp_path / "out")
    assert text.startswith("error[GG1002]: 2 of 3 programs did not compile (NCC_EVRF007)")
    assert "graphgen check: the rule inst-limit is about it, and did not fire" in text
    assert {item["state"] for item in facts("cache", "list")["entries"]} == {"done", "failed"}
    assert len(facts("cache", "prune", "--failed")["removed"]) == 2


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--flags", "--lnc=1"), "--flags has --lnc=1, and the programs are for --lnc=2"),
        (("--flags", "--target trn1"), "--flags has --target=trn1, and the programs are for"),
        (("--flags", "oops"), "'oops' follows no option"),
        (("--cache-dir", "nonsense://bucket"), "cannot be opened: Protocol not known"),
    ],
)
def test_options_that_contradict_the_target_are_refused(
    words: tuple[str, ...], text: str, model: Path
):
    assert text in error("compile", model, *SIZES, "--target", "trn2", "--dry-run", *words)


def test_an_output_is_needed(model: Path):
    ended = graphgen("compile", model)
    assert ended.exit_code == 2
    assert "give a folder, or --dry-run" in ended.stderr


def test_programs_can_choose_tokens(model: Path):
    words = ("compile", model, *SIZES, "--dry-run", "--on-device-sampling")
    greedy, drawn, plain = (
        {item["name"]: item["key"] for item in facts(*more)["programs"]}
        for more in (words, (*words, "--do-sample"), words[:-1])
    )
    assert greedy.keys() == drawn.keys() == plain.keys()
    for name in greedy:
        assert len({greedy[name], drawn[name], plain[name]}) == 3
    assert "--do-sample has no effect" in error(*words[:-1], "--do-sample")


def interrupted(
    model: Path, out: Path, fake: FakeNeuron, number: signal.Signals
) -> tuple[int, int]:
    """End a driver by a signal while its second compiler runs: its status, and the compiler."""
    fake.order({"program": "decode", "how": "hang"})
    # What a shell starts in the background ignores interruptions: undo that first.
    program = (
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from graphgen.cli.main import main\n"
        "main()\n"
    )
    words = [sys.executable, "-c", program, "compile", str(model), *SIZES]
    words += ["--target", "trn2", "--jobs", "1", "-o", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL) as run:
        while True:
            logs = [*out.glob("programs/token_generation_model/*/unfinished/log-neuron-cc.txt")]
            if logs and "scheduling" in logs[0].read_text():
                break
            assert run.poll() is None
            time.sleep(0.05)
        run.send_signal(number)
        try:
            status = run.wait(120)
        finally:
            run.kill()
    return status, int(logs[0].read_text().split()[2])


def runs(pid: int) -> bool:
    """True while a process is there and not a zombie."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_driver_that_is_ended_ends_its_compilers_and_goes_on_where_it_was(
    number: signal.Signals, model: Path, tmp_path: Path, fake: FakeNeuron
):
    status, compiler = interrupted(model, tmp_path / "out", fake, number)
    assert status == (130 if number == signal.SIGINT else -number)
    for _ in range(100):
        if not runs(compiler):
            break
        time.sleep(0.05)
    assert not runs(compiler)
    assert len(fake.calls) == 2
    assert not (tmp_path / "out" / "manifest.json").exists()
    fake.order()
    made = facts("compile", model, *SIZES, "--target", "trn2", "-o", tmp_path / "out")
    assert sorted(item["origin"] for item in made["programs"]) == ["cache", "compiled", "compiled"]


def test_a_terminal_shows_rows_of_those_that_run(monkeypatch: pytest.MonkeyPatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with CompileProgress(2) as progress:
        progress.changed("a", "waits", "")
        progress.changed("a", "compiles", "")
        progress.changed("b", "locked", "another process compiles it")
        progress.changed("a", "done", "compiled")
        progress.changed("b", "failed", "no memory")
    shown = screen.getvalue()
    for words in (
        "compiling",
        "waiting for another process",
        "[1/2] a: compiled in ",
        "[2/2] b: failed",
    ):
        assert words in shown


def test_a_certificate_is_written_beside_the_programs_and_holds(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    out = tmp_path / "out"
    done("compile", model, *SIZES, "--target", "trn2", "--tp", 2, "--dry-run", "-o", out, "--prove")
    found = facts("prove", "--check", out / "certificate.json")
    assert found["complete"]
    assert {claim["status"] for claim in found["claims"]} <= {"proved", "equal in real arithmetic"}
    stated = json.loads((out / "certificate.json").read_text())
    assert stated["options"]["lowered.target"] == "trn2"
    assert {row["read back"] for row in stated["programs"]} == {"the same, op by op"}
    hlo = out / stated["programs"][0]["file"]
    hlo.write_bytes(hlo.read_bytes() + b"\0")
    ended = graphgen("prove", "--check", out / "certificate.json")
    assert ended.exit_code == 2
    assert "error[GG0710]" in ended.stderr
