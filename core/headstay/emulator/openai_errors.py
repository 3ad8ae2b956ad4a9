"""OpenAI's error answers, and the checks of a request body that every field shares."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast


class ApiError(Exception):
    """An answer of the form `{"error": {"message", "type", "param", "code"}}`.

    Args:
        message: What is wrong, naming the parameter.
        status: The HTTP status.
        kind: The error's `type`.
        param: The path of the parameter, e.g. `messages[0].content`.
        code: The error's `code`.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind
        self.param = param
        self.code = code

    def body(self) -> dict[str, Any]:
        """Return the JSON body."""
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return {"error": error}


def unsupported(param: str) -> ApiError:
    """Return the error for a parameter that the model of the request does not have."""
    return ApiError(f"{param} is not supported on this model", param=param, code="invalid_parameter")


def invalid(param: str, value: object, allowed: Sequence[str]) -> ApiError:
    """Return the error for a value outside the list of allowed ones."""
    listed = ", ".join(f"'{name}'" for name in allowed)
    message = f"Invalid value: '{value}'. Supported values are: {listed}."
    return ApiError(message, param=param, code="invalid_value")


def missing(param: str) -> ApiError:
    """Return the error for a required parameter that is absent."""
    message = f"Missing required parameter: '{param}'."
    return ApiError(message, param=param, code="missing_required_parameter")


def fields(listed: str) -> frozenset[str]:
    """Return a set of field names written as one text with spaces between them."""
    return frozenset(listed.split())


def known_only(value: Mapping[str, Any], allowed: Collection[str], path: str = "") -> None:
    """Refuse a parameter the API does not know, such as `cache_control`.

    Raises:
        ApiError: Naming the first unknown parameter.
    """
    for name in value:
        if name not in allowed:
            param = f"{path}.{name}" if path else name
            raise ApiError(f"Unknown parameter: '{param}'.", param=param, code="unknown_parameter")


def mapping(value: object, path: str) -> Mapping[str, Any]:
    """Return a value that must be an object."""
    if not isinstance(value, Mapping):
        raise _wrong_type(path, "an object", value)
    return cast("Mapping[str, Any]", value)


def sequence(value: object, path: str) -> Sequence[Any]:
    """Return a value that must be an array."""
    if not isinstance(value, list):
        raise _wrong_type(path, "an array", value)
    return cast("Sequence[Any]", value)


def string(value: object, path: str) -> str:
    """Return a value that must be a string."""
    if not isinstance(value, str):
        raise _wrong_type(path, "a string", value)
    return value


def required(value: Mapping[str, Any], name: str, path: str) -> Any:
    """Return a field that must be there and not null."""
    found = value.get(name)
    if found is None:
        raise missing(f"{path}.{name}" if path else name)
    return found


def one_of(value: object, allowed: Sequence[str], path: str) -> str:
    """Return a value that must be one of some strings."""
    if not isinstance(value, str) or value not in allowed:
        raise invalid(path, value, allowed)
    return value


_JSON_NAMES: Mapping[type, str] = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "an integer",
}


def _wrong_type(path: str, expected: str, value: object) -> ApiError:
    got = "null" if value is None else _JSON_NAMES.get(type(value), "a number")
    message = f"Invalid type for '{path}': expected {expected}, but got {got} instead."
    return ApiError(message, param=path, code="invalid_type")
