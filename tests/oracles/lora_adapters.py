"""Random low-rank adapters of transformers' models: files of PEFT and NxD, and the formula.

PEFT's names and shapes are those that ``peft`` 0.21 saves: of a linear layer ``lora_A.weight``
[r,in] and ``lora_B.weight`` [out,r], of an embedding ``lora_embedding_A`` [r,vocabulary] and
``lora_embedding_B`` [width,r], all under ``base_model.model.``.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

Factors: TypeAlias = Mapping[str, tuple[Tensor, Tensor]]


def random_factors(
    model: PreTrainedModel,
    targets: Sequence[str],
    rank: int | Mapping[str, int] = 4,
    seed: int = 0,
    size: float = 0.3,
) -> dict[str, tuple[Tensor, Tensor]]:
    """A and B of every module whose name ends with one of ``targets``, by the module's name."""
    random = torch.Generator().manual_seed(seed)
    found: dict[str, tuple[Tensor, Tensor]] = {}
    for name, module in model.named_modules():
        last = name.rpartition(".")[2]
        if last not in targets or not isinstance(module, nn.Linear | nn.Embedding | Conv1D):
            continue
        r = rank if isinstance(rank, int) else rank[last]
        rows, columns = module.weight.shape
        out, into = (rows, columns) if isinstance(module, nn.Linear) else (columns, rows)
        a = size * torch.randn(r, into, generator=random)
        found[name] = a, size * torch.randn(out, r, generator=random)
    assert found
    return found


def merged(model: PreTrainedModel, factors: Factors, scale: float) -> PreTrainedModel:
    """A copy of a model with W + scale B A in the place of each weight W; a tied head is untied."""
    made = copy.deepcopy(model)
    if made.config.tie_word_embeddings:
        made.config.tie_word_embeddings = False
        head = made.get_output_embeddings()
        assert isinstance(head, nn.Linear)
        head.weight = nn.Parameter(head.weight.detach().clone())
    modules = dict(made.named_modules())
    with torch.no_grad():
        for name, (a, b) in factors.items():
            module, added = modules[name], scale * (b.double() @ a.double())
            assert isinstance(module.weight, Tensor)
            wide = module.weight.double() + (added if isinstance(module, nn.Linear) else added.T)
            module.weight.copy_(wide.to(module.weight.dtype))
    return made


def peft_tensors(model: PreTrainedModel, factors: Factors) -> dict[str, Tensor]:
    """The tensors under PEFT's names."""
    modules, found = dict(model.named_modules()), dict[str, Tensor]()
    for name, (a, b) in factors.items():
        base = f"base_model.model.{name}"
        table = isinstance(modules[name], nn.Embedding)
        ends = (
            ("lora_embedding_A", "lora_embedding_B")
            if table
            else ("lora_A.weight", "lora_B.weight")
        )
        for end, factor in zip(ends, (a, b), strict=True):
            found[f"{base}.{end}"] = factor.contiguous()
    return found


def peft_config(factors: Factors, **changes: object) -> dict[str, object]:
    """An ``adapter_config.json`` of PEFT; rank 4 and alpha 8 unless changed."""
    targets = sorted({name.rpartition(".")[2] for name in factors})
    made = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": targets}
    return {**made, "bias": "none", "task_type": "CAUSAL_LM", "loftq_config": {}, **changes}


def save_peft(
    folder: Path,
    tensors: Mapping[str, Tensor],
    config: Mapping[str, object],
    form: str = "safetensors",
) -> Path:
    """Write a folder of PEFT; ``form`` is ``safetensors``, ``bin`` or ``pt``."""
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    if form == "safetensors":
        save_file(dict(tensors), folder / "adapter_model.safetensors")
    else:
        torch.save(dict(tensors), folder / f"adapter_model.{form}")
    return folder


def save_adapter(folder: Path, model: PreTrainedModel, factors: Factors, **changes: object) -> Path:
    """Write an adapter as PEFT does; ``changes`` are of its configuration."""
    return save_peft(folder, peft_tensors(model, factors), peft_config(factors, **changes))


def save_nxd(path: Path, factors: Factors, **changes: object) -> Path:
    """Write an adapter as NxD does: tensors and their configuration in one file of PyTorch."""
    config = {"lora_rank": 4, "lora_alpha": 8, "use_rslora": False, "bias": "none"}
    targets = {name.rpartition(".")[2] for name in factors}
    state: dict[str, object] = {"lora_config": {**config, "target_modules": targets, **changes}}
    for name, (a, b) in factors.items():
        state[f"{name}.lora_A.weight"], state[f"{name}.lora_B.weight"] = a, b
    torch.save(state, path)
    return path
