"""Twenty programs of JAX in six forms: read, run, compared, and shown by every tool."""

# jax carries no types here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphgen.lowering.open import open_module
from graphgen.lowering.runnable import runnable
from tests.graphgen.cli.conftest import done, error, graphgen
from tests.oracles.jax_programs import (
    AFTER,
    BEFORE,
    PROGRAMS,
    JaxProgram,
    flat_arguments,
    forms,
    of_devices,
    results,
)

pytestmark = pytest.mark.slow

# Programs that are refused, and the code and the words of it.
REFUSED = {"callback": ("GG0403", "xla_ffi_python_cpu_callback cannot be run here")}
# Symbols of the exported forms, and their sizes.
SIZES = {"export with symbols": "arg0_0=3,arg1_1=5"}
TOOLS = {
    "inspect": (),
    "cost": (),
    "memory": (),
    "grep": ("*",),
    "slice": ("--result", "0", "-o", "OUT.gg"),
    "minify": ("--command", "false {}", "-o", "OUT.gg"),
}


@dataclass(frozen=True, slots=True)
class Written:
    """A program as files, with its arguments and results.

    Attributes:
        files: by form.
        whole: arguments and results.
        parts: the same as devices have them, after XLA split the program; else as ``whole``.
    """

    files: dict[str, Path]
    whole: tuple[list[np.ndarray], list[np.ndarray]]
    parts: tuple[list[np.ndarray], list[np.ndarray]]


@cache
def made(name: str, folder: Path) -> Written:
    program: JaxProgram = PROGRAMS[name]()
    files: dict[str, Path] = {}
    for form, data in forms(program).items():
        files[form] = folder / f"{name.replace(' ', '_')}.{form}"
        files[form].write_bytes(data)
    whole = flat_arguments(program), results(program)
    return Written(files, whole, of_devices(program, *whole))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("jax")


def _saved(array: np.ndarray) -> np.ndarray:
    return array.astype(np.int8) if array.dtype.name == "int4" else array


def _wide(array: Any) -> np.ndarray:
    array = np.asarray(array)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


@pytest.mark.parametrize("form", [*BEFORE, *AFTER])
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_runs_as_in_jax(folder: Path, tmp_path: Path, name: str, form: str):
    written = made(name, folder)
    file, saved, given = written.files[form], tmp_path / "out.npz", tmp_path / "in.npz"
    if name in REFUSED:
        code, words = REFUSED[name]
        text = error("run", file)
        assert f"error[{code}]" in text
        assert words in text
        return
    arguments, wanted = written.parts if form in AFTER else written.whole
    program = runnable(open_module(file)).programs()[0]
    names = [value.name or "" for value in program.args]
    np.savez(
        given, allow_pickle=False, **{n: _saved(a) for n, a in zip(names, arguments, strict=True)}
    )
    sizes = ["--dims", SIZES[name]] if name in SIZES and form in ("mlir", "bytecode") else []
    done("run", file, "--inputs", given, "--save", saved, *sizes)
    with np.load(saved) as found:
        for key, right in zip(found.files, wanted, strict=True):
            one, other = _wide(found[key]), _wide(right)
            # Ranks that have the same are saved once.
            one = np.broadcast_to(one, other.shape) if one.shape == other.shape[1:] else one
            assert one.shape == other.shape
            scale = max(np.abs(other).max(initial=0.0), 1e-3)
            np.testing.assert_allclose(one, other, rtol=0, atol=2e-5 * scale, err_msg=key)


@pytest.mark.parametrize("name", PROGRAMS)
def test_forms_before_optimization_are_equal(folder: Path, name: str):
    files = made(name, folder).files
    for one, other in combinations(BEFORE, 2):
        result = graphgen("diff", files[one], files[other])
        assert result.exit_code == 0, f"{one}, {other}: {result.output}"


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in REFUSED])
def test_forms_after_optimization_are_equal_to_all(folder: Path, name: str, after: str):
    files = made(name, folder).files
    for other in (*BEFORE, *AFTER):
        if other != after:
            found = done("equiv", files[other], files[after])
            assert found.stdout.startswith("equal: "), f"{other}: {found.output}"


@pytest.mark.parametrize(
    "form",
    [
        *("mlir", "pb", "optimized.hlo"),
        *[
            pytest.param(form, marks=pytest.mark.exhaustive)
            for form in ("bytecode", "hlo", "optimized.pb")
        ],
    ],
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_tools_show_it_or_say_why_not(folder: Path, tmp_path: Path, name: str, form: str):
    file = made(name, folder).files[form]
    for tool, options in TOOLS.items():
        words = [word.replace("OUT.gg", str(tmp_path / f"{tool}.gg")) for word in options]
        result = graphgen(tool, file, *words)
        if result.exit_code:
            assert name in SIZES, f"{tool}: {result.output}"
            assert "error[GG" in result.output
            assert "arg0_0" in result.output
