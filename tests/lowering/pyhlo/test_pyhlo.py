"""PyHLO as transformers-neuronx writes it: its ops by numbers, its mistakes by line."""

# The scribe's language is one of attributes made up as it goes.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingParameterType=false, reportUnknownLambdaType=false

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.random import threefry_2x32

from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.lowering.cpu import compile_program
from graphgen.lowering.pyhlo import Compiled, compile_py_func
from graphgen.lowering.pyhlo.dialect import BY_NAME
from graphgen.passes.core import run_pipeline
from graphgen.passes.legalize.legalize import Legalize
from tests.oracles import xla_hlo

pytestmark = pytest.mark.usefixtures("optimized_code")

# The ops that transformers-neuronx uses.
NAMES = """
Parameter Constant Broadcast Reshape Add Multiply Subtract Divide Maximum Minimum Remainder
And Or Abs Exp Log Sqrt Rsqrt Sin Cos Tanh Floor Logistic Not Convert Compare Select Clamp
Iota Dot Transpose Concatenate Slice DynamicSlice DynamicUpdateSlice Pad Reverse Gather
Scatter Reduce ReduceWindow Sort BatchNormTraining Rng GetTupleElement Tuple AllReduce
AllGather ReduceScatter AllToAll ReplicaId CustomCall
"""
USED = NAMES.split()

random = np.random.default_rng(0)


def both(compiled: Compiled, *given: Any) -> list[Array]:
    """What NumPy makes of the module, after XLA has made the same of the proto."""
    arrays = [np.asarray(item) for item in given]
    proto = compiled.module_proto.SerializeToString()
    (theirs,) = xla_hlo.run(proto, [arrays])
    names = [value.name or "" for value in compiled.program.args]
    ours = compiled.module.evaluate(dict(zip(names, arrays, strict=True)))
    for one, other in zip(ours.values(), theirs, strict=True):
        np.testing.assert_allclose(np.asarray(one), other, rtol=1e-5, atol=1e-6)
    return list(theirs)


def floats(*shape: int) -> Any:
    return random.standard_normal(shape).astype(np.float32)


def test_every_op_of_the_original_is_there():
    assert len(USED) == 52
    assert set(USED) <= set(BY_NAME)


class LmHeadHlo:
    """As the developer guide of transformers-neuronx has it."""

    def __init__(self, n_active_tokens: int, batch_size: int) -> None:
        self.hidden_size, self.vocab_size = 8, 12
        self.n_active_tokens, self.batch_size = n_active_tokens, batch_size

    def lm_head(self, scribe: Any) -> Any:
        dtype = scribe.f32
        hidden_size = self.hidden_size
        n_active_tokens = self.n_active_tokens
        batch_size = self.batch_size
        vocab_size = self.vocab_size
        hidden = dtype[hidden_size, n_active_tokens, batch_size].Parameter(parameter_number=0)
        weight = dtype[hidden_size, vocab_size].Parameter(parameter_number=1)
        rhs_size = n_active_tokens * batch_size
        hidden = dtype[hidden_size, rhs_size].Reshape(hidden)
        dot_dims = {"lhs_contracting_dimensions": [0], "rhs_contracting_dimensions": [0]}
        logits = dtype[vocab_size, rhs_size].Dot(weight, hidden, dot_dimension_numbers=dot_dims)
        return dtype[vocab_size, n_active_tokens, batch_size].Reshape(logits)


def test_the_language_model_head():
    compiled = compile_py_func(LmHeadHlo(3, 2).lm_head)
    assert compiled.module.name == compiled.module_proto.name == "LmHead.3"
    hidden, weight = floats(8, 3, 2), floats(8, 12)
    (logits,) = both(compiled, hidden, weight)
    np.testing.assert_allclose(logits, np.einsum("hv,hnb->vnb", weight, hidden), atol=1e-5)
    places = {(op.loc.file, op.loc.line) for op in compiled.program.ops}
    first = inspect.getsourcelines(LmHeadHlo.lm_head)[1]
    assert {line - first for _, line in places} == {9, 11, 12}


def line_of(function: Callable[..., Any], words: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if words in line)


def test_a_wrong_shape_is_an_error_at_its_line():
    def program(scribe):
        x = scribe.f32[3].Parameter(parameter_number=0)
        return scribe.f32[7, 9].Negate(x)

    with pytest.raises(GraphgenError) as caught:
        compile_py_func(program)
    error = caught.value
    assert error.code == "GG0203"
    assert error.what == "Negate states f32[7,9], but its operands give f32[3]"
    assert error.where.endswith(f"test_pyhlo.py:{line_of(program, 'Negate')}")
    assert error.note == "f32[7,9].Negate(f32[3])"


