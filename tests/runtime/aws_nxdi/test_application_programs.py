"""Programs of several ranks, of two batch sizes, with 8-bit weights: as applications."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.passes.quantization.quantize_flags import quantization_pass
from graphgen.runtime.aws_nxdi.model_classes import NeuronLlamaForCausalLM
from graphgen.runtime.generation import GenerationRequest, generate
from graphgen.runtime.progress import Silent
from tests.oracles.sessions import open_session
from tests.runtime.aws_nxdi.conftest import Checkpoint

PROMPTS = np.array([[5, 6, 7, 8], [9, 11, 12, 0], [3, 0, 0, 0]])
MASK = (PROMPTS != 0).astype(np.int64)
LENGTHS = MASK.sum(1)


def opened(llama: Checkpoint, **given: Any) -> NeuronLlamaForCausalLM:
    """A loaded application of three rows of 32 tokens."""
    application = NeuronLlamaForCausalLM(llama.path, llama.config(seq_len=32, **given))
    application.progress = Silent()
    return application.to_cpu()


def greedy(application: NeuronLlamaForCausalLM, steps: int = 4) -> tuple[Any, Any]:
    """Tokens [steps,3] and logits [steps,3,V] that follow the prompts."""
    application.reset_kv_cache()
    out: Any = application.forward(input_ids=PROMPTS, attention_mask=MASK)
    logits = [out.logits[:, 0]]
    for step in range(steps - 1):
        token = logits[-1].argmax(-1)[:, None]
        place = (LENGTHS + step)[:, None]
        out = application.forward(input_ids=token, position_ids=place)
        logits.append(out.logits[:, 0])
    return np.array(logits).argmax(-1), np.array(logits)


@pytest.fixture(scope="module")
def plain(llama: Checkpoint) -> tuple[Any, Any]:
    """Tokens and logits of one rank in f32."""
    return greedy(opened(llama))


def test_two_ranks_compute_what_one_computes(llama: Checkpoint, plain: tuple[Any, Any]):
    application = opened(llama, tp_degree=2)
    assert application.running().model.settings.tp == 2
    tokens, logits = greedy(application)
    assert (tokens == plain[0]).all()
    np.testing.assert_allclose(logits, plain[1], atol=2e-5)


def test_two_ranks_have_a_file_of_weights_each(
    llama: Checkpoint, plain: tuple[Any, Any], tmp_path: Path
):
    application = NeuronLlamaForCausalLM(llama.path, llama.config(seq_len=32, tp_degree=2))
    application.compile(tmp_path / "compiled")
    names = [path.name for path in sorted((tmp_path / "compiled" / "weights").iterdir())]
    assert names == [f"tp{rank}_sharded_checkpoint.safetensors" for rank in range(2)]
    loaded = NeuronLlamaForCausalLM(tmp_path / "compiled").load(tmp_path / "compiled")
    np.testing.assert_allclose(greedy(loaded)[1], plain[1], atol=2e-5)


def test_prompts_one_at_a_time_and_next_tokens_of_all_rows(llama: Checkpoint):
    """Continuous batching: a row that ends is replaced while the others go on."""
    application = opened(
        llama, is_continuous_batching=True, ctx_batch_size=1, tkg_batch_size=3, max_batch_size=3
    )
    settings = application.running().model.settings
    assert (settings.prefill_batch, settings.batch) == ((1,), (3,))
    rows = [[5, 6, 7, 8], [9, 11, 12], [3]]

    def prompt(row: int) -> int:
        out: Any = application.forward(input_ids=np.array([rows[row]]), seq_ids=np.array([row]))
        np.testing.assert_allclose(out.logits[0, 0], llama.logits(rows[row]), atol=2e-5)
        return int(out.logits[0, 0].argmax())

    def step(order: list[int]) -> None:
        """One token more for the rows, in an order; checked row by row."""
        for row in order:
            rows[row].append(following[row])
        out: Any = application.forward(
            input_ids=np.array([[rows[row][-1]] for row in order]),
            position_ids=np.array([[len(rows[row]) - 1] for row in order]),
            seq_ids=np.array(order),
        )
        for place, row in enumerate(order):
            wanted = llama.logits(rows[row])
            np.testing.assert_allclose(out.logits[place, 0], wanted, atol=2e-5)
            following[row] = int(out.logits[place, 0].argmax())

    following = [prompt(row) for row in range(3)]
    step([0, 1, 2])
    step([2, 0, 1])
    step([2, 0])  # row 1 has ended
    rows[1] = [20, 21]
    following[1] = prompt(1)
    step([1, 2, 0])
    step([0, 1, 2])


@pytest.mark.parametrize("scheme", ["per_tensor_symmetric", "per_channel_symmetric"])
def test_8_bit_weights_are_those_of_the_commands_flags(
    llama: Checkpoint, plain: tuple[Any, Any], scheme: str, tmp_path: Path
):
    path = tmp_path / "never-written"
    application = opened(
        llama,
        quantized=True,
        quantization_type=scheme,
        quantized_checkpoints_path=str(path),
        modules_to_not_convert=["lm_head"],
    )
    tokens, logits = greedy(application)
    assert not path.exists()
    error = np.abs(logits[0] - plain[1][0]).max() / np.abs(plain[1][0]).max()
    assert 1e-5 < error < 0.1
    # As graphgen generate --quantized --quantization-type compiles, which leaves lm_head out.
    flags = quantization_pass(quantized=True, scheme=scheme, dtype=None, skip=None)
    assert flags is not None
    config = CompileConfig(dtype="f32", quantization=flags).serving(batch=3, max_len=32)
    session = open_session(llama.path, config)
    prompts = [row[:size].tolist() for row, size in zip(PROMPTS, LENGTHS, strict=True)]
    made, _ = generate(session, prompts, GenerationRequest(max_new_tokens=4))
    assert [completion.tokens for completion in made] == tokens.T.tolist()
    session.reset()
    first = session.prefill(prompts, "right")
    np.testing.assert_allclose(np.asarray(first), logits[0], atol=2e-5)
