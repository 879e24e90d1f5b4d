"""What the stand-ins offer: modules, tensors on ranks, kernels by name, random numbers."""

# The stand-ins are looked up where Python finds modules, and the language makes up its attributes.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportMissingParameterType=false, reportUnknownLambdaType=false
# pyright: reportMissingImports=false, reportPrivateUsage=false

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from graphgen.errors import GraphgenError
from graphgen.runtime import aws_tnx as stand_ins
from graphgen.runtime.aws_tnx.shim_modules import MODULES


def test_nothing_is_there_unless_it_is_asked_for():
    assert not [name for name in MODULES if name in sys.modules]
    with pytest.raises(ModuleNotFoundError):
        import_module("torch_neuronx")


@pytest.mark.usefixtures("installed")
def test_every_name_of_the_table_is_found():
    assert all(stand_ins.install().values())
    for name, names in MODULES.items():
        module = import_module(name)
        assert stand_ins.is_stand_in(name)
        for key in names:
            assert key == "*" or getattr(module, key) is not None
    from torch_neuronx.proto import metaneff_pb2
    from torch_neuronx.pyhlo import xla_data_pb2

    assert (xla_data_pb2.PrimitiveType.TUPLE, xla_data_pb2.F32) == (13, 11)
    assert xla_data_pb2.PrimitiveType.Name(16) == "BF16"
    assert xla_data_pb2.PrimitiveType.Value("PRED") == 1
    for name in [
        "UINT8",
        "INT8",
        "INT16",
        "INT32",
        "INT64",
        "UINT16",
        "FLOAT16",
        "FLOAT",
        "DOUBLE",
        "BFLOAT16",
    ]:
        assert metaneff_pb2.MetaTensor.DataType[name]


