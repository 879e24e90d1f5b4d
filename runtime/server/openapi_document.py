"""The OpenAPI document, made of the tables of fields that requests are checked by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphgen.json_value import Json
from graphgen.runtime.server.adapter_routes import LOAD_BODY, PATHS, UNLOAD_BODY
from graphgen.runtime.server.request_fields import CHAT_BODY, COMPLETION_BODY
from graphgen.runtime.server.response_request import RESPONSE_BODY
from graphgen.version import __version__

_ERROR: Mapping[str, Json] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
_USAGE: Mapping[str, Json] = {
    "type": "object",
    "required": ["prompt_tokens", "completion_tokens", "total_tokens"],
    "properties": {
        "prompt_tokens": {"type": "integer"},
        "completion_tokens": {"type": "integer"},
        "total_tokens": {"type": "integer"},
        "completion_tokens_details": {
            "type": "object",
            "properties": {
                "accepted_prediction_tokens": {"type": "integer"},
                "rejected_prediction_tokens": {"type": "integer"},
            },
        },
    },
}
_MODEL: Mapping[str, Json] = {
    "type": "object",
    "required": ["id", "object", "created", "owned_by", "max_model_len"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "model"},
        "created": {"type": "integer"},
        "owned_by": {"type": "string"},
        "max_model_len": {"type": "integer"},
        "root": {"type": "string", "description": "The files of an adapter."},
        "parent": {"type": "string", "description": "The model that an adapter is of."},
    },
}
_RESPONSE: Mapping[str, Json] = {
    "type": "object",
    "required": ["id", "object", "created_at", "status", "model", "output", "usage"],
    "properties": {
        "id": {"type": "string"},
        "object": {"const": "response"},
        "created_at": {"type": "integer"},
        "status": {"enum": ["completed", "incomplete"]},
        "model": {"type": "string"},
        "output": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["type", "id", "status"],
                "properties": {"type": {"enum": ["message", "reasoning", "function_call"]}},
            },
        },
    },
}
_STATUS: Mapping[str, Json] = {
    "type": "object",
    "required": ["status"],
    "properties": {"status": {"type": "string"}},
}
_ADAPTER_BODIES: Mapping[str, Json] = {
    "LoadAdapterRequest": LOAD_BODY.schema,
    "UnloadAdapterRequest": UNLOAD_BODY.schema,
}
# Errors of an endpoint that answers prompts, by status.
_FAULTS = {
    "400": "The body is wrong, or asks for what is not built.",
    "401": "The key is wrong.",
    "403": "Adapters are fixed.",
    "404": "There is no model or adapter of that name.",
    "408": "The body did not arrive in time.",
    "413": "The body is too long.",
    "415": "The body is not application/json.",
    "429": "The queue is full; the header Retry-After has the seconds to wait.",
    "500": "A launch failed.",
    "503": "The engine has ended.",
    "504": "The answer was not finished in time.",
}


def openapi_document(names: Sequence[str], *, keys: bool, changes: bool = False) -> Json:
    """The document of a server.

    Args:
        names: of the served model, then of its adapters.
        keys: clients send a bearer token.
        changes: clients may load and unload adapters.
    """
    model = names[0]
    security: Mapping[str, Json] = {"security": [{"bearer": []}]} if keys else {}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "graphgen serve",
            "version": __version__,
            "description": f"OpenAI's API for the model {model}.",
        },
        "paths": {
            "/v1/completions": _answering("Complete a text.", "Completion", security),
            "/v1/chat/completions": _answering("Answer a conversation.", "Chat", security),
            "/v1/responses": _answering("Answer a conversation by items.", "Response", security),
            "/v1/models": _reading(
                "List the model.",
                {"application/json": {"schema": _list_of(_MODEL)}},
                security,
                "401",
            ),
            **(_adapters(security) if changes else {}),
            "/v1/models/{name}": {
                **_reading("Describe the model.", _json("Model"), security, "401", "404"),
                "parameters": [
                    {
                        "name": "name",
                        "in": "path",
                        "required": True,
                        "schema": {"type": "string", "minLength": 1},
                        "example": model,
                    }
                ],
            },
            "/health": _reading("Say whether the engine runs.", _json("Status"), {}, "503"),
            "/ready": _reading("Say whether the warm-up is done.", _json("Status"), {}, "503"),
            "/metrics": _reading(
                "Metrics of Prometheus.", {"text/plain": {"schema": {"type": "string"}}}, {}
            ),
        },
        "components": {
            "schemas": {
                **_bodies(names),
                **(_ADAPTER_BODIES if changes else {}),
                "Model": _MODEL,
                "Status": _STATUS,
                "Error": _ERROR,
            },
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}} if keys else {},
        },
    }


def _bodies(names: Sequence[str]) -> Mapping[str, Json]:
    """Schemas of requests and answers, for the names of the model and its adapters."""
    return {
        "CompletionRequest": _named(COMPLETION_BODY.schema, names),
        "ChatRequest": _named(CHAT_BODY.schema, names),
        "ResponseRequest": _named(RESPONSE_BODY.schema, names),
        "CompletionAnswer": _answer("text_completion"),
        "ChatAnswer": _answer("chat.completion"),
        "ResponseAnswer": _RESPONSE,
    }


def _named(schema: Mapping[str, Json], names: Sequence[str]) -> Json:
    """The schema of a body with the names of the model and its adapters."""
    properties = schema["properties"]
    assert isinstance(properties, Mapping)
    model: Json = {"enum": [*names]} if len(names) > 1 else {"const": names[0]}
    return {**schema, "properties": {**properties, "model": model}}


def _adapters(security: Mapping[str, Json]) -> Mapping[str, Json]:
    """The endpoints that load and unload adapters, as vLLM has them."""
    texts = ("Load an adapter of this machine.", "Unload an adapter.")
    made: dict[str, Json] = {}
    for path, name, text in zip(PATHS, _ADAPTER_BODIES, texts, strict=True):
        done: Json = {"text/plain": {"schema": {"type": "string"}}}
        made[path] = {
            "post": {
                "summary": text,
                "operationId": path.rpartition("/")[2],
                "requestBody": {"required": True, "content": _json(name)},
                "responses": {
                    "200": {"description": "Done.", "content": done},
                    **_faults("400", "401", "403", "404", "413", "415"),
                },
                **security,
            }
        }
    return made


def _answer(kind: str) -> Json:
    choice: Json = {
        "type": "object",
        "required": ["index", "finish_reason", "logprobs"],
        "properties": {
            "index": {"type": "integer"},
            "finish_reason": {"enum": ["stop", "length", "tool_calls"]},
        },
    }
    return {
        "type": "object",
        "required": ["id", "object", "created", "model", "choices", "usage"],
        "properties": {
            "id": {"type": "string"},
            "object": {"const": kind},
            "created": {"type": "integer"},
            "model": {"type": "string"},
            "choices": {"type": "array", "items": choice, "minItems": 1},
            "usage": _USAGE,
        },
    }


def _list_of(item: Json) -> Json:
    return {
        "type": "object",
        "required": ["object", "data"],
        "properties": {"object": {"const": "list"}, "data": {"type": "array", "items": item}},
    }


def _json(name: str) -> Mapping[str, Json]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}


# OpenAPI 3.1 leaves open what the schema of an event stream describes; tools take it as that of one
# event, as OpenAPI 3.2 does.
_EVENT: Json = {
    "type": "object",
    "required": ["data"],
    "properties": {"data": {"type": "string"}},
}


def _answering(summary: str, name: str, security: Mapping[str, Json]) -> Json:
    """An endpoint that answers prompts."""
    content = {
        **_json(f"{name}Answer"),
        "text/event-stream": {"schema": _EVENT},
    }
    return {
        "post": {
            "summary": summary,
            "operationId": name.lower(),
            "requestBody": {"required": True, "content": _json(f"{name}Request")},
            "responses": {
                "200": {"description": "The answer, or its events.", "content": content},
                **_faults(*_FAULTS),
            },
            **security,
        }
    }


def _reading(
    summary: str, content: Mapping[str, Json], security: Mapping[str, Json], *faults: str
) -> Mapping[str, Json]:
    """An endpoint without a body."""
    # The states of /health and /ready have the same form with either status.
    other = {"503": {"description": "Not yet, or not any more.", "content": content}}
    errors = {**_faults(*faults), **({"503": other["503"]} if "503" in faults else {})}
    return {
        "get": {
            "summary": summary,
            "responses": {"200": {"description": "It.", "content": content}, **errors},
            **security,
        }
    }


def _faults(*statuses: str) -> Mapping[str, Json]:
    return {
        status: {"description": _FAULTS[status], "content": _json("Error")} for status in statuses
    }
