"""Building the library of kernels, and why it is not loaded; a script stands for the compiler."""

from __future__ import annotations

import hashlib
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from graphgen.errors import GraphgenError
from graphgen.lowering.cpu.program import program_key
from graphgen.lowering.cpu_kernels import build_kernels, kernel_library

REAL = Path(build_kernels.__file__).resolve()
NOTE = "note: no kernels for this CPU, XLA's are used, which are slower: "
# Writes its last -o file: the words it was given, among them the digest of the sources.
COMPILER = """\
#!{python}
import sys
words = sys.argv[1:]
open({log!r}, "a").write(" ".join(words) + "\\n")
open(words[words.index("-o") + 1], "w").write(open({log!r}).read())
"""
FAILS = """\
#!/bin/sh
echo "linear.h:7: error: expected a semicolon" >&2
exit 1
"""


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The build script and the sources in a folder of their own."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    for path in (REAL, *build_kernels.source_files()):
        shutil.copy(path, folder)
    return folder


def script(folder: Path, text: str) -> Path:
    path = folder / "cxx"
    path.write_text(text)
    path.chmod(0o755)
    return path


def fake(folder: Path) -> Path:
    return script(folder, COMPILER.format(python=sys.executable, log=str(folder / "log")))


def library(folder: Path) -> Path:
    return folder / build_kernels.LIBRARY.name


def build(folder: Path, cxx: Path | str = "", **more: str) -> subprocess.CompletedProcess[str]:
    """Run the script as make does; without ``cxx`` no compiler is found."""
    command = [sys.executable, str(folder / REAL.name)]
    environment = {k: v for k, v in os.environ.items() if k not in ("CXX", "PATH")}
    environment |= {"PATH": more.pop("PATH", ""), **({"CXX": str(cxx)} if cxx else {}), **more}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def said(ran: subprocess.CompletedProcess[str]) -> str:
    """What a run that went on without kernels said."""
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith(NOTE)
    return ran.stdout.removeprefix(NOTE)


def test_without_a_compiler_one_line_says_so(copied: Path):
    ran = build(copied)
    assert said(ran) == "there is no C++ compiler: install g++ or clang++, or set CXX\n"
    names = {REAL.name, *(path.name for path in build_kernels.source_files())}
    assert {path.name for path in copied.iterdir()} == names


def test_a_build_that_is_not_needed_or_not_possible_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def failing() -> Path:
        raise build_kernels.BuildError("the reason")

    monkeypatch.setattr(build_kernels, "build", failing)
    for current, text in ((True, ""), (False, f"{NOTE}the reason\n")):
        monkeypatch.setattr(build_kernels, "is_current", lambda current=current: current)
        assert build_kernels.main() == 0
        assert capsys.readouterr().out == text


def test_a_compiler_that_is_not_there_is_named(copied: Path):
    text = said(build(copied, "/nowhere/g++"))
    assert text == "/nowhere/g++ cannot be run: No such file or directory\n"
    assert not library(copied).exists()


def test_a_failing_compiler_is_quoted_and_leaves_the_old_library(copied: Path, tmp_path: Path):
    library(copied).write_text("old")
    text = said(build(copied, script(tmp_path, FAILS)))
    first, *rest = text.splitlines()
    assert first.startswith(f"{tmp_path / 'cxx'} -std=c++17 ")
    assert rest[0] == "linear.h:7: error: expected a semicolon"
    assert library(copied).read_text() == "old"
    assert not list(copied.glob(".kernels-*"))


def test_the_compiler_is_the_one_on_the_path(copied: Path, tmp_path: Path):
    fake(tmp_path).rename(tmp_path / "clang++")
    assert build(copied, PATH=str(tmp_path)).stdout == ""
    assert library(copied).is_file()


def test_every_instruction_set_is_compiled_and_linked_once(copied: Path, tmp_path: Path):
    assert build(copied, fake(tmp_path)).stdout == ""
    macros, *compiled, linked = (tmp_path / "log").read_text().splitlines()
    assert macros == "-dM -E -x c++ /dev/null"
    sources = {path.name for path in copied.glob("*.cc")}
    sets, units = build_kernels.instruction_sets(), build_kernels.tile_units()
    assert len(compiled) == len(sources) - 2 + len(sets) + len(units)
    for space, named in (("GRAPHGEN_ISA", sets), ("GRAPHGEN_TILES", units)):
        for name, options in named.items():
            (line,) = [line for line in compiled if f"-D{space}={name} " in line]
            assert f" {' '.join((*options, ''))}-D{space}" in line
    assert linked.startswith("-shared -s -Wl,--build-id=none -o ")
    assert linked.count(".o ") + linked.endswith(".o") == len(compiled)
    assert not list(copied.glob(".kernels-*"))


