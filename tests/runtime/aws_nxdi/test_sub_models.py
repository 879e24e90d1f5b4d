"""Sub-models with inputs of their own: compiled, opened in a new process, compared with PyTorch."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_nxdi.application_base import NeuronApplicationBase
from graphgen.runtime.aws_nxdi.base_model import ModelWrapper
from tests.oracles import torch_models
from tests.oracles.saved_arrays import saved_arrays
from tests.oracles.torch_models import SteeredModel, configured, random_state
from tests.runtime.aws_nxdi.conftest import Checkpoint

ROOT = Path(__file__).resolve().parents[3]
CONFIG = {
    "model_type": "steered",
    "hidden_size": 24,
    "intermediate_size": 30,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 51,
    "steering_size": 6,
}
PROMPTS = [[5, 6, 7, 8, 9], [9, 10, 11, 12, 3]]
STEER = np.random.default_rng(0).standard_normal((2, 6)).astype(np.float32)
STEPS = 4
# Opens a folder, and answers: the logits of each step of greedy decoding.
ANSWER = f"""
import sys
import numpy as np
from tests.oracles.torch_models import SteeredApplication
model = SteeredApplication(sys.argv[1])
model.load(sys.argv[1])
steer = np.load(sys.argv[2])
ids, found = np.array({PROMPTS}, np.int32), []
for step in range({STEPS}):
    given = ids if step == 0 else ids[:, -1:]
    first = 0 if step == 0 else ids.shape[1] - 1
    places = np.tile(np.arange(first, ids.shape[1], dtype=np.int32), (2, 1))
    logits = model(given, places, steer)[:, -1]
    found.append(logits)
    ids = np.concatenate([ids, logits.argmax(-1)[:, None].astype(np.int32)], 1)
np.savez(sys.argv[3], logits=np.stack(found), tokens=ids)
"""


@pytest.fixture(scope="module")
def steered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("steered")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    save_file(random_state(SteeredModel(configured(folder, 1))), folder / "model.safetensors")
    return folder


def eager(folder: Path) -> SteeredModel:
    """The model in PyTorch, with the weights of the checkpoint."""
    from safetensors.torch import load_file

    made = SteeredModel(configured(folder, 1))
    made.load_state_dict(load_file(folder / "model.safetensors"))
    return made.eval()


@pytest.mark.slow
@pytest.mark.parametrize("tp", [1, 2])
def test_two_sub_models_share_weights_and_caches_in_a_new_process(
    steered: Path, tp: int, tmp_path: Path
):
    torch_models.SteeredApplication(steered, configured(steered, tp)).compile(tmp_path / "made")
    np.save(tmp_path / "steer.npy", STEER)
    files = [str(tmp_path / name) for name in ("made", "steer.npy", "answers.npz")]
    words = [sys.executable, "-c", ANSWER, *files]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = saved_arrays(tmp_path / "answers.npz")
    model, ids = eager(steered), torch.tensor(PROMPTS, dtype=torch.int32)
    for step in range(STEPS):
        # The whole sequence again, from an empty cache.
        for name, buffer in model.named_buffers():
            assert "_" in name
            buffer.zero_()
        places = torch.arange(ids.shape[1], dtype=torch.int32).expand(2, -1)
        with torch.no_grad():
            wanted = model(ids, places, torch.from_numpy(STEER))[:, -1]
        np.testing.assert_allclose(found["logits"][step], wanted.numpy(), atol=3e-5)
        ids = torch.cat([ids, wanted.argmax(-1)[:, None].to(torch.int32)], 1)
    np.testing.assert_array_equal(found["tokens"], ids.numpy())


@pytest.mark.slow
def test_a_sub_model_beside_a_causal_model_runs_from_a_folder(llama: Checkpoint, tmp_path: Path):
    folder = tmp_path / "scored"
    torch_models.ScoredForCausalLM(llama.path, configured(llama.path, 2)).compile(folder)
    made = torch_models.ScoredForCausalLM(folder).load(folder)
    ids = torch.tensor(PROMPTS)
    logits: Any = made(input_ids=ids).logits
    with torch.no_grad():
        wanted = llama.model(ids).logits[:, -1]
    torch.testing.assert_close(logits[:, 0], wanted, atol=3e-5, rtol=0)
    scored = made.score(logits[:, 0])
    torch.testing.assert_close(scored["scores"], wanted.log_softmax(-1), atol=3e-5, rtol=0)
    torch.testing.assert_close(scored["best"], scored["scores"].amax(-1))


class Counter(nn.Module):
    """A product, and a count of its calls."""

    def __init__(self, config: Any):
        super().__init__()
        self.inner = nn.Linear(3, 2)
        self.register_buffer("calls", torch.zeros(1), persistent=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.get_buffer("calls").add_(1)
        return self.inner(x), self.get_buffer("calls") * 1


class CounterWrapper(ModelWrapper):
    """Four rows of three numbers."""

    def input_generator(self) -> list[Any]:
        return [(torch.zeros((4, 3)),)]


def counter_checkpoint(folder: Path) -> Path:
    from safetensors.torch import save_file

    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "counter"}))
    state = {"inner.weight": torch.arange(6.0).view(2, 3), "inner.bias": torch.tensor([1.0, -1.0])}
    save_file(state, folder / "model.safetensors")
    return folder


def counter(folder: Path, kind: Any = Counter, **given: Any) -> NeuronApplicationBase:
    made = NeuronApplicationBase(folder, configured(folder, 1, **given))
    made.models.append(CounterWrapper(made.config, kind, "counter"))
    return made


def test_a_sub_model_computes_in_memory_and_keeps_its_state(tmp_path: Path):
    made = counter(counter_checkpoint(tmp_path / "counter"))
    assert not made.is_loaded_to_neuron
    with pytest.raises(GraphgenError, match="'counter' cannot be called") as caught:
        made.models[0](torch.zeros((4, 3)))
    assert caught.value.code == "GG0908"
    made.to_cpu()
    assert made.is_loaded_to_neuron
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    for number in (1, 2):
        product, calls = made.models[0](x)
        wanted = x @ np.arange(6.0).reshape(2, 3).T + [1, -1]
        np.testing.assert_allclose(product, wanted, rtol=1e-6)
        assert calls.tolist() == [number]
    with pytest.raises(GraphgenError, match=r"of the sizes \[2, 3\]") as caught:
        made.models[0](x[:2])
    assert caught.value.code == "GG0402"
    assert "it has [4, 3]" in str(caught.value.help)
    with pytest.raises(GraphgenError, match="NeuronApplicationBase has no forward"):
        made(x)


class Doubled(Counter):
    """Twice the product, in another shape of inputs."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.inner(x) * 2, x * 1


