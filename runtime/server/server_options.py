"""Options of the HTTP server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Options of the HTTP server; those of the model are the engine's.

    Attributes:
        name: of the model in the API.
        host: address to listen on.
        port: to listen on; 0 for any free one.
        api_keys: bearer tokens of ``/v1``; empty for no check.
        max_queue: largest number of choices that wait for a row; more are refused with 429.
        max_body: largest number of bytes of a body.
        max_prompt: largest number of tokens of a prompt; 0 for what the model takes.
        request_timeout: seconds until an answer ends with an error; 0 for no limit.
        read_timeout: seconds for a client to send a request.
        drain_timeout: seconds that accepted requests have after SIGTERM; 0 for no limit.
        prefix_sharing: process what prompts have in common once.
        log_prompts: write prompts and answers to the log.
        adapters: files of the adapters that are loaded at first, by name.
        host_adapters: adapters that the host keeps prepared; the others stay in files.
        dynamic_adapters: clients may load and unload adapters.
    """

    name: str
    host: str = "127.0.0.1"
    port: int = 8000
    api_keys: tuple[str, ...] = ()
    max_queue: int = 256
    max_body: int = 4 << 20
    max_prompt: int = 0
    request_timeout: float = 0.0
    read_timeout: float = 30.0
    drain_timeout: float = 0.0
    prefix_sharing: bool = True
    log_prompts: bool = False
    adapters: Mapping[str, Path] = field(default_factory=dict[str, Path])
    host_adapters: int = 100
    dynamic_adapters: bool = False
