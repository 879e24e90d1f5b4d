"""Models of transformers, exported by torch, with what they say of a few tokens."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

from graphgen.ir.clone import clone_module
from graphgen.lowering.aten.program import Exported, read_exported
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import parse
from tests.oracles.families import ORACLES

ROWS, TOKENS, VOCABULARY = 2, 8, 61
# Heads that no number of ranks here divides but 3, as SmolLM2's.
NINE = {
    "hidden_size": 36,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 4,
}


@dataclass(frozen=True)
class Case:
    """A model that was exported.

    Attributes:
        read: as we read it.
        ids: the tokens.
        logits: what torch's own model says of them.
    """

    read: Exported
    ids: np.ndarray
    logits: np.ndarray


def model(family: str, attention: str, **changes: Any) -> Any:
    made = ORACLES[family].model("plain", **changes)
    made.set_attn_implementation(attention)
    made.config.use_cache = False
    return made


def export(made: Any, *args: Any, **options: Any) -> torch.export.ExportedProgram:
    with warnings.catch_warnings(), torch.no_grad():
        # torch warns about itself, and about transformers.
        warnings.simplefilter("ignore")
        return torch.export.export(made, args, **{"strict": False, **options})


@cache
def case(family: str, attention: str = "eager", core: bool = False, **changes: Any) -> Case:
    """A family's small model; ``core`` is one that its user has decomposed already."""
    made = model(family, attention, **changes)
    torch.manual_seed(3)
    ids = torch.randint(0, VOCABULARY, (ROWS, TOKENS))
    program = export(made, ids)
    if core:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            program = program.run_decompositions()
    with torch.no_grad():
        logits = made(ids).logits.numpy()
    return Case(read_exported(program, family), ids.numpy(), logits)


@cache
def raised(family: str, attention: str = "eager", core: bool = False, **changes: Any) -> Exported:
    read = case(family, attention, core, **changes).read
    module = clone_module(read.module)
    run_pipeline(module, parse("imported"))
    return Exported(module, read.weights, read.states)
