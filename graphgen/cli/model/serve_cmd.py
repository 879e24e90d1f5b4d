"""``graphgen serve``: answer OpenAI's API, on this machine's CPU or its devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from graphgen.cli.console import note, note_remarks, write_json
from graphgen.cli.serve_flags import NO_FLAGS, ServeFlags, takes_serve_flags
from graphgen.errors import GraphgenError

if TYPE_CHECKING:
    from graphgen.runtime.distributed.process_group import ProcessGroup
    from graphgen.runtime.engine import Engine, EngineOptions

Model = Annotated[
    str | None,
    typer.Argument(
        help="A checkpoint folder, a GGUF file, an artifact folder, one that 'graphgen compile "
        "--weights' has written, or smollm2."
    ),
]
ModelOption = Annotated[
    str | None, typer.Option("--model", help="The same as MODEL, as vLLM's server has it.")
]
Name = Annotated[
    str | None,
    typer.Option("--served-model-name", help="Name of the model in the API; default: MODEL."),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Write the address to stdout as JSON; errors too.")
]
_NEEDED = ("starlette", "uvicorn", "prometheus_client")


@takes_serve_flags
def serve(
    model: Model = None,
    model_option: ModelOption = None,
    served_model_name: Name = None,
    flags: ServeFlags = NO_FLAGS,
    as_json: AsJson = False,
) -> None:
    """Serve a model over HTTP with OpenAI's API.

    Endpoints: /v1/completions, /v1/chat/completions, /v1/models, /health, /ready, /metrics,
    /openapi.json, and a page to try the model at /. SIGTERM ends the server when the accepted
    requests are answered, and says what quantized caches have clamped.

    \b
    Examples:
      graphgen serve smollm2
      graphgen serve smollm2 --dtype bf16 --artifact smollm2.served --max-num-seqs 4
      graphgen serve llama --max-model-len 4096 --tensor-parallel-size 2 --port 8080
      graphgen serve llama --speculative-model small-llama --num-speculative-tokens 4
      graphgen serve llama --lora mine=./my-adapter --max-loras 4 --enable-dynamic-multi-lora
      graphgen serve llama --override-neuron-config '{"quantized": true}'
    """
    name = _one_model(model, model_option)
    _check_installed()
    from graphgen.cli.launching.launched_inputs import end_process
    from graphgen.runtime.distributed.process_group import launched

    with launched(end_process) as group:
        ended_well = _serve(name, served_model_name or name, flags, group, as_json=as_json)
    if not ended_well:
        raise typer.Exit(1)


def _serve(
    model: str, name: str, flags: ServeFlags, group: ProcessGroup | None, *, as_json: bool
) -> bool:
    """Open MODEL and serve it under a name; False if the server has failed."""
    from graphgen.cli.launching.launched_inputs import launch_options
    from graphgen.runtime.distributed.led_session import lead
    from graphgen.runtime.engine import open_engine
    from graphgen.runtime.server.http_server import run_server
    from graphgen.runtime.server.server_options import ServerOptions
    from graphgen.runtime.terminal_progress import TerminalProgress

    for text in (*flags.notes, *_device_notes(model, flags.device)):
        note(text)
    options, sharing = _options(model, flags)
    if group is not None:
        options = launch_options(group, model, options)
    server = ServerOptions(name, prefix_sharing=sharing, **flags.server)  # pyright: ignore[reportArgumentType]
    # One token stands for the prompts, which are not known yet.
    progress = TerminalProgress()
    engine, _ = open_engine(model, options, lambda _: [[0]], 1, progress)
    note_remarks(engine.reports)

    def listening(url: str) -> None:
        if as_json:
            write_json({"url": url, "model": server.name})
        else:
            note(f"{server.name} is served at {url}")

    def work() -> bool:
        flags.speculation.give(engine, model, options.requested, progress)
        ended_well = run_server(engine, server, listening)
        _note_saturation(engine)
        return ended_well

    # Only process 0 of a launch listens.
    return lead(engine.session, work) is not False


def _options(model: str, flags: ServeFlags) -> tuple[EngineOptions, bool]:
    """The options to open MODEL with, and whether equal prompts are processed once."""
    from graphgen.runtime.aws.config.served_options import ServedFlags, served_options
    from graphgen.runtime.aws.config.served_override import read_override
    from graphgen.runtime.speculation.speculator import check_in_step

    model_flags = ServedFlags(**flags.model)  # pyright: ignore[reportArgumentType]
    options = served_options(model, model_flags)
    speculates = flags.speculation.is_asked
    if speculates:
        check_in_step(async_mode=options.async_mode)
        features = flags.speculation.features(model)
        options = replace(options, requested={**options.requested, **features})
    options = _with_slots(model, options, flags)
    return options, read_override(model_flags.override, speculates=speculates).prefix_sharing


def _device_notes(model: str, device: str) -> list[str]:
    """A remark where commands of vLLM's name a device that MODEL was not compiled for (GG0705)."""
    from graphgen.cli.machine.device_option import check_device
    from graphgen.runtime.artifact import is_for_device

    if device == "neuron" and not is_for_device(Path(model)):
        return ["--device neuron: the model is not compiled for it, and runs on this machine's CPU"]
    check_device(model, device)
    return []


def _with_slots(name: str, options: EngineOptions, flags: ServeFlags) -> EngineOptions:
    """The options with slots for the adapters that the flags name."""
    from graphgen.cli.adapters.adapter_options import AdapterFlags

    files = cast("Mapping[str, Path]", flags.server["adapters"])
    dynamic = bool(flags.server["dynamic_adapters"])
    return AdapterFlags(files).options(name, options, only=not dynamic)


def _note_saturation(engine: Engine) -> None:
    """Say how many numbers of quantized caches were clamped, of the last text of each row."""
    from graphgen.runtime.quantization.cache_saturation import cache_saturation

    found = cache_saturation(engine.session, engine.model.settings)
    if found is not None:
        note(f"caches saturated: {found.text}, at an end of their type")


def _one_model(argument: str | None, option: str | None) -> str:
    if argument is not None and option is not None and argument != option:
        raise typer.BadParameter(f"MODEL is {argument}, and --model is {option}: give one of them")
    name = argument or option
    if name is None:
        raise typer.BadParameter("MODEL is missing")
    return name


def _check_installed() -> None:
    """Refuse to start without the packages of the extra (GG0705)."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise GraphgenError(
            "GG0705",
            f"the server needs {', '.join(missing)}, which is not installed",
            help="pip install 'graphgen[serve]'",
        )
