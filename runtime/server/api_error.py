"""Errors of the API: a status and OpenAI's error object."""

from __future__ import annotations

from collections.abc import Mapping

from graphgen.errors import GraphgenError
from graphgen.json_value import Json

INVALID_REQUEST = "invalid_request_error"
# Statuses whose type is not :data:`INVALID_REQUEST`.
_TYPES = {401: "authentication_error", 429: "rate_limit_error"}


class ApiError(Exception):
    """An answer that is an error.

    Args:
        status: of HTTP.
        message: for a person: the wrong value and the values that are right.
        param: name of the wrong field; ``None`` where no field is at fault.
        code: for programs.
        headers: of the response, beside those that every response has.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def to_json(self) -> Json:
        """OpenAI's error object: ``{"error": {"message", "type", "param", "code"}}``."""
        kind = "server_error" if self.status >= 500 else _TYPES.get(self.status, INVALID_REQUEST)
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": error}


# Codes of errors of the engine that are faults of a request, as OpenAI names them.
_CODES = {"GG0701": "context_length_exceeded", "GG0702": "empty_prompt"}


def refusal(error: GraphgenError, param: str | None = None) -> ApiError:
    """The answer to a request that the engine refuses: status 400.

    Args:
        error: that the engine raised.
        param: the field at fault, if it is known.
    """
    message = f"{error.what}; {error.help}" if error.help else error.what
    return ApiError(400, message, param=param, code=_CODES.get(error.code, error.code))
