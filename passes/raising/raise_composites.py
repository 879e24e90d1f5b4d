"""Pass that raises primitive ops of other frameworks to composites."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphgen.ir import Module
from graphgen.passes.canonical.canonicalize import (
    identity,
    reshape_of_reshape,
    transpose_of_transpose,
)
from graphgen.passes.canonical.simplify_shape import (
    broadcast_of_broadcast,
    broadcast_of_reshape,
    slice_of_concatenate,
    transpose_of_units,
)
from graphgen.passes.core import Pass, Rewriter, register
from graphgen.passes.raising.activations import ACTIVATIONS
from graphgen.passes.raising.attention import raise_attention
from graphgen.passes.raising.cache import raise_kv_update
from graphgen.passes.raising.cache_updates import (
    raise_chosen_slot,
    raise_joined_slices,
    raise_layer_update,
    write_of_layer,
)
from graphgen.passes.raising.experts import raise_experts
from graphgen.passes.raising.gathers import gather_of_run, raise_embedding
from graphgen.passes.raising.normalize_idioms import IDIOMS
from graphgen.passes.raising.norms import NORMS
from graphgen.passes.raising.rotary import raise_partial_rope, raise_rope, raise_rotated_rope
from graphgen.passes.raising.split_attention import raise_split_attention


@register
@dataclass(frozen=True)
class RaiseComposites(Pass):
    """Replace simple ops that compute a composite (attention, RoPE, a norm) by the composite.

    Found are rms_norm and layer_norm, with or without weight and bias, silu and gelu, embedding,
    rope of halves or neighbors, of whole heads or of their first elements, attention over any order
    of dimensions, with queries in groups or keys that were repeated for the queries of their group,
    with biases, masks, a soft cap and sinks, also over a cache and new tokens apart, tokens that
    are written into a cache, of one layer or of all in one tensor, and experts: gated MLPs of the
    matrices that a ``top_k`` chose, gathered, or of all and weighted by what it chose. So heads can
    be laid out, and models be split, that were traced from JAX or PyTorch, or dumped for Neuron,
    whose kernels become the ops they mean. Near misses are left unchanged; `graphgen explain` says
    why.

    Given:
        module @m level=logical {
        }

        func @f {
          arg %x : f32[2,4]
          arg %w : f32[4]
          %s = multiply(%x, %x) : f32[2,4]
          %t = reduce(%s) dimensions=[1] kind=add : f32[2]
          %u = reshape(%t) shape=[2,1] : f32[2,1]
          %n = constant() value=f32[](4.0) : f32[]
          %c = broadcast_in_dim(%n) shape=[2,1] : f32[2,1]
          %v = divide(%u, %c) : f32[2,1]
          %e = constant() value=f32[](0.0009765625) : f32[]
          %d = broadcast_in_dim(%e) shape=[2,1] : f32[2,1]
          %a = add(%v, %d) : f32[2,1]
          %r = rsqrt(%a) : f32[2,1]
          %b = broadcast_in_dim(%r) shape=[2,4] dimensions=[0,1] : f32[2,4]
          %h = multiply(%x, %b) : f32[2,4]
          %g = broadcast_in_dim(%w) shape=[2,4] dimensions=[1] : f32[2,4]
          %y = multiply(%h, %g) : f32[2,4]
          return y = %y
        }

    Result (``raise-composites,dce``):
        module @m level=logical {
        }

        func @f {
          arg %x : f32[2,4]
          arg %w : f32[4]
          %y = rms_norm(%x, %w) epsilon=0.0009765625 : f32[2,4]
          return y = %y
        }
    """

    name: ClassVar[str] = "raise-composites"
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical", "sharded")
    # A composite rounds between other steps than what it is raised from.
    rounding: ClassVar[float] = 2e-2

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Raise inside out: rope before the attention that reads it."""
        shapes = (
            identity,
            reshape_of_reshape,
            transpose_of_transpose,
            transpose_of_units,
            broadcast_of_broadcast,
            broadcast_of_reshape,
        )
        for function in module.programs() or list(module.functions.values()):
            rewriter.apply_rules(function, (*IDIOMS, gather_of_run, *shapes))
            # A layer norm holds an rms_norm of the centered row.
            for norm in NORMS:
                rewriter.apply_rules(function, (norm,))
            rewriter.apply_rules(function, (*ACTIVATIONS, raise_embedding, raise_rope))
            caches = (
                raise_kv_update,
                raise_chosen_slot,
                raise_joined_slices,
                raise_layer_update,
                write_of_layer,
            )
            # In a cache of all layers, a layer matches once those before it are raised.
            before = -1
            while before < rewriter.applications and not rewriter.exhausted:
                before = rewriter.applications
                rewriter.apply_rules(function, (*caches, slice_of_concatenate(), *shapes))
            rewriter.apply_rules(function, (raise_rotated_rope, *shapes))
            rewriter.apply_rules(function, (raise_partial_rope, *shapes))
            rewriter.apply_rules(function, (raise_attention, raise_split_attention, *shapes))
            rewriter.apply_rules(function, (raise_experts, *shapes))
