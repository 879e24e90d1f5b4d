"""Low-rank adapters beside projections: a slot for each, and the slot of each row as an input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import (
    ADAPTER_IDS,
    Dim,
    DType,
    Function,
    Module,
    Role,
    TensorType,
    Value,
    entry,
    tensor,
)
from graphgen.ir.dtype import f32, s32
from graphgen.passes.core import Pass, Rewriter, no_match, register
from graphgen.passes.lora.product_sites import AdapterSite, ExpertSite, ProgramSites, program_sites

_RULE = "add-adapter"


@register
@dataclass(frozen=True)
class MultiLora(Pass):
    """Add a low-rank term to each projection, with the matrices of the row's adapter slot.

    ``y = W x`` becomes ``y = W x + B[id] (A[id] x)``, with the slot ``id`` of each row in the input
    ``adapter_ids``; a row with -1, or with a slot that does not exist, gets nothing (LoRA, arXiv
    2106.09685; a different adapter for each row: Punica, arXiv 2310.18547). The scale of an adapter
    is part of its B. Matrices are tensors of the role ``slotted``, [slots, r, in] and [slots, out,
    r], which a program writes while others run; the adapter of a projection that a checkpoint
    fuses is that of the whole tensor. All slots are multiplied and one is kept, as ``experts``
    does, which takes the adapters of its own matrices itself: [slots, E, r, in] and [slots, E, out,
    r].

    The pass stands before all that lays out, splits, quantizes or fuses projections, which then
    carries the adapters too.

    Options:
        max_loras: slots.
        rank: r; adapters of a smaller rank have zeros.
        targets: last parts of the names of projections, such as ``q_proj``; by default all but
            embeddings, heads, routers and experts. Those of experts have ``experts.`` in front, and
            one of them stands for all three.

    Given:
        module @m level=canonical {
          input %x : f32[2,4]
          weight %q.weight : f32[6,4]
          output %y : f32[2,6]
        }

        func @f phase=decode {
          arg %x : f32[2,4]
          arg %q.weight : f32[6,4]
          %y = dot_general(%x, %q.weight) lhs_contracting_dims=[1] rhs_contracting_dims=[1] \
dtype=f32 : f32[2,6]
          return y = %y
        }

    Result (``multi-lora{max_loras=3,rank=2}``):
        module @m level=canonical {
          input %x : f32[2,4]
          weight %q.weight : f32[6,4]
          output %y : f32[2,6]
          slotted %q.lora_A : f32[3,2,4]
          slotted %q.lora_B : f32[3,6,2]
          input %adapter_ids : s32[2]
        }

        func @f phase=decode {
          arg %x : f32[2,4]
          arg %q.weight : f32[6,4]
          arg %q.lora_A : f32[3,2,4]
          arg %q.lora_B : f32[3,6,2]
          arg %adapter_ids : s32[2]
          %0 = dot_general(%x, %q.weight) lhs_contracting_dims=[1] rhs_contracting_dims=[1] \
dtype=f32 : f32[2,6]
          %1 = dot_general(%x, %q.lora_A) lhs_contracting_dims=[1] rhs_contracting_dims=[2] \
dtype=f32 : f32[2,3,2]
          %2 = broadcast_in_dim(%adapter_ids) shape=[2,3] dimensions=[0] : s32[2,3]
          %3 = iota() dtype=s32 shape=[2,3] dimension=1 : s32[2,3]
          %4 = compare(%2, %3) direction=EQ : pred[2,3]
          %5 = convert(%4) dtype=f32 : f32[2,3]
          %6 = broadcast_in_dim(%5) shape=[2,3,2] dimensions=[0,1] : f32[2,3,2]
          %7 = multiply(%1, %6) : f32[2,3,2]
          %8 = dot_general(%7, %q.lora_B) lhs_contracting_dims=[1,2] rhs_contracting_dims=[0,2] \
dtype=f32 : f32[2,6]
          %y = add(%0, %8) : f32[2,6]
          return y = %y
        }
    """

    name: ClassVar[str] = "multi-lora"
    finite_math_only: ClassVar[bool] = True
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical")
    requires: ClassVar[tuple[str, ...]] = ("raw-weights",)
    # Merged weights, which it is compared with, are rounded after the sum.
    rounding: ClassVar[float] = 5e-2
    max_loras: int = 1
    rank: int = 16
    targets: tuple[str, ...] = ()

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Declare the adapters of all programs, then add the terms of each."""
        for name, number in (("max_loras", self.max_loras), ("rank", self.rank)):
            if number < 1:
                raise GraphgenError("GG0302", f"multi-lora: {name}={number} must be at least 1")
        if module.entries(Role.SLOTTED):
            rewriter.remark("the projections have adapters already")
            return
        programs = {function: program_sites(module, function) for function in module.programs()}
        self._check_targets(list(programs.values()))
        for function, found in programs.items():
            adapted = _AdaptedProgram(module, function, self.max_loras, self.rank)
            for op, why in found.refused.items():
                rewriter.decline(function, _RULE, op, why)
            for site in found.all_sites:
                if rewriter.exhausted:
                    return
                if not site.wanted(self.targets):
                    name = site.module if isinstance(site, AdapterSite) else site.modules[0]
                    why = no_match(f"targets do not name {name}", site.op.result, depth=5)
                    rewriter.decline(function, _RULE, site.op, why)
                elif not rewriter.declines(function, site.op, _RULE):
                    adapted.add(site, rewriter)

    def _check_targets(self, programs: Sequence[ProgramSites]) -> None:
        """Require that each target names a projection of some program (GG0302)."""
        found = [site for program in programs for site in program.all_sites]
        for target in self.targets:
            if not any(site.wanted((target,)) for site in found):
                known = sorted({name for site in found for name in _ends(site)})
                raise GraphgenError(
                    "GG0302",
                    f"multi-lora: targets={target} names no projection",
                    help=f"projections end with {', '.join(known)}",
                )


