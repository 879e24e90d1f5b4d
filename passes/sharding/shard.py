"""Annotate weights, inputs and states with layouts, by logical axis or by name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphgen.config.fields import option, words
from graphgen.config.option_words import CP_AUTO, CP_FORMS
from graphgen.errors import GraphgenError
from graphgen.ir import PROMPT_PHASES, Entry, Function, Module, Role, Value
from graphgen.limits import RANKS
from graphgen.numbers import is_digits
from graphgen.passes.core import Pass, Rewriter, register
from graphgen.passes.gqa.slot_groups import slot_ranks
from graphgen.passes.sharding.layout_rules import (
    ADAPTERS,
    DECODER_RULES,
    KV_AXIS,
    Annotation,
    Rules,
    annotations_of,
    is_layout,
    set_layouts,
)
from graphgen.passes.sharding.logical_axes import (
    EXPERTS,
    HEADS,
    INTERMEDIATE,
    KV_HEADS,
    MOE_INTERMEDIATE,
    QUERY_HEADS,
    ROWS,
    SEQUENCE,
    SLOTS,
    VOCAB,
    model_axes,
)
from graphgen.passes.sharding.mesh import divides
from graphgen.passes.sharding.prompt_attention import PromptAttention, leaves_out_masked
from graphgen.passes.sharding.rank_axes import DP, TP, ExpertAxes, RankAxes, expert_axes
from graphgen.passes.weights.derived import PreparedValues
from graphgen.targets import target_names

_PRODUCTS = ("dot_general", "convolution", "experts")
# Ops that read a part of a table of matrices, as of experts.
_LOOKUPS = ("gather", "take", "dynamic_slice")


def whole_weights(module: Module) -> list[Entry]:
    """The weights of products without a layout, largest first.

    A weight counts as split where it, or what a program makes of it, has a layout.
    """
    read: set[str] = set()
    split: set[str] = set()
    for function in module.programs():
        prepared = PreparedValues(module, function, {})
        read |= _multiplied(function, prepared)
        made = [value for op in function.block for value in op.results]
        for value in (*function.args, *made):
            if value.sharding is not None and prepared.of_weights(value):
                split.update(prepared.sources(value))
    rows = [
        row
        for row in module.entries(Role.WEIGHT)
        if row.name in read - split and (row.sharding is None or row.sharding.replicated)
    ]
    return sorted(rows, key=lambda row: -row.logical.nbytes if row.logical.static else 0)


def _multiplied(function: Function, prepared: PreparedValues) -> set[str]:
    """Names of weights of rank 2 and more that products read, or that rows are chosen of."""
    names: set[str] = set()
    for op in function.block:
        operands: Sequence[Value] = op.operands if op.name in _PRODUCTS else ()
        if op.name in _LOOKUPS and op.operands[0].type.rank > 2:
            operands = op.operands[:1]
        for value in operands:
            if value.type.rank > 1 and prepared.of_weights(value):
                names.update(prepared.sources(value))
    return names


def whole_weights_remark(rows: Sequence[Entry], total: int, axis: str) -> str:
    """A remark on weights that every rank holds whole, with a rule that would split the first.

    Empty where they are less than a tenth of all weights, as a router is.
    """
    size = sum(row.logical.nbytes for row in rows if row.logical.static)
    if not rows or 10 * size < total:
        return ""
    first = rows[0]
    names = ", ".join(f"{row.name} {row.logical.text}" for row in rows[:3])
    more = f" and {len(rows) - 3} more" if len(rows) > 3 else ""
    layout = ",".join([axis, *["-"] * (first.logical.rank - 1)])
    return (
        f"{100 * size // max(total, 1)} % of the weights are whole on each rank, as the model has "
        f"no axis of theirs alone: {names}{more}; "
        f"rules=[{first.name}:{{{layout}}}] would split one"
    )


def weight_bytes(module: Module) -> int:
    """Bytes of all checkpoint tensors."""
    return sum(row.logical.nbytes for row in module.entries(Role.WEIGHT) if row.logical.static)


@register
@dataclass(frozen=True)
class Shard(Pass):
    """Annotate how a model is sharded over a mesh: by its axes, found by their use, or by names.

    Without rules heads, their caches and the hidden layer of an MLP are split over ``tp``, and
    everything else is replicated. A rule is ``AXIS:mesh axes`` for an axis of
    the model (heads, kv_heads, intermediate, vocab, hidden, positions, batch, sequence, rows,
    slots, experts, moe_intermediate: the inner features of experts, which are ``intermediate``
    too), or ``PATTERN:{layout}`` for names; rules come after the usual ones, and the last wins.
    ``adapters:tp`` divides both factors of adapters over all ranks, where one is whole otherwise.
    ``prefill:sequence:tp`` is sequence parallelism: in the programs of a phase, each rank has some
    tokens of the residual stream and its norms, and whole sequences between the products of a
    layer. Programs whose tokens do not divide stay as they are. A phase may also divide weights
    otherwise than others do (``prefill:experts:ep``), which are then held twice.

    Options:
        tp: ranks of the mesh axis ``tp``.
        ep: groups of these ranks that have experts of their own. The mesh is then ``[ep,tp]`` with
            as many ranks in all, which split experts over ``ep``, their inner features over ``tp``,
            and everything else over both; where each rank is a group, experts lie over ``tp``.
        prefill_ep: groups in the programs that read prompts, if they are not ``ep``; 0 for as
            many. The ranks are factored further, over ``ep2`` and ``ep3``, where one number does
            not divide the other, or neither is 1 or all ranks.
        cp: ranks that share the tokens of a prompt in programs of the phases prefill and chunk,
            each with the heads of all of them: context parallelism. The other programs divide heads
            over all ranks. The mesh is ``[tp,cp]``, with ``tp`` ranks in all.
        cp_form: how attention gets at the keys of other ranks: ``gather`` (keys and values),
            ``all-to-all`` (tokens for heads, and back), ``ring`` (blocks of keys and values go from
            rank to rank), or ``auto``, which takes what costs least.
        mlp_cp: ranks that share the tokens of a prompt between attentions too, with a larger part
            of the MLP; 1, or ``cp``.
        dp: groups of ranks with attention, and caches, for rows of their own. Where ``cp`` is given
            too, ``dp`` divides it, and the mesh is ``[tp,cp,dp]``: the last two have ``cp`` ranks.
        mesh: the axes of the mesh instead, such as ``[dp:2,tp:4]``; neighbors along the last one
            are neighbors in number.
        vocab: split the embedding and the head of the model by words, over ``tp``.
        by_rows: split the caches by rows instead, and heads only between attention and the weights:
            ``SHARD_OVER_BATCH``. Rows must be in place and divide by ``tp``.
        flash: ranks that share a key-value head hold slots of its cache each: flash decoding. The
            mesh is then ``[kv,slots]``, for groups with key-value heads of their own and ranks of a
            group; caches are split over both, and everything else over their product.
        slot_ranks: ranks of a group; 0 for the fewest that hold each head once.
        rules: more rules, such as ``[vocab:tp,*.down_proj.weight:{-,tp}]``.
        target: with ``cp``, whether programs leave out what masks forbid, as those of the CPU do.

    Given:
        module @m level=canonical {
          input %x : f32[2,4]
          weight %fc1 : f32[8,4]
          weight %fc2 : f32[4,8]
          output %y : f32[2,4]
        }

        func @f phase=decode {
          arg %x : f32[2,4]
          arg %fc1 : f32[8,4]
          arg %fc2 : f32[4,8]
          %h = dot_general(%x, %fc1) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[2,8]
          %g = silu(%h) : f32[2,8]
          %y = dot_general(%g, %fc2) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[2,4]
          return y = %y
        }

    Result (``shard{tp=2}``):
        module @m level=canonical mesh=tp:2 {
          input %x : f32[2,4]
          weight %fc1 : f32[8,4] sharding={tp,-}
          weight %fc2 : f32[4,8] sharding={-,tp}
          output %y : f32[2,4]
        }

        func @f phase=decode {
          arg %x : f32[2,4]
          arg %fc1 : f32[8,4]
          arg %fc2 : f32[4,8]
          %h = dot_general(%x, %fc1) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[2,8]
          %g = silu(%h) : f32[2,8]
          %y = dot_general(%g, %fc2) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 : \
f32[2,4]
          return y = %y
        }
    """

    name: ClassVar[str] = "shard"
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical")
    requires: ClassVar[tuple[str, ...]] = ("raw-weights",)
    invalidates: ClassVar[tuple[str, ...]] = ("partitioned",)
    tp: int = 2
    ep: int = 1
    prefill_ep: int = 0
    cp: int = 1
    cp_form: str = option(words(*CP_FORMS), CP_AUTO)
    mlp_cp: int = 1
    dp: int = 1
    mesh: tuple[str, ...] = ()
    vocab: bool = False
    by_rows: bool = False
    flash: bool = False
    slot_ranks: int = 0
    rules: tuple[str, ...] = ()
    target: str = option(words(target_names), "cpu")

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Set the mesh and annotate."""
        axes = self.axes_for(module)
        rules = self.all_rules(module, axes)
        module.mesh.clear()
        module.mesh.update(axes)
        set_layouts(module, self._annotations(module, rules), rewriter)
        if not rewriter.exhausted and math.prod(axes.values()) > 1:
            left = whole_weights_remark(
                whole_weights(module), weight_bytes(module), next(iter(axes))
            )
            if left:
                rewriter.remark(left)
        if not rewriter.applications and not rewriter.exhausted:
            rewriter.note(None, "mesh")

    @property
    def axes(self) -> Mapping[str, int]:
        """The mesh (GG0302 for one that cannot be)."""
        axes = dict(map(_axis, self.mesh)) if self.mesh else self._own_axes
        for axis, size in axes.items():
            if size < 1:
                raise GraphgenError("GG0302", f"shard: {axis}={size} must be at least 1")
        return axes

    @property
    def _groups(self) -> ExpertAxes:
        """The ranks as factors that experts are divided over (GG0302)."""
        return expert_axes(self.tp, self.ep, self.prefill_ep or self.ep)

    @property
    def ranks(self) -> RankAxes:
        """The ranks as factors that prompts and rows are divided over (GG0302)."""
        return RankAxes(self.tp, self.cp, self.dp)

    @property
    def _own_axes(self) -> Mapping[str, int]:
        groups = self._groups.axes
        if self.cp == self.dp == 1:
            return groups
        if max(self.ep, self.prefill_ep) > 1:
            raise GraphgenError(
                "GG0302",
                f"shard: ep={max(self.ep, self.prefill_ep)} groups of ranks have experts of their "
                "own, beside ranks that share a prompt (cp) or have other rows (dp)",
                help="leave out ep, or cp and dp: experts are split by their inner features then",
            )
        return self.ranks.mesh

    def axes_for(self, module: Module) -> Mapping[str, int]:
        """The mesh, which under flash decoding follows from the heads of the module."""
        slots = slot_ranks(module, self.tp, self.slot_ranks) if self.flash else 1
        return _grouped(self.tp, slots) if slots > 1 else self.axes

    def annotations(self, module: Module) -> list[Annotation]:
        """Layouts assigned by the rules, and layouts for attention over prompts."""
        return self._annotations(module, self.all_rules(module, self.axes_for(module)))

    def _annotations(self, module: Module, rules: Rules) -> list[Annotation]:
        if self.mesh or self.cp == 1:
            return annotations_of(module, rules)
        axes = model_axes(module)
        made = annotations_of(module, rules, axes)
        named = {item.place for item in made}
        skips = leaves_out_masked(self.target)
        prompts = PromptAttention(module, axes, self.ranks, self.cp_form, skips=skips)
        return [*made, *[item for item in prompts.annotations() if item.place not in named]]

    def all_rules(self, module: Module, axes: Mapping[str, int]) -> list[tuple[str, str]]:
        """Default rules over a mesh and then given ones, in order (GG0302 for a malformed rule)."""
        every = TP if self.mesh else "*".join(axes)
        rules = dict.fromkeys(DECODER_RULES, every) if TP in axes or not self.mesh else {}
        if self.flash and SLOTS in axes:
            rules = _by_slots(every, KV_AXIS in axes)
        rules |= self._rules_of_experts(module)
        rules |= self._rules_of_prompts(module)
        if self.by_rows:
            rules |= _by_rows(module, self.tp, every)
        if self.vocab:
            rules[VOCAB] = every
        made = list(rules.items())
        for name, text in map(_rule, self.rules):
            if (name, text) == (ADAPTERS, TP):
                # Over all ranks, whatever their axes.
                made.append((name, every))
                continue
            if text == TP and TP not in axes:
                # A mesh of several factors, as of flash decoding, has no axis of this name.
                text = every
            # A layout of an input that is called like an axis leaves the rule for the axis.
            made = [
                rule for rule in made if rule[0] != name or is_layout(rule[1]) != is_layout(text)
            ]
            made.append((name, text))
        return made

    def _rules_of_experts(self, module: Module) -> Mapping[str, str]:
        """Experts over groups of ranks, and their features inside of each."""
        prefill = self.prefill_ep or self.ep
        if self.mesh or (self.ep, prefill) == (1, 1):
            return {}
        _check_experts(module, max(self.ep, prefill))
        groups = self._groups
        rules: dict[str, str] = dict(zip((EXPERTS, MOE_INTERMEDIATE), groups.decode, strict=True))
        phases = {function.phase for function in module.programs()}
        for phase in [item for item in PROMPT_PHASES if item in phases and prefill != self.ep]:
            for axis, text in zip((EXPERTS, MOE_INTERMEDIATE), groups.prefill, strict=True):
                rules[f"{phase}:{axis}"] = text
        return rules

    def _rules_of_prompts(self, module: Module) -> Mapping[str, str]:
        """Context parallelism, and attention for rows of a group's own (GG0302)."""
        if self.mesh or self.cp == self.dp == 1:
            return {}
        ranks = self.ranks
        if self.mlp_cp not in (1, self.cp):
            raise GraphgenError(
                "GG0302",
                f"shard: mlp_cp={self.mlp_cp} is neither 1 nor cp={self.cp}",
                help="an MLP has tokens of its own where attention has them too, or all tokens",
            )
        rules: dict[str, str] = {}
        if self.dp > 1:
            rules |= {HEADS: ranks.of_heads, KV_HEADS: ranks.of_heads, ROWS: DP}
        phases = {function.phase for function in module.programs()}
        for phase in [phase for phase in PROMPT_PHASES if phase in phases and ranks.of_tokens]:
            rules[f"{phase}:{SEQUENCE}"] = ranks.of_tokens
            whole = (HEADS, KV_HEADS, INTERMEDIATE) if self.mlp_cp > 1 else (HEADS, KV_HEADS)
            rules |= dict.fromkeys([f"{phase}:{axis}" for axis in whole], ranks.of_prompt_heads)
        return rules