class TwoRows(ModelWrapper):
    """Two rows of three numbers."""

    def input_generator(self) -> list[Any]:
        return [(torch.zeros((2, 3)),)]


def test_a_tag_that_continues_another_has_programs_of_its_own(tmp_path: Path):
    made = counter(counter_checkpoint(tmp_path / "counter"))
    made.models.append(TwoRows(made.config, Doubled, "counter.0"))
    made.to_cpu()
    x = torch.arange(6.0).view(2, 3)
    wanted = 2 * (x @ torch.arange(6.0).view(2, 3).T + torch.tensor([1.0, -1.0]))
    torch.testing.assert_close(made.models[1](x), (wanted, x))
    with pytest.raises(GraphgenError, match="'counter' has no program for inputs of the sizes"):
        made.models[0](x)


class Chosen(Counter):
    """Rows of the weight, by their indices."""

    def forward(self, x: torch.Tensor) -> Any:
        return self.inner.weight[x]


class Indices(ModelWrapper):
    """Two indices."""

    def input_generator(self) -> list[Any]:
        return [(torch.zeros(2, dtype=torch.int32),)]


def test_inputs_of_another_kind_are_refused(tmp_path: Path):
    made = counter(counter_checkpoint(tmp_path / "counter"))
    made.models.append(Indices(made.config, Chosen, "chosen"))
    made.to_cpu()
    weight = torch.arange(6.0).view(2, 3)
    wide: Any = made.models[1](torch.tensor([1, 0]))
    assert torch.equal(wide, weight[[1, 0]])
    for given, what in (
        (torch.tensor([0.9, 1.9]), "'chosen': x is float32, and its program takes integers"),
        (torch.tensor([True, False]), "'chosen': x is bool, and its program takes integers"),
        (torch.tensor([1 << 32, 0]), "'chosen': x has an integer that is not of type int32"),
    ):
        with pytest.raises(GraphgenError, match=what) as caught:
            made.models[1](given)
        assert caught.value.code == "GG0402"
    with pytest.raises(GraphgenError, match="x is int64, and its program takes floats"):
        made.models[0](torch.zeros((4, 3), dtype=torch.int64))
    rounded: Any = made.models[0](np.ones((4, 3)))
    np.testing.assert_array_equal(rounded[0], torch.ones(4, 3) @ weight.T + torch.tensor([1, -1]))


