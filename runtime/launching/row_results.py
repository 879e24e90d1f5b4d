"""The outputs of a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from graphgen.runtime.step_call import Floats, Ints

Logits = npt.NDArray[np.float32]
# Logits, or tokens from programs that choose them.
StepOutput = npt.NDArray[np.float32]
Outputs = dict[str, npt.NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class RowResults:
    """The outputs of one step: for each row of the call, in its order.

    Rows and columns without a token are undefined.

    Attributes:
        outputs: by name; [n,...] for an output per row, [n,S,...] for one per token.
    """

    outputs: Mapping[str, npt.NDArray[np.generic]]

    @property
    def logits(self) -> Logits | None:
        """f32 [n,V] of each row's last token, or [n,S,V] from programs that give every token's.

        ``None`` from programs that give tokens only.
        """
        return cast("Logits | None", self.outputs.get("logits"))

    @property
    def tokens(self) -> Ints | None:
        """s32 [n]: the tokens that follow, from programs that choose them."""
        return cast("Ints | None", self.outputs.get("next_tokens"))

    @property
    def hidden_states(self) -> tuple[Floats, ...]:
        """f32 [n,S,E] each, as transformers' ``output_hidden_states``; empty if not built for."""
        count = sum(name.startswith("hidden_states.") for name in self.outputs)
        return tuple(cast("Floats", self.outputs[f"hidden_states.{n}"]) for n in range(count))


def some_rows(array: npt.NDArray[np.generic], rows: Ints) -> npt.NDArray[np.generic]:
    """Some rows, without a copy if they are all in order."""
    if len(rows) == len(array) and (rows == np.arange(len(rows))).all():
        return array
    return array[rows]
