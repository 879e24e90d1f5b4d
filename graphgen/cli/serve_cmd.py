"""``graphgen serve``: answer OpenAI's API, on this machine's CPU or its devices."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import typer

from graphgen.cli.command_table import Command
from graphgen.cli.console import note, note_remarks, write_json
from graphgen.cli.flags import (
    NO_OPTIONS,
    CommandFunction,
    named_flag,
    options,
    with_compile_flags,
    with_flags,
)
from graphgen.cli.model_flags import TRUST_FLAG
from graphgen.cli.speculation_flags import (
    NO_SPECULATION,
    SpeculationFlags,
    read_speculation,
    speculation_parameters,
)
from graphgen.config.compile_config import CompileConfig
from graphgen.config.option_groups import ADAPTERS, CACHES, PROGRAMS, SERVER
from graphgen.errors import GraphgenError

if TYPE_CHECKING:
    from graphgen.json_value import Json
    from graphgen.runtime.distributed.process_group import ProcessGroup
    from graphgen.runtime.engine import Engine, EngineOptions

COMMAND: Final = Command("model", "Answer requests of OpenAI's API over HTTP.", order=3)


# About the model.
_MODEL_FLAGS = options(
    named_flag(int | None, "--max-num-seqs", min=1, help="Sequences at a time: 8."),
    named_flag(
        int | None,
        "--max-model-len",
        min=1,
        help="Tokens of a prompt and its answer: the model's limit, at most 2048.",
    ),
    named_flag(
        str | None, "--dtype", help="f32 (default), bf16, f16, or auto for the checkpoint's own."
    ),
    named_flag(
        str,
        "--override-neuron-config",
        default="{}",
        metavar="JSON",
        help="Attributes of a NeuronConfig; 'graphgen config --list' lists them.",
    ),
    named_flag(
        str | None,
        "--chunked-prefill-size",
        metavar="N,N,...",
        help="Split long prompts into chunks of this many tokens: 128.",
        rich_help_panel=PROGRAMS,
    ),
    named_flag(
        int | None,
        "--num-gpu-blocks-override",
        min=1,
        help="Blocks of the cache: as many as all sequences need at their longest.",
        rich_help_panel=CACHES,
    ),
    named_flag(
        Path | None, "--artifact", help="Start from this folder; make it when it is not there."
    ),
    TRUST_FLAG,
    named_flag(
        Path | None,
        "--weights",
        help="Weights that 'graphgen shard-weights' has prepared.",
        rich_help_panel=PROGRAMS,
    ),
    named_flag(
        str, "--device", default="auto", help="auto: what MODEL was compiled for; cpu; neuron."
    ),
    named_flag(bool, "--use-v2-block-manager", default=False, help="Accepted; no effect."),
)
_SERVER_FLAGS = options(
    named_flag(str, "--host", default="127.0.0.1", help="Address to listen on."),
    named_flag(int, "--port", default=8000, min=0, max=65535, help="Port; 0 for any free one."),
    named_flag(
        list[str] | None,
        "--allowed-hosts",
        metavar="HOST,HOST,...",
        help="Names of the server for clients, beside --host and those of loopback; '*' for any.",
    ),
    named_flag(
        list[str] | None,
        "--api-key",
        help="Bearer token that clients must send; several times for several. Also "
        "GRAPHGEN_API_KEY.",
    ),
    named_flag(
        Path | None,
        "--api-key-file",
        help="File with a key a line, which the list of processes does not show.",
    ),
    named_flag(
        int,
        "--max-queue",
        default=256,
        min=0,
        help="Choices that wait for a row; more get status 429.",
    ),
    named_flag(int, "--max-body", default=4 << 20, min=1, help="Bytes of a request."),
    named_flag(
        int, "--max-prompt", default=0, min=0, help="Tokens of a prompt; 0 for the model's limit."
    ),
    named_flag(
        float, "--request-timeout", default=0.0, min=0, help="Seconds of an answer; 0 for no limit."
    ),
    named_flag(
        int,
        "--drain-timeout",
        default=0,
        min=0,
        help="Seconds that accepted requests have after SIGTERM; 0 for no limit.",
    ),
    named_flag(
        list[str] | None,
        "--lora",
        "--lora-modules",
        metavar="NAME=PATH",
        help="An adapter, whose name requests give as their model; several times.",
        rich_help_panel=ADAPTERS,
    ),
    named_flag(
        int,
        "--max-cpu-loras",
        default=100,
        min=1,
        help="Adapters that the host keeps.",
        rich_help_panel=ADAPTERS,
    ),
    named_flag(
        bool,
        "--enable-dynamic-multi-lora",
        default=False,
        help="Let clients load adapters, from the folder of --lora-dir.",
        rich_help_panel=ADAPTERS,
    ),
    named_flag(
        Path | None,
        "--lora-dir",
        help="Folder whose adapters clients may load.",
        rich_help_panel=ADAPTERS,
    ),
    named_flag(
        str,
        "--special-tokens-in-messages",
        default="text",
        metavar="text|special",
        help="Read special tokens in messages of chats as text, or as tokens.",
    ),
    named_flag(
        str | None,
        "--chat-template-kwargs",
        metavar="JSON",
        help="Object of names that the chat template reads, for requests without them.",
    ),
    named_flag(bool, "--log-prompts", default=False, help="Write prompts and answers to the log."),
    group=SERVER,
)
Values = Mapping[str, object]
# Flags of adapters, which the server has under other names.
_ADAPTERS = {
    "max_cpu_loras": "host_adapters",
    "enable_dynamic_multi_lora": "dynamic_adapters",
}
# The environment variable of keys, and the bytes of a file of them.
_KEY = "GRAPHGEN_API_KEY"
_MOST_KEYS = 1 << 20


@dataclass(frozen=True, slots=True)
class ServeFlags:
    """The values of the flags.

    Attributes:
        model: those of :class:`~graphgen.runtime.aws_config.served_options.ServedFlags`.
        server: those of :class:`~graphgen.runtime.server.server_options.ServerOptions`.
        compiled: options of the compilation that the server's own flags give.
        notes: remarks on flags without effect.
        device: auto, cpu or neuron.
        speculation: what proposes tokens.
        trust_artifacts: load compiled programs that are not signed, too.
    """

    model: Values
    server: Values
    compiled: Values
    notes: tuple[str, ...]
    speculation: SpeculationFlags = NO_SPECULATION
    device: str = "auto"
    trust_artifacts: bool = False


NO_FLAGS = ServeFlags({}, {}, {}, ())


def with_serve_flags(command: CommandFunction) -> CommandFunction:
    """Give a command these flags in place of its parameter ``flags``."""
    flags = {**_MODEL_FLAGS, **_SERVER_FLAGS, **speculation_parameters()}
    return with_flags("flags", flags, _collected)(command)


def _collected(given: Values) -> ServeFlags:
    from graphgen.cli.model_flags import read_adapters, read_buckets
    from graphgen.runtime.aws_config.served_options import element_type

    chunks = cast("str | None", given["chunked_prefill_size"])
    model = {name: given[name] for name in ("max_num_seqs", "max_model_len", "weights")}
    model["override"] = given["override_neuron_config"]
    model["chunk"] = read_buckets("--chunked-prefill-size", chunks)
    model["artifact"] = given["artifact"] or _stated_artifact()
    compiled = {
        "dtype": element_type(cast("str | None", given["dtype"])),
        "cache_blocks": given["num_gpu_blocks_override"],
    }
    own = {"api_key", "api_key_file", "allowed_hosts", "lora", "special_tokens_in_messages"}
    own |= {"chat_template_kwargs"}
    server = {_ADAPTERS.get(name, name): given[name] for name in _SERVER_FLAGS if name not in own}
    server["adapters"] = read_adapters("--lora", cast("list[str] | None", given["lora"]))
    server["api_keys"] = _api_keys(given)
    server["allowed_hosts"] = _hosts(given)
    server["special_in_messages"] = _special_in_messages(given)
    server["template_arguments"] = _template_arguments(given)
    device, trust = str(given["device"]), bool(given["trust_artifacts"])
    speculation = read_speculation(given)
    return ServeFlags(model, server, compiled, _notes(given), speculation, device, trust)


def _stated_artifact() -> Path | None:
    """The folder that AWS's variable names, if a server runs its programs."""
    from graphgen.runtime.aws_config.served_options import stated_artifact

    folder, remarks = stated_artifact(os.environ)
    for text in remarks:
        note(text)
    return folder