class NoInputs(ModelWrapper):
    """A generator that forgets to return its list."""

    def input_generator(self) -> Any:
        return None


class EmptyInputs(ModelWrapper):
    """A tuple without the input of the module."""

    def input_generator(self) -> Any:
        return [()]


class LooseInputs(ModelWrapper):
    """Tensors that are not in tuples."""

    def input_generator(self) -> Any:
        return [torch.zeros((4, 3))]


def refusal(made: NeuronApplicationBase, tmp_path: Path) -> str:
    """What compiling refuses; nothing is written."""
    with pytest.raises(GraphgenError) as caught:
        made.compile(tmp_path / "never")
    assert not (tmp_path / "never").exists()
    assert caught.value.code in ("GG0502", "GG0602", "GG0903", "GG0904")
    return f"{caught.value.what} {caught.value.where} {caught.value.note}"


def test_what_sub_models_do_not_build_is_refused_by_name(tmp_path: Path):
    folder = counter_checkpoint(tmp_path / "counter")

    class Filled(Counter):
        def __init__(self, config: Any):
            super().__init__(config)
            self.get_buffer("calls").add_(3)

    class Attending(Counter):
        def __init__(self, config: Any):
            super().__init__(config)
            self.attention = torch_models.NeuronAttentionBase(
                config, hidden_size=4, num_attention_heads=2
            )

    class Larger(Counter):
        def __init__(self, config: Any):
            super().__init__(config)
            self.inner = nn.Linear(3, 5)

    class Failing(Counter):
        def forward(self, x: torch.Tensor) -> Any:
            raise ValueError("no such shape")

    class Unpacking(Counter):
        """Fails in a function of the standard library."""

        def forward(self, x: torch.Tensor) -> Any:
            return inspect.signature(lambda a, b: a).bind(x)

    assert "the buffer calls of 'counter' changes" in refusal(counter(folder, Filled), tmp_path)
    assert "'counter' has NeuronAttentionBase" in refusal(counter(folder, Attending), tmp_path)
    found = refusal(counter(folder, Failing), tmp_path)
    assert "ValueError: no such shape" in found
    assert "test_sub_models.py:" in found
    assert "test_sub_models.py:" in refusal(counter(folder, Unpacking), tmp_path)
    assert "inner.weight" in refusal(counter(folder, Larger), tmp_path)
    two = counter(folder)
    two.models.append(CounterWrapper(two.config, Larger, "other"))
    assert "is f32[2,3] in 'counter.0' and f32[5,3] in 'other.0'" in refusal(two, tmp_path)
    two.models[1].tag = "counter"
    assert "two sub-models are called 'counter'" in refusal(two, tmp_path)
    two.models[0].tag, two.models[1].tag = "a b", "a.b"
    found = refusal(two, tmp_path)
    assert "two sub-models are called 'a_b', by the tags 'a b' and 'a.b'" in found
    two.models[0].tag, two.models[1].tag = "counter", "other"
    two.models[1] = NoInputs(two.config, Counter, "other")
    assert "'other' is a sub-model beside those of the family without" in refusal(two, tmp_path)
    two.models[1] = LooseInputs(two.config, Counter, "other")
    assert "models: input 0 of 'other' is a Tensor" in refusal(two, tmp_path)
    two.models[1] = EmptyInputs(two.config, Counter, "other")
    found = refusal(two, tmp_path)
    assert "'other' cannot be traced: TypeError: missing a required argument: 'x'" in found
    assert ".py:" not in found
    assert "'counter' for trn2" in refusal(counter(folder, target="trn2"), tmp_path)
    assert "has no model" in refusal(NeuronApplicationBase(folder, two.config), tmp_path)


def test_attributes_of_families_are_refused_without_one(tmp_path: Path):
    folder = counter_checkpoint(tmp_path / "counter")
    with pytest.raises(GraphgenError, match="quantized = True for an application without"):
        counter(folder, quantized=True, quantized_checkpoints_path=str(tmp_path / "q"))
