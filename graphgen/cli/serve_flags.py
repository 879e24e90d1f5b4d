"""Options of ``graphgen serve``: vLLM's server options under their names, and more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from graphgen.cli.compile_options import cache_flags, cache_options, field_flags
from graphgen.cli.flag_group import Command, option, options, takes_flags
from graphgen.cli.speculation.speculation_options import (
    NO_SPECULATION,
    SpeculationFlags,
    read_speculation,
    speculation_parameters,
)
from graphgen.errors import GraphgenError

# About the model.
_MODEL_FLAGS = options(
    option(int | None, "--max-num-seqs", min=1, help="Sequences at a time: 8."),
    option(
        int | None,
        "--max-model-len",
        min=1,
        help="Tokens of a prompt and its answer: the model's limit, at most 2048.",
    ),
    option(
        int | None, "--tensor-parallel-size", "-tp", min=1, help="Ranks to split the model over."
    ),
    option(
        int | None,
        "--pipeline-parallel-size",
        "-pp",
        "--pp-degree",
        min=1,
        help="Stages of a pipeline, each with as many ranks.",
    ),
    option(
        str | None, "--dtype", help="f32 (default), bf16, f16, or auto for the checkpoint's own."
    ),
    option(
        str,
        "--override-neuron-config",
        default="{}",
        metavar="JSON",
        help="Attributes of a NeuronConfig; 'graphgen config --list' lists them.",
    ),
    option(
        str | None,
        "--chunked-prefill-size",
        metavar="N,N,...",
        help="Split long prompts into chunks of this many tokens: 128.",
    ),
    option(
        int | None,
        "--block-size",
        min=1,
        help="Keep caches in blocks of this many tokens, which equal prefixes share.",
    ),
    option(
        int | None,
        "--num-gpu-blocks-override",
        min=1,
        help="Blocks of the cache: as many as all sequences need at their longest.",
    ),
    option(Path | None, "--artifact", help="Start from this folder; make it when it is not there."),
    option(Path | None, "--weights", help="Weights that 'graphgen shard-weights' has prepared."),
    option(str, "--device", default="auto", help="auto: what MODEL was compiled for; cpu; neuron."),
    option(bool, "--use-v2-block-manager", default=False, help="Accepted; no effect."),
)
_SERVER_FLAGS = options(
    option(str, "--host", default="127.0.0.1", help="Address to listen on."),
    option(int, "--port", default=8000, min=0, max=65535, help="Port; 0 for any free one."),
    option(
        list[str] | None,
        "--api-key",
        envvar="GRAPHGEN_API_KEY",
        help="Bearer token that clients must send; give it several times.",
    ),
    option(
        int,
        "--max-queue",
        default=256,
        min=0,
        help="Choices that wait for a row; more get status 429.",
    ),
    option(int, "--max-body", default=4 << 20, min=1, help="Bytes of a request."),
    option(
        int, "--max-prompt", default=0, min=0, help="Tokens of a prompt; 0 for the model's limit."
    ),
    option(
        float, "--request-timeout", default=0.0, min=0, help="Seconds of an answer; 0 for no limit."
    ),
    option(
        int,
        "--drain-timeout",
        default=0,
        min=0,
        help="Seconds that accepted requests have after SIGTERM; 0 for no limit.",
    ),
    option(
        list[str] | None,
        "--lora",
        "--lora-modules",
        metavar="NAME=PATH",
        help="An adapter, whose name requests give as their model; several times.",
    ),
    option(int, "--max-cpu-loras", default=100, min=1, help="Adapters that the host keeps."),
    option(
        bool,
        "--enable-dynamic-multi-lora",
        default=False,
        help="Let clients load adapters of this machine.",
    ),
    option(bool, "--log-prompts", default=False, help="Write prompts and answers to the log."),
)
Values = Mapping[str, object]
# Flags of adapters, which the server has under other names.
_ADAPTERS = {
    "max_cpu_loras": "host_adapters",
    "enable_dynamic_multi_lora": "dynamic_adapters",
}
# Fields of the compilation that adapters need.
_SLOTS = ("max_loras", "max_lora_rank")
# The field of the compilation that speculation needs.
_LENGTH = "speculation_length"
# The field of machines, which a launch knows.
_NODES = "nodes"


@dataclass(frozen=True, slots=True)
class ServeFlags:
    """The values of the flags.

    Attributes:
        model: those of :class:`~graphgen.runtime.aws.config.served_options.ServedFlags`.
        server: those of :class:`~graphgen.runtime.server.server_options.ServerOptions`.
        notes: remarks on flags without effect.
        device: auto, cpu or neuron.
        speculation: what proposes tokens.
    """

    model: Values
    server: Values
    notes: tuple[str, ...]
    speculation: SpeculationFlags = NO_SPECULATION
    device: str = "auto"


NO_FLAGS = ServeFlags({}, {}, ())


def takes_serve_flags(command: Command) -> Command:
    """Give a command these flags in place of its parameter ``flags``."""
    speculation = {**speculation_parameters(), **field_flags(_LENGTH, *_SLOTS, _NODES)}
    flags = {**_MODEL_FLAGS, **_SERVER_FLAGS, **cache_flags(), **speculation}
    return takes_flags("flags", flags, _collected)(command)


def _collected(given: Values) -> ServeFlags:
    from graphgen.cli.adapters.adapter_options import read_adapters
    from graphgen.cli.model.bucket_options import read_buckets

    chunks = cast("str | None", given["chunked_prefill_size"])
    model = {
        name: given[name]
        for name in ("max_num_seqs", "max_model_len", "tensor_parallel_size", "dtype")
    }
    model["pipeline_parallel_size"] = given["pipeline_parallel_size"]
    model |= {name: given[name] for name in ("artifact", "weights", "block_size", _NODES)}
    model["num_blocks"] = given["num_gpu_blocks_override"]
    model["override"] = given["override_neuron_config"]
    model["caches"] = cache_options(given) or None
    model["chunk"] = read_buckets("--chunked-prefill-size", chunks)
    speculation = read_speculation(given)
    model |= {
        _LENGTH: None,
        "verify_lengths": (),
        **speculation.requested({_LENGTH: given[_LENGTH]}),
    }
    own = {"api_key", "lora"}
    server = {_ADAPTERS.get(name, name): given[name] for name in _SERVER_FLAGS if name not in own}
    server["adapters"] = read_adapters("--lora", cast("list[str] | None", given["lora"]))
    model["slots"] = {name: given[name] for name in _SLOTS if given[name] is not None}
    server["api_keys"] = tuple(cast("list[str] | None", given["api_key"]) or ())
    return ServeFlags(model, server, _notes(given), speculation, str(given["device"]))


def _notes(given: Values) -> tuple[str, ...]:
    device = given["device"]
    if device not in ("auto", "cpu", "neuron"):
        raise GraphgenError(
            "GG0705", f"--device {device} is unknown", help="one of auto, cpu, neuron"
        )
    found: list[str] = []
    if given["use_v2_block_manager"]:
        found.append("--use-v2-block-manager has no effect: --block-size keeps caches in blocks")
    return tuple(found)
