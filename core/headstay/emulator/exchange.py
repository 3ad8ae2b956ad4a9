"""What passed between a client and the emulator, kept for the examiner to look at."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headstay.emulator.reply import Wire

_SECRET = frozenset({"authorization", "x-api-key", "api-key", "cookie", "proxy-authorization"})


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One request and its answer.

    Attributes:
        wire: The wire format.
        path: The URL path, without the query.
        workspace: A short digest of the API key; "" when the request carried none.
        body: The request body as received.
        headers: Request headers, names in lower case, secret values masked.
        status: The HTTP status of the answer.
        response: The final, not streamed form of the answer, with its usage, also when it was streamed;
            the error body when the request failed.
        started: When the request arrived, in seconds of the emulator's clock.
        first_event: When the answer began, in seconds of the emulator's clock.
    """

    wire: Wire
    path: str
    workspace: str
    body: Mapping[str, Any]
    headers: Mapping[str, str]
    status: int
    response: Mapping[str, Any]
    started: float
    first_event: float


def masked(headers: Mapping[str, str]) -> dict[str, str]:
    """Copy request headers with lower-case names and without the values of secret ones."""
    lowered = {name.lower(): value for name, value in headers.items()}
    return {name: "***" if name in _SECRET else value for name, value in lowered.items()}
