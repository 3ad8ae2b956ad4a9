"""What the tests beside the earlier SDKs share: an emulator, and the variables that point SDKs and LlamaIndex at it."""

import gc
import os
from collections.abc import Generator
from pathlib import Path

import pytest

from headstay import emulator


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Generator[emulator.Emulator]:
    """What the pages ask a reader to set up; its `exchanges` are what their blocks sent."""
    for name in list(os.environ):
        if name.startswith(("ANTHROPIC_", "OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    with emulator.serve() as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url)
        for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE"):
            monkeypatch.setenv(name, server.openai_url)
        for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
            monkeypatch.setenv(name, "none")
        yield server
    gc.collect()  # what the blocks left open warns here, where it is expected, and not in another test
