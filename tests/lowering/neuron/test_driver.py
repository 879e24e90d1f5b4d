"""The compile driver with a stand-in for neuronx-cc: caching, failures, limits, restarts."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Module, dtype
from graphgen.lowering.hlo import hlo_chunks
from graphgen.lowering.neuron import describe, read_neff
from graphgen.lowering.neuronx_cc.default_options import Situation
from graphgen.lowering.neuronx_cc.driver import CompileDriver, key_of
from graphgen.lowering.neuronx_cc.failure_report import predicted
from graphgen.lowering.neuronx_cc.neuron_compiler import find_compiler
from graphgen.lowering.neuronx_cc.program_plan import (
    PlannedProgram,
    options_by_default,
    plan_programs,
)
from graphgen.lowering.neuronx_cc.worker import MemoryBudget, Processes
from graphgen.models import build, known_shape
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
from graphgen.targets import accelerator
from graphgen.text import parse
from tests.fake_compiler.fake_neuron import FakeNeuron
from tests.lowering.neuron.small_neff import small_neff
from tests.lowering.neuron.test_command_line import PUBLISHED

REFUSED = """\
module @m level=target {
  input %x : f64[2,4]
  output %y : f64[2,4]
}

func @decode phase=decode {
  arg %x : f64[2,4]
  %y = add(%x, %x) : f64[2,4]
  return y = %y
}
"""
Driver = Callable[..., CompileDriver]
Planned = Callable[..., list[PlannedProgram]]


def test_programs_compile_once_and_then_come_from_the_cache(
    tmp_path: Path, fake: FakeNeuron, driver: Driver, planned: Planned
):
    programs = planned(tmp_path / "one")
    made = driver().run(programs)
    assert [item.origin for item in made] == ["compiled"] * 3
    assert sorted(fake.calls) == sorted(item.name for item in programs)
    for item in made:
        assert item.program.name.encode() in item.neff.read_bytes() or read_neff(item.neff).members
        assert item.peak_bytes > 1 << 20
        assert not (item.neff.parent / "unfinished").exists()
    # Another folder and another process find the same keys.
    again = driver().run(planned(tmp_path / "two"))
    assert [item.origin for item in again] == ["cache"] * 3
    assert len(fake.calls) == 3
    for one, two in zip(made, again, strict=True):
        assert one.neff.read_bytes() == two.neff.read_bytes()
    # Other options are another compilation, and so is another version.
    flags = planned(tmp_path / "three", "--enable-saturate-infinity", "prefill")
    assert driver().run(flags)[0].origin == "compiled"
    fake.order(version="2.28.1.0+beef")
    assert driver().run(planned(tmp_path / "four", only="prefill"))[0].origin == "compiled"
    # The output is a work folder that inspect reads.
    found = describe(tmp_path / "one")
    assert {item.state for item in found.programs} == {"done"}
    assert dict(found.programs[0].facts)["command"].startswith(
        "neuronx-cc compile --framework XLA graph.hlo --output=graph.neff"
    )


# What the stand-in does, and of the failure: kind, code, and text of the error.
FAILURES = {
    "code": (
        {"how": "NCC_EVRF035", "opcode": "dot", "text": "int matmult"},
        ("refused", "NCC_EVRF035", "remedy: cast to bf16/f32"),
    ),
    "unknown code": ({"how": "NCC_EXYZ123"}, ("refused", "NCC_EXYZ123", "has no rule about it")),
    "internal": ({"how": "internal"}, ("internal", "NCC_ITEN404", "tensorizer error: assertion")),
    "hang": ({"how": "hang"}, ("time-out", "", "allow more with --timeout")),
    "crash": ({"how": "signal"}, ("crash", "", "crashed with SIGSEGV")),
    "killed": ({"how": "signal", "number": 9}, ("killed", "", "--jobs 1")),
    "traceback": ({"how": "crash"}, ("crash", "", "KeyError: 'penguin'")),
    "disk full": ({"how": "disk"}, ("disk full", "", "free some space")),
    "half a file": ({"how": "half"}, ("damaged output", "", "no archive follows byte")),
    "no file": ({"how": "nothing"}, ("damaged output", "", "cannot read")),
}


# Kinds that another one has the path of.
LIKE_OTHERS = ("unknown code", "internal", "crash", "traceback", "no file")


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in LIKE_OTHERS else n for n in FAILURES],
)
def test_each_failure_ends_in_one_error_with_its_remedy(
    name: str, tmp_path: Path, fake: FakeNeuron, driver: Driver, planned: Planned
):
    order, (kind, code, text) = FAILURES[name]
    fake.order({"program": "decode.*8$", **order})
    # On a slow machine others take as long as the limit of the one that hangs.
    hangs = name == "hang"
    programs = planned(tmp_path / "out", only="decode.b1.c8" if hangs else "decode")
    with pytest.raises(GraphgenError) as caught:
        driver(timeout=1.0 if hangs else 0.0).run(programs)
    error = caught.value
    assert error.code == "GG1002"
    assert error.what.startswith(f"1 of {len(programs)} programs did not compile")
    shown = f"decode.b1.c8: {kind}" + (f" [{code}]" if code else "")
    assert error.note.startswith(f"{shown}: ")
    assert text in str(error)
    assert f"log: {programs[0].folder / 'log-neuron-cc.txt'}" in error.note
    # All others are there, and are not compiled again; a verdict is not asked for twice.
    calls = len(fake.calls)
    fake.order()
    lasting = kind in ("refused", "internal", "crash")
    if lasting:
        with pytest.raises(GraphgenError, match="1 of 2") as again:
            driver().run(programs)
        assert "it failed before" in str(again.value)
        assert shown in again.value.note
        assert len(fake.calls) == calls
    made = driver(retry_failed=True).run(programs)
    origins = {item.program.name: item.origin for item in made}
    assert origins.pop("decode.b1.c8") == "compiled"
    assert origins == ({} if hangs else {"decode.b1.c16": "cache"})


def test_the_op_that_a_log_names_is_shown_with_its_line_and_the_rule(
    tmp_path: Path, fake: FakeNeuron, driver: Driver, planned: Planned
):
    fake.order({"how": "NCC_EVRF035", "opcode": "dot", "text": "int matmult"})
    with pytest.raises(GraphgenError) as caught:
        driver().run(planned(tmp_path / "out", only="prefill"))
    error = caught.value
    assert ".py:" in error.where
    assert f"op: dot {error.where}" in error.note
    assert "the rule int-dot-trn2 is about it, and did not fire" in error.note
    assert "    2026-11-26T12:00:00Z ERROR" in error.note


def test_all_failures_are_shown_at_once(
    tmp_path: Path, fake: FakeNeuron, driver: Driver, planned: Planned
):
    fake.order({"program": "prefill", "how": "NCC_EBVF030"}, {"program": "decode", "how": "half"})
    with pytest.raises(GraphgenError) as caught:
        driver().run(planned(tmp_path / "out"))
    assert caught.value.what == "3 of 3 programs did not compile (NCC_EBVF030)"
    assert "prefill.b1.s8: refused" in caught.value.note
    assert "decode.b1.c16: damaged output" in caught.value.note
    assert caught.value.help.startswith("the remedy of each is above")


def test_an_option_that_the_compiler_does_not_know_is_traced_to_its_origin(
    tmp_path: Path, driver: Driver, planned: Planned
):
    with pytest.raises(GraphgenError) as caught:
        driver().run(planned(tmp_path / "out", "--fast-please=yes", "prefill"))
    assert "prefill.b1.s8: arguments: unrecognized arguments: --fast-please=yes" in str(
        caught.value
    )
    assert "--fast-please comes from --flags" in str(caught.value)


def test_a_compiler_that_is_killed_beside_others_runs_once_more_alone(
    tmp_path: Path, fake: FakeNeuron, driver: Driver, planned: Planned
):
    fake.order({"program": "prefill", "how": "signal", "number": 9, "times": 1})
    made = driver(jobs=3).run(planned(tmp_path / "out"))
    assert [item.origin for item in made] == ["compiled"] * 3
    assert fake.calls.count("prefill.b1.s8") == 2


def test_compilers_share_the_memory_that_they_are_given():
    budget, entered = MemoryBudget(3), threading.Event()

    def second() -> None:
        with budget.holding(2):
            entered.set()

    waiting = threading.Thread(target=second)
    with budget.holding(2):
        waiting.start()
        with budget.holding(1):
            pass
        assert not entered.wait(0.1)
    assert entered.wait(60)
    waiting.join()
    # One that is larger than all of it runs alone.
    with budget.holding(100):
        waiting = threading.Thread(target=second)
        entered.clear()
        waiting.start()
        assert not entered.wait(0.1)
    waiting.join()


def test_two_processes_compile_a_program_once(
    tmp_path: Path, fake: FakeNeuron, driver: Driver, planned: Planned
):
    fake.order(seconds=0.5)
    states: list[Sequence[str]] = []
    first, second = planned(tmp_path / "a"), planned(tmp_path / "b")
    made: list[str] = []
    runs = [
        threading.Thread(target=lambda d=d, p=p: made.extend(item.origin for item in d.run(p)))
        for d, p in ((driver(jobs=3), first), (driver(notes=states, jobs=3), second))
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert sorted(made) == ["cache"] * 3 + ["compiled"] * 3
    assert len(fake.calls) == 3
    assert not [*(tmp_path / "cache").rglob("*.lock")]


def test_a_cache_that_cannot_be_written_costs_no_result(
    tmp_path: Path, driver: Driver, planned: Planned
):
    (tmp_path / "file").write_text("")
    states: list[Sequence[str]] = []
    made = driver(tmp_path / "file" / "cache", states).run(
        planned(tmp_path / "out", only="prefill")
    )
    assert made[0].origin == "compiled"
    assert any("the cache is not used" in state[2] for state in states)


@pytest.mark.parametrize(
    ("orders", "text"),
    [
        ({"banner": "WRONG PACKAGE", "banner_status": 1}, "ends with status 1"),
        ({"banner": "hello"}, "says no version"),
    ],
)
def test_a_compiler_that_is_none_is_refused(orders: dict[str, object], text: str, fake: FakeNeuron):
    fake.order(**orders)
    with pytest.raises(GraphgenError) as caught:
        find_compiler(environment=fake.environment)
    assert caught.value.code == "GG1001"
    assert text in caught.value.what
    with pytest.raises(GraphgenError, match="there is no neuronx-cc here"):
        find_compiler(environment={"PATH": str(fake.root)})


def test_a_compiler_that_cannot_be_executed_is_named(tmp_path: Path):
    (tmp_path / "neuronx-cc").write_text("#!/bin/sh\n")
    (tmp_path / "neuronx-cc").chmod(0o644)
    for path, what in ((tmp_path / "neuronx-cc", "is not executable"), (tmp_path, "is a folder")):
        with pytest.raises(GraphgenError, match=f"{path} {what}") as caught:
            find_compiler(str(path))
        assert caught.value.code == "GG1001"
    with pytest.raises(GraphgenError, match="there is no"):
        find_compiler(str(tmp_path / "other"))


def test_a_compiler_that_is_replaced_meanwhile_is_noticed(
    tmp_path: Path, fake: FakeNeuron, driver: Driver, planned: Planned
):
    made = driver()
    fake.binary.write_text(fake.binary.read_text() + "# another version\n")
    with pytest.raises(GraphgenError, match="1 of 1") as caught:
        made.run(planned(tmp_path / "out", only="prefill"))
    assert "is no longer the version 2.27" in caught.value.note
    assert not [*(tmp_path / "cache").rglob("model.done")]


def test_a_time_out_ends_all_that_the_compiler_started(tmp_path: Path):
    # A compiler that starts another process, which would outlive it.
    text = "sleep 60 & echo $! > pid; wait"
    ended = Processes().run(["sh", "-c", text], tmp_path, tmp_path / "out.txt", 0.5)
    assert ended.timed_out
    assert ended.status == -signal.SIGKILL
    pid = int((tmp_path / "pid").read_text())
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            break
        if "State:\tZ" in Path(f"/proc/{pid}/status").read_text():
            break
        time.sleep(0.05)
    else:
        pytest.fail("a process of the compiler runs on")


def test_the_stand_in_is_as_strict_as_the_documentation(
    tmp_path: Path, fake: FakeNeuron, planned: Planned
):
    (program,) = planned(tmp_path, only="prefill")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [fake.binary, *words], cwd=program.folder, capture_output=True, text=True, check=False
        )

    words = program.words()
    assert run(*words).returncode == 0
    assert run("--version").stdout == "NeuronX Compiler version 2.27.5334.0+abcdef01\n"
    for wrong in ("--lnc=3", "--target=trn9", "--unknown", "--tensorizer-options=--unknown"):
        assert run(*words, wrong).returncode == 2
    ended = run(*words, "--target=trn1", "--lnc=2")
    assert ended.returncode == 70
    assert "[NCC_EARG001]" in ended.stderr
    (program.folder / "graph.hlo").write_bytes(b"\n\0")
    assert "[NCC_EVRF064]" in run(*words).stderr


def test_an_entry_of_another_tool_is_used_if_it_is_the_same_program(
    tmp_path: Path, lowered: Module, fake: FakeNeuron, driver: Driver, planned: Planned
):
    (program,) = planned(tmp_path / "out", only="prefill")
    folder = tmp_path / "cache" / "neuronxcc-2.27.5334.0+abcdef01" / "MODULE_1234567+0a1b2c3d"
    folder.mkdir(parents=True)
    # The same program without metadata, options in another order, another hash: theirs is closed.
    function = lowered.function(program.name)
    hlo = b"".join(hlo_chunks(lowered, function, metadata=False))
    assert hlo != (program.folder / "graph.hlo").read_bytes()
    (folder / "model.hlo_module.pb").write_bytes(hlo)
    words = [*reversed(program.command.words)]
    (folder / "compile_flags.json").write_text(json.dumps(words))
    (folder / "model.neff").write_bytes(small_neff(b"theirs"))
    assert driver().run([program])[0].origin == "compiled", "it is not finished"
    shutil.rmtree(tmp_path / "cache" / key_of(program, "2.27.5334.0+abcdef01").name())
    (folder / "model.done").touch()
    (made,) = driver().run([program])
    assert made.origin == "cache of another tool"
    assert b"theirs" in made.neff.read_bytes()
    # Another program, or other options, are another compilation.
    (other,) = planned(tmp_path / "out", only="decode.b1.c16")
    assert driver().run([other])[0].origin == "compiled"
    (flagged,) = planned(tmp_path / "out", "--enable-saturate-infinity", "prefill")
    assert driver().run([flagged])[0].origin == "compiled"
    assert len(fake.calls) == 3


@pytest.mark.parametrize("exchanged", [False, True])
def test_an_entry_that_names_no_folder_is_that_of_its_hlo(
    tmp_path: Path, driver: Driver, planned: Planned, exchanged: bool
):
    programs = planned(tmp_path / "out", only="decode")
    assert [made.origin for made in driver().run(programs)] == ["compiled"] * 2
    version = "2.27.5334.0+abcdef01"
    first, second = (tmp_path / "cache" / key_of(item, version).name() for item in programs)
    for folder in (first, second):
        # As versions wrote it that did not name the folder.
        record = json.loads((folder / "graphgen.json").read_text())
        assert record.pop("entry") == f"neuronxcc-{version}/{folder.name}"
        (folder / "graphgen.json").write_text(json.dumps(record))
    if exchanged:
        first.rename(tmp_path / "kept")
        second.rename(first)
        (tmp_path / "kept").rename(second)
    origins = [made.origin for made in driver().run(programs)]
    assert origins == ["compiled" if exchanged else "cache"] * 2


def test_programs_that_the_rules_refuse_are_one_error(lowered: Module):
    module = parse(REFUSED)
    base = Situation("", "trn2", 2, 16)
    options = options_by_default(base, accelerator("trn2", 2), {}, [])
    programs = plan_programs(module, options)
    assert [item.errors[0].rule for item in programs] == ["dtype"]
    error = predicted(programs)
    assert error.code == "GG1003"
    assert error.what.startswith("neuronx-cc will refuse 1 of 1 programs")
    assert "decode: dtype" in error.note
    assert "f64 is not an element type of the device" in error.note


@pytest.mark.slow
def test_seed_buckets_of_llama_405b_get_the_published_options():
    # AWS's guide of Llama 3.1 405B on trn2, at full width; layers are alike.
    shape = {**known_shape("llama-3.1-405b"), "num_hidden_layers": 2}
    buckets = (1024, 2048, 4096, 10240, 12288)
    sizes = CompileConfig(target="trn2", dtype="bf16", tp=64, context=buckets, tokens=(12800,))
    module = build(shape, dtype("bf16"))
    run_pipeline(module, default(sizes))
    base = Situation("", "trn2", 2, 12800, family="llama")
    options = options_by_default(base, accelerator("trn2", 2), {}, [])
    programs = {item.name: item for item in plan_programs(module, options)}
    expected = dict.fromkeys([f"prefill.b1.s{size}" for size in buckets], "prefill")
    expected["decode.b1.c12800"] = "decode"
    assert {*programs} == {*expected}
    for name, phase in expected.items():
        assert programs[name].command.text == PUBLISHED[phase, 2, 8192]
        assert not programs[name].errors
        assert not programs[name].differences
