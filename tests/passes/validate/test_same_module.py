"""Modules count as the same exactly where their texts are equal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Module, loc
from graphgen.ir.attrs import attrs_of
from graphgen.ir.clone import clone_module
from graphgen.ir.dtype import bf16, f32
from graphgen.ir.types import tensor
from graphgen.models import build, known_shape
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
from graphgen.passes.validate.checked_run import same_module
from graphgen.text import parse, print_module


def made() -> Module:
    module = build(known_shape("llama-3.1-8b"), f32, mini=True)
    run_pipeline(module, default(CompileConfig(batch=(1,), context=(8,), tokens=(8,), tp=2)))
    return module


def rename(module: Module) -> None:
    op = next(module.programs()[0].ops)
    op.results[0].name = "another"


def retype(module: Module) -> None:
    value = next(op for op in module.programs()[0].ops if op.result.dtype is f32).result
    value.type = tensor(bf16, value.type.shape)


def move(module: Module) -> None:
    next(module.programs()[0].ops).loc = loc("elsewhere.py", 1)


def swap(module: Module) -> None:
    op = next(op for op in module.programs()[0].ops if len(set(op.operands)) == 2)
    op.set_operands((op.operands[1], op.operands[0], *op.operands[2:]))


def annotate(module: Module) -> None:
    next(module.programs()[0].ops).annotations = attrs_of({"hlo.sharding": "{replicated}"})


def hand_back(module: Module) -> None:
    function = module.programs()[0]
    function.outputs = list(reversed(function.outputs))


def reshape_mesh(module: Module) -> None:
    module.mesh["spare"] = 1


def note(module: Module) -> None:
    module.meta["note"] = "changed"


CHANGES = (rename, retype, move, swap, annotate, hand_back, reshape_mesh, note)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_each_change_of_the_text_is_seen(change: Callable[[Module], None]):
    module = made()
    copy = clone_module(module)
    assert same_module(module, copy)
    change(copy)
    assert print_module(module) != print_module(copy)
    assert not same_module(module, copy)
    assert not same_module(copy, module)


def test_what_is_read_back_is_the_same():
    module = parse(print_module(made()))
    assert same_module(module, parse(print_module(module)))