def test_a_real_module_is_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "torch_neuronx").mkdir()
    (tmp_path / "torch_neuronx" / "__init__.py").write_text("real = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        used = stand_ins.install()
        assert import_module("torch_neuronx").real
        assert not used["torch_neuronx.pyhlo.scribe"]
        assert used["libneuronxla"]
        assert "torch_neuronx.pyhlo" not in sys.modules
        assert "neuron" not in torch.classes.__dict__
    finally:
        stand_ins.uninstall()
        sys.modules.pop("torch_neuronx", None)
    assert not [name for name in MODULES if name in sys.modules]


@pytest.mark.usefixtures("installed")
def test_names_without_a_stand_in_are_named():
    with pytest.raises(GraphgenError, match=r"neuron\._load_collectives_neuron has no stand-in"):
        torch.ops.neuron._load_collectives_neuron(None)


def on_ranks(*tensors: torch.Tensor) -> Any:
    return torch.ops.neuron._parallel_to_neuron(list(tensors))


@pytest.mark.usefixtures("installed")
def test_tensors_on_ranks():
    host = torch.arange(6, dtype=torch.bfloat16).reshape(3, 2)
    tensor = on_ranks(host, host + 1)
    assert isinstance(tensor, torch.Tensor)
    assert (tensor.shape, tensor.dtype, tensor.device.type) == ((3, 2), torch.bfloat16, "xla")
    assert (tensor.dim(), tensor.numel(), tensor.size(1), len(tensor)) == (2, 6, 2, 3)
    host.zero_()
    first, second = torch.ops.neuron._parallel_from_neuron(tensor)
    assert (first[2, 1], second[2, 1]) == (5, 6)
    part = torch.ops.neuron._parallel_slice_neuron(tensor, 0, 1, 3, 1)
    torch.ops.neuron._parallel_write_neuron(part, [torch.ones(2, 2, dtype=torch.bfloat16)] * 2)
    first, _ = torch.ops.neuron._parallel_from_neuron(tensor)
    assert first.tolist() == [[0, 1], [1, 1], [1, 1]]
    torch.ops.neuron._parallel_write_neuron(tensor, [torch.tensor([7, 8], dtype=host.dtype)] * 2)
    first, _ = torch.ops.neuron._parallel_from_neuron(tensor)
    assert first.tolist() == [[7, 8], [1, 1], [1, 1]]
    one = torch.ops.neuron._to_neuron(host, 0)
    assert torch.ops.neuron._from_neuron(one).tolist() == host.tolist()


@pytest.mark.usefixtures("installed")
def test_mathematics_on_ranks_is_refused():
    tensor = on_ranks(torch.ones(2), torch.ones(2))
    for mistake in (lambda: tensor + 1, lambda: torch.cat([tensor]), lambda: tensor.tolist()):
        with pytest.raises(GraphgenError, match="of a tensor on the ranks"):
            mistake()
    with pytest.raises(GraphgenError, match="the ranks' tensors differ"):
        on_ranks(torch.ones(2), torch.ones(3))
    with pytest.raises(GraphgenError, match="1 tensors are written to 2 ranks"):
        torch.ops.neuron._parallel_write_neuron(tensor, [torch.ones(2)])
    with pytest.raises(GraphgenError, match="does not fit"):
        torch.ops.neuron._parallel_write_neuron(tensor, [torch.ones(3)] * 2)


def loaded(function: Any, ranks: int = 1) -> Any:
    from libneuronxla import neuron_xla_compile
    from torch_neuronx.pyhlo.scribe import HloScribe

    proto = HloScribe()(function).module_proto
    model = torch.classes.neuron.ParallelModel(neuron_xla_compile(proto.data, ""), ranks)
    model.load()
    return model


def ran(model: Any, output: torch.Tensor, *given: Any) -> list[torch.Tensor]:
    """What the ranks give for one tensor each."""
    ranks = model.ranks
    sets = [torch.classes.neuron.ParallelTensorSet(["t"] * max(len(given), 1), ranks) for _ in "io"]
    for index, tensor in enumerate(given):
        sets[0].add(index, tensor)
    sets[1].add(0, on_ranks(*[output] * ranks))
    torch.ops.neuron._parallel_run_neuron(model, *sets)
    return torch.ops.neuron._parallel_from_neuron(sets[1].tensor(0))


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("host", "kind"),
    [(torch.int32, "u32"), (torch.int64, "s64"), (torch.bool, "pred"), (torch.float16, "f16"),
     (torch.float8_e4m3fn, "f8e4m3fn")],
    ids=["u32", "s64", "pred", "f16", "f8e4m3fn"],
)  # fmt: skip
def test_element_types_by_their_bytes(host: torch.dtype, kind: str):
    def turn(scribe):
        x = scribe.get_dtype(kind)[3].Parameter(parameter_number=0)
        return x.dtype[3].Reverse(x, dimensions=[0])

    given = torch.tensor([1, 0, 1]).to(host)
    given[0] = -1 if host is torch.int32 else given[0]
    (found,) = ran(loaded(turn), torch.zeros(3).to(host), on_ranks(given))
    assert found.to(torch.float32).tolist() == given.to(torch.float32).flip(0).tolist()


@pytest.mark.usefixtures("installed")
def test_programs_without_collectives_run_on_every_rank():
    def double(scribe):
        x = scribe.f32[2].Parameter(parameter_number=0)
        return scribe.f32[2].Add(x, x)

    model = loaded(double, 2)
    tensor = on_ranks(torch.tensor([1.0, 2]), torch.tensor([3.0, 4]))
    assert [t.tolist() for t in ran(model, torch.zeros(2), tensor)] == [[2, 4], [6, 8]]
    # What is written between two runs is read by the second.
    torch.ops.neuron._parallel_write_neuron(tensor, [torch.tensor([5.0, 6])] * 2)
    assert [t.tolist() for t in ran(model, torch.zeros(2), tensor)] == [[10, 12]] * 2


