"""Rules for layouts of weights, inputs and states: by an axis of the model, a name, or a phase."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import prod

from graphgen.errors import GraphgenError
from graphgen.ir import (
    HELD_ROLES,
    Dim,
    Entry,
    Function,
    Module,
    Role,
    Sharding,
    Value,
    replicated,
    sharding,
)
from graphgen.ir.sharding import Axes, parse_sharding
from graphgen.passes.core import Rewriter
from graphgen.passes.sharding.logical_axes import (
    HEADS,
    HIDDEN,
    INTERMEDIATE,
    KV_HEADS,
    LOGICAL,
    QUERY_HEADS,
    ROWS,
    SEQUENCE,
    SLOTS,
    VOCAB,
    ModelAxes,
    model_axes,
    query_axes,
)
from graphgen.passes.sharding.mesh import Mesh, divides
from graphgen.passes.sharding.requested_layout import requested_sharding
from graphgen.passes.weights.derived import PreparedValues

_NORMS = ("layer_norm", "rms_norm")
# The rule for factors of adapters that ranks hold whole otherwise.
ADAPTERS = "adapters"


def residual_stream(
    module: Module, function: Function, axes: ModelAxes
) -> Iterator[tuple[Value, int]]:
    """Yield values of the residual stream [B,S,E] and their norms, each with its dimension S.

    ``axes`` are those of the module.

    These are the values that several ops or a norm reads, and the results of norms. A value that
    one addition reads is left out: ranks may hold addends of it, which are summed once, later.
    """
    prepared = PreparedValues(module, function, {}, HELD_ROLES)
    readers = Counter(value for op in function.block for value in op.operands)
    normalized = {value for op in function.block if op.name in _NORMS for value in op.operands}
    for op in function.block:
        for value in op.results:
            names = [axes.of(value, dim) for dim in range(value.type.rank)]
            tokens = [dim for dim, found in enumerate(names) if SEQUENCE in found]
            hidden = any(HIDDEN in found for found in names)
            if not tokens or not hidden or prepared.of_weights(value):
                continue
            if op.name in _NORMS or value in normalized or readers[value] > 1:
                yield value, tokens[0]


# Megatron's layout of a decoder: heads, their caches, the MLP's intermediate values, and the
# vocabulary.
DECODER_RULES: Mapping[str, str] = dict.fromkeys((HEADS, KV_HEADS, INTERMEDIATE, VOCAB), "tp")
# The same over ranks that are factored: neighbors along the product are neighbors.
FACTORED = (
    "ep*tp",
    "ep*ep2*tp",
    "ep*ep2*ep3*tp",
    "tp*cp",
    "tp*dp",
    "tp*cp*dp",
    "cp",
    "dp",
    "cp*dp",
)
# The same over groups of ranks with key-value heads of their own, whose ranks divide slots.
KV_AXIS = "kv"
# Heads that no axis splits are whole, also where a model has a single one, which is not an axis.
_USUAL = ("tp", *FACTORED, KV_AXIS, f"{KV_AXIS}*{SLOTS}", SLOTS, "-")
# A phase, and the least tokens a row of its programs.
_PHASE = re.compile(r"(\w+)(?:>=(\d+))?")


@dataclass(frozen=True, slots=True)
class Annotation:
    """A layout that rules assign.

    Attributes:
        place: a row of the interface, or a value of a program: one that it makes of weights, or a
            weight that this program divides otherwise than others do.
        function: the program of a value.
        layout: how it is to lie.
        rules: as they were written, those that decided, in order.
        fixed: a whole value is to stay whole, as a rule for its name says; else a value without an
            axis is divided as is cheapest.
    """

    place: str | Value
    function: Function | None
    layout: Sharding
    rules: tuple[str, ...]
    fixed: bool = False

    @property
    def name(self) -> str:
        """The name of the row, or of the value."""
        return self.place if isinstance(self.place, str) else f"%{self.place.name or 'a value'}"


# Rules in order: what is divided, and how.
Rules = Mapping[str, str] | Sequence[tuple[str, str]]


def annotations_of(
    module: Module, rules: Rules, model: ModelAxes | None = None
) -> list[Annotation]:
    """The layouts that rules assign; of several rules for one dimension the last wins.

    Args:
        module: where a weight is taken apart or reordered before it is used, what is made of it is
            given the layout, as a value.
        rules: either the name of an axis of the model
        (:data:`~graphgen.passes.sharding.logical_axes.LOGICAL`) and
            the mesh axes that split it, such as ``heads`` and ``tp``; or a pattern (as in a shell)
            for names of inputs, weights, states and outputs, and a layout such as ``{tp,-}``; or a
            phase and ``sequence``, such as ``prefill:sequence``, and the mesh axes that split the
            residual stream of the phase's programs along its tokens; or a phase and an axis of
            weights alone, such as ``prefill:experts``: what other rules say of these weights is
            changed for the phase's programs, whichever rule stands first. ``prefill>=2048`` are the
            programs of the phase with at least 2048 tokens a row; or :data:`ADAPTERS` and the mesh
            axes that split the factors of adapters which no rule before it splits.
        model: the axes of the module, where they are known.

    Raises:
        GraphgenError: GG0304 for a rule that matches nothing, a layout of another rank, or a phase
            with an axis that inputs or states have, other than ``sequence``.
    """
    axes: _Axes | None = None
    queries: _Axes | None = None
    made: dict[str | Value, Annotation] = {}
    pairs = rules.items() if isinstance(rules, Mapping) else rules
    for name, text in sorted(pairs, key=lambda rule: bool(_phase_of(*rule))):
        axis = name.rpartition(":")[2] if not is_layout(text) else ""
        if phase := _phase_of(name, text):
            axes = axes or _Axes(module, model)
            cut = _mesh_axes(name, text)
            programs = _programs(module, name, phase, sharding([cut]))
            if axis == SEQUENCE:
                found = _by_tokens(module, axes.axes, programs, cut)
            else:
                found = axes.split_in(programs, name, cut, made)
        elif axis == QUERY_HEADS:
            queries = queries or _Axes(module, query_axes(module))
            found = queries.split(name, _mesh_axes(name, text), made)
        elif name == ADAPTERS:
            found = _of_adapters(module, _mesh_axes(name, text), made)
        elif axis in LOGICAL:
            axes = axes or _Axes(module, model)
            if name == SEQUENCE and text != "-":
                _check_tokens(module, axes.axes)
            found = axes.split(name, _mesh_axes(name, text), made)
        else:
            found = _by_name(module, name, text)
        # Not every model has all that the usual rules speak of, and not every prompt divides.
        usual = name in DECODER_RULES and text in _USUAL
        usual = usual or name == ADAPTERS or (bool(phase) and axis in (SEQUENCE, *DECODER_RULES))
        if not found and not usual:
            raise GraphgenError("GG0304", _unmatched(name, text), help=axes.known if axes else "")
        for item in found:
            earlier = made[item.place].rules if axis in LOGICAL and item.place in made else ()
            made[item.place] = replace(item, rules=(*earlier, f"{name}:{text}"))
    return list(made.values())


def _phase_of(name: str, text: str) -> str:
    """The phase of a rule for an axis of one phase; empty for other rules."""
    phase, _, axis = name.rpartition(":")
    return phase if axis in LOGICAL and not is_layout(text) else ""


def is_layout(text: str) -> bool:
    """True for the layout of a name, such as ``{tp,-}``: an axis of the model has mesh axes.

    Inputs may be called like axes.
    """
    return text.startswith("{")


def annotate(module: Module, rules: Rules, rewriter: Rewriter | None = None) -> None:
    """Set the layouts of :func:`annotations_of` on rows and values.

    Args:
        module: changed in place.
        rules: see there.
        rewriter: of the pass on whose behalf; each layout is a rewrite of its own.
    """
    set_layouts(module, annotations_of(module, rules), rewriter or Rewriter("annotate"))


def set_layouts(module: Module, items: Iterable[Annotation], rewriter: Rewriter) -> None:
    """Set layouts on rows and values, each as a rewrite of its own."""
    for item in items:
        if rewriter.exhausted:
            return
        layout = item.layout if item.fixed or not item.layout.replicated else None
        if isinstance(item.place, Value):
            # A weight of one program is whole there, whatever it is in others.
            item.place.sharding = item.layout if item.place.op is None else layout
            op = item.place.op
        else:
            row = module.interface[item.place]
            module.interface[item.place] = replace(row, sharding=layout)
            op = None
        rewriter.note(item.function, f"{item.name} {item.layout.text}", op)


def _unmatched(name: str, text: str) -> str:
    if name in LOGICAL and not is_layout(text):
        return f"the model has no axis '{name}'"
    return f"no input, weight, state or output is called '{name}'"


def _mesh_axes(name: str, text: str) -> Axes:
    """The mesh axes of a rule for an axis of the model; none for ``-``."""
    layout = parse_sharding("{" + text + "}")
    if len(layout.dims) != 1 or layout.partial:
        what = f"'{text}' names no mesh axes to split {name} by"
        raise GraphgenError("GG0304", what, help="write e.g. tp, dp*tp, or - for none")
    return layout.dims[0]


class _Axes:
    """Shards logical axes in all values of the programs."""

    def __init__(self, module: Module, axes: ModelAxes | None = None) -> None:
        self.module = module
        self.axes = axes or model_axes(module)
        self.places: dict[str, dict[tuple[str | Value, int], Function | None]] = {}
        for function in module.programs():
            for value in _split_values(module, function):
                for dim in range(value.type.rank):
                    for name in self.axes.of(value, dim):
                        found = self.places.setdefault(name, {})
                        if value.op is None:
                            found[value.name or "", dim] = None
                        else:
                            found[value, dim] = function
        self.uneven = set(_uneven(module))

    @property
    def known(self) -> str:
        """The names of the logical axes of the model."""
        return f"it has {', '.join(sorted(self.places))}" if self.places else ""

    def split(
        self, name: str, cut: Axes, earlier: Mapping[str | Value, Annotation]
    ) -> list[Annotation]:
        """Shard one axis everywhere, on top of earlier rules."""
        found: dict[str | Value, Annotation] = {}
        for (place, dim), function in self.places.get(name, {}).items():
            if name == ROWS and (place, dim) in self.uneven:
                # Rows of calls are those of caches in some programs only.
                continue
            known = found.get(place) or earlier.get(place)
            if isinstance(place, Value):
                layout, rank = place.sharding, place.type.rank
            else:
                row = self.module.interface[place]
                layout, rank = row.sharding, row.logical.rank
            layout = resharded(known.layout if known else layout, rank, dim, cut)
            found[place] = Annotation(place, function, layout, ())
        return list(found.values())

    def split_in(
        self,
        programs: Iterable[Function],
        rule: str,
        cut: Axes,
        earlier: Mapping[str | Value, Annotation],
    ) -> list[Annotation]:
        """Shard one axis in the weights of some programs, on top of the rules for all.

        States with the axis lie as all programs need them; an axis of theirs alone is refused.
        """
        found: dict[str | Value, Annotation] = {}
        shared: Entry | None = None
        for function in programs:
            for value in _split_values(self.module, function):
                for dim in range(value.type.rank):
                    if rule.rpartition(":")[2] not in self.axes.of(value, dim):
                        continue
                    row = self.module.interface.get(value.name or "") if not value.op else None
                    if row is not None and row.role not in HELD_ROLES:
                        shared = row
                        continue
                    known = found.get(value) or earlier.get(value)
                    known = known or (earlier.get(value.name or "") if value.op is None else None)
                    start = known.layout if known else requested_sharding(self.module, value)
                    layout = resharded(start, value.type.rank, dim, cut)
                    rules = known.rules if known and value not in earlier else ()
                    found[value] = Annotation(value, function, layout, rules)
        if shared is not None and not found:
            raise _shared_by_phases(shared, rule)
        return list(found.values())


def _split_values(module: Module, function: Function) -> Iterator[Value]:
    """Inputs, states, and the weights or derived values that the program reads."""
    prepared = PreparedValues(module, function, {}, HELD_ROLES)
    made = [value for op in function.block for value in op.results if prepared.of_weights(value)]
    for value in (*function.args, *made):
        if prepared.of_weights(value):
            if prepared.readers(value):
                yield value
        elif value.op is None and value.name in module.interface:
            yield value


def resharded(layout: Sharding | None, rank: int, dim: int, cut: Axes) -> Sharding:
    """The layout with one dimension resharded; the axes are removed from the others."""
    dims = [
        tuple(axis for axis in axes if axis not in cut)
        for axes in (layout or replicated(rank)).dims
    ]
    dims[dim] = cut
    return sharding(dims)


def _check_tokens(module: Module, axes: ModelAxes) -> None:
    """Require every program to have tokens to split (GG0304)."""
    for function in module.programs():
        for value in function.args:
            for dim, size in enumerate(value.shape):
                if size == 1 and SEQUENCE in axes.of(value, dim):
                    raise GraphgenError(
                        "GG0304",
                        f"'{SEQUENCE}': @{function.name} has one token a row, and an input is "
                        "sharded alike in all programs",
                        help="prefill:sequence:tp splits the residual stream of one phase",
                    )


def _uneven(module: Module) -> Iterator[tuple[str, int]]:
    """Dimensions of inputs that have other sizes in other programs."""
    sizes: dict[tuple[str, int], Dim] = {}
    for function in module.programs():
        for value in function.args:
            row = module.interface.get(value.name or "")
            if row is not None and row.role is Role.INPUT:
                for dim, size in enumerate(value.shape):
                    if sizes.setdefault((row.name, dim), size) != size:
                        yield row.name, dim


def _programs(module: Module, name: str, phase: str, layout: Sharding) -> list[Function]:
    """The programs of a phase, those with as many tokens a row as it says (GG0304 for no phase)."""
    phases = dict.fromkeys(function.phase for function in module.programs())
    found = _PHASE.fullmatch(phase)
    if found is None or found[1] not in phases:
        has = ", ".join(item for item in phases if item)
        what = f"'{name}': no program is of phase {phase}"
        raise GraphgenError("GG0304", what, help=f"phases: {has}")
    check_mesh(module, name, layout)
    least = int(found[2] or 0)
    programs = [function for function in module.programs() if function.phase == found[1]]
    # A program of any number of tokens may get as many.
    sizes = [function.dims.get("S", least) for function in programs]
    return [
        function
        for function, size in zip(programs, sizes, strict=True)
        if not isinstance(size, int) or size >= least
    ]


def _shared_by_phases(row: Entry, rule: str) -> GraphgenError:
    """The error about an axis of inputs or states alone, in one phase."""
    return GraphgenError(
        "GG0304",
        f"'{rule}': a rule of one phase splits {SEQUENCE} and axes of weights alone: "
        f"{row.role.value} {row.name} has one sharding in all programs",
        help=f"write {rule.rpartition(':')[2]}:tp for all programs",
    )


def _by_tokens(
    module: Module, axes: ModelAxes, programs: Iterable[Function], cut: Axes
) -> list[Annotation]:
    """The residual stream of programs split along its tokens, where these divide."""
    parts = Mesh(module.mesh).size(cut) if module.mesh else 1
    made: list[Annotation] = []
    for function in programs:
        for value, dim in residual_stream(module, function, axes):
            if value.shape[dim] != 1 and divides(value.shape[dim], parts):
                layout = resharded(None, value.type.rank, dim, cut)
                made.append(Annotation(value, function, layout, ()))
    return made


def _by_name(module: Module, pattern: str, text: str) -> list[Annotation]:
    """Yield a layout for every row whose name matches."""
    rows = [
        row
        for row in module.interface.values()
        if row.role is not Role.PARAM and fnmatchcase(row.name, pattern)
    ]
    layout = parse_sharding(text)
    check_mesh(module, pattern, layout)
    for row in rows:
        if len(layout.dims) != row.logical.rank:
            raise GraphgenError(
                "GG0304", f"'{pattern}': {layout.text} does not fit {row.name} {row.logical.text}"
            )
    return [Annotation(row.name, None, layout, (), fixed=True) for row in rows]


def _of_adapters(
    module: Module, cut: Axes, made: Mapping[str | Value, Annotation]
) -> list[Annotation]:
    """Layouts of the factors that other rules leave whole; those that are looked up in stay so.

    A [slots,r,in] is divided along its inputs, and B [slots,out,r] along r where that divides,
    as the partial sums before it are, without a rule; else along its outputs.
    """
    check_mesh(module, ADAPTERS, sharding([cut]))
    parts = prod(module.mesh[axis] for axis in cut)
    found: dict[str, Annotation] = {}
    for function in module.programs():
        for op in function.block:
            value = op.operands[1] if op.name == "dot_general" else None
            row = module.interface.get(value.name or "") if value and value.op is None else None
            if row is None or row.role is not Role.SLOTTED or row.logical.rank != 3:
                continue
            summed = op.attrs.integers("rhs_contracting_dims")
            if row.name in made or summed not in ((2,), (0, 2)):
                continue
            shape, dim = row.logical.shape, 2 if summed == (2,) else 1
            if divides(shape[dim], parts) and (dim == 2 or not divides(shape[2], parts)):
                layout = sharding([cut if place == dim else () for place in range(3)])
                found[row.name] = Annotation(row.name, None, layout, ())
    return list(found.values())


def check_mesh(module: Module, name: str, layout: Sharding) -> None:
    """Require the axes of a layout to be those of the mesh, if there is one yet (GG0304)."""
    for axis in (axis for axes in layout.dims for axis in axes):
        if module.mesh and axis not in module.mesh:
            has = ", ".join(module.mesh)
            raise GraphgenError(
                "GG0304",
                f"'{name}': {layout.text} speaks of mesh axis {axis}, and the mesh has {has}",
                help=f"module.mesh['{axis}'] = 2 before, or shard{{mesh=[{axis}:2]}}",
            )
