"""An emulator that forgets between tests, on a clock that stands still, and SDK clients that talk to it."""

from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import pytest

from headstay.emulator import Emulator, ManualClock, serve


@pytest.fixture(scope="session")
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="session")
def shared_server(clock: ManualClock) -> Iterator[Emulator]:
    with serve(clock=clock) as running:
        yield running


@pytest.fixture
def server(shared_server: Emulator) -> Emulator:
    shared_server.reset()
    return shared_server


@pytest.fixture
def claude(server: Emulator) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(api_key="key-a", base_url=server.base_url, max_retries=0) as client:
        yield client


@pytest.fixture
def other_claude(server: Emulator) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(api_key="key-b", base_url=server.base_url, max_retries=0) as client:
        yield client


@pytest.fixture
def spent(claude: anthropic.Anthropic) -> Callable[..., tuple[int, int, int]]:
    """Send a request; return its uncached, written and read input tokens."""

    def send(**body: Any) -> tuple[int, int, int]:
        defaults: dict[str, Any] = {"model": "claude-sonnet-4-6", "max_tokens": 64}
        usage = claude.messages.create(**{**defaults, **body}).usage
        assert usage.cache_creation_input_tokens is not None
        assert usage.cache_read_input_tokens is not None
        return usage.input_tokens, usage.cache_creation_input_tokens, usage.cache_read_input_tokens

    return send
