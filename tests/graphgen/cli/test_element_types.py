"""Every command on every element type: numbers are whole, and differences are seen."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from graphgen.eval import numpy_dtype
from graphgen.ir.dtype import DTYPES
from tests.graphgen.cli.conftest import done, facts, graphgen

KINDS = sorted(DTYPES)
MODULE = """module @m level=logical {{
  input %x : {0}[2,3]
  output %y : {0}[3,2]
  output %z : {0}[2,3]
}}

func @main phase=main {{
  arg %x : {0}[2,3]
  %y = transpose(%x) permutation=[1,0] : {0}[3,2]
  {1}
  return y = %y
  return z = %z
}}
"""
SAME, OTHER = (
    "%z = reverse(%x) dimensions=[0] : {0}[2,3]",
    "%z = reverse(%x) dimensions=[1] : {0}[2,3]",
)


@pytest.fixture(autouse=True)
def _no_part_is_dropped() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", np.exceptions.ComplexWarning)
        yield


def written(tmp_path: Path, kind: str, line: str = SAME, name: str = "m") -> Path:
    path = tmp_path / f"{name}.gg"
    path.write_text(MODULE.format(kind, line.format(kind)))
    return path


def numbers(kind: str) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    """Six different numbers of the type, as far as it has them; complex ones with both parts."""
    whole = np.arange(6).reshape(2, 3)
    if kind.startswith("c"):
        return (whole - 1j * (whole + 1)).astype(numpy_dtype(DTYPES[kind]))
    most = 2 if kind in ("pred", "s2") else 4 if kind == "u2" else 6
    return (whole % most + (kind == "f8e8m0fnu")).astype(numpy_dtype(DTYPES[kind]))


def run(path: Path, kind: str) -> None:
    saved = path.with_name("out.npz")
    first, again = (facts("run", path, "--save", saved)["outputs"] for _ in range(2))
    assert first == again
    assert first[0]["type"] == f"{kind}[3,2]"
    assert done("run", path).stdout.count(f"{kind}[") == 2
    with np.load(saved) as made:
        assert made["y"].shape == (3, 2)
        assert (made["y"] != 0).any()
        assert np.iscomplexobj(made["y"]) == kind.startswith("c")


def equal_to_itself(path: Path, kind: str) -> None:
    assert facts("equiv", path, path)["equal"] is True
    assert done("diff", path, path).exit_code == 0


def different(path: Path, kind: str) -> None:
    other = written(path.parent, kind, OTHER, "other")
    assert graphgen("equiv", path, other).exit_code == 1
    assert graphgen("diff", path, other).exit_code == 1


def other_forms(path: Path, kind: str) -> None:
    for form, ending in (("hlo", "pb"), ("hlo-text", "hlo"), ("stablehlo", "mlir")):
        made = path.with_name(f"m.{ending}")
        done("lower", path, "--to", form, "-o", made)
        assert facts("run", made)["outputs"][0]["type"] == f"{kind}[3,2]"
        assert facts("equiv", path, made)["equal"] is True


def views(path: Path, kind: str) -> None:
    assert facts("inspect", path)["programs"]
    assert facts("cost", path)
    assert "transpose" in done("grep", path, "transpose").stdout
    part = path.with_name("part.gg")
    done("slice", path, "--op", "%z", "-o", part)
    assert facts("run", part)["outputs"][0]["type"] == f"{kind}[2,3]"


def validated(path: Path, kind: str) -> None:
    found = done("validate", path, "-p", "canonicalize,cse,dce").stdout
    assert "WRONG" not in found


def given(path: Path, kind: str) -> None:
    x, file = numbers(kind), path.with_name("in.npz")
    saved, again = path.with_name("a.npz"), path.with_name("b.npz")
    plain = x if x.dtype.isbuiltin == 1 else x.astype(np.float32)
    np.savez(file, x=plain)
    done("run", path, "--inputs", file, "--save", saved)
    with np.load(saved) as made:
        np.testing.assert_array_equal(made["y"], plain.T)
        np.testing.assert_array_equal(made["z"], plain[::-1])
        np.savez(again, x=made["y"].T)
    assert facts("run", path, "--inputs", again) == facts("run", path, "--inputs", file)


COMMANDS: Mapping[str, Callable[[Path, str], None]] = {
    "run": run,
    "equal": equal_to_itself,
    "different": different,
    "forms": other_forms,
    "views": views,
    "validate": validated,
    "inputs": given,
}


@pytest.mark.parametrize("command", sorted(COMMANDS))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.one_in(4)
def test_every_command_takes_every_element_type(tmp_path: Path, kind: str, command: str):
    COMMANDS[command](written(tmp_path, kind), kind)


IMAGINARY = """module @m level=logical {{
  input %x : {0}[4]
  output %y : {1}[4]
}}

func @main phase=main {{
  arg %x : {0}[4]
  %i = imag(%x) : {1}[4]
  {2}
  return y = %y
}}
"""


@pytest.mark.parametrize(("kind", "part"), [("c64", "f32"), ("c128", "f64")])
def test_programs_that_differ_in_the_imaginary_part_are_different(
    tmp_path: Path, kind: str, part: str
):
    a, b = tmp_path / "a.gg", tmp_path / "b.gg"
    a.write_text(IMAGINARY.format(kind, part, f"%y = abs(%i) : {part}[4]"))
    b.write_text(IMAGINARY.format(kind, part, f"%y = negate(%i) : {part}[4]"))
    assert graphgen("equiv", a, b).exit_code == 1


INTEGERS = """module @m level=logical {
  input %x : s32[4]
  input %y : s32[4]
  input %t : f32[2,4]
  input %at : s32[]
  input %zero : s32[]
  output %z : s32[4]
  output %row : f32[1,4]
}

func @main phase=main {
  arg %x : s32[4]
  arg %y : s32[4]
  arg %t : f32[2,4]
  arg %at : s32[]
  arg %zero : s32[]
  %z = OP(%x, %y) : s32[4]
  %row = dynamic_slice(%t, %at, %zero) slice_sizes=[1,4] : f32[1,4]
  return z = %z
  return row = %row
}
"""


def test_integers_are_drawn_and_places_are_zero(tmp_path: Path):
    found: list[object] = []
    for op in ("add", "multiply"):
        path = tmp_path / f"{op}.gg"
        path.write_text(INTEGERS.replace("OP", op))
        outputs = facts("run", path)["outputs"]
        found.append(outputs[0]["first"])
        assert outputs[0]["max"] > 0
    assert found[0] != found[1]
    zeros = tmp_path / "at.npz"
    np.savez(zeros, at=np.int32(0))
    path = tmp_path / "add.gg"
    assert facts("run", path)["outputs"][1] == facts("run", path, "--inputs", zeros)["outputs"][1]
