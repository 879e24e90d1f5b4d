"""Rules for layouts of weights, inputs and states: by an axis of the model, a name, or a phase."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from graphgen.errors import GraphgenError
from graphgen.ir import Function, Module, Role, Sharding, Value, replicated, sharding
from graphgen.ir.sharding import Axes, parse_sharding
from graphgen.passes.core import Rewriter
from graphgen.passes.sharding.spec.logical_axes import (
    HEADS,
    INTERMEDIATE,
    KV_HEADS,
    LOGICAL,
    QUERY_HEADS,
    SEQUENCE,
    SLOTS,
    VOCAB,
    ModelAxes,
    model_axes,
    query_axes,
)
from graphgen.passes.sharding.spec.mesh import Mesh, divides
from graphgen.passes.sharding.spec.requested import requested_sharding
from graphgen.passes.sharding.spec.residual_stream import residual_stream
from graphgen.passes.weights.derived import PreparedValues

# Megatron's layout of a decoder: heads, their caches, what lies between the MLP's products, and the
# vocabulary.
DECODER_RULES: Mapping[str, str] = dict.fromkeys((HEADS, KV_HEADS, INTERMEDIATE, VOCAB), "tp")
# The same over ranks that are factored for experts: neighbors along the product are neighbors.
FACTORED = ("ep*tp", "ep*ep2*tp", "ep*ep2*ep3*tp")
# The same over groups of ranks with key-value heads of their own, whose ranks divide slots.
KV_AXIS = "kv"
_USUAL = ("tp", *FACTORED, KV_AXIS, f"{KV_AXIS}*{SLOTS}", SLOTS)


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


def annotations_of(module: Module, rules: Mapping[str, str]) -> list[Annotation]:
    """The layouts that rules assign; of several rules for one dimension the last wins.

    Args:
        module: where a weight is taken apart or reordered before it is used, what is made of it is
            given the layout, as a value.
        rules: either the name of an axis of the model
        (:data:`~graphgen.passes.sharding.spec.logical_axes.LOGICAL`) and
            the mesh axes that split it, such as ``heads`` and ``tp``; or a pattern (as in a shell)
            for names of inputs, weights, states and outputs, and a layout such as ``{tp,-}``; or a
            phase and ``sequence``, such as ``prefill:sequence``, and the mesh axes that split the
            residual stream of the phase's programs along its tokens; or a phase and an axis of
            weights alone, such as ``prefill:experts``: what other rules say of these weights is
            changed for the phase's programs, whichever rule stands first.

    Raises:
        GraphgenError: GG0304 for a rule that matches nothing, a layout of another rank, or a phase
            with an axis that inputs or states have, other than ``sequence``.
    """
    axes: _Axes | None = None
    queries: _Axes | None = None
    made: dict[str | Value, Annotation] = {}
    for name, text in sorted(rules.items(), key=lambda rule: bool(_phase_of(rule[0]))):
        axis = name.rpartition(":")[2]
        if phase := _phase_of(name):
            axes = axes or _Axes(module)
            cut = _mesh_axes(name, text)
            _check_phase(module, name, phase, sharding([cut]))
            if axis == SEQUENCE:
                found = _by_tokens(module, axes.axes, phase, cut)
            else:
                found = axes.split_in(phase, axis, cut, made)
        elif name == QUERY_HEADS:
            queries = queries or _Axes(module, query_axes(module))
            found = queries.split(name, _mesh_axes(name, text), made)
        elif name in LOGICAL:
            axes = axes or _Axes(module)
            if name == SEQUENCE and text != "-":
                _check_tokens(module, axes.axes)
            found = axes.split(name, _mesh_axes(name, text), made)
        else:
            found = _by_name(module, name, text)
        # Not every model has all that the usual rules speak of, and not every prompt divides.
        usual = name in DECODER_RULES and text in _USUAL
        if not found and not usual and axis != SEQUENCE:
            raise GraphgenError("GG0304", _unmatched(name), help=axes.known if axes else "")
        for item in found:
            earlier = made[item.place].rules if axis in LOGICAL and item.place in made else ()
            made[item.place] = replace(item, rules=(*earlier, f"{name}:{text}"))
    return list(made.values())


def _phase_of(name: str) -> str:
    """The phase of a rule for an axis of one phase; empty for other rules."""
    phase, _, axis = name.rpartition(":")
    return phase if axis in LOGICAL else ""


def annotate(module: Module, rules: Mapping[str, str], rewriter: Rewriter | None = None) -> None:
    """Set the layouts of :func:`annotations_of` on rows and values.

    Args:
        module: changed in place.
        rules: see there.
        rewriter: of the pass on whose behalf; each layout is a rewrite of its own.
    """
    rewriter = rewriter or Rewriter("annotate")
    for item in annotations_of(module, rules):
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


def _unmatched(name: str) -> str:
    if name in LOGICAL:
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
            known = found.get(place) or earlier.get(place)
            if isinstance(place, Value):
                layout, rank = place.sharding, place.type.rank
            else:
                row = self.module.interface[place]
                layout, rank = row.sharding, row.logical.rank
            layout = _with(known.layout if known else layout, rank, dim, cut)
            found[place] = Annotation(place, function, layout, ())
        return list(found.values())

    def split_in(
        self, phase: str, name: str, cut: Axes, earlier: Mapping[str | Value, Annotation]
    ) -> list[Annotation]:
        """Shard one axis in the weights of a phase's programs, on top of the rules for all."""
        found: dict[str | Value, Annotation] = {}
        for function in (item for item in self.module.programs() if item.phase == phase):
            for value in _split_values(self.module, function):
                for dim in range(value.type.rank):
                    if name not in self.axes.of(value, dim):
                        continue
                    _check_weight(self.module, value, f"{phase}:{name}")
                    known = found.get(value) or earlier.get(value)
                    known = known or (earlier.get(value.name or "") if value.op is None else None)
                    start = known.layout if known else requested_sharding(self.module, value)
                    layout = _with(start, value.type.rank, dim, cut)
                    rules = known.rules if known and value not in earlier else ()
                    found[value] = Annotation(value, function, layout, rules)
        return list(found.values())


