"""The products and lookups of a program that may have an adapter beside them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from graphgen.ir import Function, Module, Op, Value
from graphgen.passes.adapters.weight_chain import WeightChain, weight_chain
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.weights.derived import PreparedValues

# The name of a head that shares the weight of the embedding.
TIED_HEAD = "lm_head"
# Ops that end what is computed of one product alone.
_ENDS = ("dot_general", "attention", "kv_update", "experts")


@dataclass(frozen=True, slots=True)
class AdapterSite:
    """A product with a weight, or an embedding.

    Attributes:
        op: the product or the embedding.
        module: the checkpoint's name of the projection.
        inputs, outputs: sizes of the projection; an embedding has the vocabulary as its inputs.
        chain: of the weight of a product; ``None`` for an embedding.
        own: whether only targets that name it include it: embeddings, heads and routers.
    """

    op: Op
    module: str
    inputs: int
    outputs: int
    chain: WeightChain | None
    own: bool

    def wanted(self, targets: Sequence[str]) -> bool:
        """True if one of ``targets`` names it, or they are empty and it is an ordinary one."""
        if not targets:
            return not self.own
        return any(self.module == name or self.module.endswith(f".{name}") for name in targets)


@dataclass(frozen=True, slots=True)
class ExpertSite:
    """A mixture, whose experts have adapters of all three projections, or none.

    Attributes:
        op: ``experts``.
        modules: the checkpoint's names of gate, up and down, which end with ``experts.NAME``.
        sizes: (inputs, outputs) of each, of one expert.
        count: E.
    """

    op: Op
    modules: tuple[str, str, str]
    sizes: tuple[tuple[int, int], ...]
    count: int

    def wanted(self, targets: Sequence[str]) -> bool:
        """True if one of ``targets`` names a projection, with ``experts.`` in front."""
        return any(
            module == name or (module.endswith(f".{name}") and "." in name)
            for module in self.modules
            for name in targets
        )


@dataclass(frozen=True, slots=True)
class ProgramSites:
    """The sites of one program, and why its other products are none."""

    sites: Sequence[AdapterSite]
    mixtures: Sequence[ExpertSite]
    refused: Mapping[Op, NoMatch]

    @property
    def all_sites(self) -> Sequence[AdapterSite | ExpertSite]:
        """Projections and mixtures."""
        return [*self.sites, *self.mixtures]


def program_sites(module: Module, function: Function) -> ProgramSites:
    """The sites of a program, in its order."""
    prepared = PreparedValues(module, function, {})
    tables = {op.operands[0] for op in function.block if op.name == "embedding"}
    vocabulary = _vocabulary(module, tables)
    sites: list[AdapterSite] = []
    mixtures: list[ExpertSite] = []
    refused: dict[Op, NoMatch] = {}
    for op in function.block:
        if op.name == "embedding":
            if site := _of_embedding(op):
                sites.append(site)
        elif op.name == "dot_general":
            found = _of_product(op, prepared, tables, vocabulary)
            if isinstance(found, NoMatch):
                refused[op] = found
            else:
                sites.append(found)
        elif op.name == "experts":
            mixture = _of_mixture(op)
            if isinstance(mixture, NoMatch):
                refused[op] = mixture
            else:
                mixtures.append(mixture)
    return ProgramSites(sites, mixtures, refused)


def _of_mixture(op: Op) -> ExpertSite | NoMatch:
    matrices = op.operands[3:6]
    for matrix in matrices:
        if matrix.op is not None or not (matrix.name or "").endswith(".weight"):
            what = "its matrices are not those of the checkpoint, one stack for each projection"
            return no_match(what, matrix)
    gate, up, down = ((matrix.name or "").removesuffix(".weight") for matrix in matrices)
    shapes = [matrix.type.dims for matrix in matrices]
    sizes = tuple((inputs, outputs) for _, outputs, inputs in shapes)
    return ExpertSite(op, (gate, up, down), sizes, shapes[0][0])


def _of_embedding(op: Op) -> AdapterSite | None:
    table = op.operands[0]
    if table.op is not None or not table.type.static or op.operands[1].type.rank != 2:
        return None
    module = (table.name or "").rpartition(".")[0]
    words, width = table.type.dims
    return AdapterSite(op, module, words, width, None, own=True) if module else None


def _of_product(
    op: Op, prepared: PreparedValues, tables: set[Value], vocabulary: int
) -> AdapterSite | NoMatch:
    lhs, rhs = op.operands
    depths = op.attrs.integers("rhs_contracting_dims")
    if op.attrs.integers("lhs_batch_dims"):
        return no_match("the product has batch dimensions", lhs)
    if not prepared.of_weights(rhs) or lhs in prepared:
        return no_match("it is not a product of a value with a weight", rhs, depth=2)
    if len(depths) != 1:
        return no_match(f"it sums over {len(depths)} dimensions", rhs, depth=3)
    chain = weight_chain(rhs, depths[0], prepared)
    if chain is None:
        return no_match("its weight is not one matrix of the checkpoint", rhs, depth=4)
    tied = chain.matrix in tables
    inputs, outputs = chain.sizes
    own = tied or outputs == vocabulary or _chooses(op)
    return AdapterSite(op, TIED_HEAD if tied else chain.module, inputs, outputs, chain, own)


def _vocabulary(module: Module, tables: set[Value]) -> int:
    """Number of words: what the configuration states, else the rows of the largest table."""
    try:
        config: object = json.loads(module.meta.get("config", "{}"))
    except ValueError:
        config = None
    stated = (
        cast("Mapping[str, object]", config).get("vocab_size") if isinstance(config, dict) else 0
    )
    if isinstance(stated, int) and stated > 0:
        return stated
    return max([table.type.dims[0] for table in tables if table.type.static], default=0)


def _chooses(op: Op) -> bool:
    """True if a choice is made of the product before anything is multiplied by it: a router."""
    work, seen = [op.result], {op.result}
    while work:
        for reader in work.pop().users:
            if reader.name == "top_k":
                return True
            if reader.name not in _ENDS:
                fresh = [value for value in reader.results if value not in seen]
                seen.update(fresh)
                work += fresh
    return False