@pytest.mark.parametrize(
    ("code", "wrong", "message"),
    [
        ("GG0105", lambda s, x: s.f32[7, 9].Reshape(x), "reshape: f32[3] has 3 elements"),
        ("GG0103", lambda s, x: s.f32[3].Sigmoid(x), "PyHLO has no op 'Sigmoid'"),
        ("GG0104", lambda s, x: s.f32[3].Add(x, x, axis=1), "Add has no attribute 'axis' here"),
        ("GG0105", lambda s, x: s.f32[3].Add(x), "Add takes 2 operands, got 1"),
        ("GG0105", lambda s, x: s.f32[3].Add(x, 1.0), "Add: 1.0 is not a value"),
        ("GG0104", lambda s, x: s.f32[3].Compare(x, x), "Compare needs the attribute"),
        ("GG0705", lambda s, x: s.f32.Parameter(parameter_number=2), "parameter 2 is made where"),
        ("GG0105", lambda s, x: s.f32[3, 2].Broadcast(x, dimensions=[1]), "Broadcast: size 3"),
        ("GG0203", lambda s, x: s.bf16[3].Exp(x), "Exp states bf16[3], but its operands give"),
        ("GG0101", lambda s, x: s.float32[3].Exp(x), "unknown dtype 'float32'"),
        ("GG0104", lambda s, x: s.f32[2].Constant(constant_value=[[1], [2, 3]]), "Constant: a"),
        ("GG0203", lambda s, x: s.f32[2].Constant(constant_value=1), "Constant states f32[2]"),
        ("GG0104", lambda s, x: s.f32.Reduce(x, x, dimensions=[0], to_apply=3), "Reduce: attri"),
        (
            "GG0104",
            lambda s, x: s.f32[3].Conditional(x, x, x, branch_computations=[lambda t: t, 3]),
            "Conditional: attri",
        ),
    ],
)
def test_mistakes_are_named(code: str, wrong: Callable[..., Any], message: str):
    def program(scribe):
        return wrong(scribe, scribe.f32[3].Parameter(parameter_number=0))

    with pytest.raises(GraphgenError) as caught:
        compile_py_func(program)
    assert caught.value.code == code
    assert caught.value.what.startswith(message)
    assert "test_pyhlo.py:" in caught.value.where


def test_reading_shapes_back():
    def program(scribe):
        x = scribe.bf16[2, 3].Parameter(parameter_number=0)
        assert x.dtype is scribe.bf16
        assert x.dtype is scribe.get_dtype("bf16")
        assert {x.dtype: 1}[scribe.bf16] == 1
        assert x.dtype != scribe.f32
        assert (x.sizes, scribe.f32.sizes) == ((2, 3), ())
        assert x.scribe is scribe
        whole = scribe.tuple(*[item.dtype[item.sizes] for item in (x, x)])
        assert whole.shape_proto.tuple_shapes == (x.shape_proto, x.shape_proto)
        assert [shape.sizes for shape in whole.members] == [(2, 3), (2, 3)]
        return x.dtype[x.sizes].Negate(x)

    assert compile_py_func(program).module.name == "Program.1"


def add(scribe):
    left = scribe.f32.Parameter(parameter_number=0)
    return scribe.f32.Add(left, scribe.f32.Parameter(parameter_number=1))


def test_reducers_are_shared():
    def program(scribe):
        x = scribe.f32[4, 6].Parameter(parameter_number=0)
        zero, two = (scribe.f32.Constant(constant_value=number) for number in (0, 2.0))
        rows = scribe.f32[4].Reduce(x, zero, dimensions=[1], to_apply=add)
        columns = scribe.f32[6].Reduce(x, two, dimensions=[0], to_apply=lambda s: add(s))
        return scribe.tuple(scribe.f32[4], scribe.f32[6]).Tuple(rows, columns)

    compiled, x = compile_py_func(program), floats(4, 6)
    rows, columns = both(compiled, x)
    np.testing.assert_allclose(rows, x.sum(1), rtol=1e-5)
    np.testing.assert_allclose(columns, x.sum(0) + 2, rtol=1e-5)
    found = xla_hlo.instructions(compiled.module_proto.data)
    assert len(found) == 2  # the program, and one that adds


