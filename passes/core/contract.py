"""Pass contracts: verify the module and the declared invariants after every pass."""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.analysis import fingerprint
from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.ops import verify
from graphgen.passes.core.invariants import FACTS, facts_of
from graphgen.passes.core.pass_ import Pass
from graphgen.passes.core.rewriter import Rewriter
from graphgen.passes.core.settings import Verify
from graphgen.text import parse, print_module


@dataclass(slots=True)
class Checker:
    """Checks one module after each pass of a pipeline.

    Attributes:
        module: changed in place by the passes.
        depth: of the checks.
    """

    module: Module
    depth: Verify
    _facts: frozenset[str] = frozenset()
    _fingerprint: str = ""

    def __post_init__(self) -> None:
        if self.depth >= Verify.CONTRACT:
            self._facts = facts_of(self.module)
            self._fingerprint = fingerprint(self.module)

    def after(self, item: Pass, rewriter: Rewriter) -> bool | None:
        """Check the module after ``item``.

        Args:
            item: the pass that has just run.
            rewriter: its rewriter; if it left out rewrites, ``provides`` is not checked.

        Returns:
            Whether the fingerprint changed; ``None`` if it was not taken.

        Raises:
            GraphgenError: errors of the verifier; GG0305 when the pass broke its contract.
        """
        if self.depth >= Verify.MODULE:
            self._well_formed(item)
            for name in () if rewriter.incomplete else item.provides:
                if not FACTS[name].holds(self.module):
                    raise _broken(item, f"says it provides '{name}': {FACTS[name].doc}; not so")
        if self.depth >= Verify.TEXT:
            self._text(item)
        return (
            self._contract(item, rewriter.applications) if self.depth >= Verify.CONTRACT else None
        )

    def _well_formed(self, item: Pass) -> None:
        try:
            verify(self.module)
        except GraphgenError as error:
            error.help = error.help or f"the pass {item} left this; a defect of the pass"
            raise

    def _contract(self, item: Pass, applications: int) -> bool:
        facts, number = facts_of(self.module), fingerprint(self.module)
        lost = sorted(self._facts - facts - set(item.invalidates))
        if lost:
            raise _broken(item, f"does not say that it takes '{lost[0]}' away")
        changed = number != self._fingerprint
        if changed and not applications:
            raise _broken(item, "says it changed nothing, but the module is another one")
        self._facts, self._fingerprint = facts, number
        return changed

    def _text(self, item: Pass) -> None:
        text = print_module(self.module)
        again = parse(text)
        if print_module(again) != text or fingerprint(again) != fingerprint(self.module):
            raise _broken(item, "leaves a module that is another one after printing and parsing")


def _broken(item: Pass, what: str) -> GraphgenError:
    return GraphgenError(
        "GG0305", f"{item.name} {what}", help=f"the pass {item} did this; a defect of the pass"
    )
