"""Programs choose their tokens themselves, so that logits need not leave the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.exec.decode_steps import RANDOM_NUMBERS
from graphgen.ir import Dim, Function, Module, Value, tensor
from graphgen.ir.dtype import f32, s32
from graphgen.passes.core import Pass, Rewriter, register
from graphgen.passes.core.relation import OutputChanges
from graphgen.passes.programs.token_choice import greedy, sample
from graphgen.passes.programs.token_rule import (
    CANDIDATES,
    KEPT,
    LOGITS,
    PARAMS,
    RANDOM,
    TOKENS,
    TokenRule,
)

# Sums and shares of f32 probabilities are off by less.
_SUMS = 1e-5


@register
@dataclass(frozen=True)
class OnDeviceSampling(Pass):
    """Return ``next_tokens`` s32 [B] from programs with ``logits``, beside them or instead.

    Drawn tokens take two inputs more: ``sampling_params`` f32 [B,3], of each row top_k, top_p and
    temperature, and ``random`` f32 [B], numbers in [0, 1), the same on all ranks. Rows do not see
    each other, top_k 0 keeps all, temperature 0 takes the best token. A token stays while the
    probability of those before it is below top_p; of equal ones the lowest token id comes first.

    Options:
        do_sample: draw tokens; otherwise the best one is taken, of equal ones the lowest.
        global_topk: how many of the best tokens are looked at when drawing; 0 for all.
        deterministic: draw with the number 0.5 each time instead of the input ``random``.
        output_logits: give the logits too.
        top_p_min_tokens: take the input ``top_p_min_tokens`` s32 [B]: top_p keeps at least that
            number of tokens of each row.

    Given:
        module @m level=canonical {
          input %x : f32[2,4]
          output %logits : f32[2,4]
        }

        func @f phase=decode {
          arg %x : f32[2,4]
          %y = negate(%x) : f32[2,4]
          return logits = %y
        }

    Result:
        module @m level=canonical {
          input %x : f32[2,4]
          output %next_tokens : s32[2]
        }

        func @f phase=decode {
          arg %x : f32[2,4]
          %y = negate(%x) : f32[2,4]
          %0, %1 = top_k(%y) k=1 : f32[2,1], s32[2,1]
          %2 = reshape(%1) shape=[2] : s32[2]
          return next_tokens = %2
        }
    """

    name: ClassVar[str] = "on-device-sampling"
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical")
    do_sample: bool = False
    global_topk: int = 256
    deterministic: bool = False
    output_logits: bool = False
    top_p_min_tokens: bool = False

    @property
    def budget(self) -> float:
        """Drawing rounds sums of probabilities; taking the best token rounds nothing."""
        return _SUMS if self.do_sample else 0.0

    def output_changes(self) -> OutputChanges:
        """The tokens follow from the logits, which only ``output_logits`` keeps."""
        rule = TokenRule(
            self.do_sample, self.global_topk, self.deterministic, self.top_p_min_tokens
        )
        return OutputChanges({TOKENS: rule}, () if self.output_logits else (LOGITS,))

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Append the choice to every program; the interface changes with the first."""
        if self.global_topk < 0:
            raise GraphgenError("GG0302", f"{self.name}: global_topk={self.global_topk} is below 0")
        programs = [f for f in module.programs() if f.outputs.get(LOGITS) is not None]
        if not programs:
            raise GraphgenError("GG0304", f"{self.name}: no program gives {LOGITS}")
        if rewriter.exhausted:
            return
        for function in programs:
            self._choose(module, function, rewriter)
        if not self.output_logits:
            del module.interface[LOGITS]
        if self.do_sample:
            module.meta[CANDIDATES] = str(self.global_topk)
        rewriter.note(None, "choose tokens")

    def _choose(self, module: Module, function: Function, rewriter: Rewriter) -> None:
        logits = function.outputs.get(LOGITS)
        assert logits is not None
        row = module.interface[LOGITS].logical
        if row.rank != 2:
            what = f"{self.name}: {LOGITS} {row.text} does not have one row a sequence"
            raise GraphgenError("GG0304", what)
        where = logits.op.loc.through(rewriter.pass_name) if logits.op is not None else None
        b = Builder(function, module, loc=where)
        with b:
            token = self._drawn(b, logits, row.shape[0]) if self.do_sample else greedy(b, logits)
            if not self.output_logits:
                function.outputs = [pair for pair in function.outputs if pair[0] != LOGITS]
            b.output(TOKENS, token, tensor(s32, (row.shape[0],)))

    def _drawn(self, b: Builder, logits: Value, rows: Dim) -> Value:
        params = b.input(PARAMS, f32, (rows, 3))
        if self.deterministic:
            random = b.full(0.5, tensor(f32, logits.shape[:1]))
        else:
            random = b.input(RANDOM, f32, (rows,), domain=RANDOM_NUMBERS)
        kept = b.input(KEPT, s32, (rows,)) if self.top_p_min_tokens else None
        return sample(b, logits, params, random, self.global_topk, kept)


__all__ = ["OnDeviceSampling"]