def test_an_alias_is_a_state():
    def program(scribe):
        cache = scribe.f32[4, 2].Parameter(parameter_number=0)
        new = scribe.f32[1, 2].Parameter(parameter_number=1)
        where = scribe.s32[1].Parameter(parameter_number=2)

        def assign(scribe):
            scribe.f32.Parameter(parameter_number=0)
            return scribe.f32.Parameter(parameter_number=1)

        numbers = {
            "update_window_dims": [1],
            "inserted_window_dims": [0],
            "scatter_dims_to_operand_dims": [0],
            "index_vector_dim": 1,
        }
        after = cache.dtype[cache.sizes].Scatter(
            cache, where, new, scatter_dimension_numbers=numbers, to_apply=assign
        )
        after.set_alias_to(cache, must=True)
        out = scribe.f32[4, 2].Negate(after)
        return scribe.tuple(scribe.f32[4, 2], scribe.f32[4, 2]).Tuple(out, after)

    compiled = compile_py_func(program)
    assert [row.role.value for row in compiled.module.interface.values()] == [
        *("state", "input", "input", "output"),
    ]
    text = xla_hlo.parsed(compiled.module_proto.data)
    assert "input_output_alias={ {1}: (0, {}, must-alias) }" in text
    cache, new = floats(4, 2), floats(1, 2)
    found = compiled.module.evaluate(p0=cache, p1=new, p2=[2])
    np.testing.assert_array_equal(np.asarray(found["p0"])[2], new[0])


def one(body: Callable[..., Any], *shapes: tuple[str, tuple[int, ...]]) -> Compiled:
    """A program of one line."""

    def program(scribe):
        given = [
            scribe.get_dtype(kind)[sizes].Parameter(parameter_number=i)
            for i, (kind, sizes) in enumerate(shapes)
        ]
        return body(scribe, *given)

    return compile_py_func(program)


F = ("f32", (4, 6))


def test_data_movement():
    ranges = [{"start": 1, "limit": 4, "stride": 1}, {"start": 0, "limit": 6, "stride": 2}]
    edges = [
        {"edge_padding_low": 1, "edge_padding_high": -1, "interior_padding": 1},
        {"edge_padding_low": -1, "edge_padding_high": 2, "interior_padding": 0},
    ]
    x = floats(4, 6)
    (found,) = both(one(lambda s, x: s.f32[3, 3].Slice(x, slice_dimensions=ranges), F), x)
    np.testing.assert_array_equal(found, x[1:4, ::2])
    padded = one(
        lambda s, x, v: s.f32[7, 7].Pad(x, v, padding_config={"dimensions": edges}), F, ("f32", ())
    )
    (found,) = both(padded, x, np.float32(9))
    np.testing.assert_array_equal(found, lax.pad(x, np.float32(9), [(1, -1, 1), (-1, 2, 0)]))
    (found,) = both(one(lambda s, x: s.f32[6, 4].Transpose(x, dimensions=[1, 0]), F), x)
    np.testing.assert_array_equal(found, x.T)
    (found,) = both(one(lambda s, x: s.s32[4, 6].Iota(dimensions=[1]), F), x)
    np.testing.assert_array_equal(found, np.tile(np.arange(6), (4, 1)))
    (found,) = both(one(lambda s, x: s.f32[2, 4, 6].Broadcast(x, dimensions=[1, 2]), F), x)
    np.testing.assert_array_equal(found, [x, x])


def test_constants_in_fields_of_the_protobuf():
    shape = {
        "dimensions": [3], "element_type": 4, "is_dynamic_dimension": [False],
        "layout": {"minor_to_major": [0], "memory_space": 1},
    }  # fmt: skip
    given = {"s32s": [3, 1, 2], "shape": shape}
    compiled = one(lambda s: s.s32[3].Constant(literal=given))
    assert compiled.module.evaluate()["out0"].tolist() == [3, 1, 2]
    halves = {"f16s": np.array([0.5, -2, 3], np.float16).tobytes(), "shape": shape}
    compiled = one(lambda s: s.f16[3].Constant(literal=halves))
    assert compiled.module.evaluate()["out0"].tolist() == [0.5, -2, 3]


