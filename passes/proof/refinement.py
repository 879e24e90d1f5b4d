"""Proof that a module refines another one: on every rank, for all inputs, weights and states.

The programs of both modules take the same inputs, weights and states (see ``interface_relation``).
Elements of values at symbolic indices, on a symbolic rank, are terms in a normal form. Where a
value of the second program has the term of a value of the first, both are one variable from there
on: so layers are compared one by one. Values of the first through which all that follows is
computed, such as the sums after each layer, are looked for in the second.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from graphgen.analysis import inlined
from graphgen.analysis.fingerprint import function_fingerprint
from graphgen.analysis.layers import scope_of
from graphgen.ir import RANK, Dim, DType, Function, Module, Op, Role, Value
from graphgen.ir.clone import bind_function
from graphgen.ir.dims import Poly, symbols
from graphgen.ops import OPS
from graphgen.ops.traits import Trait
from graphgen.passes.proof.choices import equal_in_cases
from graphgen.passes.proof.chosen_tokens import MEANING, with_chosen_tokens
from graphgen.passes.proof.cones import Cone, SharedValue
from graphgen.passes.proof.congruence import congruent_values
from graphgen.passes.proof.distinct_tables import in_images
from graphgen.passes.proof.elements import Elements, Index, bodies_of, place_of
from graphgen.passes.proof.equal_terms import equal_terms
from graphgen.passes.proof.exponentials import equal_on_each_rank
from graphgen.passes.proof.floats import ProofLevel
from graphgen.passes.proof.integers import both, conjuncts, div, mod
from graphgen.passes.proof.interface_relation import (
    ACTIVE,
    ProgramSide,
    Promise,
    active_row,
    logical_value,
    mentions_rows,
    packing,
    padding_ops,
    places_of,
    side_of,
    unpacking,
)
from graphgen.passes.proof.movement_rules import PADDING
from graphgen.passes.proof.narrow_numbers import narrow_type
from graphgen.passes.proof.parting import parting_pair
from graphgen.passes.proof.pass_proof import Status
from graphgen.passes.proof.prove_equal import deep_recursion, rounding_place
from graphgen.passes.proof.rebuild import replaced, where
from graphgen.passes.proof.refinement_result import Claim, RefinementProof
from graphgen.passes.proof.step_programs import Steps, StepsProof, steps_of
from graphgen.passes.proof.sums import variable_name
from graphgen.passes.proof.terms import Node, Term, Terms, TooManySteps
from graphgen.passes.proof.value_verdicts import (
    ValueVerdict,
    argument_text,
    relation_text,
    with_all_values,
)

# Names of variables that stand for values of both programs.
SHARED = "value "
# Terms that are made for one pair of values, and for one output, at most.
_MATCH_STEPS = 12_000
_CLAIM_STEPS = 20_000
# More of them where sums are compared by their parts.
_PART_STEPS = 20_000
# And for each rank, where ranks are compared one by one.
_RANK_STEPS = 20_000
# Ops of several layers: their values are compared only where nothing was found to differ before.
_MANY_OPS = 500


def prove_refinement(
    before: Module,
    after: Module,
    narrow: Collection[DType] = (),
    values: dict[Value, ValueVerdict] | None = None,
) -> RefinementProof:
    """Compare all programs of ``after`` with those of ``before`` that they come from.

    Args:
        before: the module that says what is meant.
        after: the module to check.
        narrow: types that the caller asks numbers to be kept in. Outputs that are not equal in real
            arithmetic are compared again without rounding to these and without their ranges: they
            may be :attr:`Status.NARROW`, and the assumptions name the ranges.
        values: gets the verdict on each value of the programs of ``after`` that have no calls.

    Raises:
        GraphgenError: GG0302 for a type in ``narrow`` that is not a narrow one.
    """
    types = frozenset(map(narrow_type, narrow))
    claims: list[Claim] = []
    assumed: dict[str, None] = {}
    rules: set[str] = set()
    known = _Known(bodies_of(before), bodies_of(after))
    visited = 0
    for function in after.programs():
        source = source_program(before, function)
        steps = steps_of(after, function) if source is None else None
        if steps is not None:
            found = _proved_steps(before, after, steps, known, types)
            claims, visited = claims + list(found.claims), visited + found.visited
            assumed |= dict.fromkeys(found.assumptions)
            rules.update(found.rules)
            continue
        if source is None:
            why = "no program of the first module has its phase and sizes"
            names = [name for name, _ in function.outputs]
            claims += [Claim(function.name, name, Status.UNDECIDED, why) for name in names]
            continue
        program = _Program(before, after, source, inlined(after, function), known, types)
        found = program.prove()
        if values is not None:
            values |= program.verdicts(found.claims)
        claims += found.claims
        assumed |= dict.fromkeys(found.assumptions)
        rules.update(found.rules)
        visited += found.visited
    phases = {function.phase for function in after.programs()}
    for old in before.programs():
        if old.phase not in phases:
            why = "the second module has no program of this phase"
            claims += [Claim(old.name, name, Status.UNDECIDED, why) for name, _ in old.outputs]
    compared = len(known.matches) + len(known.verdicts)
    relation = _relation(before, after)
    return RefinementProof(claims, tuple(assumed), relation, sorted(rules), compared, visited)


def _proved_steps(
    before: Module, after: Module, steps: Steps, known: _Known, types: frozenset[DType]
) -> RefinementProof:
    """The proof of a program of several steps, which rests on that of one."""
    source = source_program(before, steps.step)
    if source is None:
        why = "no program of the first module has the phase and sizes of a step"
        function = steps.function
        names = [name for name, _ in function.outputs]
        return RefinementProof([Claim(function.name, x, Status.UNDECIDED, why) for x in names])
    program = _Program(before, after, source, inlined(after, steps.step), known, types)
    step = program.prove()
    proof = StepsProof(after, steps, step, program.ranges(), program.promise.rows)
    with deep_recursion():
        return proof.prove()


def _relation(before: Module, after: Module) -> str:
    """The origin of the relation of both modules' arguments and results, in words."""
    packed = sum(bool(row.pack) for row in after.interface.values())
    prepared = len(after.entries(Role.PARAM))
    if before.interface and after.interface:
        return f"the modules state it; {packed} values are packed, {prepared} tensors prepared"
    return "inferred from names: a module without an interface table states none"


