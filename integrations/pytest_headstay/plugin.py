"""The fixtures. It loads in every test run, so it imports headstay only when one of them is used."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from headstay.emulator import Emulator
    from pytest_headstay.conversations import PrefixRecorder

# The SDK's own variable, and the one where LangChain and LlamaIndex look first.
_ANTHROPIC = ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_URL")
_OPENAI = ("OPENAI_BASE_URL", "OPENAI_API_BASE")


@pytest.fixture
def provider_emulator(monkeypatch: pytest.MonkeyPatch) -> "Generator[Emulator]":
    """Run an emulated provider for one test: `base_url`, `openai_url`, `exchanges` and `clock`.

    Its caches are empty, and its clock stands still until it is advanced. While the test runs, the SDKs' environment
    variables name it, so that a client made without arguments needs no key and reaches nothing else.
    """
    from headstay.emulator import Emulator, ManualClock  # noqa: PLC0415 - only who uses the fixture pays for it

    running = Emulator(clock=ManualClock())
    try:
        running.start()
    except ImportError as problem:
        pytest.fail(f"provider_emulator: {problem}", pytrace=False)
    try:
        monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
        for name in _ANTHROPIC:
            monkeypatch.setenv(name, running.base_url)
        for name in _OPENAI:
            monkeypatch.setenv(name, running.openai_url)
        for name in ("NO_PROXY", "no_proxy"):  # a proxy does not reach this machine's loopback
            monkeypatch.setenv(name, "127.0.0.1,localhost")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        yield running
    finally:
        running.stop()


@pytest.fixture
def prefix_recorder(provider_emulator: "Emulator") -> "PrefixRecorder":
    """Record what reaches the emulator in one test, by conversation; for `assert_prefix_stable`."""
    from pytest_headstay.conversations import PrefixRecorder  # noqa: PLC0415 - only who uses the fixture pays for it

    return PrefixRecorder(provider_emulator)
