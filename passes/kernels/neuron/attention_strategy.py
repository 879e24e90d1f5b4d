"""The rule by which NxD Inference takes the flash attention kernel, as a table.

Rows hold in order: the first that fits a program decides. Lengths are those of the queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

UNSHARDED, SHARDED, NONE = "unsharded", "sharded", "none"
_ANY = 1 << 40


@dataclass(frozen=True, slots=True)
class StrategyRow:
    """Programs, and the form of the kernel that they take.

    Attributes:
        cores: physical cores of a logical core; two and more share a kernel.
        masked: whether keys beyond the causal ones are masked, as padding is.
        at_least, below: lengths that the row holds for.
        multiple: of this, the length must be; otherwise the form is ``none``.
        requested: whether the kernel must be requested.
        form: of the kernel.
    """

    cores: int
    masked: bool
    at_least: int = 0
    below: int = _ANY
    multiple: int = 1
    requested: bool = False
    form: str = NONE

    @property
    def text(self) -> str:
        """The condition in words."""
        what = "with padding" if self.masked else "without padding"
        upper = "" if self.below == _ANY else f" and below {self.below}"
        whole = "" if self.multiple == 1 else f", a multiple of {self.multiple}"
        asked = ", requested" if self.requested else ""
        return f"{self.cores} cores, {what}, from {self.at_least}{upper} tokens{whole}{asked}"


STRATEGY: Final = (
    StrategyRow(2, False, form=SHARDED),
    StrategyRow(2, True, 1024, multiple=512, form=SHARDED),
    StrategyRow(2, True, 0, 1024, multiple=256, form=SHARDED),
    StrategyRow(1, False, 4096, form=UNSHARDED),
    StrategyRow(1, True, 4096, form=UNSHARDED),
    StrategyRow(1, False, 512, requested=True, form=UNSHARDED),
    StrategyRow(1, True, 512, requested=True, form=UNSHARDED),
)


def attention_strategy(
    length: int, cores: int, masked: bool, requested: bool
) -> tuple[str, StrategyRow | None]:
    """The form of the kernel, and the row that decides; ``None`` if none does.

    Args:
        length: tokens a row of the program.
        cores: physical cores of a logical core.
        masked: whether rows may be shorter than the program.
        requested: whether the kernel is requested by name.
    """
    for row in STRATEGY:
        fits = row.cores == min(cores, 2) and row.masked == masked
        if fits and row.at_least <= length < row.below and (requested or not row.requested):
            return (NONE if length % row.multiple else row.form), row
    return NONE, None
