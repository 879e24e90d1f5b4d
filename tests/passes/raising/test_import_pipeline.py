"""Prefill and decode of a model from elsewhere: one module, any size, the numbers of JAX."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.exec.session import ProgramCall, Runner, Workload
from graphgen.ir import Module, Role
from graphgen.ir.clone import clone_module
from graphgen.lowering.import_programs import ImportOptions, import_programs, joined, prepare
from graphgen.lowering.stablehlo.read import read_stablehlo
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import parse as pipeline
from graphgen.passes.raising.merge_programs import join
from graphgen.passes.raising.rename_interface import keep_states
from graphgen.passes.raising.symbolize_shapes import lift_sizes
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import make_workload
from graphgen.text import parse, print_module
from tests.oracles import jax_llama_cached as cached
from tests.oracles.jax_llama import parameters
from tests.passes.raising.test_raise_composites import split

NAMED = ImportOptions(["params.*"], ["cache.*=result.1.*"], ["result.0=logits"], raising=True)
SOURCES = [f"{phase}=tests.oracles.jax_llama_cached:{phase}" for phase in ("prefill", "decode")]
SIZES = {"B": 3, "S": 6, "M": 12}
BUCKETS = "specialize{batch=[3],context=[8],tokens=[16]},"


@cache
def model(*, symbolic: bool) -> Module:
    found = import_programs(SOURCES, NAMED, SIZES if symbolic else {})
    return join(found)


def script(rows: int, width: int, slots: int) -> Workload:
    """A ragged prefill of 6, 4 and 2 tokens, padded to ``width``, and three steps."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(parameters())
    weights = {
        re.sub(r"[^\w.\-]+", ".", "params" + jax.tree_util.keystr(path)).strip("."): leaf
        for path, leaf in leaves
    }
    dims = {"B": rows, "M": slots, "R": rows}
    tokens, lengths = cached.prefill_arguments("positions")
    wide = np.pad(tokens, ((0, 0), (0, width - tokens.shape[1])))
    first = {"S": width, "C": width}
    calls = [ProgramCall("prefill", {**dims, **first}, {"tokens": wide, "lengths": lengths})]
    for step in range(3):
        tokens, lengths = cached.decode_arguments("positions", step)
        given = {"tokens": tokens, "lengths": lengths}
        calls.append(ProgramCall("decode", {**dims, "S": 1, "C": slots}, given))
    return Workload(weights, tuple(calls), dims)


@cache
def wanted() -> tuple[np.ndarray, ...]:
    """Logits of each call by JAX."""
    params, kept = parameters(), jax.tree.map(jnp.asarray, cached.empty_cache("positions"))
    given = cached.prefill_arguments("positions")
    logits, kept = cached.positions_prefill(params, kept, *map(jnp.asarray, given))
    found = [np.asarray(logits)]
    for step in range(3):
        given = cached.decode_arguments("positions", step)
        logits, kept = cached.positions_decode(params, kept, *map(jnp.asarray, given))
        found.append(np.asarray(logits))
    return tuple(found)


def logits_of(module: Module, calls: Workload) -> list[np.ndarray]:
    return [outcome["logits"] for outcome in Runner(module, calls).outcomes()]


def test_programs_share_weights_and_states():
    module = model(symbolic=False)
    assert [(f.name, f.phase, f.dims) for f in module.programs()] == [
        ("prefill", "prefill", {"S": 6}),
        ("decode", "decode", {"S": 1}),
    ]
    assert module.interface["tokens"].logical.text == "s32[3,S]"
    counts = {role: len(module.entries(role)) for role in (Role.WEIGHT, Role.STATE, Role.OUTPUT)}
    assert counts == {Role.WEIGHT: 21, Role.STATE: 4, Role.OUTPUT: 1}
    assert print_module(parse(print_module(module))) == print_module(module)


def test_a_prefill_and_three_steps_give_the_numbers_of_jax():
    for found, logits in zip(
        logits_of(model(symbolic=False), script(3, 6, 12)), wanted(), strict=True
    ):
        np.testing.assert_allclose(found, logits, rtol=1e-4, atol=1e-5)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("tp", [1, 2, 3, 4])
