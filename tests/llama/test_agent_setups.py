"""Where LlamaIndex's Anthropic class works, the hostile agent is played on it, too."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(Path(__file__).parents[2] / "bench"))
    bench: Any = import_module("llama_agent")


@pytest.mark.parametrize("setup", bench.SETUPS.values(), ids=lambda setup: str(setup.model))
def test_every_setup_works_here(setup: Any) -> None:
    assert setup.works
    assert setup.rates.input > setup.rates.read > 0


def test_the_benchmark_says_what_it_played_and_that_promises_are_met(capsys: pytest.CaptureFixture[str]) -> None:
    bench.main(["--threads", "2", "--longest", "3", "--setup", "anthropic", "--seed", "5"])
    told = capsys.readouterr().out
    assert "2 threads, 6 turns" in told
    assert "seed 5" in told
    assert told.count("met (share >= 0.98") == 2  # streaming, and not
    assert "MISSED" not in told
    assert told.endswith("answers as those of the plain agent: yes\n")
