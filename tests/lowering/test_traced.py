"""Functions that return a program: found in a file or a package, refused where they are not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from graphgen.errors import GraphgenError
from graphgen.lowering.traced_function import is_function, takes, traced


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("a.py:f", True), ("a.b:f", True), ("a.py", False), (":f", False), ("a:1", False)],
)
def test_names_of_functions(name: str, wanted: bool):
    assert is_function(name) is wanted


def test_parameters_are_read_from_the_file(tmp_path: Path):
    path = tmp_path / "traced_program.py"
    path.write_text("def f(batch, tokens=8):\n    return 1\n")
    assert takes(f"{path}:f", ["batch", "tokens"])
    assert not takes(f"{path}:f", ["rows"])
    assert not takes(f"{tmp_path / 'no_such_program.py'}:f", [])
    with pytest.raises(GraphgenError) as caught:
        traced(f"{path}:f", {"batch": 2})
    assert (caught.value.code, caught.value.what) == ("GG0705", f"{path}:f gives a int")


def test_a_file_that_is_not_there_is_named(tmp_path: Path):
    path = tmp_path / "no_such_program.py"
    with pytest.raises(GraphgenError) as caught:
        traced(f"{path}:f")
    assert caught.value.code == "GG0705"
    assert caught.value.what.endswith(f"FileNotFoundError: there is no file {path}")


def test_a_file_imports_its_neighbors_and_not_those_of_another_folder(tmp_path: Path):
    for number, folder in enumerate(("one", "two"), 3):
        home = tmp_path / folder
        (home / "zoo_layers").mkdir(parents=True)
        (home / "zoo_layers" / "__init__.py").write_text("")
        (home / "zoo_layers" / "sizes.py").write_text(f"SIZE = {number}\n")
        (home / "zoo_model.py").write_text(
            "import jax\nfrom zoo_layers.sizes import SIZE\n"
            "def f():\n    import zoo_late\n"
            "    return jax.jit(lambda x: x + 1).lower(zoo_late.zeros(SIZE))\n"
        )
        (home / "zoo_late.py").write_text("from jax.numpy import zeros\n")
    before = list(sys.path)
    for number, folder in enumerate(("one", "two"), 3):
        module = traced(f"{tmp_path / folder / 'zoo_model.py'}:f").module
        assert module.function("main").args[0].type.text == f"f32[{number}]"
    assert sys.path == before
    assert not [name for name in sys.modules if name.startswith(("zoo_layers", "zoo_late"))]


def test_a_module_that_is_nowhere_is_named(tmp_path: Path):
    path = tmp_path / "alone.py"
    path.write_text("from no_such_neighbor import f\n")
    with pytest.raises(GraphgenError) as caught:
        traced(f"{path}:f")
    assert caught.value.code == "GG0705"
    assert "No module named 'no_such_neighbor'" in caught.value.what
