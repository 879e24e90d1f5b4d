"""Every pass is linear: twice the graph is about twice the work, counted in calls, not time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest

import graphgen.passes.pipelines  # noqa: F401
from graphgen.build import Builder
from graphgen.ir import Function, Module, Role, entry, tensor
from graphgen.ir.dtype import f32
from graphgen.ops import verify
from graphgen.passes.core import Pass, Rewriter
from graphgen.passes.core.registry import all_passes
from tests.oracles.pipeline_stages import our_passes

USERS, CHAIN = 10_000, 20_000
# Twice the graph may take this many times the calls; a quadratic pass takes four times as many.
MOST = 2.5
RANKS = ("partition", "gather-heads")
# on-device-sampling looks at outputs alone, and these graphs give no logits; unroll-steps copies
# decode programs that choose tokens; quantize-activations refuses graphs without narrow weights,
# fuse-speculation those without a draft, pipeline-stages those without layers.
OTHERS = (
    *("on-device-sampling", "unroll-steps", "quantize-activations", "fuse-speculation"),
    "pipeline-stages",
)
NAMES = [name for name in our_passes() if name not in OTHERS]


def empty(level: str) -> tuple[Module, Function, Builder]:
    module = Module("m", level, {"tp": 2} if level == "split" else {})
    module.level = "canonical" if level == "split" else level
    function = module.add(Function("decode", phase="decode"))
    type_ = tensor(f32, (2, 4))
    for role, name in ((Role.INPUT, "x"), (Role.WEIGHT, "w"), (Role.OUTPUT, "y")):
        module.interface[name] = entry(role, name, type_)
        if role is not Role.OUTPUT:
            function.block.add_arg(type_, name)
    return module, function, Builder(function)


def many_users(count: int, level: str) -> Module:
    """One value that ``count`` ops read, and their sum."""
    module, function, b = empty(level)
    x, w = function.args
    total = b.binary("add", x, w)
    for _ in range(count // 2):
        total = b.binary("add", total, b.binary("multiply", x, w))
    function.outputs = [("y", total)]
    return module


def chain(count: int, level: str) -> Module:
    """``count`` ops one after the other, half of them on the weight alone."""
    module, function, b = empty(level)
    x, w = function.args
    for _ in range(count // 4):
        w = b.unary("abs", b.unary("negate", w))
        x = b.unary("cosine", b.unary("sine", x))
    function.outputs = [("y", b.binary("add", x, w))]
    return module


def level_of(item: Pass) -> str:
    if item.name in RANKS:
        return "split"
    return next(level for level in ("canonical", "target", "sharded") if level in item.input_stages)


def calls(run: Callable[[], object]) -> int:
    """How many functions, Python's and C's, were called."""
    count = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("graph", [many_users, chain], ids=lambda graph: graph.__name__)
def test_twice_the_graph_is_twice_the_work(name: str, graph: Callable[[int, str], Module]):
    item = all_passes()[name]()

    def work(size: int) -> int:
        module = graph(size, level_of(item))
        return calls(lambda: item.run(module, Rewriter(name)))

    work(100)
    small, large = work(500), work(1000)
    assert large <= MOST * small + 1000


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.one_in(7)
def test_ten_thousand_users_and_a_chain_of_twenty_thousand(name: str):
    item = all_passes()[name]()
    for graph, size in ((many_users, USERS), (chain, CHAIN)):
        module = graph(size, level_of(item))
        item.run(module, Rewriter(name))
        module.level = item.output_stage or module.level
        verify(module)
