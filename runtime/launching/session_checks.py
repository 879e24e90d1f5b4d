"""Checks of the weights, layouts and tokens that a session is given."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.ir import RANK, Module, Role
from graphgen.runtime.step_call import Ints


def check_token_ids(prompt: Sequence[int], count: int, name: str) -> None:
    """Refuse tokens that programs would read as others.

    Args:
        prompt: token ids.
        count: number of token ids that the programs take; 0 for no check.
        name: of the prompt, in the error.

    Raises:
        GraphgenError: GG0706 for a token id that is not below ``count``.
    """
    wrong = next((token for token in prompt if not 0 <= token < count), None) if count else None
    if wrong is not None:
        raise GraphgenError(
            "GG0706",
            f"{name} has the token {wrong}; the token ids of this model are 0 to {count - 1}",
            help="encode the text with the tokenizer of this model",
        )


def check_weights(module: Module, given: Collection[str]) -> None:
    """Refuse weights that do not suffice for the programs (GG0705).

    Args:
        module: the programs.
        given: names of the prepared weights.
    """
    entries = [*module.entries(Role.WEIGHT), *module.entries(Role.PARAM)]
    used = {value.name for program in module.programs() for value in program.args}
    missing = sorted(({row.name for row in entries} & used) - {*given, RANK})
    if missing:
        raise GraphgenError(
            "GG0705",
            f"{len(missing)} weights of the programs are missing, the first is '{missing[0]}'",
            help="prepare all weights of this module",
        )


def checked_layout(module: Module, name: str, table: npt.ArrayLike) -> Ints:
    """A layout such as a table of blocks as s32 (GG0705 for an unknown name or another shape)."""
    row = module.interface.get(name)
    given = np.asarray(table, np.int32)
    if row is None or row.role is not Role.LAYOUT or given.shape != row.logical.dims:
        wanted = row.logical.text if row is not None else "no such layout"
        what = f"layout {name} of shape {list(given.shape)}: the programs have {wanted}"
        raise GraphgenError("GG0705", what, help="compile with page_cache for a block table")
    return given


def check_takes_tokens(input_name: str) -> None:
    """Refuse tokens for programs that take embeddings (GG0705)."""
    if input_name != "tokens":
        what = f"these programs take {input_name}, not tokens"
        call = "call step with the embeddings, or compile without inputs_embeds"
        raise GraphgenError("GG0705", what, help=call)
