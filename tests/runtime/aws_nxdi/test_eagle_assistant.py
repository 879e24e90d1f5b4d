"""``enable_eagle_speculation`` with the draft of a ``fused_spec_config``, beside transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.generation.streamers import BaseStreamer

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_nxdi.assisted_decoding import eagle_of
from graphgen.runtime.aws_nxdi.hf_adapter import HuggingFaceGenerationAdapter
from graphgen.runtime.aws_nxdi.model_classes import CAUSAL_LM
from tests.oracles.applications import open_reference, with_draft, write_checkpoint
from tests.oracles.drawn_pairs import MOST_CHI, chi_of_pairs
from tests.oracles.eagle import SIZES, write_eagle
from tests.runtime.aws_nxdi.test_assisted_decoding import WIDE, prompts, row, settings

LLAMA = CAUSAL_LM["llama"]


class Silence(BaseStreamer):
    def put(self, value: torch.Tensor) -> None:
        pass

    def end(self) -> None:
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("target"), num_hidden_layers=4, **WIDE)


def draft_of(folder: Path, path: Path, **kind: Any) -> Path:
    """A random draft with the sizes of a checkpoint."""
    config = json.loads((folder / "config.json").read_text())
    write_eagle(path, **kind, **{name: config.get(name, SIZES[name]) for name in SIZES})
    return path


def application(folder: Path, draft: Path | None, **options: Any) -> Any:
    """A target that is not built yet, configured as AWS's documents do."""
    given = {
        "batch_size": 3,
        "seq_len": 128,
        "torch_dtype": "float32",
        "speculation_length": 4,
        "enable_eagle_speculation": True,
        "enable_fused_speculation": True,
        "trace_tokengen_model": False,
        **options,
    }
    own = {"trace_tokengen_model": True, "enable_fused_speculation": False, "is_eagle_draft": True}
    return with_draft(LLAMA, folder, (draft, folder), given, own)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ({"version": 1}, {}),
        ({"version": 1, "input_norm": True}, {"enable_eagle_draft_input_norm": True}),
        ({"version": 3, "words": 90, "own": ["lm_head"]}, {"is_eagle3": True, "tp_degree": 2}),
    ],
    ids=["EAGLE", "input norm", "EAGLE-3"],
)
@pytest.mark.one_in(3)
def test_generate_gives_the_targets_own_tokens(
    kind: dict[str, Any], options: dict[str, Any], folder: Path, tmp_path: Path
):
    made = application(folder, draft_of(folder, tmp_path / "draft", **kind), **options)
    adapter = HuggingFaceGenerationAdapter(made.to_cpu())
    reference: Any = open_reference(folder)
    theirs = reference.generate(**prompts(), **settings())
    for side in ("left", "right"):
        ours = adapter.generate(**prompts(side), **settings())
        assert torch.equal(ours[:, 9:], theirs[:, 9:])
    draft = eagle_of(made)
    assert draft.session.changes > 10
    with pytest.raises(GraphgenError, match="streamer"):
        adapter.generate(**row(0), **settings(), streamer=Silence())


def test_a_compiled_folder_keeps_the_draft(folder: Path, tmp_path: Path):
    draft = draft_of(folder, tmp_path / "draft")
    made = application(folder, draft)
    made.compile(tmp_path / "compiled")
    again = application(folder, draft)
    again.load(tmp_path / "compiled")
    reference: Any = open_reference(folder)
    theirs = reference.generate(**prompts(), **settings())
    ours = HuggingFaceGenerationAdapter(again).generate(**prompts(), **settings())
    assert torch.equal(ours[:, 9:], theirs[:, 9:])


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        ({"version": 1, "input_norm": True}, {}, "has enable_eagle_draft_input_norm=True"),
        ({"version": 1}, {"is_eagle3": True}, "has is_eagle3=False"),
    ],
)
def test_attributes_that_the_tensors_contradict_are_refused(
    kind: dict[str, Any], options: dict[str, Any], says: str, folder: Path, tmp_path: Path
):
    made = application(folder, draft_of(folder, tmp_path / "draft", **kind), **options)
    with pytest.raises(GraphgenError, match=says):
        eagle_of(made.to_cpu())


def test_targets_without_a_draft_and_drafts_alone_are_refused(folder: Path, tmp_path: Path):
    for options, says in (
        ({}, "needs a draft"),
        ({"speculation_length": 0, "enable_fused_speculation": False}, "speculation_length"),
        ({"is_eagle_draft": True}, "a draft as an application of its own"),
    ):
        with pytest.raises(GraphgenError, match=says) as caught:
            application(folder, None, **options).compile_config()
        assert caught.value.help
    with pytest.raises(GraphgenError, match="is not an EAGLE draft"):
        eagle_of(application(folder, folder).to_cpu())


@pytest.mark.parametrize(
    "kind", [{"version": 1}, {"version": 3, "words": 90, "own": ["lm_head"]}], ids=["1", "3"]
)
def test_a_compiled_folder_needs_neither_checkpoint(kind: dict[str, Any], tmp_path: Path):
    folder = write_checkpoint(tmp_path / "target", num_hidden_layers=4, **WIDE)
    options = {"is_eagle3": True} if kind["version"] == 3 else {}
    own = draft_of(folder, tmp_path / "draft", **kind)
    application(folder, own, **options).compile(tmp_path / "compiled")
    reference: Any = open_reference(folder)
    theirs = reference.generate(**prompts(), **settings())
    (tmp_path / "target").rename(tmp_path / "gone")
    (tmp_path / "draft").rename(tmp_path / "gone too")
    again = LLAMA(str(tmp_path / "compiled"))
    again.load(tmp_path / "compiled")
    ours = HuggingFaceGenerationAdapter(again).generate(**prompts(), **settings())
    assert torch.equal(ours[:, 9:], theirs[:, 9:])


@pytest.mark.slow
def test_drawn_tokens_have_the_targets_distribution(folder: Path, tmp_path: Path):
    """The guide's listing: the settings of the programs, with do_sample or without."""
    device = {"top_k": 4, "top_p": 1.0, "temperature": 1.5}
    own = draft_of(folder, tmp_path / "draft", version=1)
    made = application(folder, own, on_device_sampling_config=device)
    adapter = HuggingFaceGenerationAdapter(made.to_cpu())
    reference: Any = open_reference(folder)
    assert chi_of_pairs(adapter, reference, row(1)["input_ids"], 3, 600) < MOST_CHI
    theirs = reference.generate(**prompts(), **settings())
    assert torch.equal(adapter.generate(**prompts(), **settings())[:, 9:], theirs[:, 9:])
