"""Changes with which a model would fit a number of ranks, each computed by compiling it so."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.lowering.plan.capacity_plan import CapacityPlan, Degree
from graphgen.lowering.plan.measure import estimate, layer_period
from graphgen.passes.quantization.quantize_weights import QuantizeWeights
from graphgen.passes.quantization.stored_readings import stored_readings

# Tokens of prompts and sequences are multiples of it.
_TOKENS = 128
_WEIGHTS = "int8"


@dataclass(frozen=True, slots=True)
class FittingChange:
    """A model with one thing changed.

    Attributes:
        flags: what changes, as ``graphgen plan`` and ``graphgen compile`` have it.
        tp: ranks.
        core_bytes: of a core, with code.
        fits: whether a core has room for it.
    """

    flags: str
    tp: int
    core_bytes: int
    fits: bool


def fitting_changes(config: Mapping[str, object], plan: CapacityPlan) -> list[FittingChange]:
    """Changes with which a degree fits that does not: the chosen one, or the largest.

    More ranks; shorter prompts, shorter sequences and fewer rows, as many as fit; caches, and
    weights that the checkpoint has in more, of 8 bits.

    Args:
        config: a ``config.json``; Hugging Face's names.
        plan: of that model.

    Returns:
        The changes, also those that do not suffice; none where a degree serves, the model cannot be
        divided like that, or the rules are AWS's.
    """
    degree = plan.chosen or next((d for d in reversed(plan.degrees) if d.use is not None), None)
    if degree is None or degree.serves or degree.use is None or plan.rules == "aws":
        return []
    more = next((d for d in plan.degrees if d.serves and d.tp > degree.tp), None)
    found = [] if more is None else [FittingChange(f"--tp {more.tp}", more.tp, more.needs, True)]
    return [*found, *_Changes(config, plan, degree, layer_period(config)).found()]


@dataclass(frozen=True, slots=True)
class _Changes:
    """One degree of a model that does not fit."""

    config: Mapping[str, object]
    plan: CapacityPlan
    degree: Degree
    period: int

    def found(self) -> Iterator[FittingChange]:
        demand = self.plan.demand
        yield from self._most("--context", _TOKENS, max(demand.context, default=0), _with_prompts)
        yield from self._most("--seq", _TOKENS, demand.max_len, _with_sequences)
        yield from self._most("--batch", 1, demand.cache_rows, _with_rows)
        if not demand.kv_cache_quant:
            yield from self._with("--kv-cache-quant", replace(demand, kv_cache_quant=True))
        if not demand.quantization and not stored_readings(self.config):
            narrow = str(QuantizeWeights(dtype=_WEIGHTS))
            flags = f"--quantized --quantization-dtype {_WEIGHTS}"
            yield from self._with(flags, replace(demand, quantization=narrow))

    def _with(self, flags: str, demand: CompileConfig) -> Iterator[FittingChange]:
        """The model in another configuration; nothing where that is refused."""
        try:
            use = estimate(self.config, demand, self.degree.tp, self.period)
        except GraphgenError:
            return
        needs = use.total + self.plan.target.code_bytes
        yield FittingChange(flags, self.degree.tp, needs, needs <= self.plan.target.hbm_bytes)

    def _most(
        self,
        flag: str,
        step: int,
        given: int,
        changed: Callable[[CompileConfig, int], CompileConfig],
    ) -> Iterator[FittingChange]:
        """Find the largest multiple of ``step`` that fits, else the value with the fewest bytes.

        Halves are tried until one fits, since few tokens may take other forms that need more. The
        largest value below the one tried before is found by interpolation: bytes grow about evenly
        there.
        """
        most = -(-given // step)
        too_much, room = self.degree.needs, self.plan.target.hbm_bytes
        tried: list[FittingChange] = []
        while fewest := most // 2:
            made = self._tried(flag, fewest * step, changed)
            if made is None:
                return
            tried.append(made)
            if made.fits:
                break
            most, too_much = fewest, made.core_bytes
        best = min(tried, key=lambda item: item.core_bytes, default=None)
        while best is not None and best.fits and most - fewest > 1:
            share = (room - best.core_bytes) / max(too_much - best.core_bytes, 1)
            count = min(max(fewest + int(share * (most - fewest)), fewest + 1), most - 1)
            made = self._tried(flag, count * step, changed)
            if made is None:
                break
            if made.fits:
                fewest, best = count, made
            else:
                most, too_much = count, made.core_bytes
        if best is not None:
            yield best

    def _tried(
        self, flag: str, count: int, changed: Callable[[CompileConfig, int], CompileConfig]
    ) -> FittingChange | None:
        return next(self._with(f"{flag} {count}", changed(self.plan.demand, count)), None)


def _with_prompts(demand: CompileConfig, tokens: int) -> CompileConfig:
    return replace(demand, context=(tokens,))


def _with_sequences(demand: CompileConfig, tokens: int) -> CompileConfig:
    context = tuple({min(size, tokens): None for size in demand.context})
    return replace(demand, context=context, tokens=(tokens,), slots=tokens)


def _with_rows(demand: CompileConfig, rows: int) -> CompileConfig:
    return replace(demand, batch=(rows,), prefill_batch=(), rows=0)
