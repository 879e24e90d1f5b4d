"""Saying how weights and states lie over the mesh, by rules on their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import ClassVar

from graphgen.errors import GraphgenError
from graphgen.ir import Entry, Module, Role, Sharding
from graphgen.ir.sharding import parse_sharding
from passes.core import Pass, Rewriter, register
from passes.sharding.from_heads import lay_out_heads

# Megatron's layout of a decoder: q, k, v, gate and up split by output features, o and down by input
# features, the cache by heads; everything else is whole on each rank. The families call them by
# different names, and transformers' Conv1D has input features first. A tensor that holds q, k and v
# is not named: how its parts lie follows from the cache.
DECODER_RULES: Mapping[str, str] = {
    "*.q_proj.weight": "{tp,-}",
    "*.k_proj.weight": "{tp,-}",
    "*.v_proj.weight": "{tp,-}",
    "*.q_proj.bias": "{tp}",
    "*.k_proj.bias": "{tp}",
    "*.v_proj.bias": "{tp}",
    "*.o_proj.weight": "{-,tp}",
    "*.self_attn.out_proj.weight": "{-,tp}",
    "*.attn.out_proj.weight": "{-,tp}",
    "*.fc1.weight": "{tp,-}",
    "*.fc1.bias": "{tp}",
    "*.fc2.weight": "{-,tp}",
    "*.fc_in.weight": "{tp,-}",
    "*.fc_in.bias": "{tp}",
    "*.fc_out.weight": "{-,tp}",
    "*.h.*.attn.c_proj.weight": "{tp,-}",
    "*.mlp.c_fc.weight": "{-,tp}",
    "*.mlp.c_fc.bias": "{tp}",
    "*.mlp.c_proj.weight": "{tp,-}",
    "*.self_attention.dense.weight": "{-,tp}",
    "*.attention.dense.weight": "{-,tp}",
    "*.dense_h_to_4h.weight": "{tp,-}",
    "*.dense_h_to_4h.bias": "{tp}",
    "*.dense_4h_to_h.weight": "{-,tp}",
    "*.gate_proj.weight": "{tp,-}",
    "*.up_proj.weight": "{tp,-}",
    "*.gate_proj.bias": "{tp}",
    "*.up_proj.bias": "{tp}",
    "*.down_proj.weight": "{-,tp}",
    "*.k_cache": "{-,-,tp,-}",
    "*.v_cache": "{-,-,tp,-}",
}


def annotate(module: Module, rules: Mapping[str, str]) -> int:
    """Set the sharding of every weight and state whose name a rule matches; the last match wins.

    Args:
        module: changed in place.
        rules: name pattern (as in a shell) to sharding text such as ``{tp,-}``.

    Returns:
        How many entries were annotated.

    Raises:
        GraphgenError: GG0304 for a pattern that matches nothing, or a sharding of another rank.
    """
    hits = dict.fromkeys(rules, 0)
    for row in list(module.interface.values()):
        if row.role not in (Role.WEIGHT, Role.STATE):
            continue
        for pattern, text in rules.items():
            if fnmatchcase(row.name, pattern):
                hits[pattern] += 1
                layout = _fitting(row, parse_sharding(text), pattern)
                module.interface[row.name] = replace(row, sharding=layout)
    for pattern, count in hits.items():
        if not count and pattern not in DECODER_RULES:
            raise GraphgenError("GG0304", f"no weight or state is called '{pattern}'")
    return sum(hits.values())


def _fitting(row: Entry, layout: Sharding, pattern: str) -> Sharding:
    if len(layout.dims) != row.logical.rank:
        raise GraphgenError(
            "GG0304", f"'{pattern}': {layout.text} does not fit {row.name} {row.logical.text}"
        )
    return layout


@register
@dataclass(frozen=True)
class Shard(Pass):
    """Lay a decoder over a mesh of ``tp`` ranks by the usual rules on names.

    Options:
        tp: number of ranks.

    Given:
        module @m level=canonical {
          weight %l.q_proj.weight : f32[8,4]
          weight %l.o_proj.weight : f32[4,8]
        }

    Result (``shard{tp=2}``):
        module @m level=canonical mesh=tp:2 {
          weight %l.q_proj.weight : f32[8,4] sharding={tp,-}
          weight %l.o_proj.weight : f32[4,8] sharding={-,tp}
        }
    """

    name: ClassVar[str] = "shard"
    takes: ClassVar[tuple[str, ...]] = ("logical", "canonical")
    requires: ClassVar[tuple[str, ...]] = ("raw-weights",)
    invalidates: ClassVar[tuple[str, ...]] = ("partitioned",)
    tp: int = 2

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Set the mesh and annotate."""
        if self.tp < 1:
            raise GraphgenError("GG0302", f"shard: tp={self.tp} must be at least 1")
        module.mesh["tp"] = self.tp
        rewriter.applications += annotate(module, DECODER_RULES)
        for function in module.programs():
            rewriter.applications += lay_out_heads(function, "tp")
