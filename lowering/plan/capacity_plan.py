"""The degrees of tensor parallelism at which a model fits an accelerator, and the smallest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.lowering.plan.measure import CoreUse, estimate, layer_period
from graphgen.models.config_reader import ConfigReader
from graphgen.targets import Accelerator

RULES = ("graphgen", "aws")


@dataclass(frozen=True, slots=True)
class Degree:
    """One degree of tensor parallelism.

    Attributes:
        tp: ranks, each on a core.
        use: what a core holds; ``None`` where the model cannot be split like that.
        needs: bytes of a core, as the rules count them.
        why_not: why this degree does not serve; empty where it does.
        instance: the smallest instance with as many cores; empty where it does not serve, or none
            has as many.
    """

    tp: int
    use: CoreUse | None
    needs: int
    why_not: str = ""
    instance: str = ""

    @property
    def serves(self) -> bool:
        """True if the model can be split over ``tp`` ranks and fits."""
        return not self.why_not

    @property
    def prompt_s(self) -> float:
        """Seconds to the first token of the longest prompt, at least; 0 where not known."""
        return self.use.seconds("prefill") if self.use else 0.0

    @property
    def step_s(self) -> float:
        """Seconds of a decode step, at least; 0 where not known."""
        return self.use.seconds("decode") if self.use else 0.0

    def tokens_per_second(self, rows: int) -> float:
        """Tokens a second of ``rows`` sequences, at most; 0 where not known."""
        return rows / self.step_s if self.step_s else 0.0

    def to_json(self, rows: int, price: float | None) -> dict[str, Json]:
        """The degree by name: bytes, seconds; ``None`` where nothing is known.

        Args:
            rows: sequences of the tokens a second.
            price: of an hour of the instance.
        """
        return {
            "tp": self.tp,
            "serves": self.serves,
            "why_not": self.why_not or None,
            "core_bytes": self.needs,
            "prompt_s": self.prompt_s or None,
            "step_s": self.step_s or None,
            "tokens_per_second": self.tokens_per_second(rows) or None,
            "instance": self.instance or None,
            "price": price,
            "use": self.use.to_json(self.tp) if self.use else None,
        }


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """The answer.

    Attributes:
        target: the accelerator.
        demand: the configuration to compile for.
        rules: ``graphgen``: what this compiler can do, and all that a core holds; ``aws``: what the
            guides of AWS's libraries ask, which is that the heads divide, that weights and caches
            are smaller than the memory of the cores, and that the degree is on their list.
        degrees: every degree looked at.
        chosen: the smallest that serves, or the requested one.
        instance: the smallest instance with as many cores; empty where none has.
    """

    target: Accelerator
    demand: CompileConfig
    rules: str
    degrees: tuple[Degree, ...]
    chosen: Degree | None
    instance: str


def make_plan(
    config: Mapping[str, object],
    target: Accelerator,
    demand: CompileConfig,
    rules: str = "graphgen",
    tp: int = 0,
    instance: str = "",
) -> CapacityPlan:
    """Look at every degree of the target, and choose.

    Args:
        config: a ``config.json``; Hugging Face's names.
        target: the accelerator.
        demand: the configuration to compile for; its target and ``tp`` are not used.
        rules: see :class:`CapacityPlan`.
        tp: the degree to choose; 0 for the smallest that serves.
        instance: the instance to serve on, whose cores bound the degrees; empty for any.

    Raises:
        GraphgenError: GG0302 unknown rules, GG0705 an unknown instance or one with fewer cores, or
            a configuration that is not supported.
    """
    demand = replace(demand, target=target.name)
    most = _cores(target, instance, tp)
    looked = sorted(n for n in {*_candidates(target, rules), tp} - {0} if n <= most)
    degrees = tuple(_degrees(config, target, demand, rules, looked))
    if instance:
        degrees = tuple(replace(row, instance=instance if row.serves else "") for row in degrees)
    serving = [item for item in degrees if item.serves]
    wanted = [item for item in degrees if item.tp == tp] if tp else serving
    chosen = wanted[0] if wanted else None
    where = "" if chosen is None else chosen.instance
    return CapacityPlan(target, demand, rules, degrees, chosen, where)


def _cores(target: Accelerator, instance: str, tp: int) -> int:
    """The cores of an instance, or of the largest one or ``tp`` for the empty name (GG0705)."""
    if not instance:
        return max([tp, *map(target.cores, target.instances)])
    if instance not in target.instances:
        what = f"{target.name} has no instance '{instance}'"
        raise GraphgenError("GG0705", what, help=f"one of {', '.join(target.instances)}")
    cores = target.cores(instance)
    if tp > cores:
        what = f"tp {tp} needs more than the {cores} cores of {instance}"
        raise GraphgenError("GG0705", what, help=f"give --tp of at most {cores}")
    return cores


def degrees_up_to_choice(
    config: Mapping[str, object], target: Accelerator, demand: CompileConfig, tp: int = 0
) -> tuple[Degree, ...]:
    """The degrees up to the one that :func:`make_plan` chooses, the last; no other is looked at.

    Args:
        config, target, demand: as for :func:`make_plan`; the rules are graphgen's.
        tp: the only degree to look at; 0 for all up to the smallest that serves.

    Returns:
        At least one; the last one does not serve where none does.

    Raises:
        GraphgenError: a configuration that is not supported.
    """
    looked = [tp] if tp else sorted(_candidates(target))
    found: list[Degree] = []
    for degree in _degrees(config, target, replace(demand, target=target.name), RULES[0], looked):
        found.append(degree)
        if degree.serves:
            break
    return tuple(found)


def _degrees(
    config: Mapping[str, object],
    target: Accelerator,
    demand: CompileConfig,
    rules: str,
    looked: Iterable[int],
) -> Iterator[Degree]:
    """Compile for one degree after the other; those that are not read are not compiled."""
    if rules not in RULES:
        raise GraphgenError("GG0302", f"unknown rules '{rules}'", help=f"there are {RULES}")
    # A configuration that cannot be read is refused before any degree is tried.
    period = layer_period(config)
    one = estimate(config, _for_one_rank(demand), 1, period, target)
    for tp in looked:
        yield _degree(config, target, demand, rules, one, tp, period)


def _candidates(target: Accelerator, rules: str = RULES[0]) -> tuple[int, ...]:
    """The degrees of the target and, by graphgen's rules, the cores of each instance.

    The degrees are AWS's list, or powers of two up to the largest instance.
    """
    if rules == "aws" and target.tp_degrees:
        return target.tp_degrees
    cores = {target.cores(name) for name in target.instances}
    powers = (1 << n for n in range(max(cores).bit_length()))
    return tuple(sorted({*(target.tp_degrees or powers), *cores}))


def _degree(
    config: Mapping[str, object],
    target: Accelerator,
    demand: CompileConfig,
    rules: str,
    one: CoreUse,
    tp: int,
    period: int,
) -> Degree:
    try:
        known = tp == 1 and demand == _for_one_rank(demand)
        use = one if known else estimate(config, demand, tp, period, target)
    except GraphgenError as error:
        use, refusal = None, error.what
    else:
        refusal = ""
    needs = _needs(use or one, target, rules, tp) if use or rules == "aws" else 0
    if rules == "aws":
        refusal = _aws_refusal(config, target, tp)
    if not refusal and needs > target.hbm_bytes:
        refusal = f"needs {needs / 1e9:.1f} GB of {target.hbm_bytes / 1e9:.1f} GB a core"
    found = Degree(tp, use, needs, refusal)
    return replace(found, instance=_instance(target, found))


def _for_one_rank(demand: CompileConfig) -> CompileConfig:
    """The demand without groups of ranks, which one rank has none of."""
    one = replace(demand, nodes=1, moe_ep_degree=1, moe_prefill_ep_degree=0, cp_degree=1)
    return replace(one, mlp_cp_degree=1, attention_dp_degree=1)


def _needs(use: CoreUse, target: Accelerator, rules: str, tp: int) -> int:
    if rules == "aws":
        return (use.weights_once + use.kv_once) // tp
    return use.total + target.code_bytes


def _aws_refusal(config: Mapping[str, object], target: Accelerator, tp: int) -> str:
    """The rules of transformers-neuronx: heads divide, or are padded if several share a KV head."""
    reader = ConfigReader(config)
    key = next((key for key in ("num_attention_heads", "n_head") if key in config), "")
    if not key:
        raise GraphgenError("GG0503", "the configuration says nothing of attention heads")
    heads = reader.integer(key)
    grouped = reader.integer("num_key_value_heads", heads) < heads
    if heads % tp and not grouped:
        return f"{heads} attention heads do not divide by {tp}"
    if target.tp_degrees and tp not in target.tp_degrees:
        return f"{target.name} has the degrees {', '.join(map(str, target.tp_degrees))}"
    return ""


def _instance(target: Accelerator, chosen: Degree) -> str:
    if not chosen.serves:
        return ""
    enough = [name for name in target.instances if target.cores(name) >= chosen.tp]
    return min(enough, key=target.cores, default="")
