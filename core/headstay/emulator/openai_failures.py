"""Failures a test asked for, in OpenAI's form."""

from headstay.emulator.openai_errors import ApiError
from headstay.emulator.state import Failure

_KINDS = {
    400: ("invalid_request_error", None, "The request was refused on purpose."),
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    403: ("invalid_request_error", "permission_denied", "You do not have access to this resource."),
    404: ("invalid_request_error", "model_not_found", "The model does not exist or you cannot use it."),
    429: ("requests", "rate_limit_exceeded", "Rate limit reached. Please try again later."),
    503: ("server_error", "server_is_overloaded", "The engine is currently overloaded, try again later."),
}


def failed(failure: Failure) -> ApiError:
    """Return the error answer of a failure."""
    default = ("server_error", None, "The server had an error while processing your request.")
    kind, code, message = _KINDS.get(failure.status, default)
    if failure.kind is not None:
        kind = failure.kind
    return ApiError(message, status=failure.status, kind=kind, code=code)
