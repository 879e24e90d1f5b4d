"""``enable_fused_speculation``: applications whose programs propose and accept by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.neuron_config import OnDeviceSamplingConfig
from graphgen.runtime.aws_nxdi.hf_adapter import HuggingFaceGenerationAdapter
from graphgen.runtime.aws_nxdi.model_classes import CAUSAL_LM
from tests.oracles.applications import open_reference, with_draft, write_checkpoint
from tests.oracles.drawn_pairs import MOST_CHI, chi_of_pairs
from tests.runtime.aws_nxdi.test_assisted_decoding import WIDE, prompts, row, settings

LLAMA = CAUSAL_LM["llama"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("target"), num_hidden_layers=3, **WIDE)


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("draft"), num_hidden_layers=1, **WIDE)


def application(folder: Path, draft: Path | None, tp_of_draft: int = 1, **options: Any) -> Any:
    """A target that is not built yet, configured as AWS's documents do."""
    given = {
        "batch_size": 3,
        "seq_len": 128,
        "torch_dtype": "float32",
        "speculation_length": 4,
        "enable_fused_speculation": True,
        "on_device_sampling_config": OnDeviceSamplingConfig(),
        "trace_tokengen_model": False,
        **options,
    }
    own = {"speculation_length": 0, "trace_tokengen_model": True}
    own |= {"enable_fused_speculation": False, "tp_degree": tp_of_draft}
    return with_draft(LLAMA, folder, (draft, draft or folder), given, own)


@pytest.mark.parametrize(
    ("tp", "tp_of_draft"), [(1, 1), (2, 2)], ids=["one rank", "both on two ranks"]
)
def test_generate_gives_the_targets_own_tokens(
    folder: Path, draft: Path, tp: int, tp_of_draft: int
):
    made = application(folder, draft, tp_of_draft, tp_degree=tp)
    adapter = HuggingFaceGenerationAdapter(made.to_cpu())
    reference: Any = open_reference(folder)
    theirs = reference.generate(**prompts(), **settings())
    for side in ("left", "right"):
        ours = adapter.generate(**prompts(side), **settings())
        assert torch.equal(ours[:, 9:], theirs[:, 9:])
    with pytest.raises(GraphgenError, match="propose tokens, and so do the programs"):
        adapter.generate(**row(0), **settings(), prompt_lookup_num_tokens=2)


def test_async_mode_is_for_fused_speculation_and_its_draft_may_have_it_too(
    folder: Path, draft: Path
):
    """The guide's recipe: the draft is a copy of its target, without fusion alone."""
    made = application(folder, draft, async_mode=True)
    reference: Any = open_reference(folder)
    theirs = reference.generate(**prompts(), **settings())
    ours = HuggingFaceGenerationAdapter(made.to_cpu()).generate(**prompts(), **settings())
    assert torch.equal(ours[:, 9:], theirs[:, 9:])
    with pytest.raises(GraphgenError, match="speculation_length needs enable_fused") as caught:
        application(folder, None, async_mode=True, enable_fused_speculation=False)
    assert caught.value.code == "GG0903"


def test_a_compiled_folder_has_the_programs_and_the_weights_of_both(
    folder: Path, draft: Path, tmp_path: Path
):
    made = application(folder, draft)
    assert [model.tag for model in made.models][-1] == "fused_speculation_model"
    made.compile(tmp_path / "compiled")
    again: Any = LLAMA(str(tmp_path / "compiled"))
    again.load(tmp_path / "compiled")
    names = [size.name for size in again.running().session.table.sizes]
    assert any(name.startswith("speculate.") for name in names)
    reference: Any = open_reference(folder)
    theirs = reference.generate(**prompts(), **settings())
    ours = HuggingFaceGenerationAdapter(again).generate(**prompts(), **settings())
    assert torch.equal(ours[:, 9:], theirs[:, 9:])


def test_a_neuron_target_gets_the_fused_programs(folder: Path, draft: Path, tmp_path: Path):
    application(folder, draft, target="trn2").compile(tmp_path / "compiled")
    hlo = tmp_path / "compiled" / "hlo" / "fused_speculation_model" / "_tp0_bk0"
    assert (hlo / "model" / "graph.hlo").stat().st_size > 0
    assert "--target=trn2" in (hlo / "compiler_args.txt").read_text()


def test_what_fused_programs_need_is_named(folder: Path, draft: Path):
    with pytest.raises(GraphgenError, match="needs a draft"):
        application(folder, None)
    with pytest.raises(GraphgenError, match="needs on_device_sampling_config"):
        application(folder, draft, on_device_sampling_config=None)


DRAWING = {"do_sample": True, "top_k": 4, "temperature": 1.5}


@pytest.mark.slow
def test_drawn_tokens_have_the_targets_distribution(folder: Path, draft: Path):
    made = application(folder, draft, on_device_sampling_config=OnDeviceSamplingConfig(**DRAWING))
    adapter = HuggingFaceGenerationAdapter(made.to_cpu())
    reference: Any = open_reference(folder)
    assert chi_of_pairs(adapter, reference, row(1)["input_ids"], 3, 600) < MOST_CHI
    # Programs that draw take the best token of a call without do_sample.
    theirs = reference.generate(**prompts(), **settings())
    tokens: Any = adapter.generate(**prompts(), **settings())
    assert torch.equal(tokens, theirs)
    with pytest.raises(GraphgenError, match="sample with top_k=4"):
        adapter.generate(**prompts(), **settings(do_sample=True, top_k=9))