def test_embedding_rows_by_gather():
    numbers = {
        "offset_dims": [1], "collapsed_slice_dims": [0], "start_index_map": [0],
        "index_vector_dim": 1,
    }  # fmt: skip
    compiled = one(
        lambda s, x, i: s.f32[3, 6].Gather(
            x, i, gather_dimension_numbers=numbers, gather_slice_sizes=[1, 6]
        ),
        F,
        ("s32", (3,)),
    )
    x = floats(4, 6)
    (found,) = both(compiled, x, np.array([3, 0, 3], np.int32))
    np.testing.assert_array_equal(found, x[[3, 0, 3]])


def test_sorting_with_places():
    def largest_first(scribe):
        a = scribe.f32.Parameter(parameter_number=0)
        b = scribe.f32.Parameter(parameter_number=1)
        scribe.s32.Parameter(parameter_number=2)
        scribe.s32.Parameter(parameter_number=3)
        return scribe.pred.Compare(a, b, comparison_direction="GT")

    def program(scribe):
        x = scribe.f32[4, 6].Parameter(parameter_number=0)
        places = scribe.s32[4, 6].Iota(dimensions=[1])
        shape = scribe.tuple(x.dtype[x.sizes], scribe.s32[4, 6])
        both = shape.Sort(x, places, dimensions=[1], to_apply=largest_first)
        assert both.get_tuple_element(1).sizes == (4, 6)
        return scribe.s32[4, 6].GetTupleElement(both, tuple_index=1)

    # No two are equal: this sort is not a stable one.
    x = np.random.default_rng(0).permuted(np.arange(24, dtype=np.float32).reshape(4, 6), axis=1)
    (found,) = both(compile_py_func(program), x)
    np.testing.assert_array_equal(found, np.argsort(-x, axis=1))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6])