def _check_experts(module: Module, groups: int) -> None:
    """Require experts to divide (GG0302)."""
    if not any(op.name == "experts" for function in module.programs() for op in function.block):
        raise GraphgenError(
            "GG0302",
            f"shard: ep={groups} groups of ranks have experts of their own, and no program has an "
            "op experts",
            help="leave out ep (--moe-ep-degree): the model is not a mixture of experts",
        )


def _by_rows(module: Module, tp: int, every: str) -> Mapping[str, str]:
    """Caches by rows; projections by heads where ranks divide these, else as is cheapest."""
    whole: dict[str, str] = {}
    for function in module.programs():
        for op in function.block:
            if op.name == "attention":
                for operand, axis in zip(op.operands, (HEADS, KV_HEADS), strict=False):
                    # One head cannot be split.
                    if operand.shape[2] != 1 and not divides(operand.shape[2], tp):
                        whole[axis] = "-"
    return {**whole, ROWS: every}


def _grouped(tp: int, slots: int) -> Mapping[str, int]:
    """The ranks as groups that share key-value heads."""
    return {KV_AXIS: tp // slots, SLOTS: slots} if tp > slots else {SLOTS: slots}


def _by_slots(every: str, groups: bool) -> dict[str, str]:
    """Caches by slots within groups of ranks, projections of queries and the rest over all."""
    heads = dict.fromkeys((HEADS, KV_HEADS), KV_AXIS) if groups else {}
    return {**heads, QUERY_HEADS: every, SLOTS: SLOTS, INTERMEDIATE: every, VOCAB: every}


def _axis(text: str) -> tuple[str, int]:
    name, _, size = text.partition(":")
    if not (name.isidentifier() and is_digits(size, RANKS.most)):
        raise GraphgenError("GG0302", f"shard: '{text}' is not a mesh axis", help="write e.g. tp:4")
    return name, int(size)


def _rule(text: str) -> tuple[str, str]:
    """The name and the layout of a rule."""
    name, _, layout = text.rpartition(":")
    if not name or not layout:
        what = f"shard: '{text}' is not a rule"
        raise GraphgenError("GG0302", what, help="write vocab:tp or *.down_proj.weight:{-,tp}")
    return name, layout
