"""The degrees of ``graphgen plan`` as text and as JSON: memory, times, instances and prices."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from graphgen.cli.console import emit, note
from graphgen.errors import GraphgenError, did_you_mean
from graphgen.json_value import Json
from graphgen.numbers import finite
from graphgen.report.table import Table, render
from graphgen.report.units import duration, size
from graphgen.targets import DEFAULT_ACCELERATOR, accelerator, accelerator_names, published_prices

if TYPE_CHECKING:
    from graphgen.config.compile_config import CompileConfig
    from graphgen.lowering.plan.adapter_capacity import AdapterCapacity
    from graphgen.lowering.plan.capacity_plan import CapacityPlan, Degree
    from graphgen.lowering.plan.fitting_changes import FittingChange
    from graphgen.targets import Accelerator


_BOUNDS = "times are rooflines of the compiled programs, bounds from below"


@dataclass(frozen=True, slots=True)
class HourPrices:
    """The price of an hour of each instance.

    Attributes:
        hour: by instance type; of those alone whose price is known.
        origin: the origin of the prices in a few words; empty without one.
    """

    hour: Mapping[str, float]
    origin: str

    def of(self, instance: str) -> str:
        """The price as text; ``-`` where none is known."""
        return f"{self.hour[instance]:.2f}" if instance in self.hour else "-"


def hour_prices(given: str, made: CapacityPlan) -> HourPrices:
    """The published prices of the instances of a plan, and those given in their place.

    Args:
        given: the value of ``--price``: ``TYPE=USD,...``, or a number for the advised instance.
        made: the plan.

    Raises:
        GraphgenError: GG0705 for another text, or an instance that the target does not have.
    """
    published = published_prices()
    hour = {key: value for key, value in published.hour.items() if key in made.target.instances}
    own = dict(_given_price(part, made) for part in given.split(",") if part)
    said = (
        f"{published.region}, {published.terms}, read {published.read}; source: {published.source}"
    )
    shown = {row.instance for row in made.degrees if row.instance in hour} - {*own}
    parts = [*(["given by --price"] if own else []), *([said] if shown else [])]
    return HourPrices({**hour, **own}, "; ".join(parts))


def _given_price(text: str, made: CapacityPlan) -> tuple[str, float]:
    instance, equals, number = text.rpartition("=")
    instance = instance.strip() if equals else made.instance
    known = made.target.instances
    if equals and instance not in known:
        what = f"{made.target.name} has no instance '{instance}', which --price names"
        raise GraphgenError("GG0705", what, help=f"one of {', '.join(known)}")
    try:
        price = finite(number)
    except ValueError:
        price = -1.0
    if price < 0:
        what = (
            f"--price is {text}, expected TYPE=USD, or the USD of an hour of the advised instance"
        )
        raise GraphgenError("GG0705", what, help=f"--price {next(iter(known))}=1.50")
    return instance, price


def target_of(target: str, instance: str) -> str:
    """The target that ``--target`` names, or that has the instance; by default ``trn2``.

    Raises:
        GraphgenError: GG0705 for an instance of no target.
    """
    if target or not instance:
        return target or DEFAULT_ACCELERATOR
    names = {name: accelerator(name).instances for name in accelerator_names()}
    for name, instances in names.items():
        if instance in instances:
            return name
    what = f"no target has the instance '{instance}'"
    known = [each for instances in names.values() for each in instances]
    raise GraphgenError(
        "GG0705", what, help=did_you_mean(instance, known) or f"one of {', '.join(known)}"
    )


def emit_models(as_json: bool, where: Accelerator, demand: CompileConfig, instance: str) -> None:
    """Print which of the known models fit an instance."""
    from graphgen.lowering.plan.models_on_instance import models_on_instance
    from graphgen.models import SHAPES
    from graphgen.runtime.progress import TerminalProgress

    if instance not in where.instances:
        what = f"{where.name} has no instance '{instance}'"
        raise GraphgenError("GG0705", what, help=f"one of {', '.join(where.instances)}")
    note(f"planning {len(SHAPES)} models for {instance} ...")
    with TerminalProgress().task("compiling programs of few layers") as report:
        found = list(models_on_instance(SHAPES, where, demand, instance, report))
    prices = published_prices()
    hour = prices.hour.get(instance)
    head = (
        f"{instance}: {where.cores(instance)} cores of {size(where.hbm_bytes)}, "
        f"{'no known price' if hour is None else f'{hour:.2f} {prices.currency} an hour'}; "
        f"{demand.dtype}, batch {demand.cache_rows}, {demand.max_len} positions\n"
    )
    headers = ["model", "tp", "a core", "first token", "step", "tokens/s", "fits", ""]
    rows = [
        [
            name,
            str(row.tp),
            size(row.needs) if row.needs else "-",
            *_times(row, demand.cache_rows),
            "yes" if row.serves else "no",
            row.why_not if row.use is None else "",
        ]
        for name, row in found
    ]
    emit(
        as_json,
        lambda: {
            "instance": instance,
            "target": where.name,
            "core_bytes": where.hbm_bytes,
            "price": hour,
            "models": {
                name: {
                    "tp": row.tp,
                    "serves": row.serves,
                    "why_not": row.why_not or None,
                    "core_bytes": row.needs or None,
                    "prompt_s": row.prompt_s or None,
                    "step_s": row.step_s or None,
                    "tokens_per_second": row.tokens_per_second(demand.cache_rows) or None,
                }
                for name, row in found
            },
        },
        lambda: [head, Table(headers, rows, 5), f"{_BOUNDS}\n"],
    )


def capacity_text(
    model: str,
    made: CapacityPlan,
    held: AdapterCapacity | None,
    changes: Sequence[FittingChange],
    prices: HourPrices,
) -> str:
    """The degrees with memory and times, the instances that serve with their prices, the choice."""
    where, demand = made.target, made.demand
    lines = [
        f"{model}, {demand.dtype}, batch {demand.cache_rows}, {demand.max_len} positions "
        f"on {where.name} ({where.core}, {size(where.hbm_bytes)} a core), rules {made.rules}",
        *_experts(made),
        "",
        render(_degrees(made), sys.stdout),
        *_instances(made, prices),
    ]
    if made.chosen is None:
        lines.append(f"no degree of {where.name} serves it")
    else:
        lines.append(_chosen(made, made.chosen))
    if changes:
        rows = [
            [item.flags, str(item.tp), size(item.core_bytes), "yes" if item.fits else "no"]
            for item in changes
        ]
        table = Table(["to fit, one of", "tp", "a core", "fits"], rows, 2)
        lines += ["", render(table, sys.stdout)]
    if held is not None:
        lines.append(held.text)
    return "\n".join(lines).rstrip() + "\n"


def _experts(made: CapacityPlan) -> list[str]:
    """The parameters of a mixture of experts, of which a token needs some."""
    for use in (item.use for item in made.degrees if item.use is not None):
        if use.active < use.parameters:
            shown = [f"{count / 1e9:.2f} billion" for count in (use.parameters, use.active)]
            stored = [size(each) for each in (use.weights_once, use.active_once)]
            return [
                f"{shown[0]} parameters, of which {shown[1]} compute a token; "
                f"{stored[0]} as they are stored, of which a token reads {stored[1]}"
            ]
    return []


def _degrees(made: CapacityPlan) -> Table:
    headers = ["tp", "weights", "kv", "activations", "a core", "first token", "step", "tokens/s"]
    rows = [
        [
            str(item.tp),
            *_cells(item, made.rules),
            *_times(item, made.demand.cache_rows),
            "yes" if item.serves else "no",
            # Both sizes are in the row and above it.
            "" if item.needs > made.target.hbm_bytes and item.use else item.why_not,
        ]
        for item in made.degrees
    ]
    return Table([*headers, "serves", ""], rows, 7)


def _cells(item: Degree, rules: str) -> list[str]:
    use = item.use
    if use is None:
        return ["-", "-", "-", size(item.needs) if item.needs else "-"]
    sizes = (use.weights, use.kv, use.activations)
    if rules == "aws":
        # The guide counts weights and caches, each once, and divides them.
        sizes = (use.weights_once // item.tp, use.kv_once // item.tp, 0)
    return [*map(size, sizes), size(item.needs)]


def _times(item: Degree, rows: int) -> list[str]:
    if not item.step_s:
        return ["-"] * 3
    return [
        duration(item.prompt_s) if item.prompt_s else "-",
        duration(item.step_s),
        f"{item.tokens_per_second(rows):.0f}",
    ]


def _instances(made: CapacityPlan, prices: HourPrices) -> list[str]:
    """The instance of each degree that serves, with the price of an hour."""
    rows = [
        [item.instance, str(item.tp), prices.of(item.instance), _copies(item)]
        for item in made.degrees
        if item.serves and item.instance
    ]
    lines = [f"{_BOUNDS}\n"]
    if rows:
        headers = ["instance", "tp", f"{published_prices().currency} an hour", "copies"]
        lines.append(render(Table(headers, rows, 3), sys.stdout))
    if prices.origin and rows:
        lines += ["prices:", *[f"  {part}" for part in prices.origin.split("; ")], ""]
    return lines


def _copies(item: Degree) -> str:
    return "-" if item.use is None else f"{100 * item.use.replicated(item.tp):+.1f} %"


def _chosen(made: CapacityPlan, chosen: Degree) -> str:
    cores = made.target.cores(made.instance) if made.instance else 0
    where = f"{made.instance} ({cores} cores)" if made.instance else "no single instance"
    text = f"tp {chosen.tp}: {chosen.why_not or where}\n"
    if chosen.use is None:
        return text
    if chosen.use.heads:
        text += f"heads: {chosen.use.heads}\n"
    if chosen.use.copies:
        text += f"{size(chosen.use.copies)} of a core's weights are second copies for prompts\n"
    rows = [[item.kind, str(item.count), str(item.bytes)] for item in chosen.use.collectives]
    if not rows:
        return text
    shown = Table(["collective of a decode step", "count", "bytes each"], rows, 2)
    return f"{text}\n{render(shown, sys.stdout)}"


def capacity_json(
    model: str,
    made: CapacityPlan,
    held: AdapterCapacity | None,
    changes: Sequence[FittingChange],
    prices: HourPrices,
) -> Json:
    """The same numbers: bytes, seconds, and prices of an hour, ``null`` where none is known."""

    def degree_json(item: Degree) -> dict[str, Json]:
        return item.to_json(made.demand.cache_rows, prices.hour.get(item.instance))

    return {
        "model": model,
        "target": made.target.name,
        "lnc": made.target.lnc,
        "core_bytes": made.target.hbm_bytes,
        "batch": made.demand.cache_rows,
        "seq": made.demand.max_len,
        "context": max(made.demand.context),
        "dtype": made.demand.dtype,
        "roll_window_cache": made.demand.roll_window_cache,
        "rules": made.rules,
        "degrees": [degree_json(item) for item in made.degrees],
        "chosen": degree_json(made.chosen) if made.chosen else None,
        "instance": made.instance or None,
        "price": prices.hour.get(made.instance),
        "prices": prices.origin or None,
        "to_fit": [asdict(item) for item in changes],
        "sources": dict(made.target.sources),
        **({} if held is None else {"adapters": dict(held.to_json())}),
    }
