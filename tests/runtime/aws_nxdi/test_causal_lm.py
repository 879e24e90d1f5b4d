"""Applications run: logits and tokens against transformers, rows of the cache, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.aws import nxdi
from graphgen.runtime.aws_config.inference_config import load_pretrained_config
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.aws_nxdi.model_classes import CAUSAL_LM, NeuronLlamaForCausalLM
from tests.oracles.families import ORACLES, save
from tests.runtime.aws_nxdi.conftest import Checkpoint

PROMPTS = [[5, 6, 7, 8, 9], [11, 12], [3]]


@pytest.fixture(scope="module")
def loaded(llama: Checkpoint, compiled: Path) -> NeuronLlamaForCausalLM:
    return NeuronLlamaForCausalLM(llama.path, llama.config()).load(compiled)


@pytest.fixture
def application(loaded: NeuronLlamaForCausalLM) -> NeuronLlamaForCausalLM:
    loaded.reset_kv_cache()
    return loaded


def padded(prompts: list[list[int]], side: str) -> dict[str, Any]:
    """Prompts as transformers hands them over: position 1 at padding."""
    width = max(map(len, prompts))
    ids, mask = np.zeros((2, len(prompts), width), np.int64)
    for row, prompt in enumerate(prompts):
        place = slice(0, len(prompt)) if side == "right" else slice(width - len(prompt), width)
        ids[row, place], mask[row, place] = prompt, 1
    positions = np.where(mask == 1, mask.cumsum(1) - 1, 1)
    return {"input_ids": ids, "attention_mask": mask, "position_ids": positions}


def close(given: Any, wanted: Any) -> None:
    np.testing.assert_allclose(np.asarray(given), wanted, atol=2e-5)


@pytest.mark.parametrize("side", ["right", "left"])
def test_ragged_prompts_and_next_tokens_are_those_of_transformers(
    application: Any, llama: Checkpoint, side: str
):
    rows = [2, 0, 1]
    out: Any = application.forward(**padded(PROMPTS, side), seq_ids=np.array(rows))
    assert out.logits.shape == (3, 1, 300)
    assert out.tokens is None
    for row, prompt in enumerate(PROMPTS):
        close(out.logits[row, 0], llama.logits(prompt))
    # Rows in another order, and one of them not in the call.
    out = application.forward(
        input_ids=np.array([[1], [2]]), position_ids=np.array([[1], [5]]), seq_ids=np.array([1, 2])
    )
    close(out.logits[0, 0], llama.logits([3, 1]))
    close(out.logits[1, 0], llama.logits([5, 6, 7, 8, 9, 2]))
    out = application.forward(input_ids=np.array([[4]]), seq_ids=np.array([0]))
    close(out.logits[0, 0], llama.logits([11, 12, 4]))


def test_a_prompt_replaces_its_row_and_no_other(application: Any, llama: Checkpoint):
    application.forward(**padded(PROMPTS, "right"))
    application.forward(input_ids=np.array([[7, 7]]), seq_ids=np.array([1]))
    out: Any = application.forward(input_ids=np.array([[2], [2], [2]]))
    for row, tokens in enumerate([[5, 6, 7, 8, 9, 2], [7, 7, 2], [3, 2]]):
        close(out.logits[row, 0], llama.logits(tokens))


def test_a_prompt_and_next_tokens_go_in_one_call(application: Any, llama: Checkpoint):
    application.forward(input_ids=np.array([[5, 6]]))
    out: Any = application.forward(
        input_ids=np.array([[9], [3]]), position_ids=np.array([[0], [2]]), seq_ids=np.array([1, 0])
    )
    close(out.logits[0, 0], llama.logits([9]))
    close(out.logits[1, 0], llama.logits([5, 6, 3]))


def test_a_prompt_in_parts(application: Any, llama: Checkpoint):
    application.forward(input_ids=np.array([[5, 6, 7]]))
    out: Any = application.forward(
        input_ids=np.array([[8, 9], [3, 4]]),
        position_ids=np.array([[3, 4], [0, 1]]),
        attention_mask=np.ones((2, 2), np.int64),
    )
    close(out.logits[0, 0], llama.logits([5, 6, 7, 8, 9]))
    close(out.logits[1, 0], llama.logits([3, 4]))


def test_a_position_goes_back_as_long_as_it_leaves_no_gap(application: Any, llama: Checkpoint):
    application.forward(input_ids=np.array([[5, 6, 7, 8]]))
    out: Any = application.forward(input_ids=np.array([[9]]), position_ids=np.array([[2]]))
    close(out.logits[0, 0], llama.logits([5, 6, 9]))


def test_torch_in_torch_out(application: Any):
    import torch

    out: Any = application(
        torch.tensor([[5, 6]]), attention_mask=torch.ones(1, 2, dtype=torch.int64)
    )
    assert isinstance(out.logits, torch.Tensor)
    assert isinstance(application(np.array([[5, 6]])).logits, np.ndarray)
    assert isinstance(application(np.array([[5, 6]]), return_dict=False), tuple)


def test_rows_of_a_paged_cache_get_blocks_as_they_grow(llama: Checkpoint):
    config = llama.config(is_block_kv_layout=True, pa_block_size=4, pa_num_blocks=5)
    paged: Any = NeuronLlamaForCausalLM(llama.path, config).to_cpu()
    out: Any = paged.forward(**padded(PROMPTS, "right"), seq_ids=np.array([2, 0, 1]))
    for row, prompt in enumerate(PROMPTS):
        close(out.logits[row, 0], llama.logits(prompt))
    assert paged.running().session.blocks.blocks == 5
    # Rows 2, 0 and 1 have four blocks; a fifth is taken at position 8, and there is no sixth.
    text = list(PROMPTS[0])
    for token in (1, 2, 3, 4):
        text.append(token)
        place = {"position_ids": np.array([[len(text) - 1]]), "seq_ids": np.array([2])}
        hidden = {"output_hidden_states": token == 3}
        out = paged.forward(input_ids=np.array([[token]]), **place, **hidden)
        close(out.logits[0, 0], llama.logits(text))
    with pytest.raises(GraphgenError, match="5 blocks of 4 tokens") as caught:
        paged.forward(input_ids=np.array([[1, 2, 3, 4, 5]]), seq_ids=np.array([0]))
    assert caught.value.code == "GG0701"
    # A prompt gives back what its row had.
    place = {"position_ids": np.array([[0]]), "seq_ids": np.array([2])}
    paged.forward(input_ids=np.array([[9]]), **place)
    out = paged.forward(input_ids=np.array([[1, 2, 3, 4, 5]]), seq_ids=np.array([0]))
    close(out.logits[0, 0], llama.logits([1, 2, 3, 4, 5]))


def test_reset_makes_the_next_token_a_prompt(application: Any, llama: Checkpoint):
    assert not application.kv_cache_populated
    application.forward(input_ids=np.array([[5, 6]]))
    assert application.kv_cache_populated
    application.reset()
    assert not application.kv_cache_populated
    out: Any = application.forward(input_ids=np.array([[9]]))
    close(out.logits[0, 0], llama.logits([9]))


def test_the_capture_hook_gets_the_inputs(application: Any):
    seen: list[tuple[object, ...]] = []
    ids = np.array([[5, 6]])
    application.forward(input_ids=ids, input_capture_hook=lambda *inputs: seen.append(inputs))
    assert seen == [(ids, None, None, None, None)]


@pytest.mark.parametrize(
    ("name", "value", "feature"),
    [
        ("medusa_args", (1,), "tree speculation"),
        ("labels", [[1]], "training"),
        ("output_attentions", True, "attention weights"),
        ("use_cache", False, "without a cache"),
        ("past_key_values", (), "the caller"),
    ],
)
def test_arguments_of_features_to_come_are_refused(
    application: Any, name: str, value: object, feature: str
):
    with pytest.raises(GraphgenError, match=f"{name} of forward: .*{feature}") as error:
        application.forward(input_ids=np.array([[5]]), **{name: value})
    assert error.value.code == "GG0904"
    application.forward(input_ids=np.array([[5]]), **{name: None})


def test_unknown_arguments_are_refused(application: Any):
    with pytest.raises(GraphgenError, match="no argument 'adapter_id'") as error:
        application.forward(input_ids=np.array([[5]]), adapter_id=1)
    assert error.value.help == "did you mean adapter_ids?"


def test_sampling_params_need_dynamic_sampling(application: Any):
    ids = np.array([[5]])
    application.forward(input_ids=ids, sampling_params=np.ones((1, 3), np.float32))
    with pytest.raises(GraphgenError, match=r"sampling_params \[50.0, .* need dynamic") as error:
        application.forward(input_ids=ids, sampling_params=[[50, 0.5, 1]])
    assert error.value.code == "GG0903"


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_hidden_states_and_embeddings_are_those_of_transformers(family: str, tmp_path: Path):
    import torch

    model = ORACLES[family].model()
    save(model, tmp_path / "model")
    options = NeuronConfig(batch_size=2, seq_len=32, torch_dtype="float32")
    hook = load_pretrained_config(tmp_path / "model")
    kind = CAUSAL_LM[family]
    application = kind(tmp_path / "model", kind.get_config_cls()(options, hook)).to_cpu()
    prompts = [[5, 6, 7, 8], [11, 12]]
    call = padded(prompts, "left")
    table = model.get_input_embeddings()
    with torch.no_grad():
        embeds = table(torch.tensor(call.pop("input_ids")))
        wanted = [
            model(torch.tensor([prompt]), output_hidden_states=True).hidden_states
            for prompt in prompts
        ]
    out: Any = application.forward(inputs_embeds=embeds, output_hidden_states=True, **call)
    assert len(out.hidden_states) == len(wanted[0]) == 3
    for ours, first, second in zip(out.hidden_states, *wanted, strict=True):
        assert ours.shape == (2, 4, 32)
        close(ours[0], first[0])
        close(ours[1, 2:], second[0])
        close(ours[1, :2], 0)
    # The usual programs go on with the same cache, and these with theirs.
    checkpoint = Checkpoint(tmp_path / "model", model)
    out = application.forward(input_ids=np.array([[4], [3]]))
    close(out.logits[1, 0], checkpoint.logits([11, 12, 3]))
    out = application.forward(input_ids=np.array([[9]]), output_hidden_states=True)
    close(out.logits[0, 0], checkpoint.logits([5, 6, 7, 8, 4, 9]))
    assert out.hidden_states[0].shape == (1, 1, 32)


def test_tokens_or_embeddings(application: Any):
    for given in ({}, {"input_ids": [[1]], "inputs_embeds": np.zeros((1, 1, 32))}):
        with pytest.raises(GraphgenError, match="input_ids or inputs_embeds, one of both"):
            application.forward(**given)
    with pytest.raises(GraphgenError, match="inputs_embeds has 2 dimensions"):
        application.forward(inputs_embeds=np.zeros((1, 32)))


def test_a_prompt_longer_than_the_bucket_is_refused(application: Any):
    with pytest.raises(GraphgenError) as error:
        application.forward(input_ids=np.ones((1, 65), np.int64))
    assert error.value.code == "GG0701"


def test_calls_before_load_are_refused(llama: Checkpoint):
    application = NeuronLlamaForCausalLM(llama.path, llama.config())
    assert not application.is_loaded_to_neuron
    with pytest.raises(GraphgenError, match="NeuronLlamaForCausalLM is not loaded") as error:
        application.forward(input_ids=np.array([[5]]))
    assert error.value.code == "GG0908"


@pytest.fixture(scope="module")
def sampled(llama: Checkpoint) -> NeuronLlamaForCausalLM:
    """Draws tokens on the device, with settings per call."""
    config = llama.config(
        on_device_sampling_config={"do_sample": True, "dynamic": True, "global_topk": 0},
        output_logits=True,
    )
    return NeuronLlamaForCausalLM(llama.path, config).to_cpu()


def test_tokens_are_drawn_with_the_settings_of_each_row(
    sampled: NeuronLlamaForCausalLM, llama: Checkpoint
):
    sampled.reset()
    sampled.random = lambda count: np.full(count, 0.6)
    out: Any = sampled.forward(
        **padded(PROMPTS, "left"), sampling_params=[[0, 1.0, 1.0], [2, 1.0, 1.0], [0, 1.0, 0.0]]
    )
    for row, (prompt, kept) in enumerate(zip(PROMPTS, (300, 2, 1), strict=True)):
        logits = llama.logits(prompt)
        close(out.logits[row, 0], logits)
        order = np.argsort(-logits, kind="stable")[:kept]
        chance = np.exp(logits[order] - logits.max())
        wanted = order[int((np.cumsum(chance / chance.sum()) < 0.6).sum())]
        assert out.tokens[row] == wanted
    assert out.tokens.dtype == np.int64


@pytest.mark.one_in(3)
@pytest.mark.parametrize("family", sorted(set(CAUSAL_LM) - {"llama"}))
def test_every_family_runs(family: str, tmp_path: Path):
    model = ORACLES[family].model()
    save(model, tmp_path / "model")
    kind = CAUSAL_LM[family]
    config = kind.get_config_cls()(
        NeuronConfig(batch_size=2, seq_len=32, torch_dtype="float32"),
        load_config=load_pretrained_config(tmp_path / "model"),
    )
    checkpoint = Checkpoint(tmp_path / "model", model)
    application = kind(tmp_path / "model", config).to_cpu()
    prompts = [[5, 6, 7, 8, 9, 10], [11, 12]]
    out: Any = application.forward(**padded(prompts, "left"), seq_ids=[1, 0])
    for row, prompt in enumerate(prompts):
        close(out.logits[row, 0], checkpoint.logits(prompt))
    out = application.forward(input_ids=np.array([[4], [3]]), seq_ids=[0, 1])
    close(out.logits[0, 0], checkpoint.logits([*prompts[1], 4]))
    close(out.logits[1, 0], checkpoint.logits([*prompts[0], 3]))


def test_async_mode_is_noted_where_steps_wait(
    llama: Checkpoint, capsys: pytest.CaptureFixture[str]
):
    config = llama.config(seq_len=16, async_mode=True, on_device_sampling_config={}, pp_degree=2)
    model = NeuronLlamaForCausalLM(llama.path, config).to_cpu()
    assert "async_mode" not in capsys.readouterr().err
    model.forward(np.array([[5, 6, 7]]))
    model.forward(np.array([[9]]), seq_ids=np.array([0]), position_ids=np.array([[3]]))
    err = capsys.readouterr().err
    assert err.count("NeuronConfig.async_mode = True has no effect on stages") == 1


def test_settings_of_all_rows_are_plain_numbers():
    import torch

    made = nxdi.prepare_sampling_params(batch_size=2, top_k=5, top_p=0.9, temperature=1.0)
    assert isinstance(made, torch.Tensor)
    assert torch.equal(made, torch.tensor([[5, 0.9, 1]] * 2))
