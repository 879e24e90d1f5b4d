"""The factors of each composite, in letters."""

from __future__ import annotations

from collections.abc import Mapping

from graphgen.ir import Attrs
from graphgen.passes.sharding.factor_rules import RULES, Rule
from graphgen.passes.sharding.factors import Factors, Notation, Table, Types, together

# Letters: b rows of a call, r rows of the cache, s active tokens, c attended length, m allocated
# length, k key-value heads, g query heads of each, d head size, e model width, v vocabulary.
_EMBEDDING = Notation(("v e", "*"), ("* e",), {"v": "add"}, "v")
_NORM = Notation(("* E", "E", "E"), ("* E",))
_ROPE_TABLE = Notation(("*",), ("* D", "* D"))
_ROPE = Notation(("b s h D", "b s .", "b s ."), ("b s h D",))
_MASK = Notation(("b s", "b"), ("b s C",))
_DISTANCE = Notation(("b s",), ("b s C",))
_ATTENTION = Notation(("b s kg D", "b C k D", "b C k D", "b s C", "kg", "b s C"), ("b s kg D",))
_TOP_K = Notation(("* v",), ("* K", "* K"), formed="v")
_LAST_TOKEN = Notation(("b S e", "b S", "b"), ("b e",))
# A cache's rows that are cut are told apart by their number; a row in place goes with its caller's.
_READ = Notation(("R . k d", "b"), ("b C k d",))
_READ_IN_PLACE = Notation(("r . k d", "r"), ("r C k d",), formed="r")
_UPDATE = Notation(("r M k d", "B S k d", "B", "B S"), ("r M k d",), formed="r")
_UPDATE_IN_PLACE = Notation(("r M k d", "r S k d", "r", "r S"), ("r M k d",), formed="r")


def _written(notation: Notation) -> Rule:
    def rule(operands: Types, results: Types, attrs: Attrs) -> Factors:
        return notation.factors(operands, results)

    return rule


def _quantize(operands: Types, results: Types, attrs: Attrs) -> Factors:
    """What one scale is taken over is whole."""
    table = Table()
    shared = attrs.integers("dimensions")
    dims = table.of(operands[0])
    scale = tuple(cut for dim, cut in enumerate(dims) if dim not in shared)
    fixed = frozenset(dims[dim][0] for dim in shared)
    return Factors(tuple(table.sizes), (dims,), (dims, scale), fixed=fixed)


def _by_rows(anywhere: Notation, in_place: Notation) -> Rule:
    def rule(operands: Types, results: Types, attrs: Attrs) -> Factors:
        notation = in_place if attrs.text("rows") == "in_place" else anywhere
        return notation.factors(operands, results)

    return rule


COMPOSITE_RULES: Mapping[str, Rule] = {
    "embedding": _written(_EMBEDDING),
    "rms_norm": _written(_NORM),
    "layer_norm": _written(_NORM),
    "silu": together,
    "gelu": together,
    "quantize": _quantize,
    "rope_table": _written(_ROPE_TABLE),
    "rope": _written(_ROPE),
    "attention_mask": _written(_MASK),
    "key_distance": _written(_DISTANCE),
    "attention": _written(_ATTENTION),
    "cache_read": _by_rows(_READ, _READ_IN_PLACE),
    "kv_update": _by_rows(_UPDATE, _UPDATE_IN_PLACE),
    "last_token": _written(_LAST_TOKEN),
    "top_k": _written(_TOP_K),
}

FACTORS: Mapping[str, Rule] = {**RULES, **COMPOSITE_RULES}

# Ops that every rank does on whole values: nothing in them can be cut.
WHOLE_ONLY = frozenset(
    (
        "constant",
        # What others define: nothing is known about its dimensions.
        *("call", "while", "conditional", "custom_call", "hlo.opaque"),
        # Made by partition itself.
        *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute"),
    )
)