def test_buckets_and_ranks_give_the_numbers_of_jax(tp: int):
    module = clone_module(model(symbolic=True))
    first = split(tp) if tp > 1 else ""
    run_pipeline(
        module, pipeline(f"{BUCKETS}{first}cse,fuse-projections,lift-weights,legalize,cse,dce")
    )
    assert [f.name for f in module.programs()] == ["prefill.b3.s8", "decode.b3.c16"]
    for found, logits in zip(logits_of(module, script(3, 8, 16)), wanted(), strict=True):
        np.testing.assert_allclose(found, logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tp", [1, 2])
def test_tokens_are_chosen_on_the_device(tp: int):
    module = clone_module(model(symbolic=True))
    first = split(tp) if tp > 1 else ""
    run_pipeline(module, pipeline(f"{BUCKETS}on-device-sampling,{first}lift-weights,legalize"))
    outcomes = Runner(module, script(3, 8, 16)).outcomes()
    for outcome, logits in zip(outcomes, wanted(), strict=True):
        np.testing.assert_array_equal(outcome["next_tokens"], logits.argmax(-1))


def test_weights_are_quantized():
    module = clone_module(model(symbolic=True))
    passes = f"quantize-weights{{skip=[]}},{BUCKETS}cse,lift-weights,legalize"
    run_pipeline(module, pipeline(passes))
    assert sum("s8[" in row.physical.text for row in module.entries(Role.PARAM)) >= 14
    for found, logits in zip(logits_of(module, script(3, 8, 16)), wanted(), strict=True):
        np.testing.assert_allclose(found, logits, atol=0.05 * np.abs(logits).max())


def test_every_pass_is_checked_on_symbols():
    module = model(symbolic=True)
    passes = pipeline("cse,fuse-projections,simplify-shape,dce")
    verdicts = validate(clone_module(module), passes, make_workload(module, seed=5))
    assert [v.pass_text for v in verdicts if not v.ok] == []


@pytest.mark.parametrize(
    "style",
    [*(pytest.param(s, marks=pytest.mark.slow) for s in ("sliced", "heads_first")), "mapped"],
)
def test_other_styles_become_symbolic_and_split(style: str):
    found: list[tuple[str, Module]] = []
    second = {"B": 5, "S": 7, "M": 13}
    for phase in ("prefill", "decode"):
        pair = [_raised(style, phase, sizes) for sizes in (SIZES, second)]
        lift_sizes(pair[0], SIZES, pair[1], second)
        found.append((phase, pair[0]))
    module = join(found)
    passes = pipeline(f"{BUCKETS}{split(4)}cse,lift-weights,legalize,cse,dce")
    run_pipeline(module, passes)
    calls = _calls(style)
    params, kept = jax.tree.map(jnp.asarray, (parameters(), cached.empty_cache(style, M=16)))
    for outcome, call in zip(Runner(module, calls).outcomes(), calls.calls, strict=True):
        function = cached.STYLES[style][call.phase == "decode"]
        logits, kept = function(params, kept, *map(jnp.asarray, call.inputs.values()))
        np.testing.assert_allclose(outcome["result.0"], logits, rtol=1e-4, atol=1e-5)


def _raised(style: str, phase: str, sizes: Mapping[str, int]) -> Module:
    lowered = cached.lowered(style, phase, B=sizes["B"], S=sizes["S"], M=sizes["M"])
    module = read_stablehlo(lowered.as_text(debug_info=True))
    prepare([(phase, module)], ImportOptions(["params.*"], [], [], raising=True))
    return module


def _calls(style: str) -> Workload:
    """A prefill of 8 tokens a row and three steps, in the arguments of a style."""
    base = script(3, 8, 16)
    first = cached.prefill_arguments(style, S=8)
    steps = [cached.decode_arguments(style, step, S=8) for step in range(3)]
    names = ("tokens", "start" if style == "sliced" else "positions")
    calls = [
        ProgramCall(call.phase, call.dims, dict(zip(names, map(np.asarray, given), strict=False)))
        for call, given in zip(base.calls, [first, *steps], strict=True)
    ]
    return Workload(base.weights, tuple(calls), base.dims)


# ---- what is refused -----------------------------------------------------------------------------


def lower(function: Any, *shapes: tuple[int, ...]) -> Module:
    args = [np.ones(shape, np.float32) for shape in shapes]
    return read_stablehlo(jax.jit(function).lower(*args).as_text(debug_info=True))


def test_a_literal_has_one_size_only():
    numbers = np.linspace(0, 1, 7, dtype=np.float32)
    with pytest.raises(GraphgenError, match="has one size only") as error:
        lift_sizes(lower(lambda x: x * numbers, (3, 7)), {"S": 7})
    assert error.value.code == "GG0304"


def test_an_integer_that_may_be_a_size_needs_a_second_trace():
    def shifted(x: Any) -> Any:
        return x + jnp.arange(x.shape[1]) * x.shape[1]

    module = lower(shifted, (3, 7))
    with pytest.raises(GraphgenError, match="it may be the size S, or a number of its own"):
        lift_sizes(clone_module(module), {"S": 7})
    lift_sizes(module, {"S": 7}, lower(shifted, (3, 9)), {"S": 9})
    x = np.zeros((3, 5), np.float32)
    found = module.evaluate({"x": x})["result"]
    np.testing.assert_array_equal(np.asarray(found), np.asarray(shifted(jnp.asarray(x))))


def test_two_traces_have_to_be_one_program():
    def by_size(x: Any) -> Any:
        return x * 2 if x.shape[1] > 8 else jnp.exp(x)

    with pytest.raises(GraphgenError, match="another program"):
        lift_sizes(lower(by_size, (3, 7)), {"S": 7}, lower(by_size, (3, 9)), {"S": 9})


def test_the_end_of_a_row_stays_the_end():
    module = lower(lambda x: x[:, -1], (3, 7))
    lift_sizes(module, {"S": 7})
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(np.asarray(module.evaluate({"x": x})["result"]), x[:, -1])


def test_programs_that_disagree_are_refused():
    ours = lower(lambda x: x + 1, (3, 7))
    with pytest.raises(GraphgenError, match=r"x is the input f32\[3,7\] of prefill and"):
        join([("prefill", ours), ("decode", lower(lambda x: x + 1, (3,)))])
    with pytest.raises(GraphgenError, match="says no phase"):
        join([("prefill", lower(lambda x: x, (3,))), ("other", lower(lambda x: x, (3,)))])


def test_a_state_of_another_type_is_refused():
    module = lower(lambda x: (x[0], x + 1), (3, 7))
    with pytest.raises(GraphgenError, match="comes back as"):
        keep_states(module, {"x": "result.0"})
    keep_states(module, {"x": "result.1"})
    assert [row.name for row in module.entries(Role.STATE)] == ["x"]


def test_one_program_may_have_a_name(tmp_path: Path):
    path = tmp_path / "x=1.mlir"
    path.write_text(
        "func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> { return %x : tensor<3xf32> }"
    )
    wanted = ImportOptions([], [], [], raising=True)
    for source, name in ((f"main={path}", "main"), (f"chunk={path}", "chunk"), (f"{path}", "main")):
        (program,) = joined(import_programs([source], wanted, {})).programs()
        assert (program.name, program.phase) == (name, "main")