def source_program(before: Module, function: Function) -> Function | None:
    """The program that ``function`` comes from, with its sizes, and its calls in line."""
    for old in before.programs():
        if old.name == function.name and old.dims == function.dims:
            return inlined(before, old)
    for old in before.programs():
        sizes = {k: v for k, v in function.dims.items() if old.dims.get(k, v) == v}
        if old.phase == function.phase and sizes.keys() == function.dims.keys():
            bound = {k: v for k, v in sizes.items() if isinstance(v, int)}
            return bind_function(inlined(before, old), bound, function.dims)
    return None


@dataclass(slots=True)
class _Cut:
    """A value of the first program that one of the second is equal to.

    Attributes:
        exact: whether both are rounded alike.
        place: where they are not.
        needs: numbers of the earlier ones that both are computed from.
    """

    exact: bool
    place: str
    needs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Match:
    """The way in which two values are equal.

    Attributes:
        choice: number of the offsets of a rank's part, among the possible ones.
        rows: of values that are equal in active rows, the elements of dimension 0 of one row.
        exact: whether both are rounded alike.
        place: where they are not.
        scope: the layer in which this was found.
    """

    choice: int
    rows: int
    exact: bool
    place: str
    scope: str


@dataclass(slots=True)
class _Known:
    """Verdicts on pairs of values, which hold for all that are alike, and texts of functions.

    Attributes:
        ours: text of the functions that ops of the first module run.
        theirs: of the second.
        matches: by the key of a pair of values, how they are equal.
        verdicts: by the key of an output, the verdict but for earlier places of rounding, and the
            layer in which it was found.
    """

    ours: Mapping[str, str] = field(default_factory=dict[str, str])
    theirs: Mapping[str, str] = field(default_factory=dict[str, str])
    matches: dict[object, _Match | None] = field(default_factory=dict[object, "_Match | None"])
    verdicts: dict[object, tuple[Claim, str]] = field(
        default_factory=dict[object, tuple[Claim, str]]
    )