def _api_keys(given: Values) -> tuple[str, ...]:
    """The keys of the flags, of the file, and of the environment if there are no others.

    Raises:
        GraphgenError: GG0705 for a file that cannot be read, and for an empty variable.
    """
    from graphgen.atomic_write import read_regular

    keys = list(cast("list[str] | None", given["api_key"]) or ())
    file = cast("Path | None", given["api_key_file"])
    if file is not None:
        try:
            text = read_regular(file, _MOST_KEYS).decode()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not a text"
            raise GraphgenError("GG0705", f"--api-key-file {file}: {reason}") from error
        keys += text.removesuffix("\n").split("\n")
    variable = os.environ.get(_KEY)
    if variable is not None and not variable.strip():
        what = f"the environment variable {_KEY} is empty: every client would know the key"
        raise GraphgenError("GG0705", what, help="unset it to serve without a key")
    return tuple(keys or (variable or "").split())


def _hosts(given: Values) -> tuple[str, ...]:
    """The names of --allowed-hosts (GG0705 for an empty one)."""
    lists = cast("list[str] | None", given["allowed_hosts"]) or []
    hosts = tuple(name.strip() for text in lists for name in text.split(","))
    wrong = [name for name in hosts if not name or "/" in name or name != name.split(maxsplit=1)[0]]
    if wrong:
        what = f"--allowed-hosts has '{wrong[0]}', which is not a host"
        raise GraphgenError("GG0705", what, help="names or addresses without a scheme or a port")
    return hosts