@dataclass(slots=True)
class _AdaptedProgram:
    """One program while terms are added to it.

    Attributes:
        module, function: changed in place.
        slots, rank: sizes of the adapters.
        masks: by the leading sizes of a product, f32 of 1 for the slot of each row, else 0.
    """

    module: Module
    function: Function
    slots: int
    rank: int
    masks: dict[tuple[Dim, ...], Value] = field(default_factory=dict[tuple[Dim, ...], Value])

    def add(self, site: AdapterSite | ExpertSite, rewriter: Rewriter) -> None:
        """Add the term of one site."""
        op = site.op
        if isinstance(site, ExpertSite):
            with rewriter.before(self.function, op) as b:
                value = self._of_experts(b, site)
            rewriter.replace(self.function, op, [value], _RULE)
            return
        op = site.last
        with rewriter.before(self.function, op) as b:
            plain = b.emit(op.name, op.operands, dict(op.attrs)).result
            of_site = self._of_lookup if site.chain is None else self._of_product
            term = of_site(b, site)
            value = plain + b.convert(term, plain.dtype)
        rewriter.replace(self.function, op, [value], _RULE)

    def _of_product(self, b: Builder, site: AdapterSite) -> Value:
        assert site.chain is not None
        x, dtype = site.op.operands[0], site.op.operands[0].dtype
        lora_a, lora_b = self._tensors(site, dtype)
        (depth,) = site.op.attrs.integers("lhs_contracting_dims")
        low = b.dot_general(x, lora_a, ([depth], [2]), dtype=f32)
        expand, place = site.chain.expand(b, lora_b)
        return self._expanded(b, low, dtype, expand, place)

    def _of_experts(self, b: Builder, site: ExpertSite) -> Value:
        x = site.op.operands[0]
        operands = [*site.op.operands, self._slots_of(b, x.shape[:-1])]
        for module, (inputs, outputs) in zip(site.modules, site.sizes, strict=True):
            lead = (self.slots, site.count)
            shapes = (*lead, self.rank, inputs), (*lead, outputs, self.rank)
            operands += self._pair(module, x.dtype, *shapes)
        return b.emit(site.op.name, operands, dict(site.op.attrs)).result

    def _of_lookup(self, b: Builder, site: AdapterSite) -> Value:
        table, tokens = site.op.operands
        lora_a, lora_b = self._tensors(site, table.dtype)
        words = site.inputs
        # Row V*slot + token of the columns of all slots.
        columns = b.reshape(b.transpose(lora_a, (0, 2, 1)), (self.slots * words, self.rank))
        known = b.emit("clamp", (b.literal(0, s32), tokens, b.literal(words - 1, s32))).result
        ids = b.emit(
            "clamp", (b.literal(0, s32), self._ids(tokens.shape[0]), b.literal(self.slots - 1, s32))
        ).result
        places = b.broadcast_in_dim(ids * words, tokens.shape, [0]) + known
        found = b.convert(b.embedding(columns, places), f32)
        shape = (*tokens.shape, self.slots, self.rank)
        low = b.broadcast_in_dim(found, shape, [0, 1, 3])
        return self._expanded(b, low, table.dtype, lora_b, 2)

    def _expanded(self, b: Builder, low: Value, dtype: DType, expand: Value, place: int) -> Value:
        """The low-rank values [..., slots, r] of each row's slot, through B."""
        last = low.type.rank - 1
        mask = self._mask(b, low.shape[: last - 1])
        chosen = low * b.broadcast_in_dim(mask, low.shape, list(range(last)))
        sides = [last - 1, last], [0, place]
        return b.dot_general(b.convert(chosen, dtype), expand, sides, dtype=f32)

    def _tensors(self, site: AdapterSite, dtype: DType) -> tuple[Value, Value]:
        shapes = (self.slots, self.rank, site.inputs), (self.slots, site.outputs, self.rank)
        return self._pair(site.module, dtype, *shapes)

    def _pair(
        self, module: str, dtype: DType, of_a: tuple[int, ...], of_b: tuple[int, ...]
    ) -> tuple[Value, Value]:
        return (
            self._argument(Role.SLOTTED, f"{module}.lora_A", tensor(dtype, of_a)),
            self._argument(Role.SLOTTED, f"{module}.lora_B", tensor(dtype, of_b)),
        )

    def _argument(self, role: Role, name: str, type_: TensorType) -> Value:
        """The argument of a name, declared where it is not yet (GG0107 for one of another type)."""
        known = self.module.interface.setdefault(name, entry(role, name, type_))
        if known.role is not role or known.logical is not type_:
            what = f"{name} is {known.role.value} {known.logical.text} already"
            raise GraphgenError("GG0107", what, help=f"an adapter needs {role.value} {type_.text}")
        bound = type_.bind(self.function.dims)
        return self.function.arg(name) or self.function.block.add_arg(bound, name)

    def _ids(self, rows: Dim) -> Value:
        """The slot of each row, s32 [B]; ``rows`` is B where the module does not say it."""
        known = self.module.interface.get("seq_ids")
        shape = known.logical.shape if known is not None else (rows,)
        return self._argument(Role.INPUT, ADAPTER_IDS, tensor(s32, shape))

    def _mask(self, b: Builder, lead: tuple[Dim, ...]) -> Value:
        """f32 [*lead, slots]: 1 for the slot of the row that each value belongs to, else 0."""
        found = self.masks.get(lead)
        if found is None:
            ids, whole = self._rows_of(lead)
            flat = whole != lead
            shape = (*whole, self.slots)
            own = b.broadcast_in_dim(ids, shape, [0])
            slots = b.iota(s32, shape, len(whole))
            found = b.convert(b.compare(own, slots, "EQ"), f32)
            found = b.reshape(found, (*lead, self.slots)) if flat else found
            self.masks[lead] = found
        return found

    def _rows_of(self, lead: tuple[Dim, ...]) -> tuple[Value, tuple[Dim, ...]]:
        """The slots s32 [B] of rows, and the leading sizes with B apart."""
        first, *others = lead
        ids = self._ids(first)
        rows, tokens = ids.shape[0], self._tokens_of_row()
        # Mixtures have the tokens of all rows one after the other.
        flat = first != rows
        if flat and (others or rows * tokens != first):
            raise _unknown_rows(self.function, lead)
        return ids, (rows, tokens) if flat else lead

    def _slots_of(self, b: Builder, lead: tuple[Dim, ...]) -> Value:
        """The slot of the row that each value belongs to, s32 [*lead]."""
        ids, whole = self._rows_of(lead)
        return b.reshape(b.broadcast_in_dim(ids, whole, [0]), lead)

    def _tokens_of_row(self) -> Dim:
        positions = self.function.arg("positions")
        return positions.shape[1] if positions is not None else 1


def _ends(site: AdapterSite | ExpertSite) -> list[str]:
    """The targets that name a site and no more than its kind."""
    if isinstance(site, AdapterSite):
        return [site.module.rpartition(".")[2]]
    return [".".join(module.split(".")[-2:]) for module in site.modules]


def _unknown_rows(function: Function, lead: tuple[Dim, ...]) -> GraphgenError:
    return GraphgenError(
        "GG0304",
        f"multi-lora: @{function.name}: the rows of a product of {list(map(str, lead))} values are "
        "not those of the calls",
        help="leave the projection out of targets",
    )
