"""The error answers of a vLLM server (0.32.0, recorded 2026-11-29)."""

from collections.abc import Mapping
from typing import Any

from headstay.emulator.shape import mapping
from headstay.emulator.state import Failure

_KINDS: Mapping[int, str] = {
    400: "BadRequestError",
    401: "Unauthorized",
    404: "NotFoundError",
    500: "InternalServerError",
    503: "ServiceUnavailableError",
}


class VLLMError(Exception):
    """An answer of the form `{"error": {"message", "type", "param", "code"}}`; the code is the HTTP status.

    Args:
        message: What is wrong.
        status: The HTTP status.
        kind: The error's `type`; None for the usual one of the status.
        param: The parameter.
    """

    def __init__(self, message: str, *, status: int = 400, kind: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind or _KINDS.get(status, "InternalServerError" if status >= 500 else "BadRequestError")
        self.param = param

    def body(self) -> dict[str, Any]:
        """Return the JSON body."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}}


def refused(message: str, param: str, value: int | None = None) -> VLLMError:
    """Return the error for a parameter that vLLM's own checks refuse; its message ends with the parameter."""
    shown = f"parameter={param}" if value is None else f"parameter={param}, value={value}"
    return VLLMError(f"{message} ({shown})", param=param)


def malformed(param: str, kind: str, message: str, found: object) -> VLLMError:
    """Return the error for a value of the wrong shape, as the server's framework words it."""
    shown = f"<dict of {len(mapping(found))} items>" if mapping(found) or found == {} else str(found)
    detail = {"type": kind, "loc": f"body.{param}" if param else "body", "msg": message, "input": shown}
    return VLLMError(f"1 validation error:\n  {detail}", kind="Bad Request", param=detail["loc"])


def failed(failure: Failure) -> VLLMError:
    """Return the error answer of a failure that a test asked for."""
    message = "The engine failed on purpose." if failure.status >= 500 else "The request was refused on purpose."
    return VLLMError(message, status=failure.status, kind=failure.kind)
