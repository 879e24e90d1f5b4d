"""The endpoints that load and unload adapters while the server answers, as vLLM's server has them.

``POST /v1/load_lora_adapter {"lora_name": NAME, "lora_path": PATH}`` and ``POST
/v1/unload_lora_adapter {"lora_name": NAME}``. They name files of this machine, so that a server has
them only where its options say so, and finds those below one folder alone.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from graphgen.config.fields import ValueType, text
from graphgen.errors import GraphgenError
from graphgen.runtime.lora.loaded_adapters import LoadedAdapters
from graphgen.runtime.server.api_error import ApiError, refusal
from graphgen.runtime.server.field_kinds import BOOLEAN, body_field, read_body, record
from graphgen.runtime.server.request_log import LOG
from graphgen.runtime.server.routes import Service, read_json

# Characters of a name and of a path.
_LONGEST_NAME, _LONGEST_PATH = 256, 1024
_NAME = body_field(
    "lora_name",
    text(1, _LONGEST_NAME),
    "Name of the adapter, the model of requests.",
    required=True,
)
LOAD_BODY = record(
    (
        _NAME,
        body_field(
            "lora_path",
            text(1, _LONGEST_PATH),
            "Its folder or file, below the folder of --lora-dir.",
            required=True,
        ),
        body_field("load_inplace", BOOLEAN, "Take the place of the adapter of that name.", False),
    )
)
UNLOAD_BODY = record(
    (_NAME, body_field("lora_int_id", text(0, _LONGEST_NAME), "Accepted; no effect."))
)
PATHS = ("/v1/load_lora_adapter", "/v1/unload_lora_adapter")


def adapter_routes(service: Service) -> list[Route]:
    """The two endpoints."""

    async def load(request: Request) -> Response:
        adapters = _changeable(service)
        fields = await _read(request, LOAD_BODY)
        name = str(fields["lora_name"])
        path = await asyncio.to_thread(_found, service, str(fields["lora_path"]))
        if name == service.model.name:
            what = f"'{name}' is the name of the model itself"
            raise ApiError(400, what, param="lora_name", code="invalid_value")
        known = name in adapters.store.names
        if known and not fields["load_inplace"]:
            what = f"The adapter '{name}' is loaded already; unload it first"
            raise ApiError(400, what, param="lora_name", code="invalid_value")
        try:
            await asyncio.to_thread(adapters.check, path)
            if known:
                adapters.store.remove(name)
            await asyncio.to_thread(adapters.load, name, path)
        except GraphgenError as error:
            # The response lists the tensors that do not fit; the log has all of it.
            LOG.warning("an adapter was refused", extra={"facts": {"error": str(error)}})
            raise _refusal(error) from error
        return PlainTextResponse(f"Success: LoRA adapter '{name}' added successfully.")

    async def unload(request: Request) -> Response:
        adapters = _changeable(service)
        fields = await _read(request, UNLOAD_BODY)
        name = str(fields["lora_name"])
        try:
            adapters.store.remove(name)
        except GraphgenError as error:
            raise ApiError(404, error.what, param="lora_name", code="model_not_found") from error
        return PlainTextResponse(f"Success: LoRA adapter '{name}' removed successfully.")

    return [
        Route(path, endpoint, methods=["POST"])
        for path, endpoint in zip(PATHS, (load, unload), strict=True)
    ]


def _changeable(service: Service) -> LoadedAdapters:
    """The adapters of a server that lets clients change them (status 403)."""
    if service.adapters is None or not service.options.dynamic_adapters:
        what = "This server's adapters are fixed; start it with --enable-dynamic-multi-lora"
        raise ApiError(403, what, code="unsupported_operation")
    return service.adapters


def _found(service: Service, given: str) -> Path:
    """The adapter of a path, which is relative to the folder of adapters, or in it.

    Raises:
        ApiError: status 403 without such a folder; the same error for what is not there and for
            what is elsewhere, which says nothing about other files of this machine.
    """
    folder = service.options.lora_dir
    if folder is None:
        what = "This server loads no adapters of clients; start it with --lora-dir FOLDER"
        raise ApiError(403, what, code="unsupported_operation")
    with suppress(OSError, ValueError, RuntimeError):
        root = folder.resolve(strict=True)
        path = (root / given).resolve(strict=True)
        if path != root and path.is_relative_to(root):
            return path
    what = "There is no such adapter below the folder of --lora-dir"
    raise ApiError(404, what, param="lora_path", code="adapter_not_found")


async def _read(request: Request, kind: ValueType[dict[str, object]]) -> dict[str, object]:
    """The fields of a body, read in a thread as a large one takes long."""
    data = await request.body()
    return await asyncio.to_thread(lambda: read_body(kind, read_json(data)))


def _refusal(error: GraphgenError) -> ApiError:
    answer = refusal(error, "lora_path")
    if error.note:
        answer.message += f": {'; '.join(error.note.splitlines()[:5])}"
    return answer
