"""A plugin that plants wrong rewrites: ``--plugin`` this file ``-p 'planted{bug=eps}'``."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import ClassVar

from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.passes.core import Pass, Rewriter, register
from tests.oracles.planted_bugs import BUGS, Bug, Planted
from tests.oracles.planted_bugs_on_ranks import RANK_BUGS
from tests.oracles.planted_bugs_quantized import QUANTIZED_BUGS

ALL = {bug.name: bug for bug in (*BUGS, *QUANTIZED_BUGS, *RANK_BUGS)}


def in_layer(bug: Bug, layer: int) -> Bug:
    """The same bug, in another layer."""
    return replace(bug, scope=re.sub(r"layers\.\d+", f"layers.{layer}", bug.scope))


@register
@dataclass(frozen=True)
class Plant(Pass):
    """Rebuild every op of one kind, one of them wrongly.

    Options:
        bug: which.
        layer: in which layer, instead of the bug's own.
        harmless: rebuild that one correctly as well.
    """

    name: ClassVar[str] = "planted"
    bug: str = ""
    layer: int = -1
    harmless: bool = False

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Apply the rule everywhere."""
        bug = ALL.get(self.bug)
        if bug is None:
            raise GraphgenError("GG0302", f"planted: no bug '{self.bug}'", help=", ".join(ALL))
        planted = in_layer(bug, self.layer) if self.layer >= 0 else bug
        Planted(planted, harmless=self.harmless).run(module, rewriter)
