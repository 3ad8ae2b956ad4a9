"""The environment of these tests is one that the extras allow, and `check_sdk` takes it."""

import importlib.util
import re
from importlib.metadata import requires, version
from pathlib import Path

import pytest
from llama_index.llms.anthropic import Anthropic
from llama_index.llms.openai import OpenAI, OpenAIResponses

from llama_index_headstay.sdk_pins import check_sdk

PINS = Path(__file__).parent / "pins.txt"


def test_what_is_installed_is_what_is_pinned() -> None:
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", PINS.read_text(encoding="utf-8"), re.MULTILINE))
    assert len(pins) > 20
    assert {name: version(name) for name in pins} == pins


@pytest.mark.parametrize("name", ["langchain", "langchain_core", "langgraph"])
def test_langchain_is_not_there(name: str) -> None:
    assert importlib.util.find_spec(name) is None


def test_the_packages_agree_with_their_sdks() -> None:
    (wanted,) = [line for line in requires("llama-index-llms-openai") or () if line.startswith("openai")]
    assert wanted.startswith("openai<3")
    assert version("openai").split(".")[0] == "2"
    for model in ("claude-sonnet-4-6", "claude-opus-4-1", "claude-haiku-4-5", "claude-sonnet-5", "claude-opus-5-5"):
        check_sdk(Anthropic(model=model, api_key="none"))
    check_sdk(Anthropic(model="claude-sonnet-4-6", api_key="none", additional_kwargs={"top_p": 0.5, "top_k": 5}))
    check_sdk(OpenAI(model="gpt-5.6-terra", api_key="none"))
    check_sdk(OpenAIResponses(model="gpt-5.6-terra", api_key="none"))
