"""Finding transformers-neuronx: absent, PyPI's placeholder, or the library with its names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_tnx.shim_library import asked_names, counts, find_library
from tests.graphgen.cli.conftest import ROOT, graphgen, process

COMPILER = """\
import torch
from torch_neuronx.pyhlo import xla_data_pb2
from torch_neuronx.pyhlo.scribe import HloScribe
from libneuronxla import neuron_xla_compile
import neuronxcc.nki.language as nl


def load(neff, tp):
    return torch.classes.neuron.ParallelModel(neff, tp)


def run(model, inputs, outputs):
    torch.ops.neuron._parallel_run_neuron(model, inputs, outputs)
"""
MISSING = """\
from torch_neuronx.xla_impl import trace
import torch

torch.ops.neuron._profile_start_neuron(None)
"""


def distribution(folder: Path, known: str) -> None:
    info = folder / f"transformers_neuronx-{known}.dist-info"
    info.mkdir(parents=True)
    text = f"Metadata-Version: 2.1\nName: transformers-neuronx\nVersion: {known}\n"
    (info / "METADATA").write_text(text)


def library(folder: Path, **files: str) -> Path:
    """A package with the library's modules; ``files`` replace some."""
    package = folder / "transformers_neuronx"
    package.mkdir(parents=True)
    contents = {"__init__": "", "decoder": "", "hlo": "", "ops": "", "compiler": COMPILER, **files}
    for name, text in contents.items():
        (package / f"{name}.py").write_text(text)
    distribution(folder, "0.13.1")
    return folder


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Path]]:
    def added() -> Path:
        monkeypatch.syspath_prepend(tmp_path)
        return tmp_path

    monkeypatch.setattr(sys, "argv", sys.argv)
    yield added
    for name in [name for name in sys.modules if name.startswith("transformers_neuronx")]:
        del sys.modules[name]


def test_an_absent_library_is_explained():
    with pytest.raises(GraphgenError) as caught:
        find_library()
    assert caught.value.code == "GG0908"
    assert caught.value.what == "transformers-neuronx is not installed"
    assert "pip.repos.neuron.amazonaws.com" in (caught.value.help or "")
    assert "github.com/aws-neuron/transformers-neuronx" in (caught.value.help or "")


@pytest.mark.parametrize("package", [False, True], ids=["no module", "empty package"])
def test_the_placeholder_is_refused(tmp_path: Path, on_path: Callable[[], Path], package: bool):
    distribution(tmp_path, "0.1")
    if package:
        (tmp_path / "transformers_neuronx").mkdir()
        (tmp_path / "transformers_neuronx" / "__init__.py").write_text("")
    on_path()
    with pytest.raises(GraphgenError) as caught:
        find_library()
    assert caught.value.code == "GG0908"
    assert caught.value.what == "the installed transformers-neuronx 0.1 is not the library"
    assert "PyPI has a placeholder under this name" in (caught.value.note or "")
    assert (caught.value.help or "").startswith("pip uninstall transformers-neuronx, then pip")


def test_the_names_of_a_library(tmp_path: Path, on_path: Callable[[], Path]):
    library(tmp_path, extra=MISSING)
    on_path()
    found = find_library()
    assert found.version == "0.13.1"
    assert found.folder == tmp_path / "transformers_neuronx"
    names = asked_names(found)
    assert {(name.module, name.name): name.has_stand_in for name in names} == {
        ("libneuronxla", "neuron_xla_compile"): True,
        ("neuronxcc.nki.language", ""): True,
        ("torch.classes.neuron", "ParallelModel"): True,
        ("torch.ops.neuron", "_parallel_run_neuron"): True,
        ("torch.ops.neuron", "_profile_start_neuron"): False,
        ("torch_neuronx.pyhlo", "xla_data_pb2"): True,
        ("torch_neuronx.pyhlo.scribe", "HloScribe"): True,
        ("torch_neuronx.xla_impl", "trace"): False,
    }
    assert counts(names, frozenset()) == {"real": 0, "stand-in": 6, "missing": 2}
    real = frozenset({"torch_neuronx"})
    assert counts(names, real) == {"real": 6, "stand-in": 2, "missing": 0}


