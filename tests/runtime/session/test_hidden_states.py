"""Hidden states as outputs and embeddings as inputs: those of transformers, for every family."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from graphgen.build import Builder
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import DType, Value
from graphgen.ir.dtype import f32
from graphgen.models import FAMILIES, Family, LlamaConfig, ProgramForm, build_module, read_llama
from graphgen.nn import StepInputs, embed, lm_head, rms_norm
from graphgen.runtime.session.session import Session
from tests.oracles.families import ORACLES, save
from tests.oracles.llama import SIZES, write_llama
from tests.oracles.sessions import open_session

TEXTS = ([5, 9, 2, 40, 7, 33], [11, 3, 58])
WIDTH = max(map(len, TEXTS)) - 1


def theirs(model: PreTrainedModel, text: list[int]) -> tuple[list[np.ndarray], np.ndarray]:
    """The hidden states [S,E] and the logits [S,V] of one text."""
    with torch.no_grad():
        made = model(torch.tensor([text]), use_cache=False, output_hidden_states=True)
    return [state[0].numpy() for state in made.hidden_states], made.logits[0].numpy()


def inputs(model: PreTrainedModel, *, embedded: bool) -> tuple[np.ndarray, np.ndarray]:
    """All tokens of the texts but the last, padded on the left, and their positions."""
    tokens = np.zeros((len(TEXTS), WIDTH), np.int32)
    positions = np.full((len(TEXTS), WIDTH), -1, np.int32)
    for row, text in enumerate(TEXTS):
        tokens[row, WIDTH + 1 - len(text) :] = text[:-1]
        positions[row, WIDTH + 1 - len(text) :] = np.arange(len(text) - 1)
    return embeddings(model, tokens) if embedded else tokens, positions


def embeddings(model: PreTrainedModel, tokens: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return model.get_input_embeddings()(torch.tensor(tokens)).numpy()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("tp", "embedded"), [(1, False), (1, True), (2, True)])
@pytest.mark.one_in(7)
def test_states_and_logits_are_those_of_transformers(
    family: str, tp: int, embedded: bool, tmp_path: Path
):
    variant = "norms behind, projected" if family == "opt" else "plain"
    model = ORACLES[family].model(variant, initializer_range=0.1)
    save(model, tmp_path)
    config = CompileConfig(
        batch=(2,), context=(8,), tokens=(8,), hidden_states=True, inputs_embeds=embedded, tp=tp
    )
    session = open_session(tmp_path, config)
    tokens, positions = inputs(model, embedded=embedded)
    prefill = session.step(tokens, positions, [1, 0])
    last = np.array([[text[-1]] for text in TEXTS], np.int32)
    decode = session.step(
        embeddings(model, last) if embedded else last,
        [[len(text) - 1] for text in TEXTS],
        [1, 0],
    )
    for row, text in enumerate(TEXTS):
        states, logits = theirs(model, text)
        assert len(prefill.hidden_states) == len(states)
        real = positions[row] >= 0
        for layer, state in enumerate(states):
            ours = np.concatenate(
                [prefill.hidden_states[layer][row][real], decode.hidden_states[layer][row]]
            )
            np.testing.assert_allclose(ours, state, rtol=0, atol=1e-4)
        assert prefill.logits is not None
        assert decode.logits is not None
        ours = np.stack([prefill.logits[row], decode.logits[row]])
        np.testing.assert_allclose(ours, logits[-2:], rtol=0, atol=1e-4)


def test_states_where_rows_are_split_and_columns_go_through_decode(tmp_path: Path):
    model = write_llama(tmp_path)
    config = CompileConfig(
        batch=(2,), prefill_batch=(1,), rows=3, context=(4,), tokens=(8,), hidden_states=True
    )
    session = open_session(tmp_path, config)
    tokens, positions = inputs(model, embedded=False)
    cut = WIDTH - 3
    first = session.step(tokens[:, :cut], np.where(positions < 3, positions, -1)[:, :cut], [2, 0])
    second = session.step(tokens[:, cut:], positions[:, cut:], [2, 0])
    for row, text in enumerate(TEXTS):
        for layer, state in enumerate(theirs(model, text[:-1])[0]):
            parts = [made.hidden_states[layer][row] for made in (first, second)]
            ours = np.concatenate(parts)[positions[row] >= 0]
            np.testing.assert_allclose(ours, state, rtol=0, atol=1e-4)


def embedded_session(folder: Path) -> Session:
    write_llama(folder)
    return open_session(folder, CompileConfig(context=(8,), tokens=(8,), inputs_embeds=True))


def test_programs_that_take_embeddings_refuse_tokens(tmp_path: Path):
    session = embedded_session(tmp_path)
    for call in (lambda: session.prefill([[1, 2]]), lambda: session.decode([1])):
        with pytest.raises(GraphgenError, match="these programs take inputs_embeds, not tokens"):
            call()
    with pytest.raises(GraphgenError, match=r"these programs take tokens \[n,S,E\]"):
        session.step([[1, 2]], [[0, 1]])
    with pytest.raises(GraphgenError, match="the embeddings have 5 numbers, not 32"):
        session.step(np.zeros((1, 2, 5)), [[0, 1]])


def forgetful(b: Builder, c: LlamaConfig, tokens: Value, step: StepInputs, dtype: DType) -> Value:
    """A body without layers, which keeps nothing."""
    x = embed(b, "embed_tokens", tokens, c.vocab_size, c.hidden_size, dtype)
    return rms_norm(b, "norm", x, c.rms_norm_eps, dtype)


def test_a_family_that_keeps_no_states_is_refused():
    def head(b: Builder, c: LlamaConfig, x: Value) -> Value:
        return lm_head(b, x, c.vocab_size)

    family = Family("plain", (), read_llama, forgetful, head, prefix="", embedding="embed_tokens")
    config = read_llama({**SIZES, "model_type": "llama"})
    assert build_module(family, config, f32, form=ProgramForm(inputs_embeds=True)).programs()
    with pytest.raises(GraphgenError, match="the family 'plain' keeps no hidden states") as caught:
        build_module(family, config, f32, form=ProgramForm(hidden_states=True))
    assert caught.value.help
