"""Models in PyTorch with NxD's layers: compiled, opened in a new process, compared with PyTorch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_nxdi.base_model import NeuronBaseModel
from graphgen.runtime.aws_nxdi.causal_lm import NeuronBaseForCausalLM
from graphgen.runtime.aws_nxdi.torch_layers import (
    ColumnParallelLinear,
    NeuronAttentionBase,
    ParallelEmbedding,
    RowParallelLinear,
    cached_attention,
    layout_rules,
)
from tests.oracles import torch_models
from tests.oracles.saved_arrays import saved_arrays
from tests.oracles.torch_models import configured, headed_logits, random_state
from tests.runtime.aws_nxdi.conftest import Checkpoint

ROOT = Path(__file__).resolve().parents[3]
PROMPTS = [[5, 6, 7, 8, 11], [9, 10, 3, 12, 40]]
STEPS = 4
# Opens a folder by its class, and answers: the logits of each step of greedy decoding.
ANSWER = f"""
import sys
import numpy as np
from tests.oracles import torch_models
model = getattr(torch_models, sys.argv[1])(sys.argv[2])
model.load(sys.argv[2])
ids, found = np.array({PROMPTS}), []
for step in range({STEPS}):
    given = ids if step == 0 else ids[:, -1:]
    first = 0 if step == 0 else ids.shape[1] - 1
    places = np.tile(np.arange(first, ids.shape[1]), (2, 1))
    logits = np.asarray(model(input_ids=given, position_ids=places).logits)[:, 0]
    found.append(logits)
    ids = np.concatenate([ids, logits.argmax(-1)[:, None]], 1)
np.savez(sys.argv[3], logits=np.stack(found), tokens=ids)
"""


@dataclass(frozen=True)
class Own:
    """A checkpoint of a class in PyTorch, and f32 [B,S,V] of the model without NxD's layers."""

    application: str
    path: Path
    logits: Callable[[torch.Tensor], torch.Tensor]


@pytest.fixture(scope="module")
def llama_of_layers(llama: Checkpoint) -> Own:
    def logits(ids: torch.Tensor) -> torch.Tensor:
        return llama.model(ids).logits

    return Own("OwnLlamaForCausalLM", llama.path, logits)


@pytest.fixture(scope="module")
def headed(tmp_path_factory: pytest.TempPathFactory) -> Own:
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("headed")
    config = {
        "model_type": "headed",
        "hidden_size": 48,
        "intermediate_size": 52,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "num_hidden_layers": 2,
        "sliding_window": 4,
        "vocab_size": 77,
        "max_position_embeddings": 64,
    }
    (folder / "config.json").write_text(json.dumps(config))
    made: Any = torch_models.HeadedModel(configured_of(config))
    state = random_state(made)
    save_file(state, folder / "model.safetensors")
    return Own("HeadedForCausalLM", folder, lambda ids: headed_logits(state, config, ids))


def configured_of(values: dict[str, Any]) -> Any:
    """A configuration of these attributes."""
    from graphgen.runtime.aws_config.inference_config import InferenceConfig
    from graphgen.runtime.aws_config.neuron_config import NeuronConfig

    given = {name: value for name, value in values.items() if name != "model_type"}
    return InferenceConfig(NeuronConfig(torch_dtype="float32"), **given)


def answers(own: Own, tp: int, folder: Path, **given: Any) -> Any:
    """What a new process answers that opens the compiled folder."""
    kind = getattr(torch_models, own.application)
    kind(own.path, configured(own.path, tp, **given)).compile(folder)
    out = folder.parent / "answers.npz"
    words = [sys.executable, "-c", ANSWER, own.application, str(folder), str(out)]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return saved_arrays(out)


