"""Write the environment variables of compiled programs as a shell script."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from graphgen.lowering.neuronx_cc.default_options import LONG
from graphgen.lowering.neuronx_cc.program_compiler import FLOAT8_VARIABLES, has_float8
from graphgen.lowering.neuronx_cc.program_plan import PlannedProgram
from graphgen.runtime.artifact.device_programs import DevicePrograms

_PAGES = "--hbm-scratchpad-page-size"
_ASYNC = "--enable-output-completion-notifications"


def runtime_variables(programs: DevicePrograms, planned: list[PlannedProgram]) -> Mapping[str, str]:
    """The variables by name, in the order in which they are exported.

    Sources: AWS's guides of Llama 405B on trn2 (cores, time-out, profiling, 8-bit floats), and NxD
    Inference's sources (scratchpad of long contexts, asynchronous execution).

    Args:
        programs: the model.
        planned: its programs.
    """
    device, ranks = programs.options.device, programs.module.ranks
    found = {
        "NEURON_RT_NUM_CORES": str(ranks),
        "NEURON_RT_VIRTUAL_CORE_SIZE": str(device.lnc),
        "NEURON_LOGICAL_NC_CONFIG": str(device.lnc),
        "NEURON_RT_EXEC_TIMEOUT": "600",
        "NEURON_RT_INSPECT_ENABLE": "0",
    }
    if any(has_float8(item) for item in planned):
        found |= FLOAT8_VARIABLES
    options = {
        placed.option.name: placed.option.value
        for item in planned
        for placed in item.command.options
    }
    if programs.built.settings.max_len >= LONG:
        found["NEURON_RT_DBG_SCRATCHPAD_ON_SINGLE_CORE"] = "1"
    if _PAGES in options:
        found["NEURON_SCRATCHPAD_PAGE_SIZE"] = options[_PAGES]
    if _ASYNC in options:
        found["NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS"] = "2"
        found["NEURON_RT_IO_RING_CACHE_SIZE"] = "2"
    return found


def environment_script(variables: Mapping[str, str]) -> str:
    """A script that exports the variables: ``. env.sh``."""
    head = "# Read it in the shell that runs the programs:  . ./env.sh"
    return "\n".join([head, *export_lines(variables), ""])


def export_lines(variables: Mapping[str, str]) -> list[str]:
    """A line of a shell for each variable."""
    return [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
