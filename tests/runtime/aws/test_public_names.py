"""The modules of AWS's names: type checkers, editors and programs find the same objects."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from graphgen.runtime.aws import nxdi, tnx


def imports_of_type_checkers(module: ModuleType) -> dict[str, tuple[str, str]]:
    """Module and name there of each import under ``TYPE_CHECKING``, by public name."""
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    (block,) = [
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    return {
        alias.asname or alias.name: (str(node.module), alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@pytest.mark.parametrize("module", [nxdi, tnx])
def test_type_checkers_see_what_a_look_up_finds(module: ModuleType):
    imported = imports_of_type_checkers(module)
    assert sorted(imported) == sorted(module.__all__) == dir(module)
    for name, (home, inside) in imported.items():
        assert getattr(module, name) is getattr(import_module(home), inside)


@pytest.mark.parametrize("module", [nxdi, tnx])
def test_other_names_are_not_found(module: ModuleType):
    with pytest.raises(AttributeError, match="LamaForCausalLM"):
        _ = module.LamaForCausalLM
