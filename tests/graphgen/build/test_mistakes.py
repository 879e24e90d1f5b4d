"""What people who build graphs get wrong, and what they read: the line, what, what next."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import graphgen as gg
from graphgen.errors import GraphgenError

SETUP = """\
module = gg.Module("m")
function = module.add(gg.Function("main", phase="main"))
other = gg.Module("other")
with gg.Builder(other.add(gg.Function("elsewhere", phase="main")), other) as b:
    foreign = b.input("foreign", F32, (B, 4))
with gg.Builder(function, module) as b:
    x = b.input("x", F32, (B, 4))
    w = b.weight("w", F32, (3, 5))
    ids = b.input("ids", S32, (B,))
    half = b.input("half", gg.dtype("bf16"), (B, 4))
    s = b.input("s", F32, (gg.symbol("S"), 4))
    """

# On a line of its own after the declarations, inside the builder.
BUILDING = {
    "shapes that do not contract": "b.dot(x, w)",
    "two element types": "x + half",
    "two shapes": "x + w",
    "two ranks": "x + b.reshape(x, (B * 4,))",
    "two symbols": "x + s",
    "an op that is none": "b.op('sofmax', x)",
    "an op nearly right": "b.op('multipy', x, x)",
    "an array to the right": "x * np.ones(4, np.float32)",
    "an array to the left": "np.ones(4, np.float32) * x",
    "a list": "x + [1, 2, 3, 4]",
    "nothing": "x - None",
    "a text": "x * '2'",
    "half of an integer": "ids * 0.5",
    "a number for a value": "b.dot(x, 3)",
    "an array for a value": "b.dot(x, np.ones((3, 4)))",
    "a comparison by Python": "b.select(x == 0, x, x)",
    "a value of another function": "b.exponential(foreign)",
    "a value of another function, by operator": "x + foreign",
    "an output of another function": "b.output('y', foreign)",
    "an output that is none": "b.output('y', None)",
    "an output back to front": "b.output(x, 'y')",
    "two outputs of a name": "b.output('y', x), b.output('y', w)",
    "an output called like an input": "b.output('x', x)",
    "a weight called like an input": "b.weight('x', F32, (3, 5))",
    "a weight of another shape": "b.weight('w', F32, (9, 9))",
    "an element type by name": "b.input('z', 'f32', (B, 4))",
    "an element type of NumPy": "b.input('z', np.float32, (B, 4))",
    "a symbol by name": "b.input('z', F32, ('B', 4))",
    "a size that is no integer": "b.input('z', F32, (4.0,))",
    "a size below zero": "b.reshape(x, (-1, 3))",
    "a size for a shape": "b.input('z', F32, 4)",
    "a name of two words": "b.input('a b', F32, (4,))",
    "dimensions that do not exist": "b.reduce(x, [-1], 'add')",
    "one dimension for several": "b.reduce(x, 1, 'add')",
    "a kind that is none": "b.reduce(x, [1], 'sum')",
    "a direction that is none": "b.compare(x, x, '>')",
    "a conversion by name": "b.convert(x, 'bf16')",
    "an attribute that is none": "b.op('reduce', x, dims=[1], kind='add')",
    "an attribute that is missing": "b.op('reduce', x, dimensions=[1])",
    "an operand too many": "b.op('negate', x, x)",
    "a lookup the wrong way round": "b.embedding(ids, w)",
    "positions that are no integers": "b.embedding(w, x)",
    "one value for several": "b.concatenate(x, 0)",
    "another number of elements": "b.reshape(x, (B, 5))",
    "a slice beyond the end": "b.slice_dim(x, 1, 0, 9)",
    "a number the type cannot hold": "b.full(300, gg.tensor(gg.dtype('s8'), ()))",
    "an element type for a type": "b.full(1.0, F32)",
    "no module": "gg.Builder(gg.Function('f')).input('x', F32, (4,))",
}

X, W, IDS = np.ones((2, 4), np.float32), np.ones((3, 4), np.float32), np.zeros(2, np.int32)
# What is given to evaluate, beside what is right for the other inputs.
EVALUATING = {
    "an input is missing": "module.evaluate(x=X, ids=IDS)",
    "an input is misspelled": "module.evaluate(x=X, w=W, ids=IDS, idx=IDS)",
    "another rank": "module.evaluate(x=X[0], w=W, ids=IDS)",
    "another size": "module.evaluate(x=X, w=W[:, :3], ids=IDS)",
    "two sizes of a symbol": "module.evaluate(x=X, w=W, ids=[0, 1, 2])",
    "a part of one for an integer": "module.evaluate(x=X, w=W, ids=[0.5, 1])",
    "too large for an integer": "module.evaluate(x=X, w=W, ids=[2**40, 1])",
    "too large for a float": "module.evaluate(x=X * 1.0, w=W * np.float64(1e60), ids=IDS)",
    "complex numbers": "module.evaluate(x=X * 1j, w=W, ids=IDS)",
    "None": "module.evaluate(x=None, w=W, ids=IDS)",
    "objects": "module.evaluate(x=[[object()] * 4] * 2, w=W, ids=IDS)",
    "rows of different lengths": "module.evaluate(x=[[1], [2, 3]], w=W, ids=IDS)",
    "a tensor that wants its gradient": "module.evaluate(x=torch.ones(2, 4, requires_grad=True), "
    "w=W, ids=IDS)",
    "a value of the graph": "module.evaluate(x=module.function('main').args[0], w=W, ids=IDS)",
    "a program that is none": "module.evaluate(x=X, program='mian')",
    "text that is a file's name": "gg.parse('model.gg')",
    "passes that are text": "run_pipeline(module, 'dce')",
    "an axis the mesh has not": "module.mesh['dp'] = 2; annotate(module, {'w': '{tp,-}'})",
    "operators after the builder": "function_value + function_value",
    "a dtype of NumPy": "gg.dtype('int64')",
    "a dtype of torch": "gg.dtype('torch.bfloat16')",
    "a dtype in capitals": "gg.dtype('F32')",
    "a dtype of nobody": "gg.dtype('f31')",
}


def names() -> dict[str, object]:
    from graphgen.passes.core import run_pipeline
    from graphgen.passes.sharding.layout_rules import annotate

    scope: dict[str, object] = {
        "gg": gg, "np": np, "F32": gg.dtype("f32"), "S32": gg.dtype("s32"), "B": gg.symbol("B"),
        "X": X, "W": W, "IDS": IDS, "run_pipeline": run_pipeline, "annotate": annotate,
    }  # fmt: skip
    return scope


def read(code: str, scope: dict[str, object]) -> str:
    """What the code ends with, as if it stood in ``model.py``."""
    with pytest.raises(GraphgenError) as caught:
        exec(compile(code, "model.py", "exec"), scope)
    return str(caught.value)


def test_mistakes_of_building(golden: Callable[[str, str], None]):
    line = SETUP.count("\n") + 1
    texts: list[str] = []
    for what, code in BUILDING.items():
        found = read(SETUP + code, names())
        assert f"--> model.py:{line}" in found, (what, found)
        texts.append(f"--- {what}\n{code}\n{found}\n")
    golden("graphgen/building_mistakes.txt", "\n".join(texts))


def simple() -> gg.Module:
    module = gg.Module("m")
    with gg.Builder(module.add(gg.Function("main", phase="main")), module) as b:
        x = b.input("x", gg.dtype("f32"), (gg.symbol("B"), 4))
        ids = b.input("ids", gg.dtype("s32"), (gg.symbol("B"),))
        b.output("y", b.dot(x, b.weight("w", gg.dtype("f32"), (3, 4))))
        b.output("i", ids)
    return module


def test_mistakes_of_running(golden: Callable[[str, str], None]):
    import torch

    module = simple()
    scope = names() | {"module": module, "torch": torch}
    scope["function_value"] = module.function("main").args[0]
    texts = [
        f"--- {what}\n{code}\n{read(code, dict(scope))}\n" for what, code in EVALUATING.items()
    ]
    golden("graphgen/running_mistakes.txt", "\n".join(texts))


@pytest.mark.parametrize(
    "x",
    [
        X.tolist(),
        X.astype(np.float64),
        X.astype(np.int64),
        np.ones((4, 2), np.float32).T,
        np.ones((4, 4), np.float32)[::2],
        np.ones((2, 8), np.float32)[:, ::-2],
    ],
    ids=["lists", "f64", "integers", "transposed", "every second", "backwards"],
)
def test_what_is_taken_as_it_is_meant(x: object):
    found = simple().evaluate(x=x, w=W, ids=np.array([0.0, 1.0]))
    np.testing.assert_array_equal(np.asarray(found["y"]), np.full((2, 3), 4, np.float32))
    assert np.asarray(found["i"]).tolist() == [0, 1]


@pytest.mark.parametrize("number", [np.float64(2), np.float32(2), np.int64(2), 2, 2.0])
def test_numbers_of_numpy_are_numbers(number: float):
    module = gg.Module("m")
    with gg.Builder(module.add(gg.Function("main", phase="main")), module) as b:
        x = b.input("x", gg.dtype("f32"), (np.int64(2),))  # pyright: ignore[reportArgumentType]
        b.output("y", number * x + x * number)
    assert np.asarray(module.evaluate(x=[1, 3])["y"]).tolist() == [4, 12]
    text = gg.print_module(module)
    assert "f32[2]" in text
    assert gg.print_module(gg.parse(text)) == text
