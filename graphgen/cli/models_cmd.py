"""``graphgen models``: the models whose configuration is known by name, or one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import emit
from graphgen.cli.shared_options import AsJson

if TYPE_CHECKING:
    from graphgen.json_value import Json

COMMAND: Final = Command("neuron", "List the models that plan, build and cost know by name.")


def models(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One model; none lists all.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the models that plan, build and cost know by name, or show one's configuration.

    The source of a configuration is the page of a published checkpoint that a package names, or the
    class of transformers whose defaults it is; - where it is the published one and neither states
    it. Names may have other cases and ends such as -instruct. Other models of the same families are
    given by their config.json, or a folder that has one.

    \b
    Examples:
      graphgen models
      graphgen models qwen3-4b
      graphgen models --json
    """
    from graphgen.models import SHAPES, SOURCES, shape_name
    from graphgen.models.registry import known_shape
    from graphgen.report.table import Table

    if name is not None:
        shape, key = known_shape(name), shape_name(name)
        facts: dict[str, Json] = {
            "name": key,
            "parameters": _parameters(key),
            "source": SOURCES.get(key),
            "config": cast("Json", dict(shape)),
        }
        emit(as_json, lambda: facts, lambda: _one(facts))
        return
    rows = [(key, str(shape["model_type"]), _parameters(key)) for key, shape in SHAPES.items()]
    emit(
        as_json,
        lambda: [
            {"name": key, "family": family, "parameters": count, "source": SOURCES.get(key)}
            for key, family, count in rows
        ],
        lambda: [
            Table(
                ["model", "parameters", "family", "source"],
                [
                    [key, f"{count / 1e9:.2f} B", family, _short(SOURCES.get(key))]
                    for key, family, count in rows
                ],
                1,
            ),
            "other models: MODEL is a config.json, or a folder that has one\n",
        ],
    )


def _one(facts: dict[str, Json]) -> str:
    import json

    source = f"source: {facts['source'] or '-'}"
    text = json.dumps(facts["config"], indent=1)
    return f"{facts['name']}, {facts['parameters']:,} parameters; {source}\n{text}\n"


def _short(source: str | None) -> str:
    """The source for a table: a page of the hub without its host and file."""
    hub, file = "https://huggingface.co/", "/blob/main/config.json"
    return "-" if source is None else source.removeprefix(hub).removesuffix(file)


def _parameters(name: str) -> int:
    from graphgen.ir import dtype
    from graphgen.lowering.plan.measure import parameter_counts
    from graphgen.models import SHAPES, build

    return parameter_counts(build(SHAPES[name], dtype("bf16"), phases=("decode",))).total
