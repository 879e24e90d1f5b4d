"""Decoding with heads of Medusa gives the target's own tokens, in fewer steps with good heads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.models.medusa import MEDUSA_TOKENS
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.generation import Completion, GenerationRequest, generate
from graphgen.runtime.model import build_model
from graphgen.runtime.sampling import Sampling
from graphgen.runtime.session.session import Session
from graphgen.runtime.speculation.medusa_checkpoint import with_medusa
from graphgen.runtime.speculation.medusa_tree import MedusaProposer, medusa_tree
from graphgen.runtime.speculation.tree_speculator import TreeSpeculator
from tests.oracles.families import ORACLES, save
from tests.oracles.llama import write_llama
from tests.oracles.medusa import fitted_heads, head_logits, random_heads, save_heads, table_size
from tests.oracles.sessions import open_session, session_of

CHOICES = [[0], [1], [0, 0], [0, 1], [0, 0, 0], [2], [1, 0]]
TREE = medusa_tree(CHOICES, 3)
PLAIN = CompileConfig(
    batch=(1, 3), rows=3, context=(8,), tokens=(12, 32), tree_nodes=8, num_medusa_heads=3
)
PROMPTS = [[5, 9, 0, 7, 2], [4], [6, 1, 0]]
COUNT = 26


def medusa_session(folder: Path, heads: Path, **changes: object) -> Session:
    return session_of(with_medusa(open_checkpoint(folder), heads, 3), PLAIN.updated(changes))


def decoded(
    session: Session, request: GenerationRequest, nodes: int = TREE.nodes
) -> tuple[list[Completion], TreeSpeculator]:
    speculator = TreeSpeculator(MedusaProposer(TREE), nodes)
    done, _ = generate(session, PROMPTS, request, decode=speculator.decode)
    return done, speculator


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that often takes the token 0."""
    path = tmp_path_factory.mktemp("llama")
    model = write_llama(path, hidden_size=96)
    with torch.no_grad():
        model.lm_head.weight[0] *= 2.5
    model.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def plain(folder: Path) -> list[Completion]:
    session = open_session(folder, PLAIN.updated({"tree_nodes": 0, "num_medusa_heads": 0}))
    return generate(session, PROMPTS, GenerationRequest(COUNT))[0]


