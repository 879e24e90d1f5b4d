"""transformers-neuronx's models on small random checkpoints, against transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from graphgen.errors import GraphgenError
from graphgen.runtime.aws import tnx
from graphgen.runtime.aws_tnx.tnx_model import TnxModel
from tests.oracles.families import ORACLES, save

EOS = 2
SIZES: dict[str, Any] = {"max_position_embeddings": 64}
CLASSES = {
    "llama": tnx.LlamaForSampling,
    "mistral": tnx.MistralForSampling,
    "gpt2": tnx.GPT2ForSampling,
    "opt": tnx.OPTForSampling,
    "bloom": tnx.BloomForSampling,
    "gptj": tnx.GPTJForSampling,
    "gpt_neox": tnx.GPTNeoXForSampling,
    "qwen2": tnx.Qwen2ForSampling,
    "qwen3": tnx.Qwen3ForSampling,
    "mixtral": tnx.MixtralForSampling,
}


def checkpoint(folder: Path, family: str, variant: str = "plain", **changes: Any):
    """A random model of transformers, and its folder."""
    model = ORACLES[family].model(variant, **changes)
    save(model, folder)
    return model, folder


def opened(folder: Path, **options: Any) -> Any:
    given = {"batch_size": 2, "n_positions": 32, "tp_degree": 1, **options}
    model = tnx.NeuronAutoModelForCausalLM.from_pretrained(folder, **given)
    model.to_neuron()
    return model


# `generate` is a method of the classes of each family, not of PreTrainedModel.
def greedy(model: Any, ids: torch.Tensor, length: int, **others: Any) -> torch.Tensor:
    return model.generate(
        ids, max_length=length, do_sample=False, eos_token_id=EOS, pad_token_id=EOS, **others
    )


def sampled(model: TnxModel, ids: torch.Tensor, length: int, **options: Any) -> torch.Tensor:
    """The tokens of a call that gives no scores."""
    tokens = model.sample(ids, sequence_length=length, **options)
    assert isinstance(tokens, torch.Tensor)
    return tokens


def filled(tokens: torch.Tensor, length: int) -> torch.Tensor:
    """Sequences of one length: the ends of those that stopped early."""
    missing = length - tokens.shape[1]
    return torch.nn.functional.pad(tokens, (0, missing), value=EOS)


def prompts(rows: int, size: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(3, 60, (rows, size), generator=torch.Generator().manual_seed(seed))


def refused(code: str, call: Callable[..., object], *arguments: Any, **options: Any) -> str:
    with pytest.raises(GraphgenError) as raised:
        call(*arguments, **options)
    assert raised.value.code == code, raised.value
    assert raised.value.help
    return str(raised.value)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[PreTrainedModel, Any, Path]:
    model, folder = checkpoint(tmp_path_factory.mktemp("llama"), "llama", eos_token_id=EOS, **SIZES)
    return model, opened(folder), folder


FAST = ("gpt2", "gptj")


@pytest.mark.parametrize(
    "family",
    [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in CLASSES],
)
def test_greedy_tokens_are_those_of_transformers(family: str, tmp_path: Path):
    reference, folder = checkpoint(tmp_path, family)
    ours = CLASSES[family].from_pretrained(folder, batch_size=3, n_positions=24, tp_degree=1)
    ours.to_neuron()
    ids = prompts(3, 7)
    got = ours.sample(ids, sequence_length=20, top_k=1, eos_token_override=EOS)
    assert got.dtype == torch.int64
    torch.testing.assert_close(filled(got, 20), filled(greedy(reference, ids, 20), 20))
    # The same prompts with different amounts of padding on their left.
    starts = torch.tensor([0, 2, 4])
    mask = (torch.arange(7)[None] >= starts[:, None]).long()
    padded = torch.where(mask.bool(), ids, 0)
    got = ours.sample(padded, 20, start_ids=starts, top_k=1, eos_token_override=EOS)
    want = greedy(reference, padded, 20, attention_mask=mask)
    torch.testing.assert_close(filled(got, 20), filled(want, 20))


@pytest.mark.parametrize(
    ("family", "variant"),
    [("llama", "its own head size"), ("llama", "another activation")],
)
@pytest.mark.slow
def test_sizes_and_activations_of_the_checkpoint_count(family: str, variant: str, tmp_path: Path):
    # Peers compute the head size from the hidden size, and have one activation a family.
    reference, folder = checkpoint(tmp_path, family, variant)
    got = opened(folder).sample(prompts(2, 5), 16, top_k=1, eos_token_override=EOS)
    torch.testing.assert_close(filled(got, 16), filled(greedy(reference, prompts(2, 5), 16), 16))


def test_a_prompt_longer_than_its_largest_bucket(llama: tuple[PreTrainedModel, Any, Path]):
    reference, ours, _ = llama
    ids, starts = prompts(2, 25), torch.tensor([0, 20])
    assert max(ours.session.table.buckets("prefill")) == 16
    mask = (torch.arange(25)[None] >= starts[:, None]).long()
    got = ours.sample(ids, 30, start_ids=starts, top_k=1)
    want = greedy(reference, ids, 30, attention_mask=mask)
    torch.testing.assert_close(filled(got, 30), filled(want, 30))


def test_ranks_and_no_prompt_buckets(llama: tuple[PreTrainedModel, Any, Path]):
    reference, _, folder = llama
    ours = opened(folder, tp_degree=2, context_length_estimate=0)
    got = ours.sample(prompts(2, 5), 12, top_k=1)
    torch.testing.assert_close(filled(got, 12), filled(greedy(reference, prompts(2, 5), 12), 12))


def test_a_sequence_ends_at_its_end_token(llama: tuple[PreTrainedModel, Any, Path]):
    _, ours, _ = llama
    ids = prompts(2, 5)
    whole = ours.sample(ids, 30, top_k=1, eos_token_override=0)
    first, second = whole[:, 5:].tolist()
    end = next(token for token in first if token not in second[:4])
    at = first.index(end)
    got = ours.sample(ids, 30, top_k=1, eos_token_override=end)
    assert got[0, 5 : 6 + at].tolist() == first[: at + 1]
    assert set(got[0, 5 + at :].tolist()) == {end}
    assert got[1, 5:9].tolist() == second[:4]


def test_a_streamer_gets_each_token_once(llama: tuple[PreTrainedModel, Any, Path]):
    class Streamer:
        def __init__(self) -> None:
            self.put_tokens: list[torch.Tensor] = []
            self.ends = 0

        def put(self, tokens: torch.Tensor) -> None:
            assert not self.ends
            self.put_tokens.append(tokens)

        def end(self) -> None:
            self.ends += 1

    _, ours, _ = llama
    streamer = Streamer()
    got = ours.sample(prompts(2, 5), sequence_length=12, start_ids=None, top_k=1, streamer=streamer)
    assert streamer.ends == 1
    assert [each.shape for each in streamer.put_tokens] == [(2, 1)] * (got.shape[1] - 5)
    assert torch.equal(torch.cat(streamer.put_tokens, 1), got[:, 5:])


def test_a_streamer_that_skips_the_prompt_gets_all_new_tokens(
    llama: tuple[PreTrainedModel, Any, Path],
):
    from transformers import TextStreamer

    class Words:
        def decode(self, tokens: list[int], **_: object) -> str:
            return "".join(f" {token}" for token in tokens)

    class Kept(TextStreamer):
        text = ""

        def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
            self.text += text

    _, ours, _ = llama
    streamer = Kept(Words(), skip_prompt=True)  # type: ignore[arg-type]
    got = ours.sample(prompts(1, 5), 10, top_k=1, streamer=streamer)
    assert [int(word) for word in streamer.text.split()] == got[0, 5:].tolist()


def test_stopping_criteria_see_all_tokens_and_scores(llama: tuple[PreTrainedModel, Any, Path]):
    _, ours, _ = llama
    seen: list[tuple[torch.Size, torch.Size]] = []

    class Length(tnx.StoppingCriteria):
        def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> bool:
            seen.append((input_ids.shape, scores.shape))
            return input_ids.shape[1] >= 8

    rules = tnx.StoppingCriteriaList([lambda ids, scores, **_: False, Length()])
    got = ours.sample(prompts(2, 5), 30, top_k=1, stopping_criteria_list=rules)
    assert got.shape == (2, 8)
    assert seen == [((2, size), (2, 61)) for size in (6, 7, 8)]
    # A tensor ends rows one by one.
    by_row = tnx.StoppingCriteriaList([lambda ids, scores, **_: torch.tensor([True, False])])
    got = ours.sample(prompts(2, 5), 9, top_k=1, stopping_criteria_list=by_row)
    assert got[0, 6:].tolist() == [EOS] * 3
    assert got[1].tolist() == ours.sample(prompts(2, 5), 9, top_k=1)[1].tolist()


def test_scores_are_logits_or_log_probabilities(llama: tuple[PreTrainedModel, Any, Path]):
    reference, ours, folder = llama
    ids = prompts(2, 5)
    tokens, scores = ours.sample(ids, 7, top_k=1, output_scores=True)
    with torch.no_grad():
        want = reference(tokens[:, :-1]).logits[:, 4:]
    torch.testing.assert_close(torch.stack(scores, 1), want, rtol=1e-4, atol=1e-4)
    logged = opened(folder, neuron_config=tnx.NeuronConfig(log_softmax_scores=True))
    got = logged.forward(ids)
    # Peers leave the maximum in, so that probabilities do not add up to 1.
    torch.testing.assert_close(got.exp().sum(1), torch.ones(2), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(got, want[:, 0].log_softmax(-1), rtol=1e-4, atol=1e-4)


def test_drawn_tokens_follow_from_the_seed_and_the_filters(
    llama: tuple[PreTrainedModel, Any, Path],
):
    reference, ours, _ = llama
    ids = prompts(2, 5)

    def drawn(seed: int, **options: Any) -> torch.Tensor:
        torch.manual_seed(seed)
        return ours.sample(ids, 30, eos_token_override=0, **options)

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))
    assert torch.equal(
        drawn(3, temperature=1e-4, top_k=5), ours.sample(ids, 30, top_k=1, eos_token_override=0)
    )
    got = drawn(4, top_k=2)
    with torch.no_grad():
        best = reference(got[:, :-1]).logits[:, 4:].topk(2).indices
    assert (best == got[:, 5:, None]).any(-1).all()


def test_no_ngram_repeats(llama: tuple[PreTrainedModel, Any, Path]):
    reference, ours, _ = llama
    ids = prompts(2, 5)
    got = ours.sample(ids, 30, top_k=1, no_repeat_ngram_size=2, eos_token_override=EOS)
    want = greedy(reference, ids, 30, no_repeat_ngram_size=2)
    torch.testing.assert_close(filled(got, 30), filled(want, 30))


def test_calls_that_cannot_be_are_refused(llama: tuple[PreTrainedModel, Any, Path]):
    _, ours, folder = llama
    ids = prompts(2, 5)
    assert "'top_q'" in refused("GG0901", ours.sample, ids, 10, top_q=0.5)
    # Peers take the largest program for what is longer than all.
    assert "n_positions=40" in refused("GG0701", ours.sample, ids, 40)
    told = refused("GG0701", ours.forward, prompts(2, 40))
    assert "e.g. n_positions=128" in told
    assert "--" not in told
    # A prompt that is as long already is returned, as in transformers-neuronx.
    assert torch.equal(ours.sample(ids, 4), ids)
    assert "batch_size=3" in refused("GG0705", ours.sample, prompts(3, 5), 10)
    refused("GG0705", ours.sample, torch.tensor([1, 2]), 10)
    refused("GG0705", ours.sample, ids, 10, start_ids=[1])
    refused("GG0908", ours.enable_speculative_decoder, 4)
    fresh = tnx.LlamaForSampling.from_pretrained(folder, n_positions=32, tp_degree=1)
    assert "to_neuron" in refused("GG0908", fresh.sample, ids, 10)
    refused("GG0908", ours.load, folder)
    refused("GG0903", ours.update_generation_config, tnx.GenerationConfig())


def test_the_class_is_that_of_the_family(llama: tuple[PreTrainedModel, Any, Path], tmp_path: Path):
    _, ours, folder = llama
    assert type(ours) is tnx.LlamaForSampling
    assert "llama" in refused("GG0501", tnx.GPT2ForSampling.from_pretrained, folder)
    (tmp_path / "pytorch_model.bin").mkdir()
    refused("GG0601", tnx.LlamaForSampling.from_pretrained, tmp_path)


def test_models_share_no_configuration(llama: tuple[PreTrainedModel, Any, Path]):
    # A strategy that one model falls back to would otherwise reach the next.
    _, ours, folder = llama
    other = tnx.LlamaForSampling.from_pretrained(folder, n_positions=32)
    assert other.neuron_config is not ours.neuron_config
    assert other.neuron_config.given == {}


def test_forward_is_one_step(llama: tuple[PreTrainedModel, Any, Path]):
    reference, ours, _ = llama
    ids, starts = prompts(2, 6), torch.tensor([0, 3])
    with torch.no_grad():
        rows = [reference(ids[row : row + 1, start:]).logits for row, start in enumerate(starts)]
    ours.reset_generation()
    prefill = ours(ids[:, :4], None, starts)
    step = ours.forward(ids[:, 4:5], torch.tensor([4]), starts)
    again = ours.forward(ids[:, 4:5], torch.tensor([4]), starts)
    last = ours.forward(ids[:, 5:], torch.tensor([5]), starts)
    assert torch.equal(step, again)
    for column, got in ((3, prefill), (4, step), (5, last)):
        want = torch.stack(
            [row[0, column - start] for row, start in zip(rows, starts, strict=True)]
        )
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    assert "holds 6" in refused("GG0705", ours.forward, ids[:, :1], torch.tensor([9]))


def test_rows_of_the_cache_are_reordered(llama: tuple[PreTrainedModel, Any, Path]):
    reference, _, folder = llama
    ours = opened(folder, reorder_cache=True)
    ids, starts = prompts(2, 6), torch.tensor([0, 0])
    ours.reset_generation()
    ours.forward(ids, None, starts)
    ours.reorder_cache(torch.tensor([1, 1]))
    got = ours.forward(torch.tensor([[5], [7]]), torch.tensor([6]), starts)
    rows = torch.tensor([[*ids[1].tolist(), 5], [*ids[1].tolist(), 7]])
    with torch.no_grad():
        want = reference(rows).logits[:, -1]
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    assert "rows 0 to 1" in refused("GG0705", ours.reorder_cache, [0, 2])


def test_sequences_join_and_leave_a_batch(llama: tuple[PreTrainedModel, Any, Path]):
    reference, _, folder = llama
    batching = tnx.ContinuousBatchingConfig(max_num_seqs=3)
    ours = opened(
        folder, batch_size=3, neuron_config=tnx.NeuronConfig(continuous_batching=batching)
    )

    def want(tokens: list[int]) -> torch.Tensor:
        with torch.no_grad():
            return reference(torch.tensor([tokens])).logits[0, -1]

    one, two = prompts(1, 6)[0].tolist(), prompts(1, 4, 1)[0].tolist()
    # Right-padded prompts into slots 2 and 0.
    ids = torch.tensor([one, [*two, 0, 0]])
    places = torch.tensor([[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 0, 0]])
    got = ours.forward(ids, places, torch.tensor([2, 0]))
    torch.testing.assert_close(got, torch.stack([want(one), want(two)]), rtol=1e-4, atol=1e-4)
    # A slot that takes no part in a step keeps its cache: peers overwrite its position 0.
    got = ours.forward(torch.tensor([[7]]), torch.tensor([[6]]), torch.tensor([2]))
    torch.testing.assert_close(got[0], want([*one, 7]), rtol=1e-4, atol=1e-4)
    got = ours.forward(torch.tensor([[9], [8]]), torch.tensor([[4], [7]]), torch.tensor([0, 2]))
    both = torch.stack([want([*two, 9]), want([*one, 7, 8])])
    torch.testing.assert_close(got, both, rtol=1e-4, atol=1e-4)


def test_one_prompt_gives_several_sequences(tmp_path: Path):
    reference, folder = checkpoint(tmp_path, "gpt2")
    ours = tnx.GPT2ForSamplingWithContextBroadcasting.from_pretrained(
        folder,
        prompt_batch_size=1,
        batch_size=5,
        n_positions=24,
        context_length_estimate=16,
        tp_degree=1,
    )
    ours.to_neuron()
    ids = prompts(1, 9)
    got = sampled(ours, ids, 16, top_k=1, eos_token_override=EOS)
    want = filled(greedy(reference, ids, 16), 16).expand(5, 16)
    torch.testing.assert_close(filled(got, 16), want)
    # Each sequence draws its own tokens.
    torch.manual_seed(0)
    drawn = sampled(ours, ids, 24, eos_token_override=0)
    assert len({tuple(row) for row in drawn.tolist()}) > 1
    assert (drawn[:, :9] == ids).all()


def test_saved_programs_are_not_compiled_again(
    llama: tuple[PreTrainedModel, Any, Path], tmp_path: Path
):
    _, ours, folder = llama
    ids = prompts(2, 5)
    want = ours.sample(ids, 12, top_k=1)
    ours.save(tmp_path / "compiled")
    assert not list((tmp_path / "compiled").rglob("*.safetensors"))
    again = tnx.LlamaForSampling.from_pretrained(folder, batch_size=2, n_positions=32, tp_degree=1)
    again.load(tmp_path / "compiled")
    again.to_neuron()
    assert ours.compiled
    assert not again.compiled
    assert torch.equal(sampled(again, ids, 12, top_k=1), want)
    again.save(tmp_path / "second")
    for options, word in (({"batch_size": 1}, "batch"), ({"n_positions": 16}, "max_len")):
        given: dict[str, Any] = {"batch_size": 2, "n_positions": 32, "tp_degree": 1, **options}
        other = tnx.LlamaForSampling.from_pretrained(folder, **given)
        other.load(tmp_path / "second")
        assert word in refused("GG0703", other.to_neuron)
    broken = next((tmp_path / "second" / "compiled").iterdir())
    broken.unlink()
    last = tnx.LlamaForSampling.from_pretrained(folder, batch_size=2, n_positions=32, tp_degree=1)
    last.load(tmp_path / "second")
    assert "lack" in refused("GG0703", last.to_neuron)


def test_saved_weights_of_every_rank_stand_for_the_checkpoint(tmp_path: Path):
    reference, folder = checkpoint(tmp_path / "model", "llama", **SIZES)
    config = tnx.NeuronConfig(on_device_embedding=True)
    options = {"batch_size": 1, "tp_degree": 2, "n_positions": 24, "neuron_config": config}
    model = tnx.LlamaForSampling.from_pretrained(folder, **options)
    model.to_neuron()
    model.save(tmp_path / "artifacts", sharded_weights=True)
    del model
    for file in folder.glob("*.safetensors"):
        file.unlink()
    presharded = tnx.LlamaForSampling.from_pretrained(tmp_path / "artifacts", **options)
    presharded.load(tmp_path / "artifacts")
    presharded.to_neuron()
    assert not presharded.compiled
    ids = prompts(1, 5)
    got = sampled(presharded, ids, 16, top_k=1, eos_token_override=EOS)
    torch.testing.assert_close(filled(got, 16), filled(greedy(reference, ids, 16), 16))
    refused("GG0705", presharded.save, tmp_path / "again", sharded_weights=True)
    wrong = tnx.LlamaForSampling.from_pretrained(
        tmp_path / "artifacts", batch_size=1, tp_degree=1, n_positions=24
    )
    assert "tp 2" in refused("GG0703", wrong.to_neuron)


def test_a_split_model_is_a_checkpoint(llama: tuple[PreTrainedModel, Any, Path], tmp_path: Path):
    reference, ours, _ = llama
    tnx.save_pretrained_split(reference, tmp_path / "split")
    again = tnx.NeuronAutoModelForCausalLM.from_pretrained(
        tmp_path / "split", n_positions=32, tp_degree=1
    )
    assert again.config == ours.config


def test_quantized_weights_change_tokens_little(
    llama: tuple[PreTrainedModel, Any, Path],
):
    reference, _, folder = llama
    quant = tnx.QuantizationConfig(quant_dtype="s8", dequant_dtype="f32")
    ours = opened(folder, neuron_config=tnx.NeuronConfig(quant=quant))
    with torch.no_grad():
        want = reference(prompts(2, 6)).logits[:, -1]
    got = ours.forward(prompts(2, 6))
    error = (got - want).abs().max() / want.abs().max()
    assert 1e-5 < error < 0.1
    kinds = {str(row.physical.dtype) for row in ours.session.module.interface.values()}
    assert "s8" in kinds


@pytest.mark.parametrize("strategy", list(tnx.GQA))
@pytest.mark.slow
def test_strategies_of_heads_give_the_same_tokens(strategy: Any, tmp_path: Path):
    reference, folder = checkpoint(tmp_path, "mistral")
    config = tnx.NeuronConfig(group_query_attention=strategy)
    ours = tnx.MistralForSampling.from_pretrained(
        folder, amp="f32", batch_size=2, tp_degree=2, n_positions=24, neuron_config=config
    )
    ours.to_neuron()
    got = sampled(ours, prompts(2, 5), 16, top_k=1, eos_token_override=EOS)
    torch.testing.assert_close(filled(got, 16), filled(greedy(reference, prompts(2, 5), 16), 16))


def test_programs_draw_by_the_settings_of_each_line(
    llama: tuple[PreTrainedModel, Any, Path],
):
    reference, host, folder = llama
    batch = 2
    generation = tnx.GenerationConfig(
        max_length=32,
        dynamic=True,
        per_batch_line=True,
        do_sample=True,
        top_k=[1] * batch,
        top_p=[1.0] * batch,
        top_p_min_tokens=[1] * batch,
        temperature=[1.0] * batch,
        global_top_k=256,
    )
    model = opened(folder, neuron_config=tnx.NeuronConfig(on_device_generation=generation))
    ids = prompts(2, 5)
    best = host.sample(ids, 30, top_k=1, eos_token_override=0)
    assert torch.equal(model.sample(ids, 30, eos_token_override=0), best)
    generation.top_k = [1, 3]
    generation.top_p = [1.0, 0.9]
    generation.top_p_min_tokens = [1, 2]
    generation.temperature = [1.0, 0.9]
    # Changes reach the model with the call below, not before.
    assert torch.equal(model.sample(ids, 30, eos_token_override=0), best)
    model.update_generation_config(generation)
    torch.manual_seed(0)
    drawn = model.sample(ids, 30, eos_token_override=0)
    assert torch.equal(drawn[0], best[0])
    assert not torch.equal(drawn[1], best[1])
    with torch.no_grad():
        ranked = reference(drawn[1:, :-1]).logits[:, 4:].topk(3).indices
    assert (ranked == drawn[1:, 5:, None]).any(-1).all()
    torch.manual_seed(0)
    assert torch.equal(model.sample(ids, 30, eos_token_override=0), drawn)
    generation.top_k = [1, 2, 3]
    refused("GG0903", model.update_generation_config, generation)
    refused("GG0903", model.sample, ids, 30, top_k=7)
    refused("GG0903", model.sample, ids, 30, output_scores=True)
    changed = tnx.GenerationConfig(dynamic=True, do_sample=True, global_top_k=8)
    refused("GG0903", model.update_generation_config, changed)


def test_programs_with_fixed_settings(llama: tuple[PreTrainedModel, Any, Path]):
    _, host, folder = llama
    generation = tnx.GenerationConfig(
        max_length=20, top_k=10, top_p=0.9, top_p_min_tokens=1, temperature=0.9, do_sample=True
    )
    model = opened(folder, neuron_config=tnx.NeuronConfig(on_device_generation=generation))
    ids = prompts(2, 5)
    torch.manual_seed(5)
    drawn = model.sample(ids, sequence_length=30, top_k=10, eos_token_override=0)
    # max_length is the shorter.
    assert drawn.shape == (2, 20)
    torch.manual_seed(5)
    expected = host.sample(ids, 20, top_k=10, top_p=0.9, temperature=0.9, eos_token_override=0)
    assert torch.equal(drawn, expected)
    refused("GG0903", model.update_generation_config, generation)
    tokens = model.forward(ids)
    assert tokens.shape == (2, 1)
    assert np.issubdtype(tokens.numpy().dtype, np.integer)


def test_a_process_does_not_answer_for_one_of_several_nodes(
    llama: tuple[PreTrainedModel, Any, Path], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("NEURON_RT_ROOT_COMM_ID", "10.0.0.1:63423")
    monkeypatch.setenv("NEURON_RANK_ID", "1")
    monkeypatch.setenv("NEURON_LOCAL_TP", "32")
    with pytest.raises(GraphgenError, match="NEURON_RANK_ID=1, NEURON_LOCAL_TP=32") as caught:
        tnx.LlamaForSampling.from_pretrained(llama[2], tp_degree=1, amp="f32", n_positions=32)
    assert caught.value.code == "GG0904"
