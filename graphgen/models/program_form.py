"""The programs that a model may have: their phases, sizes, inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass

from graphgen.ir import symbol
from graphgen.models.medusa import MedusaShape

PHASES = ("prefill", "decode")
# Name of the output of ``feature_layers``.
FEATURES = "features"
B, R, S, C, M = (symbol(name) for name in "BRSCM")


@dataclass(frozen=True, slots=True)
class ExpertOutputs:
    """Outputs of mixtures of experts; a model without them has none.

    Attributes:
        logits: return ``router_logits.N`` f32 [B,S,E] of each mixture, the first being 0.
        index: return ``expert_index.N`` s32 [B,S,K], the experts of each token, the best first.
        counts: return ``expert_counts`` s32 [L,E]: the choices that fell on each expert of the L
            mixtures, padding included.
    """

    logits: bool = False
    index: bool = False
    counts: bool = False


@dataclass(frozen=True, slots=True)
class ProgramForm:
    """Inputs and outputs of programs that are not the usual ones.

    Attributes:
        every_token: return the logits of every token, f32 [B,S,V], instead of each row's last.
        hidden_states: return ``hidden_states.0`` to ``hidden_states.L`` too, f32 [B,S,E], as
            transformers' ``output_hidden_states``: the input of each of the L layers, and the
            output of the last norm.
        inputs_embeds: take ``inputs_embeds`` f32 [B,S,E] in the place of tokens, as transformers
            does.
        feature_layers: return ``features`` f32 [B,S,n*E] too, n of those hidden states by their
            numbers, one after the other; negative numbers count from the end.
        medusa: return what heads of Medusa guess after each node of a tree, s32 [B,S,H,K].
        experts: return these values of mixtures of experts.
    """

    every_token: bool = False
    hidden_states: bool = False
    inputs_embeds: bool = False
    feature_layers: tuple[int, ...] = ()
    medusa: MedusaShape | None = None
    experts: ExpertOutputs = ExpertOutputs()

    @property
    def keeps_states(self) -> bool:
        """True if programs return hidden states in some form."""
        return self.hidden_states or bool(self.feature_layers)


FORM = ProgramForm()
