"""The outputs of a step, by row of the call: logits or tokens, hidden states, features."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.runtime.session.step_call import Floats, Index, Ints

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

    def logits_at(self, place: int, column: int) -> Logits | None:
        """f32 [V]: the logits of a row's last token, in that column; ``None`` as of `logits`."""
        logits = self.logits
        if logits is None:
            return None
        return logits[place] if logits.ndim == 2 else logits[place, column]

    @property
    def token_logits(self) -> Logits:
        """f32 [n,S,V] of every token of a step that verifies."""
        return cast("Logits", self.outputs["token_logits"])

    @property
    def tokens(self) -> Ints | None:
        """s32 [n]: the tokens that follow, from programs that choose them."""
        return cast("Ints | None", self.outputs.get("next_tokens"))

    @property
    def hidden_states(self) -> tuple[Floats, ...]:
        """f32 [n,S,E] each, as transformers' ``output_hidden_states``; empty if not built for."""
        return tuple(cast("Floats", array) for array in self._numbered("hidden_states"))

    @property
    def router_logits(self) -> tuple[Floats, ...]:
        """f32 [n,S,E] of each mixture of experts; empty if not built for."""
        return tuple(cast("Floats", array) for array in self._numbered("router_logits"))

    @property
    def expert_index(self) -> tuple[Ints, ...]:
        """s32 [n,S,K] of each mixture: the experts of a token; empty if not built for."""
        return tuple(cast("Ints", array) for array in self._numbered("expert_index"))

    def _numbered(self, name: str) -> list[npt.NDArray[np.generic]]:
        count = sum(key.startswith(f"{name}.") for key in self.outputs)
        return [self.outputs[f"{name}.{number}"] for number in range(count)]

    @property
    def features(self) -> Floats:
        """f32 [n,S,W] of every token, from programs with ``feature_layers``."""
        return cast("Floats", self.outputs["features"])


def some_rows(array: npt.NDArray[np.generic], rows: Ints) -> npt.NDArray[np.generic]:
    """Some rows, without a copy if they are all in order."""
    if len(rows) == len(array) and (rows == np.arange(len(rows))).all():
        return array
    return array[rows]


def collected(
    shape: Sequence[int],
    parts: Iterable[tuple[Index, Index, Outputs]],
    per_token: Callable[[str], bool],
) -> RowResults:
    """The outputs of the parts of a step, in the rows and columns of the step.

    Args:
        shape: n and S of the step.
        parts: rows, columns, and the outputs there by name.
        per_token: whether the output of a name has a column for each token.

    Raises:
        GraphgenError: GG0705 for a step without parts.
    """
    rows, width = shape
    found: Outputs = {}
    for where, columns, outputs in parts:
        if len(where) == rows and len(columns) == width:
            return RowResults(outputs)
        for name, part in outputs.items():
            lead = (rows, width) if per_token(name) else (rows,)
            home = found.setdefault(name, np.zeros((*lead, *part.shape[len(lead) :]), part.dtype))
            home[np.ix_(where, columns) if per_token(name) else where] = part
    if not found:
        raise GraphgenError("GG0705", "no row of the step has a token", help="leave it out")
    return RowResults(found)