@pytest.mark.usefixtures("installed")
def test_random_numbers_follow_from_the_seed_of_torch_and_the_run():
    def draw(scribe):
        low, high = (scribe.f32.Constant(constant_value=n) for n in (0, 1))
        return scribe.f32[64].Rng(low, high, distribution=1)

    torch.manual_seed(4)
    model = loaded(draw, 2)
    first, other = ran(model, torch.zeros(64))
    assert torch.equal(first, other)
    assert 0 <= first.min() < first.max() < 1
    assert not torch.equal(first, ran(model, torch.zeros(64))[0])
    again = loaded(draw)
    assert torch.equal(first, ran(again, torch.zeros(64))[0])


@pytest.mark.usefixtures("installed")
def test_mistakes_of_a_runtime_are_named():
    from libneuronxla import neuron_xla_compile

    with pytest.raises(GraphgenError, match="is given no HLO module"):
        neuron_xla_compile(b"nonsense", "")
    with pytest.raises(GraphgenError, match="input_format 'stablehlo'"):
        neuron_xla_compile(b"", "", input_format="stablehlo")
    with pytest.raises(GraphgenError, match="these bytes are not of graphgen's neuron_xla_compile"):
        torch.classes.neuron.ParallelModel(b"NEFF", 1).load()
    with pytest.raises(GraphgenError, match="ranks 2 to 3 of 4"):
        torch.classes.neuron.ParallelModel(b"", 2, 2, 4)
    sets = torch.classes.neuron.ParallelTensorSet(["only"], 1)
    with pytest.raises(GraphgenError, match="tensor 1 of a set of 1"):
        sets.add(1, on_ranks(torch.ones(1)))
    with pytest.raises(GraphgenError, match="only was not added"):
        sets.tensor(0)
    with pytest.raises(GraphgenError, match="the model is not loaded"):
        torch.classes.neuron.ParallelModel(b"", 1).run(sets, sets)


@pytest.mark.usefixtures("installed")
def test_inputs_that_are_not_passed_keep_their_contents():
    def total(scribe):
        x, y = (scribe.f32[2].Parameter(parameter_number=i) for i in (0, 1))
        return scribe.f32[2].Add(x, y)

    model = loaded(total)
    sets = [torch.classes.neuron.ParallelTensorSet(["t"] * 2, 1) for _ in "io"]
    given = [on_ranks(torch.zeros(2)), on_ranks(torch.tensor([3.0, 4]))]
    out = on_ranks(torch.zeros(2))
    sets[0].add(0, given[0])
    sets[0].add(1, given[1])
    sets[1].add(0, out)
    executor = torch.classes.neuron.ParallelExecutor(model, *sets, given, [out])
    (found,) = torch.ops.neuron._parallel_executor_run(executor, [torch.tensor([1.0, 2])], -1)
    assert found.tolist() == [4, 6]


# Native kernels


def traced_kernel(function: Any, *shapes: Any, grid: Any = ()) -> Any:
    """A custom call as frameworks write it, with a subclass of FrameworkKernel."""
    from neuronxcc.nki import FrameworkKernel
    from torch_neuronx.pyhlo.scribe import HloShape

    class Traced(FrameworkKernel):
        def translate_to_neuron_dtype(self, _dtype: Any) -> object:
            return _dtype

        def is_framework_tensor(self, t: Any) -> bool:
            return isinstance(t, HloShape)

        def map_framework_tensor(self, t: Any) -> Any:
            return tuple(t.shape_proto.dimensions), t.shape_proto.element_type

    kernel = Traced(func_name=function.__name__, func=function, grid=grid)
    config, _, _ = kernel.dump_config(*shapes)
    *given, out = shapes
    return out.CustomCall(
        *given, backend_config=config.encode(), custom_call_target="AwsNeuronCustomNativeKernel"
    )