def test_a_library_of_these_sources_is_not_built_again(copied: Path, tmp_path: Path):
    cxx = fake(tmp_path)
    build(copied, cxx)
    before = library(copied).stat()
    assert build(copied, cxx).stdout == ""
    assert library(copied).stat().st_ino == before.st_ino


def test_a_library_of_other_sources_is_replaced_whole(copied: Path, tmp_path: Path):
    cxx = fake(tmp_path)
    build(copied, cxx)
    with library(copied).open() as held:
        old = held.read()
        (copied / "linear.h").write_text("// changed\n")
        assert build(copied, cxx).stdout == ""
        # A process that has the old one open goes on with all of it.
        held.seek(0)
        assert held.read() == old
    assert library(copied).read_text() != old


@pytest.fixture
def loaded_anew(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """The library is looked for again, in a test and after it."""
    monkeypatch.delenv(kernel_library.DISABLE, raising=False)
    kernel_library.kernel_library.cache_clear()
    yield
    monkeypatch.undo()
    kernel_library.kernel_library.cache_clear()
    # The library keeps the instruction set that the test chose until it is told another.
    kernel_library.kernel_library()


needs_library = pytest.mark.skipif(
    not kernel_library.kernel_library().targets, reason="there are no kernels here"
)


def found(monkeypatch: pytest.MonkeyPatch, path: Path) -> kernel_library.KernelLibrary:
    """What is said of a library at a path that has no kernels."""
    monkeypatch.setattr(kernel_library, "LIBRARY", path)
    library = kernel_library.kernel_library()
    assert not library.targets
    assert (library.instruction_set, library.key) == ("", "")
    return library


@pytest.mark.usefixtures("loaded_anew")
def test_no_library_says_what_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    missing = found(monkeypatch, tmp_path / "none.so").missing
    assert missing == "they are not built: graphgen doctor --build-kernels"


@pytest.mark.usefixtures("loaded_anew")
def test_a_library_older_than_its_sources_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "old.so"
    path.write_bytes(b"\x7fELF of other sources")
    missing = found(monkeypatch, path).missing
    assert missing == f"they are older than their sources, or damaged: {kernel_library.BUILD}"


def test_a_library_is_that_of_its_sources_and_whole(tmp_path: Path):
    path = tmp_path / "made.so"
    path.write_bytes(b"ELF" + build_kernels.seal([b"ELF"]))
    assert build_kernels.is_current(path)
    # The digest of the sources alone says nothing of what else is in a file.
    digest = build_kernels.sources_digest().encode()
    others = hashlib.sha256(b"other sources\0ELF").hexdigest().encode()
    whole = path.read_bytes()
    for data in (b"", digest, b"ELF" + digest, b"elf" + whole[3:], whole[:-1], b"ELF" + others):
        path.write_bytes(data)
        assert not build_kernels.is_current(path)


@pytest.mark.usefixtures("loaded_anew")
def test_a_library_that_cannot_be_loaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "damaged.so"
    path.write_bytes(b"not ELF" + build_kernels.seal([b"not ELF"]))
    assert found(monkeypatch, path).missing.startswith("damaged.so cannot be loaded: ")


@pytest.mark.usefixtures("loaded_anew")
def test_a_variable_leaves_the_kernels_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(kernel_library.DISABLE, "1")
    assert found(monkeypatch, tmp_path / "any.so").missing == "GRAPHGEN_NO_KERNELS is set"


@pytest.mark.usefixtures("loaded_anew")
def test_an_instruction_set_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(kernel_library.RESTRICT, "sse9")
    with pytest.raises(GraphgenError) as caught:
        kernel_library.kernel_library()
    assert caught.value.code == "GG0705"
    assert caught.value.what == "GRAPHGEN_ISA=sse9 is not an instruction set of the kernels"
    for name in (*build_kernels.instruction_sets(), *build_kernels.tile_units()):
        assert name in (caught.value.help or "")


@pytest.mark.parametrize(
    ("cxx", "option"),
    [
        ("aarch64-linux-gnu-g++", "-march=armv8.2-a+dotprod+bf16"),
        ("python -m ziglang c++ -target aarch64-linux-gnu.2.28", "-mcpu=generic+dotprod+bf16"),
    ],
)
def test_features_of_arm_are_named_as_the_compiler_knows_them(
    cxx: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(build_kernels, "machine_of", lambda _: "aarch64")
    commands = build_kernels.compile_commands(cxx, (), tmp_path)
    assert option in commands[tmp_path / "neon_bf16.o"]
    assert tmp_path / "avx2.o" not in commands


def test_the_unit_of_x86_is_compiled_on_every_machine_of_that_kind():
    assert list(build_kernels.tile_units("x86_64")) == ["amx", build_kernels.EMULATED]
    assert list(build_kernels.tile_units("aarch64")) == [build_kernels.EMULATED]


@needs_library
@pytest.mark.usefixtures("loaded_anew")
def test_an_instruction_set_that_the_cpu_lacks_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernel_library, "instruction_sets", lambda: {"sve": (), "baseline": ()})
    monkeypatch.setenv(kernel_library.RESTRICT, "sve")
    with pytest.raises(GraphgenError) as caught:
        kernel_library.kernel_library()
    assert caught.value.what == "GRAPHGEN_ISA=sve is not an instruction set of this CPU"
    assert (caught.value.help or "").endswith(
        "baseline, or leave GRAPHGEN_ISA out for the best one"
    )


@needs_library
@pytest.mark.usefixtures("loaded_anew")
def test_a_matrix_unit_that_the_system_refuses_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
):
    answers = {
        "graphgen_instruction_sets": "avx512_bf16 baseline",
        "graphgen_why_machine_has_no_matrix_unit": "",
        "graphgen_why_no_matrix_unit": "the system refuses it to this process: no",
    }
    monkeypatch.setattr(kernel_library, "_text", lambda _, symbol, *given: answers[symbol])
    monkeypatch.setattr(kernel_library, "tile_units", lambda: ("amx", build_kernels.EMULATED))
    monkeypatch.setenv(kernel_library.RESTRICT, "amx")
    with pytest.raises(GraphgenError, match="the system refuses it to this process: no") as caught:
        kernel_library.kernel_library()
    assert caught.value.code == "GG0705"


