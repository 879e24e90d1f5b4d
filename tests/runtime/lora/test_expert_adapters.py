"""Adapters of experts, a module for each as PEFT has them: each row is its merged checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import MixtralConfig, MixtralForCausalLM

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.lora.adapter_file import open_adapter
from graphgen.runtime.lora.loaded_adapters import adapter_parts, projections, read_parts
from graphgen.runtime.lora.merge_adapter import merge_adapter, open_merge_base
from graphgen.runtime.progress import Silent
from graphgen.runtime.session.adapter_slots import AdapterSlots
from graphgen.runtime.session.session import Session
from tests.oracles.lora_adapters import save_peft
from tests.oracles.sessions import open_session
from tests.runtime.session.lora_checkpoint import settings

LAYERS = 1
PROMPT, SCALE = [5, 6, 7, 3], 2.0
# Of the adapters: the projections, the experts that have them, and the rank.
ADAPTERS = {"a": (("w1", "w2", "w3", "q_proj"), (0, 1, 2, 3), 4), "b": (("w2",), (1, 3), 2)}
ROWS = ("b", "", "a")


def module_names(name: str) -> list[str]:
    """The modules of an adapter."""
    lasts, experts, _ = ADAPTERS[name]
    found: list[str] = []
    for layer in range(LAYERS):
        base = f"model.layers.{layer}"
        found += [f"{base}.self_attn.q_proj"] * ("q_proj" in lasts)
        mixture = f"{base}.block_sparse_moe.experts"
        found += [f"{mixture}.{n}.{last}" for n in experts for last in lasts if last[0] == "w"]
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mixture of four experts, its adapters, and checkpoints with each of them merged."""
    made = tmp_path_factory.mktemp("experts")
    torch.manual_seed(3)
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 24,
        "num_hidden_layers": LAYERS,
    }
    config = MixtralConfig(
        **sizes, vocab_size=96, num_attention_heads=4, num_key_value_heads=2,
        num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=64,
        initializer_range=0.2,
    )  # fmt: skip
    MixtralForCausalLM(config).save_pretrained(made / "base")
    weights = load_file(made / "base" / "model.safetensors")
    for seed, name in enumerate(ADAPTERS):
        random, rank = torch.Generator().manual_seed(seed), ADAPTERS[name][2]
        tensors, merged = dict[str, Tensor](), dict(weights)
        for module in module_names(name):
            out, inputs = weights[f"{module}.weight"].shape
            a, b = (0.3 * torch.randn(*s, generator=random) for s in ((rank, inputs), (out, rank)))
            tensors[f"base_model.model.{module}.lora_A.weight"] = a
            tensors[f"base_model.model.{module}.lora_B.weight"] = b
            merged[f"{module}.weight"] = weights[f"{module}.weight"] + SCALE * (b @ a)
        fields = {"peft_type": "LORA", "r": rank, "lora_alpha": SCALE * rank}
        targets = sorted(set(module_names(name)))
        save_peft(made / name, tensors, {**fields, "target_modules": targets})
        shutil.copytree(made / "base", made / f"{name}-merged")
        save_file(merged, made / f"{name}-merged" / "model.safetensors", {"format": "pt"})
    return made


def wanted(folder: Path, name: str) -> list[Any]:
    """The logits of transformers after the prompt, and after one more token."""
    model = MixtralForCausalLM.from_pretrained(folder / (f"{name}-merged" if name else "base"))
    with torch.no_grad():
        logits = model(torch.tensor([[*PROMPT, 9]])).logits[0]
    return [logits[-2].numpy(), logits[-1].numpy()]


def opened(folder: Path, **options: object) -> tuple[Session, AdapterSlots]:
    """A session with both adapters in its slots, given to rows as ``ROWS`` says."""
    targets = {
        target for name in ADAPTERS for target in projections(open_adapter(folder / name), CONFIG)
    }
    fields = {"max_loras": 2, "max_lora_rank": 4, "lora_target_modules": tuple(sorted(targets))}
    session = open_session(folder / "base", settings(**fields, **options))
    slots = session.adapters
    assert slots is not None
    config = open_checkpoint(folder / "base").config
    for slot, name in enumerate(ADAPTERS):
        adapter = open_adapter(folder / name)
        parts = adapter_parts(adapter, config, slots.targets)
        slots.write(slot, read_parts(adapter, parts, slots.targets))
    for row, name in enumerate(ROWS):
        slots.assign(row, list(ADAPTERS).index(name) if name else -1)
    return session, slots


CONFIG: dict[str, object] = {"model_type": "mixtral"}
OPTIONS: list[dict[str, object]] = [
    {"tp": 2, "moe_ep_degree": 2},
    {},
    {"tp": 4, "moe_ep_degree": 2, "expert_dispatch": "blockwise"},
    {"tp": 4, "expert_dispatch": "all", "outline": True},
]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(map(str, options)))
def test_each_row_is_the_mixture_with_its_adapter_merged(folder: Path, options: dict[str, object]):
    """Adapters of other ranks and experts and none, on ranks that have some experts each."""
    session, _ = opened(folder, **options)
    got = [session.prefill([PROMPT] * len(ROWS)), session.decode([9] * len(ROWS))]
    expected = [wanted(folder, name) for name in ROWS]
    assert np.abs(expected[0][0] - expected[1][0]).max() > 0.05
    for call, logits in enumerate(got):
        for row in range(len(ROWS)):
            np.testing.assert_allclose(logits[row], expected[row][call], atol=2e-4, rtol=1e-3)


def test_merging_gives_the_checkpoint_of_each_expert(folder: Path, tmp_path: Path):
    base, out = open_merge_base(folder / "base"), tmp_path / "out"
    merge_adapter(base, open_adapter(folder / "b"), out, Silent())
    got = load_file(out / "model.safetensors")
    for name, tensor in load_file(folder / "b-merged" / "model.safetensors").items():
        torch.testing.assert_close(got[name], tensor, rtol=0, atol=1e-6)


def _renamed(old: str, new: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda tensors: {name.replace(old, new): value for name, value in tensors.items()}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_renamed("experts.3.w2", "experts.4.w2"), "experts.4.w2.lora_A.*the model has 4 experts"),
        (_renamed("experts.3.w2", "experts.w2"), "the model has no '.*experts.w2'"),
        (lambda tensors: {n: t for n, t in tensors.items() if "s.3.w2" not in n}, "s.3.w2.lora_A"),
    ],
)
def test_experts_that_do_not_fit_are_refused_by_name(
    folder: Path,
    tmp_path: Path,
    change: Callable[[dict[str, Tensor]], dict[str, Tensor]],
    words: str,
):
    tensors = change(load_file(folder / "b" / "adapter_model.safetensors"))
    fields = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": r".*\.w2"}
    if len(tensors) < 4 * LAYERS:
        fields["target_modules"] = sorted(module_names("b"))
    adapter = open_adapter(save_peft(tmp_path / "x", tensors, fields))
    shapes = ((4, 4, 24), (4, 32, 4))
    targets = {f"model.layers.{n}.block_sparse_moe.experts.w2": shapes for n in range(LAYERS)}
    with pytest.raises(GraphgenError, match=words) as raised:
        adapter_parts(adapter, CONFIG, targets)
    assert raised.value.code == "GG0602"
