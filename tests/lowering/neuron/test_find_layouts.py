"""Layouts of weights by the public protocol, with a stand-in that asks for some."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.lowering.neuronx_cc.default_options import Situation
from graphgen.lowering.neuronx_cc.driver import DriverSettings
from graphgen.lowering.neuronx_cc.find_layouts import find_layouts
from graphgen.lowering.neuronx_cc.neuron_compiler import find_compiler
from graphgen.lowering.neuronx_cc.program_plan import options_by_default
from graphgen.ops import verify
from graphgen.passes.equiv.equiv import equivalent
from graphgen.passes.weights.weight_layouts import Layout, apply_weight_layouts
from graphgen.targets import accelerator
from graphgen.text import parse, print_module
from tests.fake_compiler.fake_neuron import FakeNeuron


def ask(module: Module, output: Path, fake: FakeNeuron, *kept: str) -> dict[str, Layout]:
    device = accelerator("trn2", 2)
    options = options_by_default(Situation("", "trn2", 2, 16), device, {}, [])
    settings = DriverSettings(environment=fake.environment)
    compiler = find_compiler(environment=fake.environment)
    return dict(find_layouts(module, options, output, compiler, settings, kept))


def test_programs_read_the_layouts_that_are_asked_for(
    lowered: Module, tmp_path: Path, fake: FakeNeuron
):
    fake.order(layouts="mixed")
    module = parse(print_module(lowered))
    found = ask(module, tmp_path, fake)
    assert fake.calls == ["decode.b1.c8"], "the shortest step of a token"
    command = (tmp_path / "layouts" / "command.txt").read_text()
    assert "--enable-internal-neff-wrapper" in command
    forms = {tuple(step.op for step in layout) for layout in found.values()}
    assert forms == {("reshape", "transpose")}
    changed = {len(layout[0].values) for layout in found.values()}
    assert changed == {2, 3}
    renamed = apply_weight_layouts(module, found)
    verify(module)
    assert len(renamed) == len(found) > 7
    for function in module.programs():
        assert not {value.name for value in function.args} & {*found}
    # The same numbers from the same checkpoint, in a prefill and a decode program.
    compared = equivalent(lowered, module)
    assert compared.difference.relative == 0
    # Asked once: the answer is kept, until the weights that are free are others.
    assert ask(lowered, tmp_path, fake) == found
    assert len(fake.calls) == 1
    first = next(iter(found))
    kept = ask(lowered, tmp_path, fake, first)
    assert first not in kept
    assert len(fake.calls) == 2


def test_answers_that_are_none_are_errors(lowered: Module, tmp_path: Path, fake: FakeNeuron):
    with pytest.raises(GraphgenError, match=r"wrote no wrapped_neff\.hlo") as caught:
        ask(lowered, tmp_path, fake)
    assert caught.value.code == "GG1002"
    fake.order(layouts="odd")
    with pytest.raises(GraphgenError, match="has the op reverse, which is not") as caught:
        ask(lowered, tmp_path, fake)
    assert caught.value.code == "GG0801"
    fake.order({"how": "NCC_EBVF030"}, layouts="mixed")
    with pytest.raises(GraphgenError, match="1 of 1 programs did not compile"):
        ask(lowered, tmp_path, fake)
    with pytest.raises(GraphgenError, match="no weight is called lm_hat") as caught:
        ask(lowered, tmp_path, fake, "lm_hat*")
    assert caught.value.code == "GG0705"
