"""The per-rank program of another tool, with whole values as arguments and results on every rank.

A program that JAX, XLA's partitioner or an AWS library has split takes parts of the values of the
single-device program. How they are cut is in the file (Shardy's manual computation, HLO's
shardings), is given by the user, or follows from the types where only one dimension can have been
cut. The parts are taken by the number of the rank, and the results are put together again, so that
both programs can be proved equal, and run, on the same values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from graphgen.analysis import inlined
from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import (
    MAIN,
    RANK,
    AttrValue,
    Function,
    Module,
    Op,
    Role,
    Sharding,
    TensorType,
    Value,
)
from graphgen.ir.clone import Cloner
from graphgen.ir.domain import check_domain, parse_domain
from graphgen.ir.dtype import s32
from graphgen.ir.sharding import parse_sharding as parse_layout
from graphgen.ir.types import tensor
from graphgen.lowering.hlo.annotations import SHARDING, frontend_map
from graphgen.lowering.hlo.partitioning import partitioning_of
from graphgen.lowering.hlo_text.hlo_sharding import parse_sharding
from graphgen.lowering.stablehlo.manual_computation import TO_GLOBAL, TO_LOCAL
from graphgen.lowering.unrolled import unrolled

_AXIS = re.compile(r'"([^"]+)"\s*=\s*(\d+)')
_DIMS = re.compile(r"\[((?:\{[^{}]*\}(?:,\s*)?)*)\]")
_IN_ORDER = "arguments in order"
_FROM_FILE, _INFERRED, _GIVEN = "stated in the file", "inferred from types", "given"


@dataclass(frozen=True, slots=True)
class Cut:
    """A dimension that is cut over ranks: part ``(rank div stride) mod parts`` is on a rank."""

    dim: int
    parts: int
    stride: int


Cuts = tuple[Cut, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of a value over ranks: its cuts, outermost first, and the ranks whose sum it is."""

    cuts: Cuts = ()
    partial: Cuts = ()


WHOLE = Layout()


def is_foreign(module: Module) -> bool:
    """True for a module that was read from another tool's file, with one program."""
    return "format" in module.meta and len(module.programs()) == 1


def as_whole_program(
    reference: Module, module: Module, given: Mapping[str, Sharding]
) -> tuple[Module, str]:
    """The program of a rank with the arguments and results of the whole program.

    Args:
        reference: the single-device program.
        module: the per-rank program.
        given: layouts by the name of an argument or result, as ``--relate`` gives them.

    Returns:
        The program, and the origin of the relation in words.

    Raises:
        GraphgenError: GG0205 for other arguments or results, or a layout that is not known.
    """
    source = inlined(reference, reference.programs()[0])
    return _Maker(module, given).made(source, reference)


def parse_layouts(texts: Sequence[str]) -> dict[str, Sharding]:
    """The layouts of ``NAME:{tp,-}``, by name (GG0302)."""
    found: dict[str, Sharding] = {}
    for text in texts:
        name, _, layout = text.rpartition(":")
        if not name or name in found:
            what = f"cannot read the layout '{text}'"
            raise GraphgenError("GG0302", what, help="write NAME:{tp,-}, each name once")
        found[name] = parse_layout(layout.replace(" ", ""))
    return found


def with_domains(module: Module, texts: Sequence[str]) -> Module:
    """A module whose inputs have the domains of ``NAME=[0,9]``, in place (GG0108, GG0705)."""
    for text in texts:
        name, _, domain = text.partition("=")
        row = module.interface.get(name)
        if row is None or row.role is not Role.INPUT:
            inputs = ", ".join(row.name for row in module.entries(Role.INPUT))
            raise GraphgenError("GG0705", f"no input '{name}'", help=f"inputs: {inputs}")
        found = parse_domain(domain)
        check_domain(found, row.logical.dtype)
        module.interface[name] = replace(row, domain=found)
    return module


def with_known_loops(module: Module) -> Module:
    """The module with the loops of its only program unrolled whose trips are few and known."""
    function = unrolled(module, inlined(module, module.programs()[0]))
    functions = {n: f for n, f in module.functions.items() if not f.phase}
    functions[function.name] = function
    return Module(
        module.name, module.level, module.mesh, functions, module.interface, dict(module.meta)
    )