def _split_values(module: Module, function: Function) -> Iterator[Value]:
    """Inputs, states, and the weights or derived values that the program reads."""
    prepared = PreparedValues(module, function, {})
    made = [value for op in function.block for value in op.results if prepared.of_weights(value)]
    for value in (*function.args, *made):
        if prepared.of_weights(value):
            if prepared.readers(value):
                yield value
        elif value.op is None and value.name in module.interface:
            yield value


def _with(layout: Sharding | None, rank: int, dim: int, cut: Axes) -> Sharding:
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
                        f"'{SEQUENCE}': @{function.name} has one token a row, and an input lies "
                        "alike in all programs",
                        help="prefill:sequence:tp splits the residual stream of one phase",
                    )


def _check_phase(module: Module, name: str, phase: str, layout: Sharding) -> None:
    """Require that programs have the phase, and the mesh the axes (GG0304)."""
    phases = dict.fromkeys(function.phase for function in module.programs())
    if phase not in phases:
        has = ", ".join(item for item in phases if item)
        what = f"'{name}': no program is of phase {phase}"
        raise GraphgenError("GG0304", what, help=f"phases: {has}")
    _check_mesh(module, name, layout)


def _check_weight(module: Module, value: Value, name: str) -> None:
    """Refuse an input or a state of one phase alone (GG0304)."""
    row = module.interface.get(value.name or "") if value.op is None else None
    if row is not None and row.role is not Role.WEIGHT:
        raise GraphgenError(
            "GG0304",
            f"'{name}': a rule of one phase splits {SEQUENCE} and axes of weights alone: "
            f"{row.role.value} {row.name} lies as all programs need it",
            help=f"write {name.rpartition(':')[2]}:tp for all programs",
        )


def _by_tokens(module: Module, axes: ModelAxes, phase: str, cut: Axes) -> list[Annotation]:
    """The residual stream of a phase's programs split along its tokens, where these divide."""
    parts = Mesh(module.mesh).size(cut) if module.mesh else 1
    made: list[Annotation] = []
    for function in module.programs():
        if function.phase == phase:
            for value, dim in residual_stream(module, function, axes):
                if value.shape[dim] != 1 and divides(value.shape[dim], parts):
                    layout = _with(None, value.type.rank, dim, cut)
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
    _check_mesh(module, pattern, layout)
    for row in rows:
        if len(layout.dims) != row.logical.rank:
            raise GraphgenError(
                "GG0304", f"'{pattern}': {layout.text} does not fit {row.name} {row.logical.text}"
            )
    return [Annotation(row.name, None, layout, (), fixed=True) for row in rows]


def _check_mesh(module: Module, name: str, layout: Sharding) -> None:
    """Require the axes of a layout to be those of the mesh, if there is one yet (GG0304)."""
    for axis in (axis for axes in layout.dims for axis in axes):
        if module.mesh and axis not in module.mesh:
            has = ", ".join(module.mesh)
            raise GraphgenError(
                "GG0304",
                f"'{name}': {layout.text} speaks of mesh axis {axis}, and the mesh has {has}",
                help=f"module.mesh['{axis}'] = 2 before, or shard{{mesh=[{axis}:2]}}",
            )