@dataclass
class _Program:
    """The proof of one program."""

    before: Module
    after: Module
    source: Function
    target: Function
    known: _Known = field(default_factory=_Known)
    narrow: frozenset[DType] = frozenset()
    terms: Terms = field(default_factory=Terms)
    cuts: list[_Cut] = field(default_factory=list[_Cut])
    arbitrary: set[str] = field(default_factory=set[str])
    # Of shared values that are equal in active rows, the elements of dimension 0 of one row.
    of_rows: dict[str, int] = field(default_factory=dict[str, int])
    # Values of the second program that were related without narrow numbers.
    plain: frozenset[Value] = frozenset()
    # Places of the ops of the second program, made at the first use.
    places: dict[Op, str] = field(default_factory=dict[Op, str])
    # Ops that keys of pairs were made of.
    visited: int = 0
    # Values of the first program, and of the second, that stand for shared ones.
    shared: tuple[dict[Value, SharedValue], dict[Value, SharedValue]] = field(
        default_factory=lambda: ({}, {})
    )
    # The first program as it was given: :attr:`source` may have the chosen tokens, too.
    given: Function = field(init=False)
    ours: ProgramSide = field(init=False)
    theirs: ProgramSide = field(init=False)
    levels: dict[ProofLevel, tuple[Elements, Elements]] = field(init=False)

    def __post_init__(self) -> None:
        self.given = self.source
        self.source = with_chosen_tokens(self.source, self.target)

    def prove(self) -> RefinementProof:
        """The verdicts on the outputs."""
        rules: set[str] = set()
        with deep_recursion():
            found = self._attempt()
            rules |= self.terms.rules
            # A state whose padding is overwritten holds anything there.
            lost = {c.output for c in found if c.status is Status.UNDECIDED}
            padded = {
                name
                for name in lost
                if name in self.theirs.packed and padding_ops(self.theirs.packed[name])
            }
            if padded:
                self.arbitrary |= padded
                found = self._attempt()
                rules |= self.terms.rules
            assumed = self._assumptions()
            self.plain = frozenset(self.shared[1])
            if self.narrow and any(c.status is Status.UNDECIDED for c in found):
                found = _with_narrow(found, self._attempt(self.narrow))
                rules |= self.terms.rules
                assumed += tuple(sorted(self.terms.assumed))
        made = RefinementProof(found, assumed, rules=sorted(rules))
        return replace(made, visited=self.visited)

    def verdicts(self, claims: Sequence[Claim]) -> dict[Value, ValueVerdict]:
        """The verdicts on all values of the second program, after :meth:`prove`."""
        models = {known.number: value for value, known in self.shared[0].items()}
        found: dict[Value, ValueVerdict] = {}
        for value, known in self.shared[1].items():
            model, (_, _, choice, rows, *_) = models[known.number], known.form
            assert isinstance(choice, int)
            assert isinstance(rows, int)
            offsets = next(islice(self._offsets(value, model), choice, None))
            status = Status.REAL if self._places([known.number]) else Status.PROVED
            status = status if value in self.plain else Status.NARROW
            text = relation_text(model, offsets, rows, self.after.ranks)
            found[value] = ValueVerdict(status, text)
        arguments = {
            value: argument_text(value.name or "", self.after.interface.get(value.name or ""), made)
            for value in self.target.args
            for made in (self.theirs.elements.source_of(value) is not None,)
        }
        outputs = {claim.output: claim.status for claim in claims}
        return with_all_values(self.target, found, outputs, arguments)

    def _assumptions(self) -> tuple[str, ...]:
        tables = [f"{name} has no element twice, and none below 0" for name in self._tables()]
        rows = ["row b of a call is row b of the caches, or idle"] if self.promise.rows else []
        tokens = [MEANING] if self.source is not self.given else []
        return (*rows, *tokens, *tables)

    # ---- both programs ---------------------------------------------------------------------------

    @property
    def promise(self) -> Promise:
        """Rows of a call are those of the caches where there are as many."""
        rows, calls = (self.target.dims.get(name) for name in ("R", "B"))
        whole = isinstance(rows, int) and rows == calls and self.source.arg("seq_ids") is not None
        return Promise(rows) if whole and isinstance(rows, int) else Promise()

    def _attempt(self, narrow: frozenset[DType] = frozenset()) -> list[Claim]:
        tiles = _has_tiles(self.target) or bool(narrow)
        self.terms = Terms(quotients=tiles, narrow=narrow, distinct=frozenset(self._tables()))
        self.cuts, self.of_rows, self.shared = [], {}, ({}, {})
        ranges = self.ranges()
        given = ranges, self.promise
        known = self.known
        ours = side_of(self.terms, self.before, self.source, *given, "sum", known.ours)
        theirs = side_of(self.terms, self.after, self.target, *given, "own", known.theirs)
        self.ours, self.theirs = ours, theirs
        for side in (ours, theirs):
            _relate_congruent(side)
        for name in self.arbitrary:
            for number, op in enumerate(padding_ops(theirs.packed[name])):
                theirs.elements.ranks.arbitrary[op] = f"{name} {number}"
        real, other = ours.elements.in_real_arithmetic(), theirs.elements.in_real_arithmetic()
        assert real.typed is not None
        assert other.typed is not None
        self.levels = {
            ProofLevel.EXACT: (ours.elements, theirs.elements),
            ProofLevel.TYPED: (real.typed, other.typed),
            ProofLevel.REAL: (real, other),
        }
        self._match_values()
        lost = [name for name, _ in self.source.outputs if self.target.outputs.get(name) is None]
        why = "the second program has no such output"
        claims = [Claim(self.target.name, name, Status.UNDECIDED, why) for name in lost]
        return claims + self._claims()

    def ranges(self) -> dict[str, tuple[Dim, Dim]]:
        """The domains of integers, as the interface states them."""
        out: dict[str, tuple[Dim, Dim]] = {}
        for row in self.before.entries(Role.INPUT):
            domain = row.bind(self.target.dims).domain
            if domain is None or not row.logical.dtype.is_integer:
                continue
            low, high = domain.low, domain.high
            if isinstance(low, int | Poly) and isinstance(high, int | Poly):
                out[row.name] = (low, high)
        return out | self._tables()

    def _tables(self) -> dict[str, tuple[Dim, Dim]]:
        """The tables of places of states that have no place twice, with the range of places."""
        rows = (*self.before.entries(Role.LAYOUT), *self.after.entries(Role.LAYOUT))
        found = {row.name: places_of(row.bind(self.target.dims)) for row in rows}
        return {name: places for name, places in found.items() if places is not None}

    # ---- values that both have -------------------------------------------------------------------

    def _match_values(self) -> None:
        """Relate values of the second program to those of the first that may be the same."""
        waiting: dict[object, list[Value]] = {}
        congruent = self.ours.elements.ranks.related, self.theirs.elements.ranks.related
        for value in shared_values(self.source):
            if value not in congruent[0]:
                waiting.setdefault(_origin(value), []).append(value)
        for op in self.target.block:
            if len(op.results) != 1 or not op.results[0].dtype.is_float:
                continue
            (value,) = op.results
            # One that nothing reads is compared as the output that it is.
            if value in congruent[1] or not value.users:
                continue
            found = waiting.get(_origin(value), [])
            if not found or not _leaves(value, self.target):
                continue
            # One in another type is rounded otherwise.
            for model in sorted(found, key=lambda x: x.dtype is not value.dtype):
                if self._match(value, model):
                    found.remove(model)
                    break

    def _match(self, value: Value, model: Value) -> bool:
        cone = self._cone(model, value, _MANY_OPS)
        if not cone.whole:
            return False
        key = (self.promise.rows, self.terms.narrow, cone.key)
        if key not in self.known.matches:
            self.known.matches[key] = self._compared(value, model)
        found = self.known.matches[key]
        if found is None:
            return False
        self._cut(value, model, found, tuple(cone.shared))
        return True

    def _cone(self, model: Value, value: Value, most: int = 0) -> Cone:
        """All that a value of the first program and one of the second are computed from."""
        cone = Cone(most)
        # First the one that may have too many ops.
        cone.add(self.theirs, self.shared[1], value)
        if cone.whole:
            count = len(cone.ops)
            cone.add(self.ours, self.shared[0], model)
            self.visited += len(cone.ops) + count
        return cone

    def _compared(self, value: Value, model: Value) -> _Match | None:
        for choice, offsets in enumerate(list(self._offsets(value, model))):
            index = self._index(value)
            at = tuple(i + offset for i, offset in zip(index, offsets, strict=True))
            self.terms.limit = self.terms.steps + _MATCH_STEPS
            try:
                rows = self._equal(ProofLevel.REAL, value, index, model, at)
            except TooManySteps:
                continue
            if rows is not None:
                exact = self._exact(value, index, model, at)
                place = "" if exact else self._place(value, model, offsets, rows)
                return _Match(choice, rows, exact, place, _layer(value))
        return None

    def _exact(self, value: Value, index: Index, model: Value, at: Index) -> bool:
        self.terms.limit = self.terms.steps + _MATCH_STEPS
        try:
            return self._equal(ProofLevel.EXACT, value, index, model, at) is not None
        except TooManySteps:
            return False

    def _equal(
        self, level: ProofLevel, value: Value, index: Index, model: Value, at: Index
    ) -> int | None:
        """Compare elements: ``None`` if they differ, 0 if they are equal in all rows.

        Otherwise the number of elements of dimension 0 that are of one row, which are equal where
        that row is not idle.
        """
        ours, theirs = self.levels[level]
        a, b = ours.at(model, at), theirs.at(value, index)
        if self._same(a, b) and self._rows_alone(b, ()):
            return 0
        calls, size = self.promise.rows, value.shape[0] if index else 0
        if not calls or not isinstance(size, int) or size % calls:
            return 0 if self._equal_otherwise(level, a, b) and self._rows_alone(b, ()) else None
        row = div(self.terms, index[0], size // calls)
        a, b = self._active(a, b, row)
        if not self._same(a, b) and not self._equal_otherwise(level, a, b):
            return None
        return size // calls if self._rows_alone(b, (row,)) else None

    def _same(self, a: Term, b: Term) -> bool:
        return a is b or (a == b and type(a) is type(b))

    def _equal_otherwise(self, level: ProofLevel, a: Term, b: Term) -> bool:
        """True for elements in real arithmetic that are equal, if not by their normal form."""
        if level is not ProofLevel.REAL:
            return False
        self.terms.limit = self.terms.steps + _PART_STEPS
        if equal_terms(self.terms, a, b):
            return True
        if not _has_ring(self.target):
            return False
        self.terms.limit = self.terms.steps + _RANK_STEPS * self.after.ranks
        return equal_on_each_rank(self.terms, a, b, self.after.ranks, equal_terms)

    def _active(self, a: Term, b: Term, row: Dim) -> tuple[Term, Term]:
        """Both elements where a row is not idle."""
        if not self.promise.rows:
            return a, b
        active = active_row(self.terms, row)
        given = [
            where(self.terms, x, active) if mentions_rows(self.terms, x) else x for x in (a, b)
        ]
        return given[0], given[1]

    def _rows_alone(self, term: Term, rows: Sequence[Dim]) -> bool:
        """True if values of a term, which programs share in active rows, are of such rows.

        Args:
            term: of an element in an active row, or of a state.
            rows: numbers of rows that are active.
        """
        return not self.promise.rows or rows_alone(self.terms, term, rows, self.of_rows)

    def _index(self, value: Value) -> Index:
        return tuple(
            self.terms.variable(f"i{axis}_{size}", size) for axis, size in enumerate(value.shape)
        )

    def _offsets(self, value: Value, model: Value) -> Iterator[tuple[Dim, ...]]:
        """The places at which the part of a rank may begin in a value of the model."""
        self.terms.limit = 0
        if value.type.rank != model.type.rank:
            return
        count, rank = self.after.ranks, self.theirs.elements.ranks.rank
        choices: list[list[Dim]] = []
        for part, whole in zip(value.shape, model.shape, strict=True):
            if part == whole:
                choices.append([0])
                continue
            if not isinstance(part, int) or not isinstance(whole, int) or whole % part:
                return
            parts = whole // part
            if count % parts:
                return
            # In one order: a choice among them is remembered by its number.
            within, across = mod(self.terms, rank, parts), div(self.terms, rank, count // parts)
            places = dict.fromkeys((within, across))
            choices.append([place * part for place in places])
        yield from _combinations(choices)

    def _cut(self, value: Value, model: Value, match: _Match, needs: tuple[int, ...]) -> None:
        """Make both values one variable from here on."""
        number, terms, rows = len(self.cuts), self.terms, match.rows
        offsets = next(islice(self._offsets(value, model), match.choice, None))
        name = f"{SHARED}{number}"
        if rows:
            self.of_rows[name] = rows
        place = match.place.replace(match.scope, _layer(value)) if match.scope else match.place
        self.cuts.append(_Cut(match.exact, place, needs))
        form = (model.type, value.type, match.choice, rows)
        self.shared[0][model] = SharedValue(number, (*form, "model"))
        self.shared[1][value] = SharedValue(number, (*form, "rank"))
        type_ = model.type

        def variable(index: Index) -> Node:
            return terms.node("at", name, type_, *index)

        def of_model(e: Elements, index: Index, rank: Dim) -> Term:
            return variable(index)

        def of_rank(e: Elements, index: Index, rank: Dim) -> Term:
            moved = [_on(offset, rank) for offset in offsets]
            return variable(tuple(i + o for i, o in zip(index, moved, strict=True)))

        def _on(offset: Dim, rank: Dim) -> Dim:
            found = replaced(terms, offset, {RANK: rank})
            assert isinstance(found, int | Poly)
            return found

        self.ours.elements.ranks.related[model] = of_model
        self.theirs.elements.ranks.related[value] = of_rank
        for ours, theirs in self.levels.values():
            ours.forget()
            # Later values of the second program have no terms yet.
            theirs.forget(value)

    def _place(self, value: Value, model: Value, offsets: Sequence[Dim], rows: int) -> str:
        """The op at which two values round otherwise, and its place."""
        assert value.op is not None
        index = self._index(value)
        at = tuple(i + offset for i, offset in zip(index, offsets, strict=True))
        ours, theirs = self.levels[ProofLevel.EXACT]
        self.terms.limit = self.terms.steps + _MATCH_STEPS
        try:
            pair = ours.at(model, at), theirs.at(value, index)
            if rows:
                pair = self._active(*pair, div(self.terms, index[0], rows))
            return rounding_place(self.terms, *pair)
        except TooManySteps:
            return place_of(value.op)

    # ---- outputs ---------------------------------------------------------------------------------

    def _claims(self) -> list[Claim]:
        """The verdicts on the outputs, in their order; those of earlier layers are found first."""
        order = {op: place for place, op in enumerate(self.target.block)}
        outputs = list(self.target.outputs)
        found: dict[str, Claim] = {}
        lost: dict[str, Claim] = {}
        for name, value in sorted(outputs, key=lambda x: order.get(x[1].op, -1) if x[1].op else -1):
            claim = found[name] = self._bounded_claim(name, value, lost)
            if claim.status is Status.UNDECIDED and claim.pair[1]:
                lost.setdefault(claim.pair[1], claim)
        return [found[name] for name, _ in outputs]

    def _bounded_claim(self, name: str, value: Value, lost: Mapping[str, Claim]) -> Claim:
        """The verdict on an output; that of an earlier one where many ops come from its difference.

        Args:
            name: of the output.
            value: in the second program.
            lost: by place of an op of the second program, the first claim that is lost there.
        """
        model, program = self.source.outputs.get(name), self.target.name
        if model is None:
            why = "the first program has no such output"
            return Claim(program, name, Status.UNDECIDED, why)
        first = self._lost_before(value, lost) if lost else None
        if first is not None:
            return replace(first, output=name)
        cone = self._cone(model, value)
        key = (self.promise.rows, self.terms.narrow, *self._representation(name), cone.key)
        if key not in self.known.verdicts:
            self.terms.limit = self.terms.steps + _CLAIM_STEPS
            try:
                made = self._claim(name, value, model)
            except TooManySteps:
                made = Claim(program, name, Status.UNDECIDED, f"more than {_CLAIM_STEPS} steps")
            self.known.verdicts[key] = made, _layer(value)
        found, scope = self.known.verdicts[key]
        pair, own = [
            tuple([text.replace(scope, _layer(value)) if scope else text for text in texts])
            for texts in (found.pair, found.rounding)
        ]
        if found.status is Status.UNDECIDED:
            return Claim(program, name, found.status, found.reason, (pair[0], pair[1]))
        places = tuple(dict.fromkeys((*own, *self._places(cone.shared))))
        return Claim(program, name, Status.REAL if places else Status.PROVED, rounding=places)

    def _lost_before(self, value: Value, lost: Mapping[str, Claim]) -> Claim | None:
        """The claim that is lost at an op that a value comes from; ``None`` if few ops are."""
        places = self.places
        if not places:
            places |= {op: place_of(op) for op in self.target.block}
        found: Claim | None = None
        seen: set[Value] = set()
        ops: set[Op] = set()
        work = [value]
        while work and (found is None or len(ops) <= _MANY_OPS):
            item = work.pop()
            if item in seen or item in self.shared[1]:
                continue
            seen.add(item)
            source = self.theirs.elements.source_of(item)
            if source is not None:
                work.append(source)
            elif item.op is not None:
                ops.add(item.op)
                found = found or lost.get(places.get(item.op, ""))
                work += item.op.operands
        return found if len(ops) > _MANY_OPS else None

    def _representation(self, name: str) -> tuple[object, ...]:
        """The representation of an output in both modules, and whether its padding is arbitrary."""
        found: list[object] = [name in self.arbitrary]
        for module in (self.before, self.after):
            row = module.interface.get(name)
            if row is None:
                found.append(None)
                continue
            names = (row.pack, row.unpack)
            texts = [function_fingerprint(module.function(f)) if f else "" for f in names]
            found.append((row.role, row.logical, row.physical, *texts))
        return tuple(found)

    def _claim(self, name: str, value: Value, model: Value) -> Claim:
        """The verdict on an output; of rounding only the place after all shared values."""
        type_, whole = logical_value(self.ours, name, model)
        if not self._kept_whole(name):
            why = "what is stored may not hold all of it"
            return Claim(self.target.name, name, Status.UNDECIDED, why)
        expected = self._expected(name, whole)
        if expected is None and type_ is not value.type:
            what = f"{value.type.text} is compared with {type_.text}"
            return Claim(self.target.name, name, Status.UNDECIDED, what)
        for level in (ProofLevel.REAL, ProofLevel.EXACT):
            a, b = self._pair(level, name, value, whole, expected)
            rows = self._index(value)[:1] if self._by_row(name) else ()
            if not self._same(a, b) and self._equal_otherwise(level, a, b):
                a = b
            if not self._same(a, b) and self.terms.narrow and level is ProofLevel.REAL:
                # Numbers are kept in a narrow type before a write, those of the model after it.
                a = b if equal_in_cases(self.terms, a, b, self._same) else a
            if self._same(a, b) and not self._rows_alone(b, rows):
                why = "rows that are idle may reach others"
                return Claim(self.target.name, name, Status.UNDECIDED, why)
            if not self._same(a, b):
                if level is ProofLevel.REAL:
                    reason, pair = parting_pair(self.terms, a, b)
                    return Claim(self.target.name, name, Status.UNDECIDED, reason, pair)
                place = rounding_place(self.terms, a, b)
                return Claim(self.target.name, name, Status.REAL, rounding=(place,))
        return Claim(self.target.name, name, Status.PROVED)

    def _kept_whole(self, name: str) -> bool:
        """True if unpacking what was packed gives back a state of the model."""
        row = self.after.interface.get(name)
        if row is None or not row.pack:
            return True
        if not row.unpack:
            return False
        pack, unpack = packing(self.theirs, row), unpacking(self.theirs, row)
        level = ProofLevel.REAL if self.terms.narrow else ProofLevel.EXACT
        elements, ranks = self.levels[level][1], self.theirs.elements.ranks
        made, whole = pack.outputs[0][1], pack.args[0]
        assert isinstance(elements.args, dict)
        elements.args[whole] = name
        ranks.related[unpack.args[0]] = lambda e, at, rank: e.on_rank(made, at[1:], at[0])
        ranks.sources[unpack.args[0]] = made
        result = unpack.outputs[0][1]
        index = self._index(result)
        found, given = elements.at(result, index), elements.at(whole, index)
        held = [value for _, value in unpack.outputs[1:]]
        if held:
            # Of dimensions that it lacks all elements are held.
            axes = held[0].type.rank
            if held[0].shape != result.shape[:axes]:
                return False
            condition = elements.at(held[0], index[:axes])
            assert isinstance(condition, bool | Node)
            found = where(self.terms, found, condition)
        return result.type is whole.type and self._same(found, given)

    def _expected(self, name: str, whole: Value) -> Value | None:
        """The part of a result of the model that a rank should hold."""
        row = self.after.interface.get(name)
        if row is None or not row.pack:
            return None
        function = packing(self.theirs, row)
        if name in self.arbitrary:
            for number, op in enumerate(padding_ops(function)):
                self.theirs.elements.ranks.arbitrary[op] = f"{name} {number}"
        levels = self.levels
        ranks = self.theirs.elements.ranks
        ranks.related[function.args[0]] = lambda e, index, rank: levels[e.level][0].at(whole, index)
        return function.outputs[0][1]

    def _pair(
        self, level: ProofLevel, name: str, value: Value, whole: Value, expected: Value | None
    ) -> tuple[Term, Term]:
        ours, theirs = self.levels[level]
        index = self._index(value)
        kept: bool | Node = True
        if expected is not None and name in self.arbitrary:
            kept = kept_where(self.terms, theirs.at(expected, index))
            index = self._kept(kept, index)
        a = ours.at(whole, index) if expected is None else theirs.at(expected, index)
        b = theirs.at(value, index)
        a, b = where(self.terms, a, kept), where(self.terms, b, kept)
        if self.terms.distinct and not self._same(a, b):
            a, b = in_images(self.terms, a, b, self._same)
            kept = kept_where(self.terms, a) if name in self.arbitrary else True
            a, b = where(self.terms, a, kept), where(self.terms, b, kept)
        if self._by_row(name) and index:
            return self._active(a, b, index[0])
        return a, b

    def _kept(self, kept: bool | Node, index: Index) -> Index:
        """The index within what is not padding."""
        sizes: dict[str, int] = {}
        for fact in conjuncts(kept) if isinstance(kept, Node) else ():
            limit = fact.args[0]
            if fact.kind != "le0" or not isinstance(limit, Poly):
                continue
            # variable - high <= 0
            parts = dict(limit.terms)
            high = -parts.pop((), 0)
            ((monomial, factor),) = parts.items() if len(parts) == 1 else (((), 0),)
            if factor == 1 and len(monomial) == 1:
                sizes[monomial[0]] = min(high + 1, sizes.get(monomial[0], high + 1))
        found: list[Dim] = []
        for axis, i in enumerate(index):
            size = sizes.get(variable_name(i)) if isinstance(i, Poly) else None
            found.append(i if size is None else self.terms.variable(f"i{axis}_{size}", size))
        return tuple(found)

    def _by_row(self, name: str) -> bool:
        """True for results whose first dimension are the rows of a call."""
        row = self.before.interface.get(name) or self.after.interface.get(name)
        return row is not None and row.role is Role.OUTPUT

    def _places(self, needs: Iterable[int]) -> tuple[str, ...]:
        """The places whose rounding differs, of shared values and all that these come from."""
        seen: set[int] = set()
        work = list(needs)
        while work:
            number = work.pop()
            if number not in seen:
                seen.add(number)
                work += self.cuts[number].needs
        places = [self.cuts[number].place for number in sorted(seen) if not self.cuts[number].exact]
        return tuple(dict.fromkeys(places))


def _with_narrow(plain: Sequence[Claim], narrow: Sequence[Claim]) -> list[Claim]:
    """Claims of which those that are not proved are taken from a proof with narrow numbers."""
    return [
        old
        if old.status is not Status.UNDECIDED
        else new
        if new.status is Status.UNDECIDED
        else replace(new, status=Status.NARROW)
        for old, new in zip(plain, narrow, strict=True)
    ]


def _relate_congruent(side: ProgramSide) -> None:
    """Relate each value to the first one of its program that is computed alike."""
    ranks = side.elements.ranks
    for value, first in congruent_values(side.function).items():

        def of_first(e: Elements, index: Index, rank: Dim, first: Value = first) -> Term:
            return e.at(first, index)

        ranks.related[value] = of_first
        ranks.sources[value] = first


def _combinations(choices: Sequence[Sequence[Dim]]) -> Iterator[tuple[Dim, ...]]:
    if not choices:
        yield ()
        return
    for first in choices[0]:
        for rest in _combinations(choices[1:]):
            yield (first, *rest)


def _layer(value: Value) -> str:
    """The layer that a value is of, as its op's scope says it; for texts alone."""
    return "" if value.op is None else scope_of(value.op)


def _origin(value: Value) -> object:
    """The line and scope of the model that a value comes from: a hint, which nothing relies on."""
    assert value.op is not None
    loc = value.op.loc
    return loc.file, loc.line, loc.scope


def kept_where(terms: Terms, term: Term) -> bool | Node:
    """The condition under which an element of a padded state is not padding."""
    out: bool | Node = True
    while True:
        if isinstance(term, Poly) and len(term.terms) == 1 and term.terms[0][1] == 1:
            term = terms.atoms.get(term.terms[0][0][0], term)
        if not isinstance(term, Node) or term.kind != "if":
            return out
        which, yes, no = term.args
        if not _is_padding(terms, no):
            return out
        assert isinstance(which, Node)
        assert isinstance(yes, bool | int | Poly | Node)
        out, term = both(terms, out, which), yes


def _is_padding(terms: Terms, term: object) -> bool:
    """True for an element of padding, or its bits."""
    if isinstance(term, Poly) and len(term.terms) == 1:
        term = terms.atoms.get(term.terms[0][0][0])
    if isinstance(term, Node) and term.kind == "fn" and term.args[0] == "bitcast_convert":
        return _is_padding(terms, term.args[3])
    return isinstance(term, Node) and str(term.args[0]).startswith(PADDING)


def _leaves(value: Value, function: Function) -> bool:
    """True if something from elsewhere in the model reads a value."""
    origin = _origin(value)
    others = (user.loc for user in value.users)
    return function.returns(value) or any((x.file, x.line, x.scope) != origin for x in others)


def shared_values(function: Function) -> Iterator[Value]:
    """Float values of a program, but for those whose elements are elements of others."""
    for op in function.block:
        for value in op.results:
            if value.dtype.is_float and not _moves(op):
                yield value


def _moves(op: Op) -> bool:
    movement = OPS[op.name].has(Trait.DATA_MOVEMENT) and op.name != "convert"
    return movement and not OPS[op.name].composite


def rows_alone(terms: Terms, term: Term, rows: Sequence[Dim], of_rows: dict[str, int]) -> bool:
    """True if each value of active rows in a term is of a row that is known to be active there.

    Args:
        terms: of the proof.
        term: an element.
        rows: those that are active.
        of_rows: the values, by name, with the elements of dimension 0 of one row.
    """
    seen: set[tuple[object, tuple[Dim, ...]]] = set()
    work: list[tuple[object, tuple[Dim, ...]]] = [(term, tuple(rows))]
    while work:
        item, active = work.pop()
        if (item, active) in seen:
            continue
        seen.add((item, active))
        if isinstance(item, Poly):
            work += [(terms.atoms[n], active) for n in symbols([item]) if n in terms.atoms]
        elif isinstance(item, Node):
            size = of_rows.get(str(item.args[0]), 0) if item.kind == "at" else 0
            if size and div(terms, _dim(item.args[2]), size) not in active:
                return False
            guards = {"if": (0, 1), "write": (-3, -2)}.get(item.kind)
            for place, part in enumerate(item.args):
                more = active
                if guards is not None and place == guards[1] % len(item.args):
                    more = (*active, *_active_rows(item.args[guards[0]]))
                if isinstance(part, Node | Poly):
                    work.append((part, more))
    return True


def _active_rows(condition: object) -> Iterator[Dim]:
    """The rows that a condition says are active."""
    for part in conjuncts(condition) if isinstance(condition, Node) else ():
        inner = part.args[0]
        if part.kind == "truth" and isinstance(inner, Node) and inner.args[0] == ACTIVE:
            assert isinstance(inner.args[2], int | Poly)
            yield inner.args[2]


def _dim(value: object) -> Dim:
    assert isinstance(value, int | Poly)
    return value


def _has_tiles(function: Function) -> bool:
    """True for a program that may have attention in tiles: in a loop, or with barriers between."""
    return any(
        op.name == "while" or op.attrs.get("opcode") == "opt-barrier" for op in function.block
    )


def _has_ring(function: Function) -> bool:
    """True for a program whose ranks send parts of a softmax to each other."""
    return any(op.name == "collective_permute" for op in function.block)
