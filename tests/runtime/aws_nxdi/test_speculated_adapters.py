"""``adapter_ids`` where tokens are proposed: each row has the tokens of its adapter, merged."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.neuron_config import LoraServingConfig, OnDeviceSamplingConfig
from graphgen.runtime.aws_nxdi.hf_adapter import HuggingFaceGenerationAdapter
from graphgen.runtime.aws_nxdi.model_classes import CAUSAL_LM
from tests.oracles.applications import (
    open_application,
    open_reference,
    with_draft,
    write_checkpoint,
)
from tests.oracles.drawn_pairs import MOST_CHI, chi_of_pairs
from tests.oracles.families import save
from tests.oracles.lora_adapters import merged, random_factors, save_adapter
from tests.oracles.medusa import random_heads, save_heads
from tests.runtime.aws_nxdi.test_assisted_decoding import NEW, WIDE, prompts, row, settings
from tests.runtime.aws_nxdi.test_eagle_assistant import draft_of
from tests.runtime.aws_nxdi.test_medusa_assistant import TREE, sizes

LLAMA, LENGTH = CAUSAL_LM["llama"], 4
# The model's projections of each adapter, and its rank.
TARGETS = {"a": (["q_proj", "embed_tokens"], 4), "b": (["v_proj", "down_proj"], 2)}
# The adapter of each row.
IDS = ["b", None, "a"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The target's checkpoint, with heads of Medusa beside it."""
    path = write_checkpoint(tmp_path_factory.mktemp("target"), num_hidden_layers=4, **WIDE)
    save_heads(path, random_heads(*sizes(path), 4))
    return path


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("draft"), num_hidden_layers=1, **WIDE)


@pytest.fixture(scope="module")
def models(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str | None, Any]:
    """In transformers the model with each adapter merged, whose folder is its ``files``."""
    files, base = tmp_path_factory.mktemp("lora"), open_reference(folder)
    made: dict[str | None, Any] = {None: base}
    for seed, (name, (targets, rank)) in enumerate(TARGETS.items(), 1):
        factors = random_factors(base, targets, rank, seed)
        path = save_adapter(files / name, base, factors, r=rank, lora_alpha=2 * rank)
        made[name] = merged(base, factors, 2.0)
        made[name].files = str(path)
    return made


@pytest.fixture(scope="module")
def lora(models: dict[str | None, Any]) -> LoraServingConfig:
    return LoraServingConfig(lora_ckpt_paths={name: models[name].files for name in TARGETS})


@pytest.fixture(scope="module")
def wanted(models: dict[str | None, Any]) -> torch.Tensor:
    """The new tokens of each row, of transformers alone."""
    made = [
        models[name].generate(**row(number), **settings())[0, row(number)["input_ids"].shape[1] :]
        for number, name in enumerate(IDS)
    ]
    plain = models[None].generate(**prompts(), **settings())[:, 9:]
    assert [torch.equal(*pair) for pair in zip(made, plain, strict=True)] == [False, True, False]
    return torch.stack(made)


@pytest.fixture(scope="module")
def plain(folder: Path, lora: LoraServingConfig) -> Any:
    """The target, which verifies four tokens."""
    made = open_application(folder, speculation_length=LENGTH, lora_config=lora)
    return HuggingFaceGenerationAdapter(made)


@pytest.fixture(scope="module")
def small(draft: Path) -> Any:
    """The draft as an application, without adapters."""
    return open_application(draft, speculation_length=LENGTH)