@needs_library
@pytest.mark.usefixtures("loaded_anew")
def test_each_instruction_set_of_the_cpu_has_programs_of_its_own(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(kernel_library.RESTRICT, raising=False)
    available = kernel_library.kernel_library().available
    assert available[-1] == "baseline"
    keys = {program_key("text")}
    for name in (*available, build_kernels.EMULATED):
        monkeypatch.setenv(kernel_library.RESTRICT, name)
        kernel_library.kernel_library.cache_clear()
        assert kernel_library.kernel_library().instruction_set == name
        keys.add(program_key("text"))
    # The best one is what is used without the variable.
    assert len(keys) == len(available) + 1


def test_any_change_of_a_source_changes_the_digest(copied: Path):
    def digest() -> str:
        made: dict[str, Any] = runpy.run_path(str(copied / REAL.name))
        return made["sources_digest"]()

    digests = {build_kernels.sources_digest(), digest()}
    assert len(digests) == 1
    for path in sorted(copied.iterdir()):
        path.write_text(path.read_text() + "\n")
        digests.add(digest())
    assert len(digests) == 1 + len(list(copied.iterdir()))


@pytest.mark.slow
@pytest.mark.skipif(build_kernels.compiler() is None, reason="there is no C++ compiler")
def test_the_real_compiler_makes_a_library_with_every_handler(copied: Path):
    import ctypes

    ran = build(copied, str(build_kernels.compiler()), PATH=os.environ["PATH"])
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    made = ctypes.CDLL(str(library(copied)))
    for symbol in kernel_library.HANDLERS.values():
        assert hasattr(made, symbol)
    made.graphgen_instruction_set.restype = made.graphgen_sources.restype = ctypes.c_char_p
    assert made.graphgen_instruction_set().decode() in build_kernels.instruction_sets()
    assert made.graphgen_sources().decode() == build_kernels.sources_digest()
