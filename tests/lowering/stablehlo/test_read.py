"""StableHLO read back: what our emitter writes, in every form MLIR has for it."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax._src.interpreters import mlir as jax_mlir
from jax._src.lib.mlir import ir as mlir  # pyright: ignore[reportPrivateImportUsage]

from graphgen.config.compile_config import CompileConfig
from graphgen.eval import evaluate, evaluate_ranks
from graphgen.ir import Function, Module, Role, dtype
from graphgen.lowering.stablehlo import emit_stablehlo, read_stablehlo
from graphgen.models import build, known_shape
from graphgen.ops.control import callees
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
from graphgen.text import parse, print_module
from tests.oracles.minis import MINI_RANKS
from tests.oracles.op_samples import BY_OP, inputs, program
from tests.oracles.structure import structure
from tests.passes import test_random_graphs as random_graphs

# Ops that StableHLO has no one op for: what they are written as comes back.
SEVERAL = {"take"}


def generic(text: str) -> str:
    """The same module as jaxlib's MLIR prints it in the generic form."""
    with jax_mlir.make_ir_context():
        operation = mlir.Module.parse(text).operation
        return str(operation.get_asm(print_generic_op_form=True, enable_debug_info=True))


def pretty(text: str) -> str:
    """The same module as jaxlib's MLIR prints it in the short forms."""
    with jax_mlir.make_ir_context():
        operation = mlir.Module.parse(text).operation
        return str(operation.get_asm(enable_debug_info=True))


def main(text: str) -> Function:
    return read_stablehlo(text).function("main")


def came_back(function: Function, read: Module) -> Function:
    """The function that was read, which must be the one that was written."""
    found = read.function("main")
    if any(op.name in SEVERAL for op in function.block):
        assert structure(main(emit_stablehlo(read, found))) == structure(found)
    else:
        assert structure(found) == structure(function)
    return found


def lowered(name: str, kind: str, tp: int) -> Module:
    module = build(known_shape(name), dtype(kind), mini=True)
    run_pipeline(module, default(CompileConfig(batch=(1, 2), context=(8,), tokens=(16,), tp=tp)))
    return module


@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize(("name", "tp"), MINI_RANKS)
@pytest.mark.one_in(30)
def test_programs_of_models_come_back(name: str, tp: int, kind: str):
    module = lowered(name, kind, tp)
    for function in module.programs():
        text = emit_stablehlo(module, function)
        read = read_stablehlo(text)
        (found,) = read.programs()
        assert structure(found, read) == structure(function, module)
        assert read.ranks == tp
        again = emit_stablehlo(read, found)
        if any(callees(op) for op in function.ops):
            # Loops that shared a body have one each, with another name.
            module_again = read_stablehlo(again)
            (last,) = module_again.programs()
            assert structure(last, module_again) == structure(function, module)
        else:
            # Names, states and locations too: it is written as it was.
            assert again == text


@pytest.mark.parametrize("tp", [1, 2])
def test_programs_of_models_give_the_same_numbers(tp: int):
    module = lowered("llama-3.1-8b", "bf16", tp)
    for function in module.programs():
        given = [random_graphs.inputs(function, seed) for seed in range(tp)]
        wanted = evaluate_ranks(function, given)
        for form in (str, generic, pretty):
            found = main(form(emit_stablehlo(module, function)))
            # MLIR has names of its own for arguments.
            names = {v.name: w.name for v, w in zip(found.args, function.args, strict=True)}
            renamed = [{str(k): one[str(names[k])] for k in names} for one in given]
            for ours, theirs in zip(evaluate_ranks(found, renamed), wanted, strict=True):
                for array, other in zip(ours.values(), theirs.values(), strict=True):
                    assert array.tobytes() == other.tobytes()


@pytest.mark.parametrize("form", [str, generic, pretty], ids=["ours", "generic", "pretty"])
@pytest.mark.parametrize("op", BY_OP)
def test_every_op_comes_back_from_every_form(op: str, form: type[str]):
    samples = BY_OP[op]
    module = program(samples)
    function = module.function("f")
    found = came_back(function, read_stablehlo(form(emit_stablehlo(module, function))))
    given = inputs(samples)
    names = {v.name: w.name for v, w in zip(found.args, function.args, strict=True)}
    ours = evaluate(found, {str(k): given[str(v)] for k, v in names.items()})
    wanted = evaluate(function, given)
    for array, other in zip(ours.values(), wanted.values(), strict=True):
        assert array.tobytes() == other.tobytes()


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(random=st.randoms(use_true_random=False), seed=st.integers(0, 99))
def test_random_graphs_come_back(random: Random, seed: int):
    grower = random_graphs.Grower(random)
    grower.grow()
    module, function = grower.module, grower.function
    text = emit_stablehlo(module, function)
    read = read_stablehlo(text)
    found = came_back(function, read)
    given_ = random_graphs.inputs(function, seed)
    random_graphs.assert_same(evaluate(found, given_), evaluate(function, given_), 0.0)
    came_back(function, read_stablehlo(generic(text)))
    # And as text of ours.
    again = print_module(read)
    assert print_module(parse(again)) == again


def test_names_states_and_places_are_kept():
    module = lowered("llama-3.1-8b", "bf16", 1)
    function = module.programs()[-1]
    read = read_stablehlo(emit_stablehlo(module, function), "m.mlir")
    (found,) = read.programs()
    assert [value.name for value in found.args] == [value.name for value in function.args]
    assert [name for name, _ in found.outputs] == [name for name, _ in function.outputs]
    states = [row.name for row in module.entries(Role.STATE)]
    assert [row.name for row in read.entries(Role.STATE)] == states
    assert [op.loc for op in found.block] == [op.loc for op in function.block]


def test_the_argument_that_tells_the_rank_is_none_of_the_interface():
    module = lowered("llama-3.1-8b", "f32", 2)
    read = read_stablehlo(emit_stablehlo(module, module.programs()[0]))
    assert read.level == "sharded"
    assert "rank" not in read.interface
    assert read.programs()[0].arg("rank") is not None


def test_without_locations_an_op_is_where_the_text_has_it():
    module = program(BY_OP["add"][:1])
    text = emit_stablehlo(module, module.function("f"), locs=False)
    (op,) = read_stablehlo(text, "a.mlir").function("main").block
    line = next(i for i, line in enumerate(text.split("\n"), 1) if "stablehlo.add" in line)
    assert (op.loc.file, op.loc.line, op.loc.scope) == ("a.mlir", line, "")