def _special_in_messages(given: Values) -> bool:
    kind = given["special_tokens_in_messages"]
    if kind not in ("text", "special"):
        what = f"--special-tokens-in-messages {kind} is unknown"
        raise GraphgenError("GG0705", what, help="text or special")
    return kind == "special"


def _template_arguments(given: Values) -> Mapping[str, Json]:
    """The object of --chat-template-kwargs (GG0705)."""
    from graphgen.json_value import JsonError, parse_json
    from graphgen.runtime.tokenizer.chat_template import check_arguments

    text = cast("str | None", given["chat_template_kwargs"])
    if text is None:
        return {}
    try:
        found = parse_json(text)
    except JsonError as error:
        what = f"--chat-template-kwargs: {error}"
        raise GraphgenError("GG0705", what, help='such as {"enable_thinking": false}') from error
    if not isinstance(found, Mapping):
        what = "--chat-template-kwargs is not an object of JSON"
        raise GraphgenError("GG0705", what, help='such as {"enable_thinking": false}')
    arguments = cast("Mapping[str, Json]", found)
    check_arguments(arguments)
    return arguments


def _notes(given: Values) -> tuple[str, ...]:
    from graphgen.runtime.aws_config.environment import environment_notes

    device = given["device"]
    if device not in ("auto", "cpu", "neuron"):
        raise GraphgenError(
            "GG0705", f"--device {device} is unknown", help="one of auto, cpu, neuron"
        )
    found = [*environment_notes(os.environ)]
    if given["use_v2_block_manager"]:
        found.append("--use-v2-block-manager has no effect: --block-size keeps caches in blocks")
    if given["api_key"]:
        found.append(
            f"--api-key is visible in the list of processes; --api-key-file and {_KEY} are not"
        )
    if given["enable_dynamic_multi_lora"] and given["lora_dir"] is None:
        found.append("clients can unload adapters, and load none: --lora-dir is missing")
    return tuple(found)


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


