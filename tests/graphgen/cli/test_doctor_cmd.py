"""``graphgen doctor``: what it says of this machine, and building the kernels."""

from __future__ import annotations

import json
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from graphgen.lowering.cpu import machine_facts
from graphgen.lowering.cpu.machine_facts import EXTRAS, cpu_facts
from graphgen.lowering.cpu_kernels import build_kernels
from graphgen.lowering.cpu_kernels import kernel_library as kernels
from graphgen.lowering.cpu_kernels.kernel_library import HANDLERS, KernelLibrary, kernel_library
from graphgen.version import __version__
from tests.graphgen.cli.conftest import ROOT, done, error, facts, graphgen, process

X86 = """\
processor : 0
model name\t: Some CPU
flags\t\t: fpu avx2 fma f16c avx512f

processor : 1
model name\t: Some CPU
flags\t\t: fpu avx2 fma f16c avx512f
"""
ARM = "processor : 0\nFeatures : fp asimd asimdhp bf16\n"


def test_the_facts_are_those_of_this_process():
    found: Any = facts("doctor")
    assert list(found) == [
        "versions",
        "foreign_package",
        "cpu",
        "compiler",
        "neuronx_cc",
        "kernels",
        "instruction_sets",
        "matrix_unit",
        "extras",
    ]
    assert found["versions"]["graphgen"] == __version__
    assert found["versions"]["jaxlib"] == found["versions"]["jax"]
    assert 1 <= found["cpu"]["cores"] <= found["cpu"]["all_cores"]
    assert [row["kernel"] for row in found["kernels"]] == list(HANDLERS)
    library = kernel_library()
    for row in found["kernels"]:
        used = row["kernel"] in library.targets
        assert (row["uses"], row["missing"]) == (
            (library.instruction_set, None) if used else (None, library.missing)
        )


needs_kernels = pytest.mark.skipif(
    not kernel_library().targets, reason=kernel_library().missing or "not there"
)


def doctor_with(limit: str) -> Any:
    """What a process with another ``GRAPHGEN_ISA`` says."""
    return json.loads(process("doctor", "--json", env_more={"GRAPHGEN_ISA": limit}).stdout)


@needs_kernels
def test_the_kernels_use_what_the_cpu_has():
    found = doctor_with("")
    has: dict[str, bool] = found["cpu"]["instructions"]
    flags = (
        *(("avx512_bf16",) * 2, ("avx512", "avx512f"), ("avx2",) * 2),
        *(("neon_bf16", "bf16"), ("neon_dotprod", "asimddp")),
    )
    expected = [*(name for name, flag in flags if has.get(flag)), "baseline"]
    assert found["instruction_sets"] == {"available": expected, "limit": None}
    assert {row["uses"] for row in found["kernels"]} == {expected[0]}


@needs_kernels
def test_a_variable_restricts_the_instruction_set():
    for name in kernel_library().available:
        found = doctor_with(name)
        assert found["instruction_sets"]["limit"] == name
        assert {row["uses"] for row in found["kernels"]} == {name}
    text = process("doctor", env_more={"GRAPHGEN_ISA": "baseline"}).stdout
    assert "; GRAPHGEN_ISA=baseline restricts the kernels\n" in text


@needs_kernels
def test_the_matrix_unit_is_used_by_name_alone():
    for name in ("", "baseline"):
        found = doctor_with(name)["matrix_unit"]
        assert found["uses"] is None
        assert found["missing"]


@pytest.mark.parametrize(
    ("used", "refused", "text"),
    [
        (
            "amx",
            "",
            "AMX: products of 16 rows and more, attention of 12 queries a key head and more",
        ),
        ("avx512_bf16", "this CPU has none", "vectors instead, since this CPU has none"),
        (
            "avx512_bf16",
            "it has not been tried yet: GRAPHGEN_ISA=amx has the kernels use it",
            "vectors instead, since it has not been tried yet: "
            "GRAPHGEN_ISA=amx has the kernels use it",
        ),
    ],
)
def test_a_matrix_unit_that_is_not_used_has_a_line(
    used: str, refused: str, text: str, monkeypatch: pytest.MonkeyPatch
):
    library = KernelLibrary(frozenset(HANDLERS), used, "", "", (used, "baseline"), refused)
    monkeypatch.setattr(kernels, "kernel_library", lambda: library)
    (line,) = [line for line in done("doctor").stdout.splitlines() if line.startswith("matrix")]
    assert line.split(maxsplit=2) == ["matrix", "unit", text]


def test_the_tables_say_the_same():
    text = done("doctor").stdout
    machine, kernels, optional = text.split("\n\n")
    assert machine.startswith("this machine\n")
    assert f"\ngraphgen      {__version__}\n" in machine
    more = ["available", "matrix"] if kernel_library().available else ["artifacts"]
    rows = [*HANDLERS, *more]
    assert [line.split()[0] for line in kernels.splitlines()] == ["kernel", *rows]
    assert [line.split()[0] for line in optional.splitlines()] == ["optional", *EXTRAS]


