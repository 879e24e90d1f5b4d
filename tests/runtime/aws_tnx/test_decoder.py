"""A decoder written as transformers-neuronx writes its own, over the stand-ins, against NumPy.

It traces with HloScribe, shards its weights by rank, keeps its caches by aliases, takes slices of
them for smaller buckets, and runs through tensor sets and executors.
"""

# The stand-ins are looked up where Python finds modules, and the language makes up its attributes.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingParameterType=false, reportUnknownLambdaType=false
# pyright: reportMissingImports=false, reportPrivateUsage=false

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

H, HEADS, SIZE, LAYERS, VOCABULARY, EPSILON = 8, 4, 2, 2, 12, 1e-5
WHOLE = HEADS * SIZE
MASKED = -30000.0


class Weights:
    """Whole weights, in NumPy."""

    def __init__(self) -> None:
        random = np.random.default_rng(3)

        def draw(*shape: int) -> Any:
            return (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

        self.layers = [
            {"norm": 1 + draw(H) / 4, "q": draw(H, WHOLE), "k": draw(H, WHOLE),
             "v": draw(H, WHOLE), "out": draw(WHOLE, H)}
            for _ in range(LAYERS)
        ]  # fmt: skip
        self.head = draw(H, VOCABULARY)
        self.table = draw(VOCABULARY, H)


def reference(weights: Weights, tokens: list[int]) -> Any:
    """The logits of every position, [vocabulary, length]."""
    hidden = weights.table[tokens].T
    for layer in weights.layers:
        norm = hidden / np.sqrt((hidden**2).mean(0) + EPSILON) * layer["norm"][:, None]
        q, k, v = ((norm.T @ layer[name]).reshape(-1, HEADS, SIZE) for name in "qkv")
        scores = np.einsum("shd,thd->hst", q, k)
        scores = np.where(np.tri(len(tokens), dtype=bool), scores, MASKED)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        context = np.einsum("hst,thd->shd", powers / powers.sum(-1, keepdims=True), v)
        hidden = hidden + (context.reshape(-1, WHOLE) @ layer["out"]).T
    return weights.head.T @ hidden


# The program, as a library of PyHLO functions


def dot(x, y, contracting, batch=((), ())):
    """A product; result sizes follow from the dimension numbers."""
    free = [
        [n for d, n in enumerate(side.sizes) if d not in (*contracting[i], *batch[i])]
        for i, side in enumerate((x, y))
    ]
    sizes = [*[x.sizes[d] for d in batch[0]], *free[0], *free[1]]
    numbers = {
        "lhs_contracting_dimensions": contracting[0], "rhs_contracting_dimensions": contracting[1],
        "lhs_batch_dimensions": batch[0], "rhs_batch_dimensions": batch[1],
    }  # fmt: skip
    return x.dtype[sizes].Dot(x, y, dot_dimension_numbers=numbers)


def reducer(kind: str) -> Callable[..., Any]:
    def combine(scribe):
        pair = [scribe.f32.Parameter(parameter_number=i) for i in (0, 1)]
        return getattr(scribe.f32, kind)(*pair)

    return combine


def assign(scribe):
    scribe.f32.Parameter(parameter_number=0)
    return scribe.f32.Parameter(parameter_number=1)


def softmax(x):
    f32, sizes, kept = x.dtype, x.sizes, range(len(x.sizes) - 1)

    def over(value, kind, start):
        first = f32.Constant(constant_value=start)
        made = f32[sizes[:-1]].Reduce(
            value, first, dimensions=[len(sizes) - 1], to_apply=reducer(kind)
        )
        return f32[sizes].Broadcast(made, dimensions=kept)

    powers = f32[sizes].Exp(f32[sizes].Subtract(x, over(x, "Maximum", float("-inf"))))
    return f32[sizes].Divide(powers, over(powers, "Add", 0))


def ring(x):
    return x.dtype[x.sizes].CustomCall(x, custom_call_target="AwsNeuronTransferWithStaticRing")


def rms_norm(hidden, weight):
    epsilon = hidden.scribe.f32.Constant(constant_value=EPSILON)
    return hidden.dtype[hidden.sizes].CustomCall(
        hidden, weight, epsilon, custom_call_target="AwsNeuronRmsNorm", backend_config=b"0"
    )


def updated(cache, new, ids):
    """The cache with the rows ``ids`` replaced."""
    positions, heads, size = cache.sizes
    flat = cache.dtype[positions, heads * size].Reshape(cache)
    rows = cache.dtype[new.sizes[0], heads * size].Reshape(new)
    numbers = {
        "update_window_dims": [1], "inserted_window_dims": [0],
        "scatter_dims_to_operand_dims": [0], "index_vector_dim": 1,
    }  # fmt: skip
    made = flat.dtype[flat.sizes].Scatter(
        flat, ids, rows, scatter_dimension_numbers=numbers, to_apply=assign
    )
    return cache.dtype[cache.sizes].Reshape(made)


def layer(hidden, ids, mask, caches, weights, tp):
    f32 = hidden.dtype
    norm_weight, wq, wk, wv, wo = map(ring, weights)
    count, heads = hidden.sizes[1], wq.sizes[1] // SIZE
    norm = rms_norm(hidden, norm_weight)
    q, k, v = (f32[count, heads, SIZE].Reshape(dot(norm, w, ([0], [0]))) for w in (wq, wk, wv))
    keys, values = (updated(ring(c), new, ids) for c, new in zip(caches, (k, v), strict=True))
    scores = dot(q, keys, ([2], [2]), ([1], [1]))
    low = f32[scores.sizes].Broadcast(f32.Constant(constant_value=MASKED), dimensions=[])
    wide = hidden.scribe.pred[scores.sizes].Broadcast(mask, dimensions=[1, 2])
    weights_of = softmax(f32[scores.sizes].Select(wide, scores, low))
    context = dot(weights_of, values, ([2], [0]), ([0], [1]))
    context = f32[count, heads, SIZE].Transpose(context, dimensions=[1, 0, 2])
    out = dot(f32[count, heads * SIZE].Reshape(context), wo, ([1], [0]))
    out = f32[H, count].Transpose(out, dimensions=[1, 0])
    if tp > 1:
        out = f32[H, count].AllReduce(
            out, replica_groups=[list(range(tp))], to_apply=reducer("Add")
        )
    return f32[H, count].Add(hidden, out), keys, values


def decoder(count: int, positions: int, tp: int) -> Callable[..., Any]:
    """The program of ``count`` tokens over caches of ``positions``."""
    shapes = [(H,), *[(H, WHOLE // tp)] * 3, (WHOLE // tp, H)]

    def decode(scribe):
        f32, s32, pred = scribe.f32, scribe.s32, scribe.pred
        numbers = iter(range(1000))

        def take(kind, *sizes):
            return kind[sizes].Parameter(parameter_number=next(numbers))

        hidden, ids = take(f32, H, count), take(s32, count)
        caches = [[take(f32, positions, HEADS // tp, SIZE) for _ in "kv"] for _ in range(LAYERS)]
        weights = [[take(f32, *shape) for shape in shapes] for _ in range(LAYERS)]
        head = take(f32, H, VOCABULARY // tp)
        columns = s32[count, positions].Iota(dimensions=[1])
        rows = s32[count, positions].Broadcast(ids, dimensions=[0])
        mask = pred[count, positions].Compare(columns, rows, comparison_direction="LE")
        outputs = []
        for pair, parts in zip(caches, weights, strict=True):
            hidden, *after = layer(hidden, ids, mask, pair, parts, tp)
            for new, old in zip(after, pair, strict=True):
                new.set_alias_to(old, must=True)
            outputs += after
        logits = dot(ring(head), hidden, ([0], [0]))
        outputs.insert(0, logits)
        return scribe.tuple(*[o.dtype[o.sizes] for o in outputs]).Tuple(*outputs)

    return decode


# The runtime, as a library of kernels and memories


class Kernel:
    """One program, compiled and loaded, with its tensors."""

    def __init__(self, function: Callable[..., Any], tp: int) -> None:
        from libneuronxla import neuron_xla_compile
        from torch_neuronx.pyhlo.constant.serialize_torch import serialize_torch
        from torch_neuronx.pyhlo.scribe import HloScribe

        self.proto = pickle.loads(pickle.dumps(HloScribe(serialize_torch)(function).module_proto))
        self.tp = tp
        neff = neuron_xla_compile(
            self.proto.SerializeToString(), "--model-type=transformer", input_format="hlo",
            platform_target="trn1", cache_key=str(self.proto), retry_failed_compilation=False,
            lazy=True, use_cache=True, cache_dir=None,
        )  # fmt: skip
        self.model = torch.classes.neuron.ParallelModel(pickle.loads(pickle.dumps(neff)), tp, 0, tp)
        self.model.load()
        shape = self.proto.host_program_shape
        names = [f"input{i}" for i in range(len(shape.parameters))]
        self.inputs = torch.classes.neuron.ParallelTensorSet(names, tp)
        outputs = [f"output{i}" for i in range(len(shape.result.tuple_shapes))]
        self.outputs = torch.classes.neuron.ParallelTensorSet(outputs, tp)

    def zeros(self, output: int | None = None, given: int = 0) -> Any:
        from torch_neuronx.pyhlo import xla_data_pb2

        shape = self.proto.host_program_shape
        found = shape.parameters[given] if output is None else shape.result.tuple_shapes[output]
        kinds = {
            xla_data_pb2.PrimitiveType.F32: torch.float32,
            xla_data_pb2.PrimitiveType.S32: torch.int32,
        }
        made = torch.zeros(list(found.dimensions), dtype=kinds[found.element_type])
        return torch.ops.neuron._parallel_to_neuron([made] * self.tp)

    def setup(self, inputs: list[Any], outputs: list[Any]) -> None:
        for held, tensors in ((self.inputs, inputs), (self.outputs, outputs)):
            held.init()
            for index, tensor in enumerate(tensors):
                held.add(index, tensor)


def sharded(array: Any, dim: int | None, tp: int) -> Any:
    tensor = torch.from_numpy(array)
    parts = [tensor] * tp if dim is None else torch.chunk(tensor, tp, dim)
    return torch.ops.neuron._parallel_to_neuron([part.contiguous() for part in parts])


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    "tp", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(4, marks=pytest.mark.slow)]
)
def test_a_decoder_over_buckets_gives_the_logits_of_numpy(tp: int):
    ops = torch.ops.neuron
    ops._init_neuron()
    weights = Weights()
    parts = [
        [sharded(layer["norm"], None, tp), *[sharded(layer[n], 1, tp) for n in "qkv"],
         sharded(layer["out"], 0, tp)]
        for layer in weights.layers
    ]  # fmt: skip
    head = sharded(weights.head, 1, tp)
    blank = torch.zeros(16, HEADS // tp, SIZE)
    caches = [ops._parallel_to_neuron([blank] * tp) for _ in range(2 * LAYERS)]
    kernels: dict[tuple[int, int], tuple[Kernel, list[Any], Any]] = {}
    for count, bucket in ((4, 8), (1, 8), (1, 16)):
        kernel = Kernel(decoder(count, bucket, tp), tp)
        given = [kernel.zeros(given=0), kernel.zeros(given=1)]
        logits = kernel.zeros(output=0)
        views = [ops._parallel_slice_neuron(cache, 0, 0, bucket, 1) for cache in caches]
        kernel.setup(
            [*given, *views, *[p for layer in parts for p in layer], head], [logits, *views]
        )
        kernels[count, bucket] = kernel, given, logits

    def embedded(tokens: list[int], at: int) -> list[torch.Tensor]:
        ids = torch.arange(at, at + len(tokens), dtype=torch.int32)
        return [torch.from_numpy(weights.table[tokens].T.copy()), ids]

    tokens = [3, 7, 1, 9]
    kernel, given, logits = kernels[4, 8]
    for memory, tensor in zip(given, embedded(tokens, 0), strict=True):
        ops._parallel_write_neuron(memory, [tensor] * tp)
    ops._parallel_run_neuron(kernel.model, kernel.inputs, kernel.outputs)
    found = torch.cat(ops._parallel_from_neuron(logits), dim=0).numpy()
    np.testing.assert_allclose(found, reference(weights, tokens), rtol=1e-4, atol=1e-5)
    for bucket in [8] * 4 + [16] * 2:
        tokens.append(int(found[:, -1].argmax()))
        kernel, given, logits = kernels[1, bucket]
        executor = torch.classes.neuron.ParallelExecutor(
            kernel.model, kernel.inputs, kernel.outputs, given, [logits]
        )
        inputs = embedded(tokens[-1:], len(tokens) - 1)
        (every,) = ops._parallel_executor_run(executor, inputs, -1)
        found = every.numpy()
        wanted = reference(weights, tokens)[:, -1:]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
        (first,) = ops._parallel_executor_run(executor, inputs, 1)
        np.testing.assert_array_equal(first.numpy(), found[: VOCABULARY // tp])
        assert ops._parallel_executor_run(executor, inputs, 0) == []
