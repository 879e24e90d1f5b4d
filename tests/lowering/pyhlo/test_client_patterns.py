"""PyHLO as transformers-neuronx writes it: each habit of its code, by numbers and by XLA."""

# The scribe's language is one of attributes made up as it goes.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingParameterType=false, reportUnknownLambdaType=false

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

from graphgen.composites.native_kernels import (
    NativeKernel,
    forget_native_kernel,
    register_native_kernel,
)
from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.lowering.cpu import compile_program
from graphgen.lowering.hlo import read_hlo
from graphgen.lowering.pyhlo import Compiled, HloScribe, PyHloShape, compile_py_func
from graphgen.passes.core import run_pipeline
from graphgen.passes.legalize.legalize import Legalize
from tests.oracles import xla_hlo

random = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return random.standard_normal(shape).astype(np.float32)


def program(body: Callable[..., Any], *shapes: tuple[str, tuple[int, ...]]) -> Compiled:
    def written(scribe):
        given = [
            scribe.get_dtype(kind)[sizes].Parameter(parameter_number=i)
            for i, (kind, sizes) in enumerate(shapes)
        ]
        return body(scribe, *given)

    return HloScribe()(written)


def evaluated(compiled: Compiled, *given: Any) -> list[Array]:
    found = compiled.module.evaluate({f"p{i}": array for i, array in enumerate(given)})
    return [np.asarray(array) for array in found.values()]


def on_xla(compiled: Compiled, *given: Any) -> list[Array]:
    (found,) = xla_hlo.run(compiled.module_proto.data, [[np.asarray(item) for item in given]])
    return found


def on_cpu(compiled: Compiled, *given: Any) -> list[Array]:
    """From the protobuf, as a runtime has it: read, legalized, compiled, run."""
    module = read_hlo(compiled.module_proto.SerializeToString())
    run_pipeline(module, [Legalize()])
    (function,) = module.programs()
    names = [value.name or "" for value in function.args]
    inputs = dict(zip(names, map(np.asarray, given), strict=True))
    (found,) = compile_program(module, function).run_numpy([inputs])
    return [*found.values()]


# Shapes that are objects


def test_a_shape_has_the_fields_of_protobuf():
    def body(s, x):
        assert x.shape_proto.element_type == 16
        assert s.s32.shape_proto.element_type == 4
        assert (x.shape_proto.dimensions, s.s32.shape_proto.dimensions) == ((2, 3), ())
        pair = s.tuple(s.f32[4], s.tuple(s.u32))
        assert pair.shape_proto.element_type == 13
        first, rest = pair.shape_proto.tuple_shapes
        assert (first.element_type, first.dimensions) == (11, (4,))
        assert rest.tuple_shapes[0].element_type == 8
        assert rest.tuple_shapes[0].SerializeToString() in pair.shape_proto.SerializeToString()
        assert isinstance(x, PyHloShape)
        return x

    program(body, ("bf16", (2, 3)))


def test_a_literal_written_by_the_element_type_of_its_shape():
    def body(s, x):
        shape = {
            "dimensions": [3], "element_type": x.dtype.shape_proto.element_type,
            "is_dynamic_dimension": [False], "layout": {"minor_to_major": [0], "memory_space": 1},
        }  # fmt: skip
        table = x.dtype[3].Constant(literal={"f32s": np.arange(3.0), "shape": shape})
        return x.dtype[3].Add(x, table)

    x = floats(3)
    (found,) = on_xla(program(body, ("f32", (3,))), x)
    np.testing.assert_allclose(found, x + np.arange(3))


def test_the_protobuf_states_what_the_program_takes_and_gives():
    def decode(scribe):
        x = scribe.bf16[4, 2].Parameter(parameter_number=0)
        cache = scribe.bf16[4, 2].Parameter(parameter_number=1)
        after = scribe.bf16[4, 2].Add(cache, x)
        after.set_alias_to(cache, must=True)
        out = scribe.f32[4, 2].Convert(after)
        return scribe.tuple(scribe.f32[4, 2], scribe.bf16[4, 2]).Tuple(out, after)

    proto = HloScribe(serialize=None)(decode).module_proto
    shape = proto.host_program_shape
    assert [(p.element_type, list(p.dimensions)) for p in shape.parameters] == [(16, [4, 2])] * 2
    assert [p.element_type for p in shape.result.tuple_shapes] == [11, 16]
    assert shape.parameter_names == ("p0", "p1")
    (alias,) = proto.input_output_alias.entries
    assert (alias.output_shape_index, alias.parameter_number) == ((1,), 1)
    assert alias.parameter_shape_index == ()
    assert proto.name == "Decode.2"


