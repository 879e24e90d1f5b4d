"""Make the ASGI application: endpoints, guard, errors and the engine's thread."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import cache
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from graphgen.json_value import Json
from graphgen.report import chat_page
from graphgen.runtime.server.adapter_routes import adapter_routes
from graphgen.runtime.server.answer_request import read_chat, read_completion
from graphgen.runtime.server.api_error import ApiError
from graphgen.runtime.server.openapi_document import openapi_document
from graphgen.runtime.server.request_guard import RequestGuard, error_response
from graphgen.runtime.server.request_log import RequestLog
from graphgen.runtime.server.response_request import read_response
from graphgen.runtime.server.routes import AnswerEndpoint, Service

_page = cache(chat_page)


async def _show_page(request: Request) -> HTMLResponse:
    page, policy = _page()
    headers = {
        "content-security-policy": policy,
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
    return HTMLResponse(page, headers=headers)


_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


# Endpoints of OpenAI and vLLM for models of other kinds.
_OTHER_MODELS = ("/v1/embeddings", "/v1/score", "/v1/rerank")


async def _no_such_model(request: Request) -> Response:
    what = f"{request.url.path} needs a model that embeds or scores texts, and no family of these "
    return error_response(ApiError(404, f"{what}is built", code="not_found"))


def make_application(service: Service, on_failure: Callable[[], None] = lambda: None) -> Starlette:
    """The application of a server; its lifespan starts and ends the engine's thread.

    Args:
        service: what endpoints share.
        on_failure: called on the event loop when the engine's thread ends by an exception.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        service.thread.start(on_failure)
        try:
            yield
        finally:
            service.thread.stop()
            service.readers.shutdown(wait=False, cancel_futures=True)

    routes = [
        Route("/v1/completions", AnswerEndpoint(service, read_completion), methods=["POST"]),
        Route("/v1/chat/completions", AnswerEndpoint(service, read_chat), methods=["POST"]),
        Route("/v1/responses", AnswerEndpoint(service, read_response), methods=["POST"]),
        *[Route(path, _no_such_model, methods=["POST"]) for path in _OTHER_MODELS],
        *(adapter_routes(service) if service.adapters is not None else ()),
        *_facts(service),
    ]
    paths = frozenset(route.path for route in routes)
    middleware = [
        Middleware(RequestLog, service.metrics.request, paths),
        Middleware(RequestGuard, service.options),
    ]
    handlers = {HTTPException: _http_error, ApiError: _api_error, Exception: _defect}
    return Starlette(
        routes=routes, middleware=middleware, exception_handlers=handlers, lifespan=lifespan
    )


def _facts(service: Service) -> list[Route]:
    """The endpoints without a body."""

    async def models(request: Request) -> Response:
        names = service.model.names
        return JSONResponse({"object": "list", "data": [_model(service, name) for name in names]})

    async def model(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in service.model.names:
            raise service.model.unknown(name)
        return JSONResponse(_model(service, name))

    async def health(request: Request) -> Response:
        alive = service.thread.failure is None
        return JSONResponse({"status": "ok" if alive else "failed"}, 200 if alive else 503)

    async def ready(request: Request) -> Response:
        ready = service.thread.ready and service.thread.failure is None
        return JSONResponse({"status": "ready" if ready else "starting"}, 200 if ready else 503)

    async def metrics(request: Request) -> Response:
        return Response(service.metrics.text(), media_type=_PROMETHEUS)

    async def openapi(request: Request) -> Response:
        keys = bool(service.options.api_keys)
        changes = service.adapters is not None and service.options.dynamic_adapters
        document = openapi_document(service.model.names, keys=keys, changes=changes)
        return JSONResponse(document)

    return [
        Route("/", _show_page),
        Route("/openapi.json", openapi),
        Route("/v1/models", models),
        Route("/v1/models/{name:path}", model),
        Route("/health", health),
        Route("/ready", ready),
        Route("/metrics", metrics),
    ]


def _model(service: Service, name: str) -> Json:
    """The model, or the model with an adapter, whose ``root`` is its files, as vLLM has it."""
    model = service.model
    path = None if model.adapters is None else model.adapters().get(name)
    adapter: dict[str, Json] = {} if path is None else {"root": str(path), "parent": model.name}
    return {
        "id": name,
        "object": "model",
        "created": model.created,
        "owned_by": "graphgen",
        "max_model_len": model.limit,
        **adapter,
    }


async def _http_error(request: Request, error: Exception) -> Response:
    """Starlette's own errors (404, 405) in OpenAI's form."""
    assert isinstance(error, HTTPException)
    code = HTTPStatus(error.status_code).name.lower()
    what = f"{error.detail}: {request.method} {request.url.path[:200]}"
    return error_response(ApiError(error.status_code, what, code=code, headers=error.headers))


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error_response(error)


async def _defect(request: Request, error: Exception) -> Response:
    """The answer to a defect of the server, which the log shows."""
    return error_response(ApiError(500, "The server failed", code="internal_error"))
