"""Marks of layers: numbers stay, and values go into and out of layers through the marks."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.eval import numpy_dtype
from graphgen.exec.backend import NumpyBackend
from graphgen.ir import Function, Module, dtype
from graphgen.ir.clone import clone_module
from graphgen.models import build, known_shape
from graphgen.ops import verify
from graphgen.passes.core import run_pipeline
from graphgen.passes.outline.layer_signature import find_layers, portable
from graphgen.passes.outline.mark_layers import MarkLayers, is_marked
from graphgen.passes.pipelines import default


@pytest.fixture(scope="module")
def plain() -> Module:
    module = build(known_shape("llama-3.1-8b"), dtype("f32"), twin="mini", phases=("decode",))
    sizes = CompileConfig(target="trn2", dtype="f32", context=(8,), tokens=(8,))
    run_pipeline(module, default(sizes))
    return module


@pytest.fixture(scope="module")
def marked(plain: Module) -> Module:
    module = clone_module(plain)
    run_pipeline(module, [MarkLayers()])
    return module


def results(module: Module, function: Function) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    inputs = {
        value.name or "": (
            generator.normal(0, 0.2, value.type.dims).astype(numpy_dtype(value.dtype))
            if value.dtype.is_float
            else np.zeros(value.type.dims, numpy_dtype(value.dtype))
        )
        for value in function.args
    }
    return NumpyBackend()(module, function, [inputs])[0]


def test_numbers_are_those_of_the_program_without(plain: Module, marked: Module):
    verify(marked)
    (before,), (after,) = plain.programs(), marked.programs()
    assert is_marked(after)
    assert not is_marked(before)
    wanted, found = results(plain, before), results(marked, after)
    assert {*found} == {*wanted}
    assert all(found[name].tobytes() == wanted[name].tobytes() for name in wanted)


def test_layers_read_and_are_read_through_their_marks(marked: Module):
    (function,) = marked.programs()
    calls = [op for op in function.block if op.name == "custom_call"]
    targets = [op.attrs.text("target")[len("AwsNeuronModuleMarker") :] for op in calls]
    layers = find_layers(marked, function, constants := portable(function))
    assert targets == ["Start-Forward", "End-Forward"] * len(layers)
    assert len(layers) == 2
    for layer, start, end in zip(layers, calls[::2], calls[1::2], strict=True):
        inside = {*layer.ops}
        for value in layer.inputs:
            assert value.op in (start, None) or value in constants, layer.scope
        for value in layer.outputs:
            readers = [user for user in value.users if user not in inside]
            assert readers == [end] or (not readers and function.returns(value))