def test_one_array_is_no_tuple():
    proto = program(lambda s, x: s.f32[3].Negate(x), ("f32", (3,))).module_proto
    assert proto.host_program_shape.result.tuple_shapes == ()
    assert list(proto.host_program_shape.result.dimensions) == [3]
    assert proto.input_output_alias.entries == ()


def test_the_text_of_a_module_is_one_key_wherever_its_source_lies():
    source = "def f(s):\n    return s.f32[2].Negate(s.f32[2].Parameter(parameter_number=0))\n"
    texts: list[str] = []
    for name in ("/here/a.py", "/there/b.py"):
        scope: dict[str, Any] = {}
        exec(compile(source, name, "exec"), scope)
        proto = compile_py_func(scope["f"]).module_proto
        assert name in proto.data.decode("latin-1") or "metadata" not in str(proto)
        texts.append(str(proto))
    assert texts[0] == texts[1]
    assert "metadata" not in texts[0]
    assert "negate(" in texts[0]


def _deep(scribe):
    x = scribe.f32[2].Parameter(parameter_number=0)
    for _ in range(3000):
        x = scribe.f32[2].Add(x, x)
    return x


def test_deep_programs_pickle():
    compiled = compile_py_func(_deep)
    again = pickle.loads(pickle.dumps(compiled))
    assert again.module_proto == compiled.module_proto
    assert pickle.loads(pickle.dumps(compiled.module_proto)) == compiled.module_proto


# Comparators and reducers that handle scalars as arrays


def _compared(direction: str) -> Callable[..., Any]:
    """As ``hlo.greater`` writes it: the second operand is reshaped and broadcast."""

    def comparator(s):
        left = s.f32.Parameter(parameter_number=0)
        right = s.f32.Parameter(parameter_number=1)
        right = s.f32.Broadcast(s.f32.Reshape(right), dimensions=[])
        found = s.pred[()].Compare(left, right, comparison_direction=direction)
        return s.pred.Reshape(s.pred.Copy(found))

    return comparator


@pytest.mark.parametrize(("direction", "sign"), [("GT", -1), ("LT", 1)])
def test_a_comparator_sees_through_reshapes_of_scalars(direction: str, sign: int):
    compiled = program(
        lambda s, x: s.f32[3, 5].Sort(x, dimensions=[1], to_apply=_compared(direction)),
        ("f32", (3, 5)),
    )
    x = floats(3, 5)
    for found in (evaluated(compiled, x), on_xla(compiled, x)):
        np.testing.assert_array_equal(found[0], sign * np.sort(sign * x, axis=1))


def _adds(s):
    left, right = (s.f32.Parameter(parameter_number=i) for i in (0, 1))
    one = s.f32[1].Reshape(left)
    total = s.f32[1].Add(one, s.f32[1].Broadcast(right, dimensions=[]))
    return s.f32.Reshape(total)


def test_a_reducer_sees_through_reshapes_of_scalars():
    def body(s, x):
        zero = s.f32.Constant(constant_value=0)
        return s.f32[3].Reduce(x, zero, dimensions=[1], to_apply=_adds)

    compiled, x = program(body, ("f32", (3, 5))), floats(3, 5)
    for found in (evaluated(compiled, x), on_xla(compiled, x)):
        np.testing.assert_allclose(found[0], x.sum(1), rtol=1e-5)


def test_a_comparator_of_something_else_is_still_refused():
    def body(s, x):
        def doubled(s):
            left = s.f32.Parameter(parameter_number=0)
            right = s.f32.Parameter(parameter_number=1)
            return s.pred.Compare(s.f32.Add(left, left), right, comparison_direction="LT")

        return s.f32[3].Sort(x, dimensions=[0], to_apply=doubled)

    with pytest.raises(GraphgenError, match="not one comparison"):
        program(body, ("f32", (3,)))


# Integers of any kind


def test_integers_come_as_ranges_and_from_numpy():
    def body(s, x):
        rows = s.f32[np.array([4, 3, 5])].Broadcast(x, dimensions=range(1, 3))
        turned = s.f32[tuple(np.int64(n) for n in (5, 3, 4))].Transpose(
            rows, dimensions=np.array([2, 1, 0])
        )
        first = s.f32[range(1, 4)].Slice(
            turned,
            slice_dimensions=({"start": np.int32(0), "limit": n} for n in np.arange(1, 4)),
        )
        return s.f32[np.int64(6)].Reshape(first)

    compiled, x = program(body, ("f32", (3, 5))), floats(3, 5)
    wanted = np.broadcast_to(x, (4, 3, 5)).transpose(2, 1, 0)[:1, :2, :3]
    for found in (evaluated(compiled, x), on_xla(compiled, x)):
        np.testing.assert_array_equal(found[0], wanted.ravel())


