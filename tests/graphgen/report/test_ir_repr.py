"""What a user at a prompt sees: stable names, printing, evaluating, notebooks, networkx."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import graphgen as gg

ROOT = Path(__file__).resolve().parents[3]
GUIDE = ROOT / "docs" / "building-graphs.md"


@pytest.fixture
def module() -> gg.Module:
    module = gg.Module("m")
    function = module.add(gg.Function("f", phase="main"))
    with gg.Builder(function, module) as b:
        x = b.input("x", gg.dtype("f32"), (gg.symbol("B"), 4))
        b.output("y", b.tanh(x * x) + 1.0)
    return module


def test_the_names_are_those_of_the_guide():
    listed = re.findall(r"^\| `(\w+)` \|", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == sorted(gg.__all__, key=lambda name: (name.islower(), name))
    for name in gg.__all__:
        assert inspect.getdoc(getattr(gg, name)) or name == "Dim"
    assert set(gg.__all__) <= set(dir(gg))
    with pytest.raises(AttributeError, match="no attribute 'Bulider'"):
        getattr(gg, "Bulider")  # noqa: B009 (a name the type checker would refuse)


def test_importing_it_looks_nothing_up():
    program = "import sys, graphgen; print(*sorted(m for m in sys.modules if m[:8] == 'graphgen'))"
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "graphgen graphgen.version\n"


def test_printing(module: gg.Module):
    function = module.function("f")
    assert str(module) == gg.print_module(module).rstrip()
    assert str(function) == gg.print_function(function).rstrip()
    lines = str(function).splitlines()
    assert str(function.args[0]) == "arg %x : f32[B,4]" == lines[1].strip()
    for op, line in zip(function.ops, lines[2:], strict=False):
        assert str(op) == line.strip() == str(op.results[0])
    assert repr(function) == "<func @f: 1 args, 5 ops>"
    first = function.block.first
    assert first is not None
    assert repr(first).startswith("<multiply f32[B,4] at ")


def test_notebooks_show_tables(module: gg.Module):
    function = module.function("f")
    page = module._repr_html_()
    assert page.count("<table>") == 1
    assert page.count("<tr>") == 1 + function.block.size + 1
    assert "<code>%1 = tanh(%0) : f32[B,4]</code>" in page
    assert function.args[0]._repr_html_() == "<code>arg %x : f32[B,4]</code>"
    function.args[0].name = "<x>"
    assert "<x>" not in function._repr_html_()


def test_a_long_function_is_cut(module: gg.Module):
    function = module.function("f")
    with gg.Builder(function) as b:
        value = function.outputs[0][1]
        for _ in range(300):
            value = b.negate(value)
    page = function._repr_html_()
    assert page.count("<tr>") == 201
    assert "and 107 lines more" in page


def test_evaluating_binds_the_sizes(module: gg.Module):
    x = np.arange(8).reshape(2, 4) / 4
    wanted = np.tanh(x * x) + 1
    for found in (module.evaluate(x=x), module.function("f").evaluate({"x": x.tolist()})):
        np.testing.assert_allclose(np.asarray(found["y"]), wanted, rtol=1e-6)
    assert module.function("f").block.args[0].type.text == "f32[B,4]"


def test_evaluating_takes_calls_along():
    text = """\
module @m level=logical {
}

func @inner {
  arg %x : f32[B,4]
  %y = tanh(%x) : f32[B,4]
  return y = %y
}

func @outer {
  arg %x : f32[B,4]
  %y = call(%x) to_apply=inner results=[f32[B,4]] : f32[B,4]
  return y = %y
}
"""
    module = gg.parse(text)
    found = module.evaluate(x=[[0, 0, 0, 0]], program="outer")
    assert found["y"].tolist() == [[0, 0, 0, 0]]
    with pytest.raises(gg.GraphgenError) as caught:
        module.evaluate(x=[[0, 0, 0, 0]])
    assert caught.value.help == "program= one of: inner, outer"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "@f needs the input %x f32[B,4]"),
        ({"z": 1}, "@f has no input %z"),
        ({"x": [[1, 2]]}, "@f: input %x is [1, 2], not f32[1,4]"),
        ({"x": "much"}, "%x is not an array of numbers: could not convert string to float"),
        ({"x": [[1], [2, 3]]}, "%x is not an array of numbers: setting an array element"),
    ],
)
def test_inputs_that_do_not_fit_are_named(
    module: gg.Module, given: dict[str, object], message: str
):
    with pytest.raises(gg.GraphgenError) as caught:
        module.evaluate(given)
    assert caught.value.code == "GG0402"
    assert caught.value.what.startswith(message)


def test_two_sizes_of_one_symbol_are_named():
    module = gg.Module("m")
    with gg.Builder(module.add(gg.Function("f", phase="main")), module) as b:
        sizes = (gg.symbol("B"),)
        x, y = (b.input(name, gg.dtype("f32"), sizes) for name in "xy")
        b.output("z", x + y)
    with pytest.raises(gg.GraphgenError, match="B is 2 in %x and 3 in %y"):
        module.evaluate(x=[1, 2], y=[1, 2, 3])


def test_networkx_has_every_operand(module: gg.Module):
    import networkx

    function = module.function("f")
    graph = gg.to_networkx(function)
    assert list(graph.nodes) == ["%x", "%0", "%1", "%2", "%3", "%4", "return y"]
    assert graph.number_of_edges("%x", "%0") == 2
    assert sorted(slot for _, _, slot in graph.edges("%x", data="slot")) == [0, 1]
    assert networkx.dag_longest_path_length(networkx.DiGraph(graph), weight="none") == 4
    assert graph.nodes["%1"]["op"] == "tanh"
    assert graph.nodes["%1"]["type"] == "f32[B,4]"