@pytest.fixture(scope="module")
def alike(models: dict[str | None, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of the target with the adapter ``a`` merged."""
    path = tmp_path_factory.mktemp("alike")
    save(models["a"], path)
    return path


def joined(folder: Path, draft: Path, lora: object, own: object = None, **options: Any) -> Any:
    """A target with a draft, not built yet, configured as AWS's documents do.

    The draft's NeuronConfig is a copy of its target's, with ``own`` in place of its adapters.
    """
    given = {
        "batch_size": 3,
        "seq_len": 128,
        "torch_dtype": "float32",
        "speculation_length": LENGTH,
        "enable_fused_speculation": True,
        "trace_tokengen_model": False,
        "lora_config": lora,
        **options,
    }
    changed = {"speculation_length": 0, "trace_tokengen_model": True}
    changed |= {"enable_fused_speculation": False, "lora_config": own or copy.deepcopy(lora)}
    if options.get("enable_eagle_speculation"):
        changed |= {"is_eagle_draft": True, "speculation_length": LENGTH}
        return with_draft(LLAMA, folder, (draft, folder), given, changed)
    return with_draft(LLAMA, folder, (draft, draft), given, changed)


def fused(folder: Path, draft: Path, lora: object, **options: Any) -> Any:
    sampling = options.pop("on_device_sampling_config", OnDeviceSamplingConfig())
    return joined(folder, draft, lora, on_device_sampling_config=sampling, **options)


def check(adapter: Any, wanted: torch.Tensor, **options: Any) -> None:
    """Rows with adapters, other adapters in the same rows, and rows without."""
    order = [2, 0, 1]
    for side in ("left", "right"):
        tokens = adapter.generate(**prompts(side), **settings(), adapter_ids=IDS, **options)
        assert torch.equal(tokens[:, 9:], wanted)
    turned = {name: value[order] for name, value in prompts().items()}
    places = torch.tensor([[1, -1, 0][place] for place in order])
    tokens = adapter.generate(**turned, **settings(), adapter_ids=places, **options)
    assert torch.equal(tokens[:, 9:], wanted[order])
    tokens = adapter.generate(**prompts(), **settings(), **options)
    assert torch.equal(tokens[1, 9:], wanted[1])
    assert not torch.equal(tokens[:, 9:], wanted)


@pytest.mark.parametrize("how", ["draft", "lookup"])
def test_a_draft_and_prompt_lookup(plain: Any, small: Any, wanted: torch.Tensor, how: str):
    given = {"assistant_model": small} if how == "draft" else {"prompt_lookup_num_tokens": 3}
    check(plain, wanted, **given)
    one = plain.generate(**row(2), **settings(), adapter_ids=["a"], **given)
    assert torch.equal(one[0, 1:], wanted[2])
    best = settings(do_sample=True, top_k=1, num_return_sequences=3)
    several = plain.generate(**row(2), **best, adapter_ids=["a"], **given)
    assert torch.equal(several[:, 1:], wanted[2].repeat(3, 1))
    with pytest.raises(GraphgenError, match="2 adapters for 3 rows"):
        plain.generate(**prompts(), **settings(), adapter_ids=["a", "b"], **given)
    with pytest.raises(GraphgenError, match="no adapter 'c'"):
        plain.generate(**row(0), **settings(), adapter_ids=["c"], **given)
    without: Any = HuggingFaceGenerationAdapter(small)
    with pytest.raises(GraphgenError, match="adapter_ids: the model has no adapters") as caught:
        without.generate(**row(0), **settings(prompt_lookup_num_tokens=2), adapter_ids=["a"])
    assert caught.value.code == "GG0705"


def launches(adapter: Any, **options: Any) -> int:
    """Changes of the target's rows that the tokens of one call take after the first one."""
    session = adapter.neuron_model.running().session

    def changes(new: int) -> int:
        before = session.changes
        adapter.generate(**prompts(), **settings(max_new_tokens=new), **options)
        return session.changes - before

    return changes(NEW) - changes(1)


def test_proposals_of_a_draft_with_the_adapter_merged_are_accepted(plain: Any, alike: Path):
    """Verification has the adapter, too: what it would have taken is not refused."""
    given = {"assistant_model": open_application(alike)}
    ours = launches(plain, adapter_ids=["a"] * 3, **given)
    assert ours < launches(plain, **given) * 0.6


@pytest.mark.slow
def test_fused_programs_accept_with_the_adapter(folder: Path, alike: Path, lora: LoraServingConfig):
    made: Any = HuggingFaceGenerationAdapter(fused(folder, alike, lora).to_cpu())
    # Four tokens a launch.
    assert launches(made, adapter_ids=["a"] * 3) == -(-(NEW - 1) // LENGTH)
    assert launches(made) > NEW // 2


@pytest.mark.parametrize("tp", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_fused_programs(
    folder: Path, draft: Path, lora: LoraServingConfig, wanted: torch.Tensor, tp: int
):
    """The guide's recipe: the draft's attributes are a copy, whose adapters are not its own."""
    made = fused(folder, draft, lora, tp_degree=tp)
    check(HuggingFaceGenerationAdapter(made.to_cpu()), wanted)
    names = [size.name for size in made.running().session.table.sizes]
    assert any(name.startswith("speculate.") for name in names)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["draft", "lookup"])
def test_a_draft_and_prompt_lookup_on_two_ranks(
    folder: Path, lora: LoraServingConfig, small: Any, wanted: torch.Tensor, how: str
):
    given = {"assistant_model": small} if how == "draft" else {"prompt_lookup_num_tokens": 3}
    made = open_application(folder, speculation_length=LENGTH, lora_config=lora, tp_degree=2)
    check(HuggingFaceGenerationAdapter(made), wanted, **given)


EAGLES = {
    "EAGLE": ({"version": 1}, {}),
    "EAGLE-3": ({"version": 3, "words": 90, "own": ["lm_head"]}, {"is_eagle3": True}),
}


@pytest.mark.slow
@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("name", EAGLES)
def test_an_eagle_draft(
    folder: Path,
    lora: LoraServingConfig,
    wanted: torch.Tensor,
    name: str,
    tp: int,
    tmp_path: Path,
):
    kind, options = EAGLES[name]
    own = draft_of(folder, tmp_path / "draft", **kind)
    made = joined(folder, own, lora, enable_eagle_speculation=True, tp_degree=tp, **options)
    check(HuggingFaceGenerationAdapter(made.to_cpu()), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("tp", [1, 2])
def test_heads_of_medusa(folder: Path, lora: LoraServingConfig, wanted: torch.Tensor, tp: int):
    made = open_application(
        folder,
        is_medusa=True,
        medusa_speculation_length=len(TREE) + 1,
        num_medusa_heads=3,
        medusa_tree=TREE,
        lora_config=lora,
        tp_degree=tp,
    )
    adapter: Any = HuggingFaceGenerationAdapter(made)
    check(adapter, wanted, assistant_model=adapter)


@pytest.mark.slow
def test_a_compiled_folder_of_fused_programs_has_slots(
    folder: Path, draft: Path, lora: LoraServingConfig, wanted: torch.Tensor, tmp_path: Path
):
    fused(folder, draft, lora, target="trn2").compile(tmp_path / "compiled")
    again: Any = LLAMA(str(tmp_path / "compiled"))
    again.load(tmp_path / "compiled")
    check(HuggingFaceGenerationAdapter(again), wanted)
    hlo = tmp_path / "compiled" / "hlo" / "fused_speculation_model" / "_tp0_bk0"
    assert (hlo / "model" / "graph.hlo").stat().st_size > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"async_mode": True},
        {"is_block_kv_layout": True, "pa_block_size": 8, "pa_num_blocks": 48},
        {"fused_qkv": True, "sequence_parallel_enabled": True, "tp_degree": 2},
    ],
    ids=["steps ahead", "blocks", "joined projections on two ranks"],
)
def test_fused_programs_in_other_forms(
    folder: Path,
    draft: Path,
    lora: LoraServingConfig,
    wanted: torch.Tensor,
    options: dict[str, Any],
):
    check(HuggingFaceGenerationAdapter(fused(folder, draft, lora, **options).to_cpu()), wanted)


@pytest.fixture(scope="module")
def ends(
    folder: Path, models: dict[str | None, Any], tmp_path_factory: pytest.TempPathFactory
) -> tuple[LoraServingConfig, torch.Tensor]:
    """An adapter of the embedding and of the head, and the tokens of the merged model."""
    factors = random_factors(models[None], ["lm_head", "embed_tokens", "o_proj"], 4, 9)
    files = tmp_path_factory.mktemp("ends") / "h"
    save_adapter(files, models[None], factors, r=4, lora_alpha=8)
    whole: Any = merged(models[None], factors, 2.0)
    wanted = whole.generate(**prompts(), **settings())[:, 9:]
    return LoraServingConfig(lora_ckpt_paths={"h": str(files)}), wanted


@pytest.mark.slow
@pytest.mark.parametrize("how", ["fused", "eagle"])
def test_an_adapter_of_embedding_and_head_is_not_the_drafts(
    folder: Path,
    draft: Path,
    ends: tuple[LoraServingConfig, torch.Tensor],
    how: str,
    tmp_path: Path,
):
    lora, wanted = ends
    if how == "fused":
        made = fused(folder, draft, lora)
    else:
        own = draft_of(folder, tmp_path / "draft", version=1)
        made = joined(folder, own, lora, enable_eagle_speculation=True)
    adapter: Any = HuggingFaceGenerationAdapter(made.to_cpu())
    tokens = adapter.generate(**prompts(), **settings(), adapter_ids=["h"] * 3)
    assert torch.equal(tokens[:, 9:], wanted)


@pytest.mark.slow
def test_adapters_take_the_only_slot_in_turn(
    folder: Path, models: dict[str | None, Any], wanted: torch.Tensor
):
    files = {name: models[name].files for name in TARGETS}
    lora = LoraServingConfig(max_loras=1, dynamic_multi_lora=True, lora_ckpt_paths_cpu=files)
    made = open_application(folder, speculation_length=LENGTH, lora_config=lora)
    adapter: Any = HuggingFaceGenerationAdapter(made)
    given = settings(prompt_lookup_num_tokens=3)
    for name in ("a", "b", "a"):
        number = IDS.index(name)
        tokens = adapter.generate(**row(number), **given, adapter_ids=[name])
        assert torch.equal(tokens[0, -wanted.shape[1] :], wanted[number])
    with pytest.raises(GraphgenError, match="2 adapters at once"):
        adapter.generate(**prompts(), **given, adapter_ids=IDS)


DRAWING = {"do_sample": True, "top_k": 4, "temperature": 1.5}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["fused", "draft", "lookup"])
def test_drawn_tokens_have_the_distribution_of_the_merged_model(
    folder: Path,
    draft: Path,
    lora: LoraServingConfig,
    models: dict[str | None, Any],
    how: str,
    request: pytest.FixtureRequest,
):
    given: dict[str, Any] = {"adapter_ids": ["a"] * 3}
    if how == "fused":
        sampling = OnDeviceSamplingConfig(**DRAWING)
        made = fused(folder, draft, lora, on_device_sampling_config=sampling)
        adapter: Any = HuggingFaceGenerationAdapter(made.to_cpu())
    else:
        adapter = request.getfixturevalue("plain")
        given |= (
            {"prompt_lookup_num_tokens": 3}
            if how == "lookup"
            else {"assistant_model": request.getfixturevalue("small")}
        )
    ids = row(1)["input_ids"]
    assert chi_of_pairs(adapter, models["a"], ids, 3, 600, **given) < MOST_CHI


@pytest.mark.parametrize("eagle", [False, True])
def test_adapters_of_a_draft_are_refused_when_the_application_is_made(
    folder: Path, draft: Path, lora: LoraServingConfig, eagle: bool
):
    own = LoraServingConfig(max_loras=3)
    options = {"enable_eagle_speculation": True} if eagle else {}
    options |= {"on_device_sampling_config": OnDeviceSamplingConfig()}
    for targets in (lora, None):
        with pytest.raises(GraphgenError, match="adapters of a draft are not built") as caught:
            joined(folder, draft, targets, own, **options)
        assert caught.value.code == "GG0904"
        assert caught.value.help


def test_an_assistant_with_adapters_of_its_own_is_refused(plain: Any, small: Any):
    target: Any = HuggingFaceGenerationAdapter(small)
    with pytest.raises(GraphgenError, match="adapters of a draft are not built") as caught:
        target.generate(**row(0), **settings(assistant_model=plain))
    assert caught.value.code == "GG0904"
