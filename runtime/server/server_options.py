"""Options of the HTTP server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from graphgen.errors import GraphgenError
from graphgen.json_value import Json

# In place of hosts: any of them.
ANY_HOST: Final = "*"


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
        lora_dir: the folder whose adapters clients may load; ``None`` for none.
        allowed_hosts: names and addresses of the server, beside ``host`` and those of loopback;
            ``*`` for any.
        special_in_messages: special tokens that a message of a chat spells out become these
            tokens; else they are text, and only the chat template writes special tokens.
        template_arguments: names that the chat template reads, for requests that give no others.

    Raises:
        GraphgenError: GG0705 for a key that no client can send.
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
    lora_dir: Path | None = None
    allowed_hosts: tuple[str, ...] = ()
    special_in_messages: bool = False
    template_arguments: Mapping[str, Json] = field(default_factory=dict[str, Json])

    def __post_init__(self) -> None:
        """Refuse keys that are empty, and keys that no header can have."""
        for place, key in enumerate(self.api_keys, 1):
            one = f"API key {place} of {len(self.api_keys)}" if self.api_keys[1:] else "the API key"
            if not key.strip():
                what = f"{one} is empty: every client would know it"
                raise GraphgenError("GG0705", what, help="leave it out to serve without a key")
            if key != key.strip() or not (key.isascii() and key.isprintable()):
                what = f"{one} has spaces around it, or characters that no header has"
                raise GraphgenError("GG0705", what, help="use printable ASCII characters")
