"""A device kit, run with stand-ins for the Neuron SDK, and what its results do to the rules."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from graphgen.lowering.check.check import check
from graphgen.lowering.check.evidence import read_evidence, with_evidence
from graphgen.lowering.check.predicates import Request
from graphgen.runtime.device_kit.build_kit import build_kit, wanted_by
from graphgen.runtime.device_kit.kit_archive import kit_bytes
from graphgen.runtime.device_kit.reading import read_kit_results
from graphgen.targets import accelerator
from graphgen.text import parse
from tests.runtime.device_kit.conftest import SMALL, TARGET, UnpackedKit

USES = """\
module @m level=target {
}

func @f {
  arg %x : bf16[4,8]
  arg %n : s32[4,8]
  arg %d : f64[4,8]
  %a = add(%x, %x) : bf16[4,8]
  %b = add(%n, %n) : s32[4,8]
  %c = add(%d, %d) : f64[4,8]
  return a = %a
  return b = %b
  return c = %c
}
"""


def by_name(results: Any) -> Mapping[str, Any]:
    return {case["name"]: case for case in results["cases"]}


def test_a_kit_runs_alone_and_changes_the_trust_of_rules(small_kit: UnpackedKit, tmp_path: Path):
    kit = small_kit
    # Planted: an op the rules accept is refused, one they refuse compiles, numbers are wrong.
    kit.refuse({"op/add/bf16": ["NCC_EVRF064", "add"], "op/add/f64": []})
    kit.device.orders = {kit.hlo_hash("op/tanh/f32"): "wrong"}
    results, said = kit.run()
    assert f"{len(SMALL)} cases for trn2" in said
    assert "executed by nrt" in said
    found = by_name(results)
    assert found["op/add/s32"]["execution"]["outputs"][0]["right"]
    assert found["op/sort/f32"]["compilation"]["codes"] == ["NCC_EVRF029"]
    assert found["op/all_reduce-add/f32"]["execution"]["end"] == "not run"
    assert found["op/add/s32"]["compilation"]["neff_bytes"] > 1024
    assert found["flag/--graphgen-knows-of-none"]["compilation"]["end"] == "bad option"
    model = found["model/gpt2/decode"]["execution"]
    assert [item["name"].rpartition(".")[2] for item in model["outputs"]][:2] == [
        *("logits", "k_cache"),
    ]  # fmt: skip
    assert all(item["right"] for item in model["outputs"])
    assert kit.device.runs["reference"] == 0
    text = json.dumps(results)
    assert str(kit.folder) not in text
    assert os.uname().nodename not in text

    file = tmp_path / "results.json"
    file.write_text(text)
    reading = read_kit_results(file)
    assert [item.title for item in reading.contradictions] == [
        "trn2: add of bf16: refused (NCC_EVRF064), against status add, dtype bf16",
        "trn2: add of f64: right, against dtype f64",
        "trn2: tanh of f32: wrong numbers, against status tanh, dtype f32",
    ]
    first, _, last = (item.body for item in reading.contradictions)
    assert "* HLO `hlo/" in first
    assert "Operation is not supported: %y = add" in first
    assert "32 of 32 elements of `y` are wrong; element " in last
    assert reading.counts["learned"] == 1

    evidence = tmp_path / "evidence.json"
    reading.keep(evidence)
    module, request = parse(USES), Request(TARGET, 2)
    plain = check(module, request)
    heavy = with_evidence(module, plain, request, read_evidence(evidence))
    assert {(item.op, item.severity) for item in plain if item.rule == "dtype"} == {
        ("add", "error"),
        ("parameter", "error"),
    }
    assert {(item.op, item.severity) for item in heavy if item.rule == "dtype"} == {
        ("add", "warn"),
        ("parameter", "warn"),
    }
    refused = [item for item in heavy if item.rule == "device"]
    assert [(item.op, item.severity, item.code) for item in refused] == [
        ("add", "error", "NCC_EVRF064")
    ]
    assert refused[0].trust == "device: neuronx-cc 2.27.5334.0+abcdef01"

    # A later run in which everything is as the rules say takes all of it back.
    kit.refuse({})
    kit.device.orders = {}
    results, _ = kit.run("--work", str(tmp_path / "work"))
    file.write_text(json.dumps(results))
    again = read_kit_results(file)
    assert not again.contradictions
    again.keep(evidence)
    healed = with_evidence(module, plain, request, read_evidence(evidence))
    assert {item.severity for item in healed if item.rule == "dtype"} == {"error"}
    assert {item.trust for item in healed if item.rule == "dtype"} == {
        "device: confirmed by neuronx-cc 2.27.5334.0+abcdef01 (1 of 1 case)"
    }
    assert not [item for item in healed if item.rule == "device"]


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_and_limits_hold(small_kit: UnpackedKit, tmp_path: Path):
    kit = small_kit
    work = ["--work", str(tmp_path / "work"), "-o", str(tmp_path / "results.json")]
    calls = len(kit.fake.calls)
    kit.refuse({}, {"program": "f", "how": "hang"})
    process = subprocess.Popen(
        kit.command(*work, "--only", "op/add/s32"), cwd=kit.folder, env=kit.environment,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while len(kit.fake.calls) == calls:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    _, said = kit.run(*work, "--only", "op/add/s32", "--timeout", "1")
    assert "time-out" in said
    kit.refuse({})
    kit.device.orders = {kit.hlo_hash("op/tanh/f32"): "crash", kit.hlo_hash("op/tuple/f32"): "hang"}
    picked = ["--only", "op/add/s32", "--only", "op/t*", "--run-timeout", "20", "--jobs", "1"]
    _, said = kit.run(*work, *picked)
    assert "1 case is finished already" in said
    found = by_name(json.loads((tmp_path / "results.json").read_text()))
    assert found["op/add/s32"]["compilation"]["end"] == "time-out"
    assert found["op/tanh/f32"]["execution"]["why"] == "the runtime crashed"
    assert found["op/tuple/f32"]["execution"]["end"] == "time-out"
    # What says nothing of the case is run again when that is asked for, the rest is kept.
    kit.device.orders = {}
    calls = len(kit.fake.calls)
    kit.run(*work, *picked, "--retry")
    assert len(kit.fake.calls) == calls + 3
    found = by_name(json.loads((tmp_path / "results.json").read_text()))
    assert all(item["right"] for case in found.values() for item in case["execution"]["outputs"])
    assert {case["execution"]["end"] for case in found.values()} == {"ran"}


@pytest.mark.slow
def test_a_device_that_is_lost_is_used_when_it_is_back(small_kit: UnpackedKit, tmp_path: Path):
    kit = small_kit
    kit.refuse({})
    kit.device.orders = {kit.hlo_hash("op/add/s32"): "lost"}
    words = ["--work", str(tmp_path / "work"), "--jobs", "1", "--only", "op/add/s32"]
    results, _ = kit.run(*words, "--only", "op/t*")
    found = by_name(results)
    assert found["op/add/s32"]["execution"]["why"] == "the runtime crashed"
    left = found["op/tuple/f32"]["execution"]
    assert left["end"] == "not run"
    assert "nrt cannot be used: DeviceError: nrt_init gives status 2" in left["why"]
    assert results["facts"]["execution"] == "nrt"
    kit.device.address.with_name("lost").rename(kit.device.address)
    kit.device.orders = {}
    results, said = kit.run(*words, "--only", "op/t*")
    assert "2 cases are finished already" in said
    assert by_name(results)["op/tuple/f32"]["execution"]["end"] == "ran"


@pytest.mark.slow
def test_mistakes_are_said_in_a_line(small_kit: UnpackedKit, tmp_path: Path):
    kit = small_kit
    _, said = kit.run("--only", "nothing", status=1)
    assert said == "error: no case is called like nothing; --list names them\n"
    _, said = kit.run("--target", "inf2", status=1)
    assert said == "error: the kit has no cases for inf2, it has them for trn2\n"
    _, said = kit.run("--compiler", "no-such-compiler", status=1)
    assert "activate the environment of the Neuron SDK" in said
    kit.fake.order(banner="WRONG PACKAGE", banner_status=1)
    _, said = kit.run(status=1)
    assert "the package of this name on PyPI is not the compiler" in said
    kit.refuse({})
    file = kit.folder / kit.cases["op/add/s32"]["hlo"]
    content = file.read_bytes()
    file.write_bytes(content + b"\0")
    _, said = kit.run(status=1)
    assert "was changed; unpack the kit again" in said
    file.write_bytes(content)
    results, said = kit.run(
        "--only", "op/add/s32", "--device", "none", "--work", str(tmp_path / "work")
    )
    assert "compiled only: --device none" in said
    assert results["cases"][0]["execution"] == {
        "end": "not run", "why": "--device none", "times_s": [], "outputs": [],
    }  # fmt: skip


def test_the_same_cases_are_the_same_bytes():
    made = [
        kit_bytes(build_kit([accelerator(name) for name in ("trn1", "trn2")], wanted_by(SMALL)))
        for _ in range(2)
    ]
    assert made[0] == made[1]


@pytest.mark.slow
def test_without_the_runtime_programs_run_through_jax(small_kit: UnpackedKit, tmp_path: Path):
    kit = small_kit
    kit.refuse({})
    words = ["--device", "jax:cpu", "--work", str(tmp_path), "-o", str(tmp_path / "results.json")]
    only = ["--only", "op/add/*", "--only", "model/gpt2/decode", "--only", "op/tuple/f32"]
    # JAX is where the tests are, in the place of a Neuron SDK with its plugin.
    command = [sys.executable, "run.py", "--target", TARGET, *words, *only]
    environment = {**kit.environment, "JAX_PLATFORMS": "cpu"}
    subprocess.run(command, cwd=kit.folder, env=environment, check=True, capture_output=True)
    found = by_name(json.loads((tmp_path / "results.json").read_text()))
    ends = {name: case["execution"]["end"] for name, case in found.items()}
    assert ends.pop("op/add/f64") == "not run"
    assert {*ends.values()} == {"ran"}
    assert all(item["right"] for case in found.values() for item in case["execution"]["outputs"])


@pytest.mark.slow
def test_rates_are_measured_at_their_full_size(tmp_path: Path):
    kit = UnpackedKit(tmp_path, ("rate/products/bf16", "rate/products/f32", "rate/memory"))
    results, said = kit.run()
    assert "3 cases for trn2" in said
    found = by_name(results)
    assert found["rate/memory"]["execution"]["outputs"][0]["count"] == 8192
    assert found["rate/products/f32"]["execution"]["outputs"][0]["count"] == 2048**2
    assert all(item["right"] for case in found.values() for item in case["execution"]["outputs"])
    reading = read_kit_results(kit.folder / "results.json")
    assert {item.name for item in reading.figures} == {
        "products of bf16, TFLOP/s", "products of f32, TFLOP/s", "memory, GB/s",
    }  # fmt: skip
    assert all(0 < item.measured < item.published for item in reading.figures)
    assert kit.device.runs["xla"] >= 3


@pytest.mark.slow
def test_much_of_a_kit_agrees_with_a_device_that_follows_the_rules(tmp_path: Path):
    # All of it takes minutes here: a process a case.
    kit = UnpackedKit(tmp_path, ("op/*/bf16", "rewrite", "model/llama-3.1-8b", "flag"))
    kit.run()
    reading = read_kit_results(kit.folder / "results.json")
    assert [(item.title, item.body) for item in reading.contradictions] == []
    assert not reading.results["missing"]
    # The reference runs Neuron's custom calls, which XLA does not know.
    assert kit.device.runs["xla"] > 10 * kit.device.runs["reference"]
