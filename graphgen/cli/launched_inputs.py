"""Check options of a command in a launch, and share the inputs chosen by process 0."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from graphgen.cli.console import note, write_error
from graphgen.errors import GraphgenError

if TYPE_CHECKING:
    from graphgen.json_value import Json
    from graphgen.runtime.distributed.process_group import LaunchPlace, ProcessGroup
    from graphgen.runtime.engine import EngineOptions


@dataclass(frozen=True, slots=True)
class SharedInputs:
    """The inputs that decide on the sizes of programs; the same in every process.

    Attributes:
        texts: the prompts.
        chat: put each into the chat template.
        new_tokens: most tokens of an answer.
        template: arguments of the chat template.
    """

    texts: list[str]
    chat: bool
    new_tokens: int
    template: Mapping[str, Json]

    def of_first(self, group: ProcessGroup) -> SharedInputs:
        """The inputs that process 0 was given."""
        own = [self.texts, self.chat, self.new_tokens, self.template]
        given = tuple(group.shared_values("prompts", own))
        return SharedInputs(*cast("tuple[list[str], bool, int, Mapping[str, Json]]", given))


def refuse_in_launch(given: Mapping[str, object]) -> None:
    """Refuse options that several processes cannot share (GG0705).

    Args:
        given: values by option; false for those that are not given.
    """
    for name, value in given.items():
        if value:
            raise GraphgenError(
                "GG0705",
                f"{name} does not work in several processes",
                help="leave it out, or run without 'graphgen launch'",
            )


def check_model_options(
    model: str, options: EngineOptions, more: Mapping[str, object] | None = None
) -> None:
    """Refuse what several processes cannot share, ranks with a remainder among it (GG0705).

    Args:
        model: MODEL.
        options: to open it with; the ranks of an artifact are known when it is open.
        more: as for :func:`refuse_in_launch`.
    """
    from graphgen.lowering.cpu.processes import share_ranks
    from graphgen.runtime.artifact import is_artifact, is_for_device

    kept = options.artifact or Path(model)
    refuse_in_launch(
        {
            "an artifact for a device": is_for_device(kept),
            "--async-mode with --pp-degree": options.async_mode and options.compile.pp_degree > 1,
            **(more or {}),
        }
    )
    if is_artifact(kept):
        return
    if options.artifact is not None:
        raise GraphgenError(
            "GG0705",
            f"there is no artifact {kept}, and several processes do not make one",
            help="run the command without 'graphgen launch' first, with the same options",
        )
    share_ranks(options.compile.tp, options.compile.pp_degree)


def check_in_turn(group: ProcessGroup, check: Callable[[], None]) -> None:
    """Check the inputs of each process, process 0 first; it alone reports shared mistakes."""
    if group.place.index == 0:
        check()
    group.shared("checked", "")
    if group.place.index:
        check()


def launch_options(
    group: ProcessGroup,
    model: str,
    options: EngineOptions,
    more: Mapping[str, object] | None = None,
) -> EngineOptions:
    """The options of a launch; refuse options that processes cannot share (GG0705).

    Args:
        group: of the launch.
        model, options, more: as for :func:`check_model_options`.
    """
    options = in_stages(options)
    check_in_turn(group, lambda: check_model_options(model, options, more))
    return over_machines(group.place, model, options)


def over_machines(place: LaunchPlace, model: str, options: EngineOptions) -> EngineOptions:
    """The options with collectives in stages where the ranks of a model fill several machines.

    An artifact keeps the programs that it has, and ``--nodes`` counts where it is given.

    Args:
        place: of this process in the launch.
        model: MODEL.
        options: to open it with, stages of a pipeline among them.
    """
    from graphgen.runtime.artifact import is_artifact

    if "nodes" in options.compile.given or is_artifact(options.artifact or Path(model)):
        return options
    asked = options.compile
    return options.updated({"nodes": chosen_nodes(place.nodes, asked.tp, asked.pp_degree)})


def chosen_nodes(machines: int, ranks: int, stages: int = 1) -> int:
    """The value of ``--nodes`` that fits a launch, with a note where it is not 1.

    Args:
        machines: of the launch, which all ranks fill in order.
        ranks: of a stage.
        stages: of a pipeline.
    """
    nodes = machines_of_stage(machines, ranks, stages)
    if nodes > 1:
        note(f"collectives over {nodes} machines are made in stages: --nodes 1 turns it off")
    return nodes


def machines_of_stage(machines: int, ranks: int, stages: int) -> int:
    """Machines that each stage of a pipeline fills with several ranks; 1 where one does not."""
    each, rest = divmod(ranks * stages, machines)
    fills = not rest and each > 1 and ranks % each == 0
    return ranks // each if fills else 1


def in_stages(options: EngineOptions) -> EngineOptions:
    """The options with the stages that AWS's variable asks for (GG0705)."""
    from graphgen.runtime.distributed.launch_plan import stages_of_launch

    given = options.compile.pp_degree
    stages = stages_of_launch(given, os.environ)
    if stages == given:
        return options
    return options.updated({"pp_degree": stages})


def end_process(error: GraphgenError) -> None:
    """Print why no step can follow, and end: other threads may wait for ever."""
    write_error(error)
    sys.stderr.flush()
    os._exit(1)
