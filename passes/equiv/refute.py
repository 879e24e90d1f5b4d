"""Counterexamples of claims left open by a proof: both modules run in NumPy on related values.

They run in float64 without rounding between types, so that what differs is a real number. A proof
is not believed where the numbers are against it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.eval.element_kinds import element_text
from graphgen.ir import RANK, DType, Module, Role
from graphgen.ir.dtype import s32
from graphgen.ir.types import tensor
from graphgen.passes.equiv.deviation import difference
from graphgen.passes.equiv.equiv import equivalent, paired_calls
from graphgen.passes.equiv.paired_run import CompareOptions
from graphgen.passes.proof.floats import mask_text, range_text
from graphgen.passes.proof.pass_proof import Status
from graphgen.passes.proof.refinement_result import Claim, RefinementProof

# A relative difference of float64 that no folded constant of f32 explains.
_BEYOND = 1e-5
# Bytes of inputs and weights up to which programs are run.
MOST_BYTES = 256 << 20
_SEEDS = 3


@dataclass(frozen=True, slots=True)
class _Found:
    """An output that differs: where, and in words."""

    program: str
    output: str
    text: str


def with_counterexamples(
    before: Module,
    after: Module,
    proof: RefinementProof,
    seed: int = 0,
    *,
    narrow: Sequence[DType] = (),
) -> RefinementProof:
    """A proof whose open claims are refuted where both modules compute other numbers.

    Args:
        before: the reference.
        after: the module that was compared with it.
        proof: of both.
        seed: of the first inputs and weights that are tried.
        narrow: types that numbers are kept in. Claims of equality but for these are tried as well,
            as the numbers here are not rounded; where a range is assumed, what is drawn may be
            beyond it, so that neither these claims nor open ones are judged.
    """
    texts = {text(dtype) for dtype in narrow for text in (range_text, mask_text)}
    assumed = not texts.isdisjoint(proof.assumptions)
    tried = not assumed and any(claim.status is Status.NARROW for claim in proof.claims)
    if not (proof.open or tried) or _bytes(before) > MOST_BYTES:
        return proof
    after = _with_rank_given(after)
    found: dict[tuple[str, str], _Found] = {}
    # One try suffices for claims that are proved but for narrow numbers.
    for number in range(seed, seed + (_SEEDS if proof.open else 1)):
        try:
            # Infinities and NaN are compared as well, without a warning.
            with np.errstate(all="ignore"):
                found |= _differences(before, after, number)
        except GraphgenError:
            # Modules that cannot be run are not refuted.
            return proof
        if found:
            break
    if not found:
        return proof
    blamed = _blamed(before, after, seed)
    unjudged = (Status.NARROW, Status.UNDECIDED) if assumed else ()
    claims = [
        claim if claim.status in unjudged else _judged(claim, found, blamed)
        for claim in proof.claims
    ]
    return replace(proof, claims=claims)


def _with_rank_given(module: Module) -> Module:
    """A module whose interface does not list the number of the rank, which no caller gives."""
    row = module.interface.get(RANK)
    if row is None or row.role is not Role.INPUT or row.logical is not tensor(s32, (1,)):
        return module
    rows = {name: row for name, row in module.interface.items() if name != RANK}
    parts = module.name, module.level, module.mesh, module.functions, rows
    return Module(*parts, dict(module.meta))


def _judged(claim: Claim, found: Mapping[tuple[str, str], _Found], blamed: str) -> Claim:
    own = [item for (_, name), item in found.items() if name == claim.output]
    if not own:
        return claim
    text = own[0].text
    if claim.status in (Status.PROVED, Status.REAL, Status.NARROW):
        why = "the numbers are against the proof: please report it"
        lost = replace(claim, status=Status.UNDECIDED, rounding=(), reason=why)
        return replace(lost, counterexample=text)
    # Of several programs with this output the text names the one that was run.
    if claim.program not in {item.program for item in own}:
        return claim
    pair = (claim.pair[0], blamed) if blamed else claim.pair
    return replace(claim, status=Status.REFUTED, counterexample=text, pair=pair)


def _differences(before: Module, after: Module, seed: int) -> dict[tuple[str, str], _Found]:
    """The outputs that differ over the calls of both modules."""
    out: dict[tuple[str, str], _Found] = {}
    for both in paired_calls(before, after, CompareOptions(seed=seed, tolerance=_BEYOND)):
        for name, (a, b) in both.outputs.items():
            apart = difference(name, both.number, a, b)
            key = both.right.function.name, name
            if key in out or apart.within(_BEYOND) or not _tells(a, b):
                continue
            value = both.right.function.outputs.get(name)
            stacked = value is not None and a.ndim > value.type.rank
            out[key] = _Found(*key, _text(a, b, f"(seed {seed})", both.number, stacked=stacked))
    return out


def _tells(a: Array, b: Array) -> bool:
    """True where numbers differ, not only what infinities and NaN are made of."""
    if a.dtype.kind not in "fiub" or a.shape != b.shape:
        return False
    x, y = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    scale = max(float(np.abs(x[finite]).max(initial=0.0)), 1e-30)
    return bool((np.abs(x - y)[finite] > _BEYOND * scale).any())


def _text(a: Array, b: Array, seed: str, call: int, *, stacked: bool) -> str:
    x, y = a.astype(np.float64), b.astype(np.float64)
    gap = np.where(np.isfinite(x - y), np.abs(x - y), 0.0)
    place = [int(i) for i in np.unravel_index(int(gap.argmax()), gap.shape)] if gap.ndim else []
    rank = f" on rank {place[0]}" if stacked else ""
    where = ",".join(map(str, place[1:] if stacked else place))
    ours, theirs = (element_text(v[tuple(place)].item(), 9) for v in (x, y))
    return f"element [{where}]{rank} of call {call} is {theirs} instead of {ours} {seed}"


def _blamed(before: Module, after: Module, seed: int) -> str:
    """The first op of the second module that differs while what it reads agrees."""
    try:
        with np.errstate(all="ignore"):
            found = equivalent(before, after, CompareOptions(seed=seed, tolerance=_BEYOND))
    except GraphgenError:
        return ""
    return "" if found.first is None else f"{found.first.right.text}, {found.first.right.loc!r}"


def _bytes(module: Module) -> int:
    total = 0
    for row in module.interface.values():
        if row.logical.static:
            size = 1
            for dim in row.logical.dims:
                size *= dim
            total += size * row.logical.dtype.bytes
    return total
