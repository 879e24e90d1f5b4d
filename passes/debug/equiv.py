"""Are two modules the same program? Compared by numbers, whatever passes made one of the other."""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.errors import GraphgenError
from graphgen.ir import Loc, Module, Role
from graphgen.ir.loc import UNKNOWN
from passes.debug.compare import Difference, compare
from passes.debug.runner import Runner
from passes.debug.script import script_for
from passes.debug.validate import MEANING_BUDGET


@dataclass(frozen=True, slots=True)
class Equivalence:
    """What comparing two modules found.

    Attributes:
        difference: the worst one, in float64.
        left, right: where the differing output is made in each module.
    """

    difference: Difference
    left: Loc
    right: Loc

    @property
    def equal(self) -> bool:
        """Whether the two mean the same."""
        return self.difference.relative <= MEANING_BUDGET


def equivalent(left: Module, right: Module, seed: int = 0) -> Equivalence:
    """Run both modules over one script and compare outputs and states in logical types.

    Args:
        left: one module, at any level.
        right: the other; its interface must have the same logical rows.
        seed: of weights and inputs.

    Raises:
        GraphgenError: GG0205 when the interfaces differ, GG0402 when the buckets have no size in
            common.
    """
    _check_interfaces(left, right)
    # The module with fewer symbols left says what sizes there are.
    sized = left if any("C" in f.dims for f in left.programs()) else right
    script = script_for(sized, seed)
    found = compare(Runner(left, script).outcomes(), Runner(right, script).outcomes())
    return Equivalence(found, _maker(left, found.name), _maker(right, found.name))


def _check_interfaces(left: Module, right: Module) -> None:
    for role in (Role.INPUT, Role.WEIGHT, Role.STATE, Role.OUTPUT):
        mine = {row.name for row in left.entries(role)}
        theirs = {row.name for row in right.entries(role)}
        if mine != theirs:
            other = ", ".join(sorted(mine ^ theirs)[:10])
            raise GraphgenError(
                "GG0205",
                f"the modules differ in {role.value}s: {other}",
                help="compare modules of one interface; passes never change its logical side",
            )


def _maker(module: Module, output: str) -> Loc:
    for function in module.programs():
        for name, value in function.outputs:
            if name == output and value.op is not None:
                return value.op.loc
    return UNKNOWN
