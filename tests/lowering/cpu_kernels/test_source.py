"""The kernels' own test program, ``test_kernels.cc``: no Python, under sanitizers and on ARM."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Collection
from pathlib import Path

import pytest

from graphgen.lowering.cpu_kernels import build_kernels
from graphgen.lowering.cpu_kernels.build_kernels import FOLDER, OPTIONS, compiler

PROGRAM = Path(__file__).with_name("test_kernels.cc")
NAMES = ("attention", "rotation", "rows", "low_rank", "task_pool")
PARTS = [PROGRAM.with_name(f"test_{name}.cc") for name in NAMES]
VARIANTS = {"dispatched", "baseline", build_kernels.EMULATED}
ARM_COMPILER, ARM = "aarch64-linux-gnu-g++", "qemu-aarch64"

pytestmark = pytest.mark.slow


def built(cxx: str, options: tuple[str, ...], folder: Path) -> Path:
    """The program, with the kernels for every instruction set, quickly compiled by default."""
    every = (*OPTIONS, "-O1", "-g", *options)
    commands = build_kernels.compile_commands(cxx, every, folder)
    # The interface to XLA, whose headers are not needed here.
    objects = {path: command for path, command in commands.items() if path.stem != "ffi"}
    made = folder / "test_kernels"
    folders = ["-I", str(FOLDER), "-I", str(PARTS[0].parent)]
    sources = [str(PROGRAM), *map(str, PARTS)]
    objects[made] = [cxx, *every, "-Werror", *folders, *sources, *map(str, objects)]
    objects[made] += ["-o", str(made), "-pthread"]
    for command in objects.values():
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
    return made


def check(command: list[str], variants: set[str], others: Collection[str] = ()) -> None:
    """Run the program: no number is wrong, nothing is reported, each of the variants was tried.

    Args:
        command: the program.
        variants: instruction sets that have to be tried.
        others: those that must not be.
    """
    options = {f"{name}_OPTIONS": "halt_on_error=1" for name in ("ASAN", "TSAN", "UBSAN")}
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **options}
    )
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout + ran.stderr
    lines = ran.stdout.splitlines()
    tried = {line.partition(":")[0] for line in lines}
    assert variants <= tried
    assert tried.isdisjoint(others)
    left_out = [line for line in lines if line.startswith("amx: left out, since ")]
    assert len(left_out) <= 1
    assert [line for line in lines if not line.endswith(" 0 wrong")] == left_out


def sanitized(kind: str, folder: Path) -> Path:
    """The program under a sanitizer; skips where the compiler has none."""
    cxx = compiler()
    if cxx is None:
        pytest.skip("there is no C++ compiler")
    # Sanitizers intercept siglongjmp, but not __longjmp_chk, which _FORTIFY_SOURCE calls instead.
    options = (f"-fsanitize={kind}", "-fno-sanitize-recover=all", "-U_FORTIFY_SOURCE")
    empty = folder / "empty.cc"
    empty.write_text("int main() { return 0; }\n")
    probe = [cxx, *options, str(empty), "-o", str(folder / "empty")]
    for command in (probe, [str(folder / "empty")]):
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            pytest.skip(f"{cxx} {options[0]} does not work here: {ran.stderr.strip()[-200:]}")
    return built(cxx, options, folder)


@pytest.mark.parametrize(("kind", "cases"), [("address,undefined", 200), ("thread", 60)])
def test_the_kernels_are_right_and_clean_under_a_sanitizer(kind: str, cases: int, tmp_path: Path):
    program = sanitized(kind, tmp_path)
    check([str(program), str(cases)], VARIANTS)


def test_the_kernels_are_right_as_the_library_compiles_them(tmp_path: Path):
    """GCC 12 has taken a table for zeros with -O3 that it read with -O1."""
    cxx = compiler()
    if cxx is None:
        pytest.skip("there is no C++ compiler")
    level = tuple(option for option in OPTIONS if option.startswith("-O"))
    assert level
    check([str(built(cxx, level, tmp_path)), "200"], VARIANTS)


def test_the_program_sees_a_wrong_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cxx = compiler()
    if cxx is None:
        pytest.skip("there is no C++ compiler")
    # Only the baseline is built, and the kernel is given a weight without its first row.
    sources = tmp_path / "source"
    shutil.copytree(FOLDER, sources)
    whole = "k = 0; k < linear.depth; ++k) {\n      const int64_t at"
    text = PROGRAM.read_text()
    assert text.count(whole) == 1
    program = tmp_path / PROGRAM.name
    program.write_text(text.replace(whole, whole.replace("k = 0", "k = 1")))
    for file in (program, sources / "dispatch.cc"):
        file.write_text(file.read_text().replace("__x86_64__", "GRAPHGEN_NOT_HERE"))
    monkeypatch.setattr(build_kernels, "FOLDER", sources)
    monkeypatch.setattr(build_kernels, "instruction_sets", lambda _: {"baseline": ()})
    monkeypatch.setattr("tests.lowering.cpu_kernels.test_source.PROGRAM", program)
    ran = subprocess.run(
        [str(built(cxx, (), tmp_path)), "20"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert "baseline: 20 cases, 0 wrong" not in ran.stdout


def test_the_kernels_are_right_on_arm(tmp_path: Path):
    cxx, arm = shutil.which(ARM_COMPILER), shutil.which(ARM) or shutil.which(f"{ARM}-static")
    if cxx is None or arm is None:
        pytest.skip(f"{ARM_COMPILER} and {ARM} are not both installed")
    program = str(built(cxx, ("-static",), tmp_path))
    newest = {*build_kernels.instruction_sets("aarch64")}
    check([arm, "-cpu", "max", program, "100"], VARIANTS | newest)
    # A CPU without the instructions is left to the baseline.
    check([arm, "-cpu", "cortex-a57", program, "20"], VARIANTS, newest - VARIANTS)