@pytest.mark.usefixtures("installed")
def test_a_wrapped_cumulative_sum_runs_on_the_ranks():
    from neuronxcc.nki.kernels.cumsum import cumsum

    def _cumsum(inputs, output):
        return cumsum(inputs, output, axis=1)

    def total(scribe):
        x = scribe.f32[2, 5].Parameter(parameter_number=0)
        return traced_kernel(_cumsum, x, x.dtype[x.sizes])

    given = torch.rand(2, 5)
    (found,) = ran(loaded(total), torch.zeros(2, 5), on_ranks(given))
    np.testing.assert_allclose(found, given.cumsum(1), rtol=1e-5)


@pytest.mark.usefixtures("installed")
def test_wrapped_flash_attention_runs_on_the_ranks():
    from neuronxcc.nki.kernels.attention import flash_fwd

    def attention(q, k, v, o, lse=None):
        flash_fwd[2, 3](
            q, k, v, None, o, lse, softmax_scale=0.5, use_causal_mask=True, mixed_precision=True,
            dropout_p=0.0,
        )  # fmt: skip

    def body(scribe):
        q, k = (scribe.f32[1, 2, 4, 6].Parameter(parameter_number=i) for i in (0, 1))
        v = scribe.f32[1, 2, 6, 4].Parameter(parameter_number=2)
        return traced_kernel(attention, q, k, v, scribe.f32[1, 2, 6, 4], grid=[1, 2])

    q, k, v = torch.rand(1, 2, 4, 6), torch.rand(1, 2, 4, 6), torch.rand(1, 2, 6, 4)
    wanted = torch.nn.functional.scaled_dot_product_attention(
        q.mT, k.mT, v, is_causal=True, scale=0.5
    )
    (found,) = ran(loaded(body), torch.zeros(1, 2, 6, 4), *map(on_ranks, (q, k, v)))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("installed")
def test_kernels_that_are_not_one_published_call_are_refused():
    from neuronxcc.nki.kernels.attention import flash_fwd
    from neuronxcc.nki.kernels.cumsum import cumsum

    def mine(x, y):
        """A kernel without a published call."""

    def turned(q, k, o):
        flash_fwd(k, q, q, None, o, dropout_p=0.0)

    def dropping(x, y):
        flash_fwd(x, x, x, None, y, dropout_p=0.5)

    for function, count, message in (
        (mine, 1, "kernel 'mine' is not one call"),
        (turned, 2, "kernel 'turned' is not one call"),
        (dropping, 1, "dropout is not built"),
    ):

        def body(scribe, function=function, count=count):
            given = [scribe.f32[2, 5].Parameter(parameter_number=i) for i in range(count)]
            return traced_kernel(function, *given, scribe.f32[2, 5])

        with pytest.raises(GraphgenError, match=message):
            loaded(body)
    with pytest.raises(GraphgenError, match="cumsum is called outside of a program"):
        cumsum(None, None)


@pytest.mark.parametrize("name", ["LlamaConfig", "MistralConfig", "MixtralConfig"])
def test_the_base_of_rotary_embeddings_is_the_models(name: str):
    """The library takes 10,000 where a configuration has no rope_theta."""
    kind: Any = getattr(transformers, name)
    before = hasattr(kind(), "rope_theta")
    stand_ins.install()
    try:
        assert kind(rope_parameters={"rope_type": "default", "rope_theta": 5e5}).rope_theta == 5e5
    finally:
        stand_ins.uninstall()
    assert hasattr(kind(), "rope_theta") == before


def test_gpt_neox_has_the_names_that_the_library_reads():
    from transformers import GPTNeoXConfig

    def names() -> list[bool]:
        return [hasattr(GPTNeoXConfig(), name) for name in ("rotary_pct", "rotary_emb_base")]

    before = names()
    stand_ins.install()
    try:
        config: Any = GPTNeoXConfig(
            rope_parameters={
                "rope_type": "default",
                "partial_rotary_factor": 0.5,
                "rope_theta": 5000.0,
            }
        )
        assert (config.rotary_pct, config.rotary_emb_base) == (0.5, 5000.0)
    finally:
        stand_ins.uninstall()
    assert names() == before