@pytest.mark.slow
@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("model", ["llama_of_layers", "headed"])
def test_a_folder_of_a_model_in_pytorch_answers_as_pytorch(
    model: str, tp: int, request: pytest.FixtureRequest, tmp_path: Path
):
    own: Own = request.getfixturevalue(model)
    found = answers(own, tp, tmp_path / "compiled")
    ids = torch.tensor(PROMPTS)
    for step in range(STEPS):
        with torch.no_grad():
            wanted = own.logits(ids)[:, -1]
        np.testing.assert_allclose(found["logits"][step], wanted.numpy(), atol=3e-5)
        ids = torch.cat([ids, wanted.argmax(-1)[:, None]], 1)
    np.testing.assert_array_equal(found["tokens"], ids.numpy())


@pytest.mark.slow
def test_a_model_in_pytorch_generates_through_transformers(llama_of_layers: Own):
    from graphgen.runtime.aws_nxdi.hf_adapter import HuggingFaceGenerationAdapter

    made = torch_models.OwnLlamaForCausalLM(
        llama_of_layers.path, configured(llama_of_layers.path, 2)
    ).to_cpu()
    ids = torch.tensor(PROMPTS)
    got: Any = HuggingFaceGenerationAdapter(made).generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, do_sample=False, pad_token_id=0
    )
    for _ in range(4):
        with torch.no_grad():
            ids = torch.cat([ids, llama_of_layers.logits(ids)[:, -1].argmax(-1)[:, None]], 1)
    assert got.tolist() == ids.tolist()


def test_an_application_behaves_as_a_module(llama: Checkpoint):
    made = torch_models.OwnLlamaForCausalLM(llama.path, configured(llama.path, 1))
    assert made.eval() is made
    assert made.train(False) is made
    assert not made.training
    with pytest.raises(GraphgenError, match="applications are not trained"):
        made.train()
    state = made.state_dict()
    torch.testing.assert_close(state["norm.weight"], llama.model.model.norm.weight.detach())
    named = dict(made.named_parameters())
    assert named.keys() == state.keys()
    assert len(list(made.parameters())) == len(state)
    assert all(isinstance(value, nn.Parameter) for value in named.values())
    assert not any(value.requires_grad for value in named.values())


def test_layers_compute_as_torch_s():
    torch.manual_seed(0)
    x, ids = torch.randn(2, 3, 8), torch.tensor([[1, 4, 2]])
    for kind in (ColumnParallelLinear, RowParallelLinear):
        own, other = kind(8, 6, gather_output=True), nn.Linear(8, 6)
        own.load_state_dict(other.state_dict())
        torch.testing.assert_close(own(x), other(x))
        # NxD's order: gather_output or input_is_parallel, and the element type.
        narrow = kind(8, 6, False, True, torch.bfloat16)
        assert (narrow.bias, narrow.weight.dtype) == (None, torch.bfloat16)
    table, plain = ParallelEmbedding(5, 4, pad=True), nn.Embedding(5, 4)
    table.load_state_dict(plain.state_dict())
    torch.testing.assert_close(table(ids), plain(ids))


@pytest.mark.parametrize("window", [0, 2])
def test_attention_without_a_cache_is_torch_s(window: int):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 5, heads, 4) for heads in (6, 3, 3))
    place = torch.arange(5)
    near = (place[:, None] >= place) & ((place[:, None] - place < window) | (window == 0))
    got = cached_attention(q, k, v, "layer", 0.5, window, 0.0, None)
    turned = [x.transpose(1, 2) for x in (q, k, v)]
    wanted = nn.functional.scaled_dot_product_attention(
        *turned, attn_mask=near, scale=0.5, enable_gqa=True
    )
    torch.testing.assert_close(got, wanted.transpose(1, 2).flatten(2))


