"""Calls, loops and choices in PyHLO: by numbers, and by XLA."""

# The scribe's language is one of attributes made up as it goes.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingParameterType=false, reportUnknownLambdaType=false

from __future__ import annotations

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.lowering.pyhlo import compile_py_func
from tests.lowering.pyhlo.test_pyhlo import both


def test_calls_of_one_function_share_it():
    def double(scribe):
        x = scribe.f32[3].Parameter(parameter_number=0)
        return scribe.f32[3].Add(x, x)

    def program(scribe):
        x = scribe.f32[3].Parameter(parameter_number=0)
        for _ in range(3):
            x = scribe.f32[3].Call(x, to_apply=double)
        return x

    compiled = compile_py_func(program)
    assert list(compiled.module.functions) == ["double", "program"]
    (found,) = both(compiled, np.array([1, 2, 3], np.float32))
    np.testing.assert_array_equal(found, [8, 16, 24])


def test_loops_and_choices():
    def below_ten(scribe):
        state = scribe.tuple(scribe.f32, scribe.s32).Parameter(parameter_number=0)
        count = scribe.s32.GetTupleElement(state, tuple_index=1)
        ten = scribe.s32.Constant(constant_value=10)
        return scribe.pred.Compare(count, ten, comparison_direction="LT")

    def step(scribe):
        shape = scribe.tuple(scribe.f32, scribe.s32)
        state = shape.Parameter(parameter_number=0)
        x = scribe.f32.GetTupleElement(state, tuple_index=0)
        count = scribe.s32.GetTupleElement(state, tuple_index=1)
        more = scribe.s32.Add(count, scribe.s32.Constant(constant_value=1))
        return shape.Tuple(scribe.f32.Add(x, x), more)

    def minus(scribe):
        return scribe.f32.Negate(scribe.f32.Parameter(parameter_number=0))

    def as_it_is(scribe):
        return scribe.f32.Copy(scribe.f32.Parameter(parameter_number=0))

    def program(scribe):
        x = scribe.f32.Parameter(parameter_number=0)
        start = scribe.s32.Parameter(parameter_number=1)
        shape = scribe.tuple(scribe.f32, scribe.s32)
        done = shape.While(shape.Tuple(x, start), condition=below_ten, body=step)
        value = scribe.f32.GetTupleElement(done, tuple_index=0)
        high = scribe.pred.Compare(
            value, scribe.f32.Constant(constant_value=100), comparison_direction="GT"
        )
        return scribe.f32.Conditional(
            high, value, x, true_computation=minus, false_computation=as_it_is
        )

    compiled = compile_py_func(program)
    for start, wanted in ((0, -1024.0), (9, 1.0)):
        found = both(compiled, np.float32(1), np.int32(start))
        assert float(found[0]) == wanted


def test_a_choice_by_number():
    def times(factor):
        def branch(scribe):
            x = scribe.f32[2].Parameter(parameter_number=0)
            number = scribe.f32.Constant(constant_value=factor)
            return scribe.f32[2].Multiply(x, scribe.f32[2].Broadcast(number, dimensions=[]))

        return branch

    def program(scribe):
        which = scribe.s32.Parameter(parameter_number=0)
        x, y = (scribe.f32[2].Parameter(parameter_number=i) for i in (1, 2))
        branches = [times(2.0), times(3.0), times(2.0)]
        return scribe.f32[2].Conditional(which, x, y, y, branch_computations=branches)

    compiled = compile_py_func(program)
    # The first and the last are the same function.
    assert list(compiled.module.functions) == ["branch", "branch.1", "program"]
    x, y = np.array([1, 2], np.float32), np.array([5, 7], np.float32)
    for which, wanted in ((0, 2 * x), (1, 3 * y), (2, 2 * y), (-1, 2 * y), (9, 2 * y)):
        (found,) = both(compiled, np.int32(which), x, y)
        np.testing.assert_array_equal(found, wanted)


def test_a_loop_whose_body_changes_the_state_is_refused():
    def step(scribe):
        return scribe.s32.Convert(scribe.f32.Parameter(parameter_number=0))

    def always(scribe):
        scribe.f32.Parameter(parameter_number=0)
        return scribe.pred.Constant(constant_value=True)

    def program(scribe):
        x = scribe.f32.Parameter(parameter_number=0)
        return scribe.f32.While(x, condition=always, body=step)

    with pytest.raises(GraphgenError, match=r"the body makes s32\[\] of f32\[\]"):
        compile_py_func(program)
