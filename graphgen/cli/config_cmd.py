"""``graphgen config``: attributes of AWS's configurations, their origin and their effect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from graphgen.atomic_write import read_regular
from graphgen.cli.command_table import Command
from graphgen.cli.console import emit, note, write_error
from graphgen.cli.shared_options import AsJson, TargetName
from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.limits import JSON_BYTES
from graphgen.read_file import is_folder

if TYPE_CHECKING:
    from graphgen.report.table import Table
    from graphgen.runtime.aws_config.config_report import ConfigReport

COMMAND: Final = Command("aws", "Show what AWS's configurations do here.")

CONFIG_FILE = "neuron_config.json"


def config(
    file: Annotated[
        str | None,
        typer.Argument(metavar="[FILE]", help=f"{CONFIG_FILE}, a folder with one, or attributes."),
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List every attribute.")] = False,
    owner: Annotated[
        str, typer.Option("--class", metavar="NAME", help="Of this class of configurations only.")
    ] = "",
    target: TargetName = "cpu",
    as_json: AsJson = False,
) -> None:
    """Show what the attributes of a configuration of NxD Inference do here.

    Each attribute is shown with its value, the place that it came from, and its effect on the
    target; then the passes that follow. Exit status 1 for a configuration with errors.

    \b
    Examples:
      graphgen config compiled/neuron_config.json
      graphgen config compiled --target trn2 --json
      graphgen config --list --class OnDeviceSamplingConfig
    """
    if list_all == (file is not None):
        raise typer.BadParameter("give either FILE or --list")
    if file is None:
        emit(as_json, lambda: _rows_json(owner), lambda: _rows(owner))
        return
    from graphgen.runtime.aws_config.config_report import report_of
    from graphgen.targets import find_target

    find_target(target)
    _known(owner)
    report = report_of(_read(file), owner, target)
    emit(as_json, lambda: _report_json(report), lambda: _report(report))
    for text in report.notes:
        note(text)
    for error in report.problems:
        write_error(error)
    if report.problems:
        raise typer.Exit(1)


def _read(file: str) -> dict[str, object]:
    """The JSON object of a file (GG0906)."""
    from graphgen.runtime.aws_config.config_json import read_object

    path = Path(file)
    path = path / CONFIG_FILE if is_folder(path) else path
    try:
        text = read_regular(path, JSON_BYTES).decode("utf-8")
    except (OSError, ValueError) as error:
        raise GraphgenError(
            "GG0906",
            f"cannot read the configuration: {error}",
            where=str(path),
            help=f"compile and InferenceConfig.save write {CONFIG_FILE}",
        ) from error
    try:
        return read_object(text)
    except GraphgenError as error:
        error.where = str(path)
        raise


def _known(owner: str) -> tuple[str, ...]:
    """The classes to show (GG0705)."""
    from graphgen.runtime.aws_config.attribute_table import owners

    if owner and owner not in owners():
        raise GraphgenError(
            "GG0705", f"--class {owner} is unknown", help=f"one of {', '.join(owners())}"
        )
    return (owner,) if owner else owners()


def _rows(owner: str) -> Table:
    """The table of attributes."""
    from graphgen.report.table import Table
    from graphgen.runtime.aws_config.attribute import effect_text
    from graphgen.runtime.aws_config.attribute_table import ATTRIBUTES
    from graphgen.runtime.aws_config.strict_config import default_text

    shown = [row for row in ATTRIBUTES if row.owner in _known(owner)]
    return Table(
        ["attribute", "values", "default", "on the CPU", "on Neuron targets"],
        [
            [
                f"{row.owner}.{row.name}",
                row.kind.noun,
                default_text(row),
                effect_text(row.cpu),
                effect_text(row.neuron) if row.neuron is not None else "the same",
            ]
            for row in shown
        ],
    )


def _rows_json(owner: str) -> list[Json]:
    from graphgen.runtime.aws_config.attribute import effect_text
    from graphgen.runtime.aws_config.attribute_table import ATTRIBUTES
    from graphgen.runtime.aws_config.strict_config import default_text

    return [
        {
            "class": row.owner,
            "attribute": row.name,
            "values": row.kind.noun,
            "default": default_text(row),
            "doc": row.doc,
            "source": row.source,
            "cpu": effect_text(row.effect("cpu")),
            "neuron": effect_text(row.effect("neuron")),
            "decision": row.decision,
            "replaces": row.replaces,
            "environment": row.environment,
        }
        for row in ATTRIBUTES
        if row.owner in _known(owner)
    ]


def _report(report: ConfigReport) -> list[str | Table]:
    from graphgen.report.table import Table

    made: list[str | Table] = [
        Table(
            [report.owner, "value", "from", f"effect on {report.target}"],
            [
                [line.name, json.dumps(line.value), line.origin, line.effect]
                for line in report.lines
            ],
        )
    ]
    if report.settings is not None:
        from graphgen.passes.inspect.catalog import sequence_table
        from graphgen.passes.pipelines import phases

        made.append(sequence_table(phases(report.settings)))
    if arguments := _arguments(report):
        made.append(Table(["program", "neuronx-cc"], list(arguments.items())))
    return made


def _report_json(report: ConfigReport) -> Json:
    pipeline: Json = None
    if report.settings is not None:
        from graphgen.passes.inspect.catalog import sequence_json
        from graphgen.passes.pipelines import phases

        pipeline = sequence_json(phases(report.settings))
    return {
        "class": report.owner,
        "target": report.target,
        "attributes": [
            {"name": line.name, "value": line.value, "from": line.origin, "effect": line.effect}
            for line in report.lines
        ],
        "notes": list(report.notes),
        "errors": [dict(error.to_json()) for error in report.problems],
        "pipeline": pipeline,
        "compiler_arguments": dict(_arguments(report)),
    }


def _arguments(report: ConfigReport) -> dict[str, str]:
    """The arguments of neuronx-cc by sub-model; none for the CPU, or with errors."""
    from graphgen.runtime.aws_config.neuron_config import NeuronConfig
    from graphgen.targets import find_target

    config, device = report.config, find_target(report.target).is_accelerator
    if report.settings is None or not device or not isinstance(config, NeuronConfig):
        return {}
    from graphgen.runtime.aws_nxdi.base_model import tags_of
    from graphgen.runtime.aws_nxdi.compiler_args import default_compiler_args

    return {tag: default_compiler_args(config, tag, report.target) for tag in tags_of(config)}