@pytest.fixture(scope="module")
def heads(folder: Path, plain: list[Completion], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Heads that guess the answers, mostly."""
    from transformers import AutoModelForCausalLM

    sequences = [[*p, *answer.tokens] for p, answer in zip(PROMPTS, plain, strict=True)]
    model = AutoModelForCausalLM.from_pretrained(folder)
    made = fitted_heads(model, sequences, 3)
    return save_heads(tmp_path_factory.mktemp("heads"), made)


@pytest.fixture(scope="module")
def session(folder: Path, heads: Path) -> Session:
    return medusa_session(folder, heads)


def test_good_heads_give_the_targets_own_tokens_in_fewer_steps(
    session: Session, plain: list[Completion]
):
    done, speculator = decoded(session, GenerationRequest(COUNT))
    assert done == plain
    # Token 0 is a token as any other: the peer counts the tokens that are not 0.
    assert sum(answer.tokens.count(0) for answer in done) > 2
    assert speculator.counts.tokens_per_step > 2
    assert max(speculator.counts.accepted) <= speculator.counts.rows


def test_a_token_that_ends_a_row_may_be_inside_a_path(session: Session, plain: list[Completion]):
    for place in range(1, 6):
        request = GenerationRequest(COUNT, {plain[0].tokens[place], plain[2].tokens[place + 1]})
        done, _ = decoded(session, request)
        for answer, whole in zip(done, plain, strict=True):
            ends = [n for n, token in enumerate(whole.tokens) if token in request.eos_ids]
            assert answer.tokens == whole.tokens[: ends[0] + 1 if ends else COUNT]


def test_a_prompt_alone_and_in_a_batch_has_one_answer(session: Session, plain: list[Completion]):
    speculator = TreeSpeculator(MedusaProposer(TREE), TREE.nodes)
    for prompt, answer in zip(PROMPTS, plain, strict=True):
        done, _ = generate(session, [prompt], GenerationRequest(COUNT), decode=speculator.decode)
        assert done == [answer]


def test_a_sequence_goes_on_to_the_last_slot(session: Session):
    done, _ = decoded(session, GenerationRequest(40))
    assert [len(p) + len(a.tokens) for p, a in zip(PROMPTS, done, strict=True)] == [33] * 3


@pytest.mark.parametrize(
    ("family", "variant", "changes"),
    [
        ("llama", "plain", {"tp": 2}),
        ("llama", "plain", {"tp": 3, "kv_cache_quant": True, "kv_cache_dtype": "int8"}),
        ("llama", "plain", {"page_cache": 4}),
        ("mistral", "a window", {"roll_window_cache": True}),
        ("gpt2", "plain", {}),
        ("bloom", "plain", {"tp": 2}),
    ],
)
@pytest.mark.one_in(12)
@pytest.mark.parametrize(("own", "blocks"), [(True, 1), (False, 2)])
def test_any_heads_give_the_targets_own_tokens(
    family: str, variant: str, changes: dict[str, object], own: bool, blocks: int, tmp_path: Path
):
    model = ORACLES[family].model(variant, initializer_range=0.3)
    save(model, tmp_path / "model")
    vocabulary, width = table_size(model)
    path = save_heads(tmp_path / "heads", random_heads(width, vocabulary, 3, blocks, own))
    request = GenerationRequest(20)
    without = {**changes, "tree_nodes": 0, "num_medusa_heads": 0}
    wanted, _ = generate(open_session(tmp_path / "model", PLAIN.updated(without)), PROMPTS, request)
    session = medusa_session(tmp_path / "model", path, **changes)
    assert decoded(session, request)[0] == wanted


def test_guesses_are_the_best_tokens_of_the_heads(folder: Path, tmp_path: Path):
    """Against NumPy, on the hidden states of transformers."""
    from transformers import AutoModelForCausalLM

    heads = save_heads(tmp_path, random_heads(96, 131, 3))
    session = medusa_session(folder, heads)
    session.prefill(PROMPTS)
    reads = np.eye(1, dtype=np.int32)[None].repeat(3, 0)
    positions = session.lengths[:, None].copy()
    made = session.step([[3], [8], [0]], positions, ancestors=reads).outputs[MEDUSA_TOKENS]
    model, stored = AutoModelForCausalLM.from_pretrained(folder), load_file(heads)
    for row, (prompt, token) in enumerate(zip(PROMPTS, (3, 8, 0), strict=True)):
        with torch.no_grad():
            out = model(torch.tensor([[*prompt, token]]), output_hidden_states=True)
        hidden = out.hidden_states[-1][0, -1].numpy()
        for head in range(3):
            wanted = np.argsort(-head_logits(stored, head, hidden, np.empty(0)))[:10]
            assert made[row, 0, head].tolist() == wanted.tolist()


def test_drawn_tokens_follow_their_seed(session: Session):
    how = Sampling(do_sample=True, temperature=0.8, seed=5)
    request = GenerationRequest(COUNT, sampling=how)
    first, speculator = decoded(session, request)
    assert decoded(session, request)[0] == first
    assert speculator.counts.tokens_per_step > 1
    other = GenerationRequest(COUNT, sampling=Sampling(do_sample=True, temperature=0.8, seed=6))
    assert decoded(session, other)[0] != first


@pytest.mark.parametrize("prefix", ["", "medusa_head.", "medusa_head_", "medusa_heads.", "heads."])
def test_names_of_published_heads(folder: Path, tmp_path: Path, prefix: str):
    given = random_heads(96, 131, 4, 2)
    path = save_heads(tmp_path, given, prefix)
    for where in (path, tmp_path):
        found = with_medusa(open_checkpoint(folder), where, 3)
        assert (found.heads, found.config["medusa_num_layers"]) == (3, 2)
        assert found.config["medusa_own_heads"] is True
        np.testing.assert_array_equal(
            found.read("medusa_head.2.1.linear.bias"), given["2.1.linear.bias"]
        )
        assert "medusa_head.3.0.linear.weight" not in found.tensors()
    assert with_medusa(open_checkpoint(folder), path).heads == 4


@pytest.mark.parametrize("name", ["medusa_lm_head.pt", "medusa_heads.pt"])
def test_files_of_pytorch(folder: Path, tmp_path: Path, name: str):
    given = random_heads(96, 131, 2)
    torch.save({key: torch.from_numpy(array) for key, array in given.items()}, tmp_path / name)
    found = with_medusa(open_checkpoint(folder), tmp_path)
    assert found.heads == 2
    np.testing.assert_array_equal(found.read("medusa_head.1.1.weight"), given["1.1.weight"])


def test_a_fingerprint_depends_on_the_heads(folder: Path, tmp_path: Path):
    def identity(seed: int) -> str:
        path = save_heads(tmp_path / str(seed), random_heads(96, 131, 2, seed=seed))
        return with_medusa(open_checkpoint(folder), path).fingerprint()

    assert identity(1) == identity(1) != identity(2)


Edit = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


@pytest.mark.parametrize(
    ("edit", "what"),
    [
        (lambda heads: {"x": heads["0.1.weight"]}, "has no heads of Medusa"),
        (lambda heads: heads, "has 2 heads of Medusa, not 3"),
        (
            lambda heads: {
                **{name: a for name, a in heads.items() if name != "1.1.weight"},
                **{f"2{name[1:]}": a for name, a in heads.items() if name[0] == "0"},
            },
            "head 1 of Medusa has other tensors than head 0",
        ),
    ],
)
def test_heads_that_do_not_fit_are_refused(folder: Path, tmp_path: Path, edit: Edit, what: str):
    path = save_heads(tmp_path, edit(random_heads(96, 131, 2)))
    with pytest.raises(GraphgenError, match=what) as caught:
        with_medusa(open_checkpoint(folder), path, 3)
    assert caught.value.code == "GG0602"


def test_heads_without_a_file_or_a_program_are_refused(folder: Path, tmp_path: Path):
    with pytest.raises(GraphgenError, match="there is no such file"):
        with_medusa(open_checkpoint(folder), tmp_path / "none")
    with pytest.raises(GraphgenError, match="has no heads of Medusa"):
        with_medusa(open_checkpoint(folder), folder)
    with pytest.raises(GraphgenError, match="num_medusa_heads has no effect"):
        build_model(open_checkpoint(folder).config, PLAIN.updated({"tree_nodes": 0}))