def test_check_lists_names_and_succeeds(tmp_path: Path, on_path: Callable[[], Path]):
    library(tmp_path)
    on_path()
    result = graphgen("tnx", "check", "--json")
    assert result.exit_code == 0
    shown = json.loads(result.stdout)
    assert shown["version"] == "0.13.1"
    assert {row["state"] for row in shown["names"]} == {"stand-in"}


def test_check_fails_where_a_name_is_missing(tmp_path: Path, on_path: Callable[[], Path]):
    library(tmp_path, extra=MISSING)
    on_path()
    result = graphgen("tnx", "check")
    assert result.exit_code == 1
    assert "missing   torch_neuronx.xla_impl" in result.stdout
    assert f"transformers-neuronx 0.13.1 in {tmp_path}" in result.stderr


def with_library(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``graphgen tnx`` in a process that finds the library in ``folder``."""
    path = os.pathsep.join([str(folder), str(ROOT)])
    return process("tnx", *arguments, env_more={"PYTHONPATH": path})


SCRIPT = """\
import sys
import transformers_neuronx.compiler as compiler
from graphgen.runtime.aws_tnx import is_stand_in
assert is_stand_in("torch_neuronx")
print(sys.argv[1:], compiler.xla_data_pb2.F32, __name__)
if "--fail" in sys.argv:
    raise ValueError("mine")
"""


@pytest.mark.usefixtures("installed")
def test_a_program_runs_with_its_own_arguments(tmp_path: Path, on_path: Callable[[], Path]):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    library(on_path())
    ran = graphgen("tnx", "run", script, "--tp", "2", "--json")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert ran.stdout == "['--tp', '2', '--json'] 11 __main__\n"
    failed = graphgen("tnx", "run", script, "--fail")
    assert failed.exit_code == 1
    assert "ValueError: mine" in failed.stderr
    assert "defect" not in failed.stderr


def test_without_the_library_every_command_refuses(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text("print('ran')\n")
    for arguments in (["check"], ["run", str(script)], ["verify"]):
        refused = graphgen("tnx", *arguments)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "error[GG0908]: transformers-neuronx is not installed" in refused.stderr


# A library whose model is that of transformers, and on 2 ranks one that errs.
FAMILY = """\
import torch
from transformers import AutoModelForCausalLM


class LlamaForSampling:
    @classmethod
    def from_pretrained(cls, folder, batch_size, amp, tp_degree, n_positions):
        made = cls()
        made.model, made.tp = AutoModelForCausalLM.from_pretrained(folder).eval(), tp_degree
        return made

    def to_neuron(self):
        if self.tp == 3:
            raise ValueError("4 heads on 3 ranks")

    def sample(self, ids, sequence_length, top_k):
        assert top_k == 1
        with torch.no_grad():
            while ids.shape[1] < sequence_length:
                logits = self.model(ids).logits[:, -1]
                ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], 1)
        return ids + (ids == ids[0, -1]) if self.tp == 2 else ids
"""


@pytest.mark.slow
def test_verify_compares_tokens_and_says_what_failed(tmp_path: Path):
    folder = library(tmp_path)
    family = folder / "transformers_neuronx" / "llama"
    family.mkdir()
    (family / "__init__.py").write_text("")
    (family / "model.py").write_text(FAMILY)
    ran = with_library(folder, "verify", "--family", "llama", "--tp", "1,2,3", "--json")
    assert ran.returncode == 1, ran.stderr
    assert "llama, tp 3" in ran.stderr
    rows = json.loads(ran.stdout)
    assert [(row["tp"], row["state"]) for row in rows] == [
        (1, "equal"), (2, "different"), (3, "refused"),
    ]  # fmt: skip
    assert rows[0]["tokens"] == rows[0]["wanted"]
    assert rows[2]["error"] == "ValueError: 4 heads on 3 ranks"
    good = with_library(folder, "verify", "--family", "llama", "--tp", "1,3")
    assert good.returncode == 0