def test_parallel_layers_state_their_layouts():
    class Parts(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = ParallelEmbedding(5, 4)
            self.wide = ParallelEmbedding(5, 4, shard_across_embedding=True)
            self.up = ColumnParallelLinear(4, 6)
            self.down = RowParallelLinear(6, 4)
            self.tied = ColumnParallelLinear(4, 5, bias=False)
            self.tied.weight = self.table.weight
            self.attention = NeuronAttentionBase(None, hidden_size=4, num_attention_heads=2)

    assert sorted(layout_rules(Parts())) == [
        "down.weight:{-,tp}",
        "table.weight:{tp,-}",
        "up.bias:{tp}",
        "up.weight:{tp,-}",
        "wide.weight:{-,tp}",
    ]


def test_what_attention_does_not_build_is_refused_by_name():
    with pytest.raises(GraphgenError, match="attention_chunk_size = 4 is not built") as caught:
        NeuronAttentionBase(None, attention_chunk_size=4)
    assert caught.value.code == "GG0904"


@pytest.mark.parametrize(
    ("given", "what", "help_"),
    [
        ({"silding_window": 4}, "has no argument silding_window", "did you mean sliding_window?"),
        ({"logits_soft_cap": 30.0}, "has no argument logits_soft_cap", ""),
        ({"qk_scale": 1.0}, "has no argument qk_scale", ""),
        ({"qk_norm_placement": 1}, "qk_norm_placement = 1 is not built", "leave it out"),
        ({"o_proj_layer_name": "dense"}, "o_proj_layer_name = 'dense' is not built", ""),
    ],
)
def test_arguments_of_attention_are_not_ignored(given: Any, what: str, help_: str):
    with pytest.raises(GraphgenError, match=re.escape(what)) as caught:
        NeuronAttentionBase(None, **given)
    assert caught.value.code == "GG0904"
    assert help_ in str(caught.value.help)


def test_arguments_of_parallel_layers_are_not_ignored():
    for kind, name in ((ColumnParallelLinear, "Column"), (RowParallelLinear, "Row")):
        with pytest.raises(GraphgenError, match=f"{name}ParallelLinear has no argument baias"):
            kind(4, 4, baias=False)
        with pytest.raises(GraphgenError, match="skip_bias_add = True is not built"):
            kind(4, 4, skip_bias_add=True)
        kind(4, 4, skip_bias_add=False, stride=1, init_method=None)
    with pytest.raises(GraphgenError, match=r"ParallelEmbedding: max_norm = 1.0 is not built"):
        ParallelEmbedding(4, 4, max_norm=1.0)
    ParallelEmbedding(4, 4, max_norm=None, sparse=False)


def test_attention_bounds_and_scales_scores():
    torch.manual_seed(0)
    x = torch.randn(1, 3, 8)
    own = NeuronAttentionBase(
        None, hidden_size=8, num_attention_heads=2, softcap=0.5, softmax_scale=0.7, rope_theta=1e4
    )
    for value in own.parameters():
        value.normal_()
    q, k, v = (
        own.get_submodule(f"{name}_proj")(x).view(1, 3, 2, 4).transpose(1, 2) for name in "qkv"
    )
    scores = 0.5 * torch.tanh(0.7 * (q @ k.transpose(-1, -2)) / 0.5)
    scores = scores.masked_fill(torch.ones(3, 3).triu(1) != 0, float("-inf"))
    wanted = own.get_submodule("o_proj")((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(own(x)[0], wanted)


def application_of(model: type[NeuronBaseModel]) -> type[NeuronBaseForCausalLM]:
    """An application of a class."""

    class Application(NeuronBaseForCausalLM):
        _model_cls = model

    return Application


class Small(NeuronBaseModel):
    """The least that is a model."""

    def init_model(self, config: Any) -> None:
        self.embed_tokens = ParallelEmbedding(config.vocab_size, 8)
        self.layers = nn.ModuleList()
        self.norm = nn.LayerNorm(8)
        self.lm_head = ColumnParallelLinear(8, config.vocab_size, bias=False)


def refusal_of(model: type[NeuronBaseModel], path: Path) -> GraphgenError:
    """What building refuses."""
    with pytest.raises(GraphgenError) as caught:
        application_of(model)(path, configured(path, 1)).build()
    return caught.value


def test_an_argument_of_a_layer_is_refused_by_name(llama: Checkpoint):
    class Misspelt(Small):
        def init_model(self, config: Any) -> None:
            super().init_model(config)
            self.lm_head = ColumnParallelLinear(8, config.vocab_size, baias=False)

    found = refusal_of(Misspelt, llama.path)
    assert (found.code, found.help) == ("GG0904", "did you mean bias?")


def test_a_model_that_gives_no_tensor_is_refused(llama: Checkpoint):
    class Forgetful(Small):
        def get_model_output(self, *args: Any, **kwargs: Any) -> Any:
            super().get_model_output(*args, **kwargs)

    found = refusal_of(Forgetful, llama.path)
    assert found.code == "GG0502"
    assert "None, not a tensor" in found.what


def test_a_branch_on_values_is_refused_with_its_line(llama: Checkpoint):
    class Branching(Small):
        def get_model_output(self, input_ids: Any = None, **kwargs: Any) -> tuple[Any, ...]:
            x = self.embed_tokens(input_ids)
            if x.sum() > 0:
                x = x + 1
            return (x,)

    error = refusal_of(Branching, llama.path)
    assert "branches on the value of a tensor: if x.sum() > 0:" in error.what
    assert str(error.where).startswith("test_torch_models.py:")


def test_an_op_without_a_rule_is_refused_with_its_line(llama: Checkpoint):
    class Unknown(Small):
        def get_model_output(self, input_ids: Any = None, **kwargs: Any) -> tuple[Any, ...]:
            return (torch.special.bessel_j0(self.embed_tokens(input_ids)),)

    error = refusal_of(Unknown, llama.path)
    assert error.code == "GG0103"
    assert "special_bessel_j0" in error.what
    assert "test_torch_models.py:" in str(error.note)


def test_a_class_that_fails_is_refused_with_its_line(llama: Checkpoint):
    class Failing(Small):
        def init_model(self, config: Any) -> None:
            self.layers = config.no_such_attribute

    class Reading(Small):
        def get_model_output(
            self, input_ids: Any = None, attention_mask: Any = None, **kwargs: Any
        ) -> tuple[Any, ...]:
            return (self.embed_tokens(input_ids) + attention_mask.sum(),)

    error = refusal_of(Failing, llama.path)
    assert "no_such_attribute" in error.what
    assert str(error.where).startswith("test_torch_models.py:")
    error = refusal_of(Reading, llama.path)
    assert error.code == "GG0502"
    assert "NoneType" in error.what
    assert str(error.where).startswith("test_torch_models.py:")
    assert "masks and caches are those of NeuronAttentionBase" in str(error.help)


def test_a_buffer_that_changes_is_refused_by_name(llama: Checkpoint):
    class Counting(Small):
        def init_model(self, config: Any) -> None:
            super().init_model(config)
            cast(Any, self).register_buffer("count", torch.zeros(8))

        def get_model_output(self, input_ids: Any = None, **kwargs: Any) -> tuple[Any, ...]:
            self.count += 1
            return (self.embed_tokens(input_ids) + self.count,)

    error = refusal_of(Counting, llama.path)
    assert "the buffer count is changed by the program" in error.what


def test_a_forward_of_its_own_is_refused_by_name(llama: Checkpoint):
    class Forward(Small):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return None

    with pytest.raises(GraphgenError, match="has a forward of its own") as caught:
        application_of(Forward)(llama.path, configured(llama.path, 1))
    assert "get_model_output" in str(caught.value.help)


def test_a_model_in_pytorch_runs_a_prompt_without_being_compiled(llama: Checkpoint):
    made: Any = torch_models.OwnLlamaModel(configured(llama.path, 1))
    state = {name.removeprefix("model."): value for name, value in llama.model.state_dict().items()}
    made.load_state_dict(state)
    ids = torch.tensor(PROMPTS)
    with torch.no_grad():
        torch.testing.assert_close(made(ids), llama.model(ids).logits, atol=2e-5, rtol=1e-5)
