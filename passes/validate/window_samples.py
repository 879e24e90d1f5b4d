"""Samples of the boundary of a window: values of the types, or of the ranges of producers.

Values are drawn by type and by use. Arguments of programs take every value of their type, but for
positions, lengths and rows, which are those of a call. Other values of the boundary take every
value of their type at first, and then the values in the interval that their producers allow.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import COMPOSITES, Array
from graphgen.eval.element_kinds import has_floats
from graphgen.ir import ADAPTER_IDS, RANK, Dim, Entry, Function, Module, Op, Role, Value
from graphgen.ir.dtype import f16
from graphgen.ir.interface import HELD_ROLES
from graphgen.ops.control import CONTROL
from graphgen.ops.token_tree import ANCESTORS
from graphgen.passes.core.relation import EQUAL
from graphgen.passes.validate.boundary_values import (
    Sample,
    Spread,
    draw,
    draw_array,
    samples,
    spreads_of,
)
from graphgen.passes.validate.edge_values import (
    PLANNED,
    PlannedSizes,
    Words,
    edges_of,
    placed_draws,
    planned_arrays,
)
from graphgen.passes.validate.intervals import Interval, Intervals, every_number
from graphgen.passes.validate.legal_calls import LegalArguments, LegalCalls
from graphgen.passes.validate.line_check import DRAWN, drawn_line, line_failure, line_of, lined
from graphgen.passes.validate.rewrite_window import WindowCut
from graphgen.passes.validate.whole_range import whole_range
from graphgen.passes.validate.window_check import (
    UNFIT,
    FailedSample,
    WindowEvaluator,
    amplifies,
)
from graphgen.passes.workload.integer_uses import use_of

# Floats beside integers whose edges are placed.
_BASES = (Spread.ORDINARY, Spread.TINY, Spread.TIES)
# Different integers of a range that is larger follow each other.
_MANY = 4096
# Ints of a window with a loop stay small: the loop may turn as often as one of them says.
_TURNS = 9
# Largest edge of a window with sums that may round: a product of three is finite in f32.
_MODERATE = 1e12
_PRODUCTS = frozenset({"attention", "attention_part", "dot_general"})
_SUMS = frozenset({"dot_general", "convolution", "reduce", "reduce_window", *COMPOSITES})


@dataclass(frozen=True, slots=True)
class DrawnSamples:
    """Results of comparing both sides of a window on drawn values.

    Attributes:
        agreed: the number of samples on which they agree.
        failed: the first sample on which they differ, or else cannot be computed.
    """

    agreed: int
    failed: FailedSample | None

    @property
    def differs(self) -> bool:
        """True if values were found on which the sides differ."""
        return self.failed is not None and self.failed.difference is not None


@dataclass(slots=True)
class WindowSamples:
    """Draws values of boundaries and compares both sides of windows on them.

    Attributes:
        evaluator: computes both sides.
        calls: arguments of functions.
        seed: of all draws.
        finite: whether floats are finite in every sample.
    """

    evaluator: WindowEvaluator
    calls: LegalCalls
    seed: int = 0
    finite: bool = False
    _free: dict[tuple[object, ...], DrawnSamples] = field(
        default_factory=dict[tuple[object, ...], DrawnSamples]
    )
    _within: dict[tuple[object, ...], DrawnSamples] = field(
        default_factory=dict[tuple[object, ...], DrawnSamples]
    )
    _shuffled: dict[str, bool] = field(default_factory=dict[str, bool])

    @property
    def module(self) -> Module:
        """The module as it is now."""
        return self.evaluator.module

    def free(self, cut: WindowCut, function: Function) -> DrawnSamples:
        """Compare on all values of the types."""
        roles = tuple(self._role(value, function) for value in cut.boundary)
        limits = self.stated(cut, function)
        key = cut.key(), roles, tuple(limits)
        if key not in self._free:
            self._free[key] = self._compared(cut, function, limits)
        return self._free[key]

    def within(self, cut: WindowCut, function: Function) -> DrawnSamples | None:
        """Compare on the values that producers allow; ``None`` where they allow every value."""
        limits = self.limits(cut, function)
        if limits == self.stated(cut, function):
            return None
        roles = tuple(self._role(value, function) for value in cut.boundary)
        key = cut.key(), roles, tuple(limits)
        if key not in self._within:
            self._within[key] = self._compared(cut, function, limits)
        return self._within[key]

    def limits(self, cut: WindowCut, function: Function) -> list[Interval]:
        """The interval of each value of the boundary, by its producers."""
        known = Intervals(self._arguments(function), dict(function.dims))
        experts = _indices_of_experts(cut)
        found = [(value, known.of(value)) for value in cut.boundary]
        return [replace(one, distinct=True) if v in experts else one for v, one in found]

    def stated(self, cut: WindowCut, function: Function) -> list[Interval]:
        """The interval of each boundary value: every number, or the domain of an argument."""
        known, experts = self._domains(function), _indices_of_experts(cut)
        out: list[Interval] = []
        for value in cut.boundary:
            every = every_number(value.dtype)
            found = known.get(value.name or "", every) if value.op is None else every
            out.append(replace(found, distinct=True) if value in experts else found)
        return out

    def _domains(self, function: Function) -> dict[str, Interval]:
        """The domains that rows of the interface state, but for those of a plan."""
        if not function.phase:
            return {}
        out: dict[str, Interval] = {}
        for row in self.module.interface.values():
            if row.domain is not None and row.name not in PLANNED:
                low, high = row.domain.bind(function.dims).ends(row.logical.dtype)
                out[row.name] = Interval(low, high)
        return out

    def _arguments(self, function: Function) -> dict[str, Interval]:
        ranges = {RANK: Interval(0, max(0, self.module.ranks - 1)), **self._domains(function)}
        if self._is_planned(function):
            rows, slots = self._cache(function.dims)
            top = (1 << 31) - 1
            ranges["positions"] = Interval(-1, top if slots is None else slots - 1)
            ranges["lengths"] = Interval(0, top if slots is None else slots)
            ranges["seq_ids"] = Interval(0, top if rows is None else rows)
        if not self.calls.takes(ADAPTER_IDS):
            # Adapters are added to the model without one.
            ranges[ADAPTER_IDS] = Interval(-1, -1)
        return ranges

    def _cache(self, sizes: Mapping[str, Dim]) -> tuple[int | None, int | None]:
        """Rows of the cache, and slots that a call attends to, where they are known."""
        rows, slots = sizes.get("R"), sizes.get("C", sizes.get("M"))
        for row in self.module.entries(Role.STATE):
            if row.logical.rank == 4:
                first, second = row.logical.shape[:2]
                rows = first if rows is None else rows
                slots = second if slots is None else slots
        return (
            rows if isinstance(rows, int) else None,
            slots if isinstance(slots, int) else None,
        )

    def _is_planned(self, function: Function) -> bool:
        """True for a program of a language model: its positions, lengths and rows are a plan."""
        names = {row.name for row in self.module.entries(Role.INPUT)}
        return bool(function.phase) and names >= {*PLANNED} and ANCESTORS not in names

    def _role(self, value: Value, function: Function) -> str:
        """The name of a value that belongs to others of a call; empty for one drawn alone."""
        name = value.name or ""
        if value.op is None and self._is_planned(function) and name in PLANNED:
            return name
        return "" if value.op is not None or not self._is_bound(value, function) else name

    def _is_bound(self, value: Value, function: Function) -> bool:
        """True for an argument that is not free: integers that a call of a language model plans."""
        row: Entry | None = self.module.interface.get(value.name or "")
        if value.dtype.is_float or value.dtype.is_complex or row is None:
            return value.name == RANK
        if row.role is Role.LAYOUT:
            return True
        of_model = {row.name for row in self.module.entries(Role.INPUT)} >= {*PLANNED}
        return of_model and row.role is Role.INPUT and row.name not in ("tokens", ADAPTER_IDS)

    def _is_made(self, value: Value, function: Function) -> bool:
        """True for a parameter, which is prepared from weights, and for what the pass adds."""
        name = value.name or ""
        row = self.module.interface.get(name)
        prepared = row is not None and row.role is Role.PARAM
        return bool(function.phase) and (prepared or not self.calls.takes(name))

    def legal(self, cut: WindowCut, function: Function) -> bool:
        """True if every draw of the boundary is one that a call can give."""
        if not function.phase and not self.calls.prepares(function.name):
            return False
        planned = self._is_planned(function)
        for value in cut.boundary:
            if value.op is not None:
                return False
            known = value.name == RANK or (planned and value.name in PLANNED)
            if not known and (self._is_bound(value, function) or self._is_made(value, function)):
                return False
        return True

    def large(self, cut: WindowCut) -> tuple[Spread, ...]:
        """Distributions whose rounding chooses among the elements of a softmax of scores.

        Of a pass that computes scores in a narrower type, products of numbers near 500 and -500
        are as far from 1 as those.
        """
        far = (Spread.HUGE, Spread.ADVERSARIAL)
        scored = self.finite and any(op.name in _PRODUCTS for op in cut.ops)
        return (*far, Spread.HIGH, Spread.LOW) if scored else far

    def tokens(
        self, cut: WindowCut, function: Function, given: Sequence[Mapping[str, Array]]
    ) -> Array | None:
        """Pred[B,S], false for padding, of a window that reads the positions of a call."""
        if self._is_planned(function):
            for place, value in enumerate(cut.boundary):
                if value.op is None and value.name == "positions":
                    return np.asarray(given[0][f"{place}.positions"] >= 0)
        return None

    # ---- drawing ---------------------------------------------------------------------------------

    def _compared(
        self, cut: WindowCut, function: Function, limits: Sequence[Interval]
    ) -> DrawnSamples:
        """Draw samples up to the first that differs; one that cannot be run is passed over."""
        agreed, error = 0, None
        for sample, window, given in self._draws(cut, function, limits):
            tokens = self.tokens(cut, function, given)
            large = sample.spread in self.large(cut)
            finite = large and self.evaluator.budget > 0 and amplifies(cut.ops)
            # Small ones are subnormal in f16.
            finite |= self.finite and sample.spread is Spread.TINY and rounds_to_f16(cut.ops)
            failed = self.evaluator.failure(
                cut, window, sample.sizes, given, finite=finite, tokens=tokens
            )
            if failed is not None and failed.difference is not None:
                return DrawnSamples(agreed, failed)
            agreed += failed is None
            error = error or failed
        found = self._on_line(cut, function, limits)
        if found is not None and found.difference is not None:
            return DrawnSamples(agreed, found)
        agreed += found is None
        return DrawnSamples(agreed, error)

    def _draws(
        self, cut: WindowCut, function: Function, limits: Sequence[Interval]
    ) -> Iterator[tuple[Sample, Function, list[dict[str, Array]]]]:
        chooses = any(not value.dtype.is_float for value in cut.boundary)
        spreads, ranks = spreads_of(cut.ops, masked=self.finite), self.evaluator.ranks(cut)
        every = samples(cut.symbols(), function.dims, whole_numbers=chooses, seed=self.seed)
        bases: list[tuple[Sample, Function, list[dict[str, Array]]]] = []
        # Several samples have the same sizes.
        windows: dict[tuple[tuple[str, Dim], ...], Function] = {}
        for sample in every:
            if sample.spread not in spreads:
                continue
            sizes = tuple(sample.sizes.items())
            if sizes not in windows:
                windows[sizes] = cut.function(sample.sizes)
            window = windows[sizes]
            try:
                given = draw(window, sample, ranks)
            except UNFIT:
                continue
            given = self._legalized(cut, function, limits, window, sample, given)
            if sample.spread in _BASES and (not bases or sample.sizes == bases[0][0].sizes):
                bases.append((sample, window, given))
            yield sample, window, given
        if not bases or _is_line(cut, bases[0][1], ranks):
            return
        sample, window, _ = bases[0]
        others = [given for _, _, given in bases]
        edges, indexed = self._edges(cut, window, limits, function), self._indexed(window)
        for number, given in enumerate(placed_draws(window, edges, others, indexed, self.seed)):
            other = Sample(sample.sizes, sample.spread, sample.seed + 1000 + number)
            yield other, window, self._legalized(cut, function, limits, window, other, given)

    def _indexed(self, window: Function) -> dict[str, int]:
        """The size of the smallest dimension that each integer argument indexes."""
        uses = {
            v.name or "": use_of(self.module, window, v.name or "", {}).sizes
            for v in window.args
            if not has_floats(v.dtype)
        }
        return {name: min(sizes) for name, sizes in uses.items() if sizes}

    def _edges(
        self, cut: WindowCut, window: Function, limits: Sequence[Interval], function: Function
    ) -> dict[str, Array]:
        """Edges of the arguments that are drawn alone."""
        words, out = Words.of(window), dict[str, Array]()
        loops = any(op.name in CONTROL for op in cut.ops)
        for value, arg, limit in zip(cut.boundary, window.args, limits, strict=True):
            if self._role(value, function):
                continue
            if loops and not (arg.dtype.is_float or arg.dtype.is_complex):
                limit = limit.meet(Interval(-2, _TURNS))
            found = self._usable(cut, arg, edges_of(arg.type, words, limit))
            if found.size:
                out[arg.name or ""] = found
        return out

    def _usable(self, cut: WindowCut, arg: Value, found: Array) -> Array:
        """The numbers of an argument that both sides of a window have to agree on."""
        finite = Spread.NOT_FINITE not in spreads_of(cut.ops, masked=self.finite)
        # In another order a sum of numbers that are too large may be another one, or NaN.
        sums = any(op.name in _SUMS for op in cut.ops)
        if finite and has_floats(arg.dtype):
            found = found[np.isfinite(found.astype(np.complex128))]
        if (self.finite or (self.evaluator.budget and sums)) and arg.dtype.is_float:
            size = np.abs(found.astype(np.float64))
            moderate = (size <= _MODERATE) & (size >= 1 / _MODERATE)
            found = found[moderate | (size == 0)]
        return found

    def _legalized(
        self,
        cut: WindowCut,
        function: Function,
        limits: Sequence[Interval],
        window: Function,
        sample: Sample,
        given: list[dict[str, Array]],
    ) -> list[dict[str, Array]]:
        """The draws in the limits of each value, and with a plan of the call."""
        plan = self._plan(cut, function, window, sample)
        out = [dict(one) for one in given]
        for value, arg, limit in zip(cut.boundary, window.args, limits, strict=True):
            name = arg.name or ""
            for one in out:
                if value.op is None and value.name in plan:
                    one[name] = plan[value.name or ""].astype(one[name].dtype)
                elif value.name != RANK or value.op is not None:
                    one[name] = folded(one[name], limit, value)
            if len(out) > 1 and self._is_replicated(value, function):
                for one in out:
                    one[name] = out[0][name]
        return out

    def _is_replicated(self, value: Value, function: Function) -> bool:
        """True for a value that all ranks have the same of: computed from such arguments only."""
        seen, work = {value}, [value]
        while work:
            found = work.pop()
            if found.op is None:
                if not self._is_replicated_argument(found, function):
                    return False
                continue
            if found.op.name in CONTROL or len(seen) > _MANY:
                return False
            more = [v for v in found.op.operands if v not in seen]
            seen.update(more)
            work += more
        return True

    def _is_replicated_argument(self, value: Value, function: Function) -> bool:
        """True for inputs, whole weights, and parameters that are prepared alike for all ranks."""
        name = value.name or ""
        row = self.module.interface.get(name)
        if row is None or not function.phase:
            return False
        if row.role is Role.PARAM:
            calls = self.calls.of(function.name)
            given = [one.get(name) for one in calls[0].given] if calls else []
            return bool(given) and all(same_bits(given[0], array) for array in given)
        return row.role in (Role.INPUT, *HELD_ROLES) or (row.role is Role.STATE and not row.unpack)

    def _plan(
        self, cut: WindowCut, function: Function, window: Function, sample: Sample
    ) -> dict[str, Array]:
        """Positions, lengths and rows of one call, for those that are in the boundary."""
        if not self._is_planned(function):
            return {}
        shapes = {
            value.name: arg.type.dims
            for value, arg in zip(cut.boundary, window.args, strict=True)
            if value.op is None and value.name in PLANNED
        }
        if not shapes:
            return {}
        rows = next(iter(shapes.values()))[0]
        tokens = shapes["positions"][1] if "positions" in shapes else 3
        if function.phase == "decode" and "positions" not in shapes:
            tokens = 1
        cache_rows, slots = self._cache({**function.dims, **sample.sizes})
        rng = np.random.default_rng([self.seed, sample.seed, 17])
        sizes = PlannedSizes(
            rows, tokens, cache_rows or rows + 1, slots, self._moves_rows(function)
        )
        made = planned_arrays(rng, sizes)
        return {name: made[name] for name in PLANNED if name in shapes}

    def _moves_rows(self, function: Function) -> bool:
        """True if a call of the function has other rows of the cache than 0, 1, 2 ..."""
        if function.name not in self._shuffled:
            moved = False
            for legal in self.calls.of(function.name):
                ids, rows = legal.given[0].get("seq_ids"), legal.sizes.get("R")
                if ids is not None and isinstance(rows, int):
                    moved |= bool(np.any((ids != np.arange(ids.size)) & (ids < rows)))
            self._shuffled[function.name] = moved
        return self._shuffled[function.name]

    # ---- elementwise windows ---------------------------------------------------------------------

    def _on_line(
        self, cut: WindowCut, function: Function, limits: Sequence[Interval]
    ) -> FailedSample | None:
        """Compare an elementwise window on combinations of edges, element by element."""
        sample = samples(cut.symbols(), function.dims)[0]
        window = cut.function(sample.sizes)
        if not _is_line(cut, window, self.evaluator.ranks(cut)):
            return None
        edges = self._edges(cut, window, limits, function)
        rng = np.random.default_rng([self.seed, 19])
        for value, arg, limit in zip(cut.boundary, window.args, limits, strict=True):
            name = arg.name or ""
            if self._role(value, function):
                return None
            if name not in edges:
                edges[name] = edges_of(arg.type, Words((), ()), limit)[:1]
            if arg.dtype.is_float:
                more = rng.standard_normal(4).astype(edges[name].dtype)
                edges[name] = np.concatenate([edges[name], folded(more, limit, value)])
        numbers = self._numbers(cut, window, limits, edges)
        try:
            budget = self.evaluator.budget
            line = line_of(window, edges, self.seed)
            found = line_failure(window, line, budget, finite=self.finite)
            if found is None:
                line = drawn_line(edges, numbers, self.seed)
                found = line_failure(window, line, budget, finite=self.finite)
        except UNFIT:
            return None
        if found is None:
            return None
        return FailedSample(cut.pairs, window, sample.sizes, [found.given], found.difference)

    def _numbers(
        self,
        cut: WindowCut,
        window: Function,
        limits: Sequence[Interval],
        edges: Mapping[str, Array],
    ) -> dict[str, Array]:
        """Numbers from the whole range of each argument of an elementwise window."""
        words, out = Words.of(window), dict[str, Array]()
        for place, (arg, limit) in enumerate(zip(window.args, limits, strict=True)):
            name, alone = arg.name or "", len(window.args) == 1
            seed = 100 * self.seed + place
            found = whole_range(
                arg.dtype,
                edges[name],
                limit,
                words.integers,
                seed,
                count=DRAWN,
                alone=alone,
                exact=self.evaluator.budget == 0,
            )
            out[name] = self._usable(cut, arg, found)
        return out

    # ---- search ----------------------------------------------------------------------------------

    def mutated(
        self, cut: WindowCut, function: Function, legal: LegalArguments, number: int, spread: Spread
    ) -> list[dict[str, Array]] | str:
        """Arguments of a call with other floats, free integers and, mostly, another plan.

        One argument has floats of ``spread``: where all have, each value is infinite, or 0.

        Returns:
            The reason where an argument is not known.
        """
        window = cut.function(legal.sizes)
        rng = np.random.default_rng([self.seed, number, 23])
        sample = Sample(legal.sizes, spread, 5000 + number)
        plan = self._plan(cut, function, window, sample) if number % 4 else {}
        words = Words.of(window)
        free = [v for v in cut.boundary if v.dtype.is_float and not self._is_made(v, function)]
        chosen = free[int(rng.integers(0, len(free)))] if free else None
        out: list[dict[str, Array]] = [{} for _ in legal.given]
        limits = self.stated(cut, function)
        for value, arg, limit in zip(cut.boundary, window.args, limits, strict=True):
            name = value.name or ""
            if any(name not in one for one in legal.given):
                return f"%{name} is not an argument of {legal.origin}"
            for one, given in zip(out, legal.given, strict=True):
                array = given[name]
                if name in plan:
                    array = plan[name].astype(array.dtype)
                elif value in free:
                    of_name = [self.seed, number, 29, zlib.crc32(name.encode())]
                    kind = spread if value is chosen else Spread.ORDINARY
                    array = draw_array(np.random.default_rng(of_name), arg.type, kind)
                    array = folded(array, limit, value)
                elif not self._is_bound(value, function) and number % 2:
                    edges = edges_of(arg.type, words, limit)
                    array = rng.choice(edges, array.shape).astype(array.dtype)
                one[arg.name or ""] = array
        return out


def folded(array: Array, limit: Interval, value: Value) -> Array:
    """Numbers moved into an interval; those that are in it stay."""
    if limit == every_number(value.dtype) or array.size == 0 or value.dtype.is_complex:
        return array
    if value.dtype.is_float:
        wide = array.astype(np.float64)
        if not limit.nan:
            wide = np.where(np.isnan(wide), 0.0, wide)
        wide = np.where(wide < limit.low, 2 * max(limit.low, -1e30) - wide, wide)
        wide = np.where(wide > limit.high, 2 * min(limit.high, 1e30) - wide, wide)
        if limit.low == 0 and math.copysign(1, limit.low) > 0:
            wide = np.where(wide == 0, 0.0, wide)
        return np.clip(wide, limit.low, limit.high).astype(array.dtype)
    if array.dtype.kind == "b":
        return np.full_like(array, fill_value=bool(limit.low)) if limit.low == limit.high else array
    low, high = int(limit.low), int(limit.high)
    if limit.distinct and array.ndim:
        return _distinct(array, low, high)
    wide = array.astype(object)
    outside = (wide < low) | (wide > high)
    return np.where(outside, low + (wide - low) % (high - low + 1), wide).astype(array.dtype)


def _indices_of_experts(cut: WindowCut) -> set[Value]:
    """Operands that are defined for different numbers of one token only."""
    return {cut.operands(op)[1] for op in cut.ops if op.name == "experts"}


def _distinct(array: Array, low: int, high: int) -> Array:
    """Different numbers along the last dimension, chosen by the numbers that were drawn."""
    if high - low >= _MANY:
        # Those that follow the first one.
        return array[..., :1] // 2 + np.arange(array.shape[-1], dtype=array.dtype)
    rng = np.random.default_rng(zlib.crc32(array.tobytes()))
    rows = array.size // max(1, array.shape[-1])
    drawn = [rng.permutation(high - low + 1)[: array.shape[-1]] + low for _ in range(rows)]
    return np.array(drawn, dtype=array.dtype).reshape(array.shape)


def rounds_to_f16(ops: Iterable[Op]) -> bool:
    """True if results are f16, whose normal numbers begin at 6e-5."""
    return any(result.dtype is f16 for op in ops for result in op.results)


def same_bits(first: Array | None, other: Array | None) -> bool:
    """True for arrays of the same bytes."""
    return first is not None and other is not None and first.tobytes() == other.tobytes()


def _is_line(cut: WindowCut, window: Function, ranks: int) -> bool:
    """True for a window that is compared element by element."""
    if ranks != 1 or any(relation is not EQUAL for _, _, relation in cut.pairs) or not window.args:
        return False
    try:
        return lined(window, 2) is not None
    except GraphgenError:
        return False