@pytest.mark.parametrize(
    "wrong", [[0.5], "01", [True], 3, [None]], ids=["float", "text", "truth", "number", "nothing"]
)
def test_what_is_no_integer_is_refused(wrong: Any):
    with pytest.raises(GraphgenError, match=r"'dimensions' is .* not integers"):
        program(lambda s, x: s.f32[3, 4].Broadcast(x, dimensions=wrong), ("f32", (3,)))


def test_groups_of_ranks_are_ranges():
    compiled = program(
        lambda s, x: s.f32[8].AllGather(x, dimensions=[0], replica_groups=[range(4)]),
        ("f32", (2,)),
    )
    assert compiled.module.mesh == {"tp": 4}


# Products of two element types, and arithmetic of truth values


@pytest.mark.parametrize(
    ("left", "right", "stated"),
    [
        ("f32", "s32", "f32"), ("s32", "f32", "f32"), ("s32", "f32", "s32"), ("f32", "pred", "f32"),
        ("bf16", "f32", "f32"), ("bf16", "f16", "f32"), ("s8", "s16", "s32"), ("s32", "u32", "s32"),
    ],
)  # fmt: skip
def test_products_of_two_element_types(left: str, right: str, stated: str):
    dims = {"lhs_contracting_dimensions": [1], "rhs_contracting_dimensions": [0]}

    def body(s, x, y):
        return s.get_dtype(stated)[2, 2].Dot(x, y, dot_dimension_numbers=dims)

    kinds = {"bf16": jax.numpy.bfloat16, "pred": np.bool_, "s8": np.int8, "s16": np.int16}
    kinds |= {"f32": np.float32, "f16": np.float16, "s32": np.int32, "u32": np.uint32}
    x = np.array([[1.5, 2.5, 3], [4, 5.75, 6]]).astype(kinds[left])
    y = np.array([[1, 0.5], [0, 2], [2.5, 1]]).astype(kinds[right])
    compiled = program(body, (left, (2, 3)), (right, (3, 2)))
    text = f"""HloModule m
ENTRY e {{
 a = {left}[2,3]{{1,0}} parameter(0)
 b = {right}[3,2]{{1,0}} parameter(1)
 ROOT d = {stated}[2,2]{{1,0}} dot(a,b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
    ((theirs,),) = xla_hlo.run(xla_hlo.from_text(text), [[x, y]])
    for found in (evaluated(compiled, x, y), on_xla(compiled, x, y), on_cpu(compiled, x, y)):
        np.testing.assert_array_equal(found[0], theirs)
        assert found[0].dtype == theirs.dtype


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("Add", np.logical_or), ("Maximum", np.logical_or), ("Multiply", np.logical_and),
     ("Minimum", np.logical_and)],
    ids=["Add", "Maximum", "Multiply", "Minimum"],
)  # fmt: skip
def test_arithmetic_of_truth_values(name: str, wanted: Any):
    compiled = program(
        lambda s, x, y: getattr(s.pred[4], name)(x, y), ("pred", (4,)), ("pred", (4,))
    )
    x, y = np.array([0, 0, 1, 1], np.bool_), np.array([0, 1, 0, 1], np.bool_)
    for found in (evaluated(compiled, x, y), on_xla(compiled, x, y)):
        np.testing.assert_array_equal(found[0], wanted(x, y))


@pytest.mark.parametrize("name", ["Add", "Maximum", "Multiply", "Minimum"])
def test_reducers_of_truth_values(name: str):
    def combine(s):
        pair = [s.pred.Parameter(parameter_number=i) for i in (0, 1)]
        return getattr(s.pred, name)(*pair)

    whole = name in ("Multiply", "Minimum")

    def body(s, x):
        start = s.pred.Constant(constant_value=whole)
        return s.pred[3].Reduce(x, start, dimensions=[1], to_apply=combine)

    compiled = program(body, ("pred", (3, 2)))
    x = np.array([[0, 0], [0, 1], [1, 1]], np.bool_)
    for found in (evaluated(compiled, x), on_xla(compiled, x)):
        np.testing.assert_array_equal(found[0], x.all(1) if whole else x.any(1))


# Native kernels by name


def _config(name: str, **arguments: Any) -> bytes:
    text = json.dumps({"func_name": name, "grid": [], "arguments": arguments})
    return base64.b64encode(text.encode())


def _native(config: bytes, shape: tuple[int, ...], *given: tuple[int, ...]) -> Compiled:
    def body(s, *x):
        target = "AwsNeuronCustomNativeKernel"
        return s.f32[shape].CustomCall(*x, custom_call_target=target, backend_config=config)

    return program(body, *[("f32", sizes) for sizes in given])


@pytest.mark.parametrize(
    ("config", "axis"),
    [(_config("_cumsum"), 1), (_config("cumsum", axis=0), 0), (b"cumsum", 1)],
    ids=["wrapped", "with an axis", "bare name"],
)
def test_cumulative_sums(config: bytes, axis: int):
    compiled, x = _native(config, (3, 37), (3, 37)), floats(3, 37)
    for found in (evaluated(compiled, x), on_cpu(compiled, x)):
        np.testing.assert_allclose(found[0], np.cumsum(x, axis), rtol=1e-4, atol=1e-5)
    assert "custom-call(" in str(compiled.module_proto)


def _softmax_attention(q: Array, k: Array, v: Array, scale: float, causal: bool) -> Array:
    scores = np.einsum("...ds,...dt->...st", q, k) * scale
    if causal:
        rows, columns = np.indices(scores.shape[-2:])
        scores = np.where(columns <= rows, scores, -np.inf)
    return np.einsum("...st,...td->...sd", jax.nn.softmax(scores, axis=-1), v)


@pytest.mark.parametrize(
    ("config", "scale", "causal"),
    [
        (_config("wrapper_flash_attention_nki"), 1.0, True),
        (_config("flash_fwd", softmax_scale=None), 0.5, True),
        (_config("flash_fwd", softmax_scale=0.25, use_causal_mask=False), 0.25, False),
    ],
    ids=["wrapped", "default scale", "not causal"],
)
def test_flash_attention(config: bytes, scale: float, causal: bool):
    sizes = (2, 4, 4, 6), (2, 2, 4, 6), (2, 2, 6, 4)
    compiled = _native(config, (2, 4, 6, 4), *sizes)
    q, k, v = (floats(*shape) for shape in sizes)
    wanted = _softmax_attention(q, k.repeat(2, 1), v.repeat(2, 1), scale, causal)
    for found in (evaluated(compiled, q, k, v), on_cpu(compiled, q, k, v)):
        np.testing.assert_allclose(found[0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "causal"),
    [("CausalAttentionMMSoftmaxMMWithoutSwap", True), ("AttentionMMSoftmaxMMWithoutSwap", False)],
)
def test_attention_of_the_compiler(name: str, causal: bool):
    sizes = (6, 4, 5), (6, 4, 5), (6, 5, 4)
    config = _config("attention_isa_kernel", scale=0.5, kernel_name=name)
    compiled = _native(config, (6, 5, 4), *sizes)
    q, k, v = (floats(*shape) for shape in sizes)
    wanted = _softmax_attention(q, k, v, 0.5, causal)
    for found in (evaluated(compiled, q, k, v), on_cpu(compiled, q, k, v)):
        np.testing.assert_allclose(found[0], wanted, rtol=1e-4, atol=1e-5)


def test_a_kernel_nobody_knows_is_named():
    compiled = _native(_config("my_kernel"), (3,), (3,))
    for run in (evaluated, on_cpu):
        with pytest.raises(GraphgenError) as caught:
            run(compiled, floats(3))
        assert caught.value.code == "GG0403"
        assert "native kernel 'my_kernel' has no meaning here" in str(caught.value)
        assert "register_native_kernel" in (caught.value.help or "")


@pytest.fixture
def my_kernel() -> Iterator[None]:
    register_native_kernel(
        NativeKernel(
            "my_kernel",
            lambda call, x: [x[0] * call.number("factor", 2)],
            lambda b, call, x: [b.multiply(x[0], call.number("factor", 2))],
        )
    )
    yield
    forget_native_kernel("my_kernel")


@pytest.mark.usefixtures("my_kernel")
def test_users_register_their_kernels():
    compiled, x = _native(_config("my_kernel", factor=3), (3,), (3,)), floats(3)
    for found in (evaluated(compiled, x), on_cpu(compiled, x)):
        np.testing.assert_allclose(found[0], x * 3, rtol=1e-6)
    with pytest.raises(GraphgenError, match="native kernel 'cumsum' has a meaning"):
        register_native_kernel(NativeKernel("cumsum", lambda c, x: x, lambda b, c, x: x))


def test_a_kernel_that_gives_another_shape_is_refused():
    compiled = _native(_config("cumsum"), (4,), (3,))
    with pytest.raises(GraphgenError, match=r"native kernel 'cumsum' gives \[3\], and f32\[4\]"):
        evaluated(compiled, floats(3))