class _Maker:
    def __init__(self, module: Module, given: Mapping[str, Sharding]) -> None:
        self.module = module
        self.given = given
        self.program = inlined(module, module.programs()[0])
        self.axes = _mesh(module)
        stated = partitioning_of(module)
        ranks = stated.partitions * stated.replicas if stated is not None else 1
        self.ranks = max(ranks, prod(self.axes.values()), _named(self.program), module.ranks)
        if not self.axes and self.ranks > 1:
            # One axis of whatever name the user gives it.
            names = [axis for said in given.values() for axis in (*said.axes, *said.partial)]
            self.axes = {(names or ["ranks"])[0]: self.ranks}
        self.origins: dict[str, None] = {}

    def made(self, source: Function, reference: Module) -> tuple[Module, str]:
        """The whole program, and the origin of the relation."""
        function = Function(self.program.name, MAIN)
        mapping: dict[Value, Value] = {}
        pairs = self._pairs(source.args, self.program.args, "argument")
        wholes = {
            model: function.block.add_arg(model.type, model.name or "") for model in source.args
        }
        rank = function.block.add_arg(tensor(s32, (1,)), RANK)
        b = Builder(function)
        for model, value in pairs:
            cuts = self._layout(value.name or "", value, model.type, value.type).cuts
            mapping[value] = self._part(b, wholes[model], rank, cuts)
        copier = Cloner(mapping)
        for op in self.program.block:
            self._op(b, op, rank, copier)
        outputs: list[tuple[str, Value]] = []
        names = [name for name, _ in source.outputs]
        if len(names) != len(self.program.outputs):
            what = f"{len(self.program.outputs)} results and {len(names)} of the whole program"
            raise GraphgenError("GG0205", what)
        for (name, model), (own, value) in zip(source.outputs, self.program.outputs, strict=True):
            layout = self._layout(name, value, model.type, value.type, own)
            outputs.append((name, self._joined(b, mapping[value], layout)))
        function.outputs = outputs
        return self._module(function, reference), "; ".join(self.origins) or "the same values"

    def _module(self, function: Function, reference: Module) -> Module:
        functions = {n: f for n, f in self.module.functions.items() if not f.phase}
        functions[function.name] = function
        mesh = self.axes if self.ranks > 1 else {}
        rows = dict(reference.interface)
        made = Module(self.module.name, "sharded", dict(mesh), functions, rows)
        made.functions[function.name] = unrolled(made, function)
        return made

    def _pairs(
        self, models: Sequence[Value], values: Sequence[Value], what: str
    ) -> list[tuple[Value, Value]]:
        """Arguments of both, by name if they have the same names, else in order."""
        values = [v for v in values if not (v.name == RANK and v.type is tensor(s32, (1,)))]
        if len(models) != len(values):
            text = f"{len(values)} {what}s of the program of a rank, {len(models)} of the whole one"
            raise GraphgenError("GG0205", text, help="both programs take the same values")
        by_name = {model.name: model for model in models}
        if {value.name for value in values} == by_name.keys():
            return [(by_name[value.name], value) for value in values]
        self.origins[_IN_ORDER] = None
        return list(zip(models, values, strict=True))

    # ---- layouts ---------------------------------------------------------------------------------

    def _layout(
        self, name: str, value: Value, whole: TensorType, part: TensorType, own: str = ""
    ) -> Layout:
        said = self.given.get(name) or self.given.get(own)
        if said is not None:
            self.origins[_GIVEN] = None
            cuts = tuple(c for dim, axes in enumerate(said.dims) for c in self._cuts(dim, axes))
            return self._checked(
                Layout(cuts, tuple(self._cuts(0, said.partial))), name, whole, part
            )
        if whole is part:
            return WHOLE
        found = _stated(str(value.annotations.get(SHARDING, "")))
        if found is not None:
            self.origins[_FROM_FILE] = None
            return self._checked(Layout(found), name, whole, part)
        self.origins[_INFERRED] = None
        return self._checked(self._inferred(name, whole, part), name, whole, part)

    def _inferred(self, name: str, whole: TensorType, part: TensorType) -> Layout:
        dims = [d for d, (a, b) in enumerate(zip(whole.dims, part.dims, strict=False)) if a != b]
        if len(whole.dims) == len(part.dims) and len(dims) == 1 and len(self.axes) == 1:
            return Layout((Cut(dims[0], self.ranks, 1),))
        what = f"{name}: {part.text} of a rank, {whole.text} of the whole program"
        help_ = f"say how it is cut: --relate '{name}:{{tp,-}}'"
        raise GraphgenError("GG0205", what, help=help_)

    def _checked(self, layout: Layout, name: str, whole: TensorType, part: TensorType) -> Layout:
        sizes = list(whole.dims)
        for cut in layout.cuts:
            size = sizes[cut.dim] if cut.dim < len(sizes) else 1
            sizes[cut.dim : cut.dim + 1] = [size // cut.parts if size % cut.parts == 0 else -1]
        if tuple(sizes) != part.dims or whole.dtype is not part.dtype:
            what = f"{name}: {part.text} is not a part of {whole.text} in this layout"
            raise GraphgenError("GG0205", what, help=f"--relate '{name}:{{...}}' says another one")
        return layout

    def _cuts(self, dim: int, axes: Sequence[str]) -> Iterator[Cut]:
        names = list(self.axes)
        for axis in axes:
            if axis not in self.axes:
                known = ", ".join(names) or "none"
                raise GraphgenError("GG0302", f"no mesh axis '{axis}'", help=f"its axes: {known}")
            stride = prod([self.axes[other] for other in names[names.index(axis) + 1 :]])
            if self.axes[axis] > 1:
                yield Cut(dim, self.axes[axis], stride)

    # ---- parts and wholes ------------------------------------------------------------------------

    def _part(self, b: Builder, whole: Value, rank: Value, cuts: Cuts) -> Value:
        for cut in cuts:
            size = whole.type.dims[cut.dim] // cut.parts
            zero = b.literal(0, s32)
            start = b.multiply(self._digit(b, rank, cut), b.literal(size, s32))
            places = [start if dim == cut.dim else zero for dim in range(whole.type.rank)]
            sizes = [size if d == cut.dim else n for d, n in enumerate(whole.type.dims)]
            attrs: dict[str, AttrValue] = {"slice_sizes": tuple(sizes)}
            whole = b.emit("dynamic_slice", [whole, *places], attrs).result
        return whole

    def _digit(self, b: Builder, rank: Value, cut: Cut) -> Value:
        number = b.reshape(rank, ())
        number = b.emit("divide", [number, b.literal(cut.stride, s32)]).result
        return b.emit("remainder", [number, b.literal(cut.parts, s32)]).result

    def _joined(self, b: Builder, part: Value, layout: Layout) -> Value:
        for cut in reversed(layout.cuts):
            attrs = {"dimension": cut.dim, "replica_groups": self._groups(cut)}
            part = b.emit("all_gather", [part], {**attrs}).result
        for cut in layout.partial:
            attrs = {"kind": "add", "replica_groups": self._groups(cut)}
            part = b.emit("all_reduce", [part], {**attrs}).result
        return part

    def _groups(self, cut: Cut) -> tuple[tuple[int, ...], ...]:
        firsts = [r for r in range(self.ranks) if r // cut.stride % cut.parts == 0]
        return tuple(tuple(r + n * cut.stride for n in range(cut.parts)) for r in firsts)

    def _op(self, b: Builder, op: Op, rank: Value, copier: Cloner) -> None:
        """Copy an op; those that are between the whole and a rank's part become slices and sums."""
        mapping = copier.mapping
        target = op.attrs.text("target") if op.name == "custom_call" else ""
        if op.name == "hlo.opaque" and op.attrs.text("opcode") == "partition-id":
            number = b.reshape(rank, ())
            mapping[op.result] = b.convert(number, op.result.dtype)
        elif target in (TO_LOCAL, TO_GLOBAL):
            key = "xla.sdy.in_shardings" if target == TO_LOCAL else "xla.sdy.out_shardings"
            shardings = _per_value(frontend_map(op.annotations).get(key, ""))
            if len(shardings) != len(op.operands):
                raise GraphgenError("GG0205", f"{target}: its shardings cannot be read")
            self.origins[_FROM_FILE] = None
            for value, result, dims in zip(op.operands, op.results, shardings, strict=True):
                cuts = tuple(c for dim, axes in enumerate(dims) for c in self._cuts(dim, axes))
                whole, part = value.type, result.type
                if target == TO_GLOBAL:
                    whole, part = part, whole
                layout = self._checked(Layout(cuts), target, whole, part)
                made = mapping[value]
                mapping[result] = (
                    self._part(b, made, rank, layout.cuts)
                    if target == TO_LOCAL
                    else self._joined(b, made, layout)
                )
        else:
            copier.op(op, b.function.block)


def _mesh(module: Module) -> dict[str, int]:
    """The axes of the only mesh that a file states, the outermost first."""
    if module.mesh:
        return dict(module.mesh)
    stated = partitioning_of(module)
    meshes = {text for text in (stated.meshes.values() if stated is not None else ()) if text}
    meshes = {text for text in meshes if _AXIS.search(text)}
    if len(meshes) != 1:
        return {}
    (text,) = meshes
    if "device_ids" in text:
        raise GraphgenError("GG0205", f"a mesh with devices in another order: {text}")
    return {name: int(size) for name, size in _AXIS.findall(text)}


def _named(function: Function) -> int:
    """The ranks that the collectives of a program name."""
    count = 1
    for op in function.block:
        if "replica_groups" in op.attrs:
            count = max(count, *[len(group) for group in op.attrs.groups("replica_groups")], 1)
            count = max(count, sum(map(len, op.attrs.groups("replica_groups"))))
    return count


def _per_value(text: str) -> list[list[list[str]]]:
    """The axes of each dimension of each value in Shardy's ``sharding_per_value``."""
    if ":(" in text or "?" in text:
        raise GraphgenError("GG0205", f"a sharding of parts of axes, or an open one: {text:.80}")
    return [
        [re.findall(r'"([^"]+)"', dim) for dim in re.findall(r"\{([^{}]*)\}", dims)]
        for dims in _DIMS.findall(text)
    ]


def _stated(text: str) -> Cuts | None:
    """The cuts of HLO's sharding of one value; ``None`` for one without the form of digits."""
    if not text:
        return None
    found = parse_sharding(text)
    if found.kind == "replicated":
        return ()
    if found.kind != "devices":
        return None
    dims, order = found.dims, found.order
    cuts: list[Cut] = []
    for dim, parts in enumerate(found.parts):
        if parts == 1:
            continue
        # Row-major place of a device in the array of parts.
        inner = prod(dims[dim + 1 :])
        part = {device: place // inner % parts for place, device in enumerate(order)}
        strides = [
            s for s in range(1, len(order)) if all(d // s % parts == p for d, p in part.items())
        ]
        if not strides:
            return None
        cuts.append(Cut(dim, parts, strides[0]))
    return tuple(cuts)