def test_kernels_that_are_not_used_have_a_reason():
    more = {"GRAPHGEN_NO_KERNELS": "1"}
    text = process("doctor", env_more=more).stdout
    reason = "GRAPHGEN_NO_KERNELS is set"
    assert text.count(f"  XLA's form, since {reason}\n") == len(HANDLERS)
    assert "\nartifacts " in text
    assert "those made with kernels unpack weights at every call: slow\n" in text
    rows: Any = json.loads(process("doctor", "--json", env_more=more).stdout)["kernels"]
    assert rows == [{"kernel": name, "uses": None, "missing": reason} for name in HANDLERS]


def test_extras_are_those_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {
        extra: {Requirement(item).name for item in items}
        for extra, items in project["optional-dependencies"].items()
        if extra not in ("test", "dev")
    }
    assert {extra: set(names) for extra, (_, names) in EXTRAS.items()} == declared


def test_a_missing_package_says_how_it_is_installed(monkeypatch: pytest.MonkeyPatch):
    real = machine_facts.package_version

    def without(name: str) -> str | None:
        return None if name == "uvicorn" else real(name)

    monkeypatch.setattr(machine_facts, "package_version", without)
    assert "uvicorn missing: pip install 'graphgen-compiler[serve]'" in done("doctor").stdout
    assert facts("doctor")["extras"]["serve"]["uvicorn"] is None


def test_neurons_compiler_is_found_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    found: Any = facts("doctor")
    assert (found["neuronx_cc"], found["compiler"]) == (None, None)
    assert "C++ compiler  none: install g++ or clang++, or set CXX\n" in done("doctor").stdout
    for name in ("neuronx-cc", "g++"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    found = facts("doctor")
    assert found["neuronx_cc"] == str(tmp_path / "neuronx-cc")
    assert found["compiler"] == str(tmp_path / "g++")


@pytest.mark.parametrize(
    ("machine", "text", "has"),
    [
        ("x86_64", X86, ["avx2", "fma", "f16c", "avx512f"]),
        ("aarch64", ARM, ["asimd", "asimdhp", "bf16"]),
        ("x86_64", "", None),
        ("riscv64", X86, None),
    ],
)
def test_instructions_are_read_from_the_description_of_the_cpu(
    machine: str, text: str, has: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("platform.machine", lambda: machine)
    info = tmp_path / "cpuinfo"
    info.write_text(text)
    found = cpu_facts(info)
    if has is None:
        assert found.instructions == {}
    else:
        assert [name for name, there in found.instructions.items() if there] == has
        assert not all(found.instructions.values())
    assert found.name == ("Some CPU" if text == X86 else "")
    assert machine in found.text()
    assert cpu_facts(tmp_path / "none").instructions == {}


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the kernels are built, in the place of the checkout's library."""
    path = tmp_path / "made.so"
    monkeypatch.setattr(build_kernels, "build", partial(build_kernels.build, path))
    monkeypatch.setattr(build_kernels, "is_current", partial(build_kernels.is_current, path))
    return path


def compiler(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> Path:
    path = folder / "cxx"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    return path


# Writes its words, among them the digest of the sources, into its last -o file, and a log.
WORKS = 'echo "$@" >> "$0.log"; while [ "$1" != -o ]; do shift; done; cp "$0.log" "$2"'


def test_the_kernels_are_built_with_progress_beside_the_answer(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    cxx = compiler(tmp_path, monkeypatch, WORKS)
    ran = graphgen("doctor", "--build-kernels", "--json")
    assert ran.exit_code == 0, ran.output
    assert ran.stderr.splitlines() == [
        f"note: compiling the kernels with {cxx}, which takes half a minute",
        f"note: wrote {library}",
    ]
    assert json.loads(ran.stdout)["compiler"] == str(cxx)
    assert build_kernels.sources_digest() in library.read_text()
    again = graphgen("doctor", "--build-kernels", "--json")
    assert again.stderr == "note: the kernels are those of the sources: nothing is compiled\n"


def test_building_without_a_compiler_is_an_error(library: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    assert error("doctor", "--build-kernels").splitlines() == [
        "error[GG0707]: the kernels cannot be built: there is no C++ compiler: install g++ or "
        "clang++, or set CXX",
        "  help: without them XLA's products are used, which are slower",
    ]
    assert not library.exists()
    ran = graphgen("doctor", "--build-kernels", "--json")
    assert (ran.exit_code, json.loads(ran.stdout)["error"]["code"]) == (1, "GG0707")


def test_what_the_compiler_said_is_quoted(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    compiler(tmp_path, monkeypatch, "echo 'linear.h:7: no such type' >&2; exit 1")
    text = error("doctor", "--build-kernels")
    assert text.startswith("error[GG0707]: the kernels cannot be built: ")
    assert "linear.h:7: no such type" in text
    assert not library.exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "nowhere" / "made.so"
    monkeypatch.setattr(build_kernels, "build", partial(build_kernels.build, path))
    monkeypatch.setattr(build_kernels, "is_current", lambda: False)
    compiler(tmp_path, monkeypatch, WORKS)
    assert f"cannot write {path}: No such file or directory" in error("doctor", "--build-kernels")
