"""Errors as the Messages API words and shapes them."""

from typing import Any

_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class ApiError(Exception):
    """A request the emulated API refuses.

    Args:
        status: The HTTP status.
        message: What is wrong, as the API says it.
        kind: The error type; None for the usual one of the status.
    """

    def __init__(self, status: int, message: str, *, kind: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind if kind is not None else _KINDS.get(status, "api_error")

    def body(self, request_id: str) -> dict[str, Any]:
        """Return the error body, `{type, error: {type, message}, request_id}`."""
        return {
            "type": "error",
            "error": {"type": self.kind, "message": self.message},
            "request_id": request_id,
        }


def invalid(message: str) -> ApiError:
    """Return a 400 with a message."""
    return ApiError(400, message)