def test_windows(size: int):
    dims = [
        {"size": 1, "stride": 1, "padding_low": 0, "window_dilation": 1, "base_dilation": 1},
        {"size": size, "stride": 2, "padding_low": size - 1, "window_dilation": 1},
    ]

    def program(scribe):
        x = scribe.f32[4, 6].Parameter(parameter_number=0)
        zero = scribe.f32.Constant(constant_value=0)
        return scribe.f32[4, 3].ReduceWindow(x, zero, to_apply=add, window={"dimensions": dims})

    x = floats(4, 6)
    (found,) = both(compile_py_func(program), x)
    wanted = lax.reduce_window(
        x, np.float32(0), lax.add, (1, size), (1, 2), [(0, 0), (size - 1, 0)]
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_windows_with_gaps(size: int):
    dims = [{"size": size, "stride": 1, "window_dilation": 2}]
    count = 11 - 2 * (size - 1)

    def program(scribe):
        x = scribe.f32[11].Parameter(parameter_number=0)
        zero = scribe.f32.Constant(constant_value=0)
        return scribe.f32[count].ReduceWindow(x, zero, to_apply=add, window={"dimensions": dims})

    x = floats(11)
    (found,) = both(compile_py_func(program), x)
    wanted = sum(x[2 * place : 2 * place + count] for place in range(size))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_layer_norm_by_batch_norm():
    def program(scribe):
        x = scribe.f32[4, 6].Parameter(parameter_number=0)
        one, zero = (
            scribe.f32[4].Broadcast(scribe.f32.Constant(constant_value=number), dimensions=[])
            for number in (1, 0)
        )
        shape = scribe.tuple(scribe.f32[4, 6], scribe.f32[4], scribe.f32[4])
        return shape.BatchNormTraining(x, one, zero, epsilon=1e-5, feature_index=0)

    x = floats(4, 6)
    normal, mean, variance = both(compile_py_func(program), x)
    np.testing.assert_allclose(mean, x.mean(1), atol=1e-6)
    np.testing.assert_allclose(variance, x.var(1), rtol=1e-4)
    wanted = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(normal, wanted, rtol=1e-4, atol=1e-5)


def test_random_numbers_follow_from_a_key():
    def program(scribe):
        lo, hi = (scribe.f32.Constant(constant_value=number) for number in (-1, 3))
        first = scribe.f32[1000].Rng(lo, hi, distribution=1)
        second = scribe.f32[1000].Rng(lo, hi, distribution=2)
        return scribe.tuple(scribe.f32[1000], scribe.f32[1000]).Tuple(first, second)

    compiled = compile_py_func(program)
    assert [value.name for value in compiled.program.args] == ["rng_key"]
    key = np.array([1, 7], np.uint32)
    uniform, normal = both(compiled, key)
    counters = np.stack([np.arange(1000), np.zeros(1000)]).astype(np.uint32)
    bits = threefry_2x32(jnp.asarray(key), jnp.asarray(counters.ravel()))[:1000]
    wanted = (np.asarray(bits) >> 9).astype(np.float64) / 2**23 * 4 - 1
    np.testing.assert_allclose(uniform, wanted, atol=1e-6)
    assert abs(float(normal.mean()) + 1) < 0.3
    assert abs(float(normal.std()) - 3) < 0.3
    again, _ = both(compiled, np.array([1, 8], np.uint32))
    assert not np.array_equal(uniform, again)


def test_kernels_keep_their_names_and_their_meaning():
    def program(scribe):
        x = scribe.f32[4, 8].Parameter(parameter_number=0)
        weight = scribe.f32[8].Parameter(parameter_number=1)
        epsilon = scribe.f32.Constant(constant_value=1e-5)
        kept = x.dtype[x.sizes].CustomCall(x, custom_call_target="AwsNeuronTransferWithStaticRing")
        norm = x.dtype[x.sizes].CustomCall(
            kept, weight, epsilon, custom_call_target="AwsNeuronRmsNorm", backend_config=b"1"
        )
        soft = x.dtype[x.sizes].CustomCall(
            norm, custom_call_target="AwsNeuronSoftmax", backend_config=b"1"
        )
        gelu = x.dtype[x.sizes].CustomCall(norm, custom_call_target="AwsNeuronGeluApprxTanh")
        first = scribe.u32[4].CustomCall(
            gelu, custom_call_target="AwsNeuronArgMax", backend_config=b"1"
        )
        shape = scribe.tuple(scribe.f32[4, 2], scribe.u32[4, 2])
        best = shape.CustomCall(soft, custom_call_target="AwsNeuronTopK", backend_config=b"2")
        values = scribe.f32[4, 2].GetTupleElement(best, tuple_index=0)
        shape = scribe.tuple(scribe.f32[4, 8], scribe.u32[4], scribe.f32[4, 2])
        return shape.Tuple(gelu, first, values)

    compiled = compile_py_func(program)
    x, weight = floats(4, 8), floats(8)
    norm = x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5) * weight
    gelu = np.asarray(jax.nn.gelu(norm))
    found = compiled.module.evaluate(p0=x, p1=weight)
    np.testing.assert_allclose(np.asarray(found["out0"]), gelu, atol=1e-5)
    np.testing.assert_array_equal(np.asarray(found["out1"]), gelu.argmax(1))
    wanted = np.sort(np.asarray(jax.nn.softmax(norm)), 1)[:, :-3:-1]
    np.testing.assert_allclose(np.asarray(found["out2"]), wanted, rtol=1e-4)
    text = xla_hlo.parsed(compiled.module_proto.data)
    assert text.count("custom-call(") == 6
    run_pipeline(compiled.module, [Legalize()])
    (here,) = compile_program(compiled.module, compiled.program).run_numpy(
        [{"p0": x, "p1": weight}]
    )
    for name, array in found.items():
        np.testing.assert_allclose(here[name], np.asarray(array), rtol=1e-4, atol=1e-5)


def test_collectives_over_two_ranks():
    groups = [[0, 1]]

    def program(scribe):
        x = scribe.f32[4, 6].Parameter(parameter_number=0)
        total = scribe.f32[4, 6].AllReduce(x, replica_groups=groups, to_apply=add)
        every = scribe.f32[8, 6].AllGather(x, dimensions=[0], replica_groups=groups)
        part = scribe.f32[2, 6].ReduceScatter(
            x, dimensions=[0], replica_groups=groups, to_apply=add
        )
        dealt = scribe.f32[4, 6].AllToAll(x, dimensions=[0], replica_groups=groups)
        rank = scribe.u32.ReplicaId()
        items = (total, every, part, dealt, rank)
        return scribe.tuple(*[item.dtype[item.sizes] for item in items]).Tuple(*items)

    compiled = compile_py_func(program)
    assert (compiled.module.level, compiled.module.ranks) == ("sharded", 2)
    x, y = floats(4, 6), floats(4, 6)
    first, second = xla_hlo.run(compiled.module_proto.data, [[x], [y]], 2)
    np.testing.assert_allclose(first[0], x + y, rtol=1e-6)
    np.testing.assert_array_equal(second[1], np.concatenate([x, y]))
    np.testing.assert_allclose(second[2], (x + y)[2:], rtol=1e-6)
    np.testing.assert_array_equal(second[3], np.concatenate([x[2:], y[2:]]))
    assert [int(found[4]) for found in (first, second)] == [0, 1]
