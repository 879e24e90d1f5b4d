"""``graphgen triage`` and the backends of ``--on``: tables, JSON, files, mistakes of usage."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.graphgen.cli.conftest import done, error, graphgen
from tests.lowering.backends.test_triage import NESTED

RIGHT = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %x, %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""


@pytest.fixture
def nested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that XLA compiles wrongly, in the current folder, beside its inputs."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "nested.mlir"
    file.write_text(NESTED, encoding="utf-8")
    given = {"buf": np.arange(10, dtype=np.float32), "i": np.int32(9), "j": np.int32(0)}
    np.savez(tmp_path / "nested.npz", **given)  # pyright: ignore[reportArgumentType]
    return file


def test_the_compiler_that_is_wrong_and_its_files(nested: Path, tmp_path: Path):
    found = graphgen("triage", nested, "--inputs", "nested.npz", "--on", "xla,cpu")
    assert found.exit_code == 1
    lines = [line.split() for line in found.stdout.splitlines()]
    assert lines[0] == ["backend", "verdict", "where", "NumPy", "backend's", "ops"]
    assert lines[1] == ["xla", "wrong", "result[0]", "6", "9", "2"]
    assert lines[2] == ["cpu", "right", "-", "-", "-", "-"]
    folder = tmp_path / "nested.triage" / "xla"
    assert sorted(file.name for file in folder.iterdir()) == [
        "inputs.npz",
        "program.mlir",
        "report.md",
    ]
    files = (folder / "program.mlir", "--inputs", folder / "inputs.npz")
    again = graphgen("triage", *files, "--on", "xla", "--json", "-o", tmp_path / "again")
    assert again.exit_code == 1
    (verdict,) = json.loads(again.stdout)["verdicts"]
    assert (verdict["backend"], verdict["verdict"]) == ("xla", "wrong")
    assert verdict["reproducer"]["ops"] == 2
    assert verdict["reproducer"]["fails_again"] is True


def test_a_program_that_all_compile_rightly_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    Path("right.mlir").write_text(RIGHT, encoding="utf-8")
    assert "right" in done("triage", "right.mlir", "--on", "xla").stdout
    assert [file.name for file in tmp_path.iterdir()] == ["right.mlir"]


def test_run_and_minify_take_a_backend(nested: Path, tmp_path: Path):
    def result(name: str) -> float:
        done("run", nested, "--inputs", "nested.npz", "--on", name, "--save", "out.npz")
        with np.load("out.npz", allow_pickle=False) as file:
            return float(next(iter(file.values()))[0])

    assert [result(name) for name in ("numpy", "cpu", "xla")] == [6, 6, 9]
    done("minify", nested, "--on", "xla", "-o", "small.gg")
    assert Path("small.gg").read_text(encoding="utf-8").count("dynamic_slice(") == 2
    assert "xla gives NumPy's numbers" in error("minify", _right(tmp_path), "--on", "xla")


def _right(folder: Path) -> Path:
    file = folder / "right.mlir"
    file.write_text(RIGHT, encoding="utf-8")
    return file


def test_equiv_takes_a_backend(nested: Path):
    assert "equal" in done("equiv", nested, nested, "--on", "xla").stdout


@pytest.mark.parametrize("command", ["run", "equiv", "validate", "bisect", "minify"])
def test_another_backend_is_a_mistake_of_usage(command: str, nested: Path):
    files = [nested, nested] if command == "equiv" else [nested]
    found = graphgen(command, *files, "--on", "gpu")
    assert found.exit_code == 2
    assert "--on: 'gpu' is not one of numpy, cpu, xla, iree, pjrt:PLATFORM" in found.stderr


def test_mistakes_of_triage(nested: Path, tmp_path: Path):
    (tmp_path / "taken").write_text("", encoding="utf-8")
    for words, text in (
        (("--on", "gpu"), "'gpu' is not a backend"),
        (("--on", "numpy"), "NumPy is what the others are compared with"),
        (("--on", "xla", "-o", tmp_path / "taken"), "taken is a file"),
    ):
        found = graphgen("triage", nested, *words)
        assert found.exit_code == 2
        assert text in found.stderr