# Requests take turns after each step, and the element type has names of vLLM's.
@with_compile_flags(without=("dtype", "steps_per_launch"), defaults={"tp": None}, served=True)
@with_serve_flags
def serve(
    model: Model = None,
    model_option: ModelOption = None,
    served_model_name: Name = None,
    compile_options: CompileConfig = NO_OPTIONS,
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
    from graphgen.cli.launched_inputs import end_process
    from graphgen.runtime.distributed.process_group import launched

    with launched(end_process) as group:
        named = (name, served_model_name or name)
        ended_well = _serve(named, compile_options, flags, group, as_json=as_json)
    if not ended_well:
        raise typer.Exit(1)


def _serve(
    named: tuple[str, str],
    asked: CompileConfig,
    flags: ServeFlags,
    group: ProcessGroup | None,
    *,
    as_json: bool,
) -> bool:
    """Open MODEL and serve it under a name; False if the server has failed."""
    from graphgen.cli.launched_inputs import launch_options
    from graphgen.runtime.distributed.led_session import lead
    from graphgen.runtime.engine import open_engine
    from graphgen.runtime.progress import TerminalProgress
    from graphgen.runtime.server.connections import check_address
    from graphgen.runtime.server.http_server import run_server
    from graphgen.runtime.server.server_options import ServerOptions

    model, name = named
    server = ServerOptions(name, **flags.server)  # pyright: ignore[reportArgumentType]
    for text in (*flags.notes, *_device_notes(model, flags.device)):
        note(text)
    if group is None or group.place.index == 0:
        # Only process 0 of a launch listens. The model may take minutes to load.
        check_address(server.host, server.port)
    options, sharing = _options(model, asked, flags)
    if group is not None:
        options = launch_options(group, model, options)
    server = replace(server, prefix_sharing=sharing)
    # One token stands for the prompts, which are not known yet.
    progress = TerminalProgress()
    engine, _ = open_engine(model, options, lambda _: [[0]], 1, progress)
    note_remarks(engine.reports)

    def listening(url: str) -> None:
        note(f"{server.name} warms up; {url}/ready answers 200 when it is done")

    def ready(url: str) -> None:
        if as_json:
            write_json({"url": url, "model": server.name})
        else:
            note(f"{server.name} is served at {url}")

    def work() -> bool:
        flags.speculation.give(engine, model, options.compile, progress)
        ended_well = run_server(engine, server, listening, ready)
        _note_saturation(engine)
        return ended_well

    return lead(engine.session, work) is not False


def _options(model: str, asked: CompileConfig, flags: ServeFlags) -> tuple[EngineOptions, bool]:
    """The options to open MODEL with, and whether equal prompts are processed once."""
    from graphgen.runtime.aws_config.served_options import (
        ServedFlags,
        is_fused_folder,
        served_options,
    )
    from graphgen.runtime.aws_config.served_override import read_override
    from graphgen.runtime.speculation.speculator import check_in_step

    folder = cast("Path | None", flags.model["artifact"])
    if folder is not None and is_fused_folder(folder):
        raise GraphgenError(
            "GG0705",
            f"the programs in {folder} propose by themselves, for graphgen generate",
            help="leave --artifact out: the server proposes with --speculative-model",
        )
    asked = asked.updated({**flags.compiled, **flags.speculation.requested(asked)})
    model_flags = ServedFlags(compile=asked, **flags.model)  # pyright: ignore[reportArgumentType]
    options = served_options(model, model_flags)
    options = replace(options, trust_artifacts=flags.trust_artifacts)
    speculates = flags.speculation.is_asked
    if speculates:
        check_in_step(async_mode=options.async_mode)
        options = options.updated(flags.speculation.features(model))
    options = _with_slots(model, options, flags)
    override = read_override(model_flags.override, speculates=speculates)
    for text in override.notes:
        note(text)
    return options, override.prefix_sharing


def _device_notes(model: str, device: str) -> list[str]:
    """A remark where commands of vLLM's name a device that MODEL was not compiled for (GG0705)."""
    from graphgen.cli.model_flags import check_device
    from graphgen.runtime.artifact import is_for_device

    if device == "neuron" and not is_for_device(Path(model)):
        return ["--device neuron: the model is not compiled for it, and runs on this machine's CPU"]
    check_device(model, device)
    return []


def _with_slots(name: str, options: EngineOptions, flags: ServeFlags) -> EngineOptions:
    """The options with slots for the adapters that the flags name."""
    from graphgen.cli.model_flags import AdapterFlags

    files = cast("Mapping[str, Path]", flags.server["adapters"])
    dynamic = bool(flags.server["dynamic_adapters"])
    return AdapterFlags(files).options(name, options, only=not dynamic)


def _note_saturation(engine: Engine) -> None:
    """Say how many numbers of quantized caches were clamped, of the last text of each row."""
    from graphgen.runtime.accuracy.cache_saturation import cache_saturation

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
            help="pip install 'graphgen-compiler[serve]'",
        )
