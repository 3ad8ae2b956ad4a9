"""LlamaIndex's package for Anthropic beside the SDK that is installed: it is refused where every call would fail."""

import re
from importlib.metadata import version
from typing import Any

import anthropic
import pytest
from llama_index.core.llms import ChatMessage, MockLLM
from llama_index.llms.anthropic import Anthropic
from llama_index.llms.openai_like import OpenAILike

from headstay.emulator import Emulator
from headstay.errors import ConfigError
from llama_index_headstay import cache_aware
from llama_index_headstay.sdk_pins import check_sdk

MAJOR = int(anthropic.__version__.split(".", maxsplit=1)[0])


class Own(Anthropic):
    """A class of the application's own."""


def made(server: Emulator, kind: type[Anthropic], model: str) -> Anthropic:
    return kind(model=model, api_key="key-a", base_url=server.base_url, max_retries=0)


def fails(llm: Any) -> bool:
    """Whether a call fails before it is sent."""
    try:
        assert llm.chat([ChatMessage("Hello")]).message.content
    except TypeError:
        return True
    return False


@pytest.mark.parametrize("kind", [Anthropic, Own])
@pytest.mark.parametrize(("model", "works_below"), [("claude-sonnet-4-6", 1), ("claude-sonnet-5", 2)])
def test_an_llm_is_refused_exactly_where_every_call_fails(
    server: Emulator, kind: type[Anthropic], model: str, works_below: int
) -> None:
    llm = made(server, kind, model)
    broken = fails(llm)
    assert broken == (works_below <= MAJOR), "the package has changed: look at the extra's pin and at sdk_pins"
    assert len(server.exchanges) == (not broken)
    if not broken:
        check_sdk(llm)
        assert not fails(cache_aware(llm, on_break="record"))
        return
    for refuse in (check_sdk, cache_aware):
        with pytest.raises(ConfigError) as refused:
            refuse(llm)
        assert re.fullmatch(
            rf"llama-index-llms-anthropic {re.escape(version('llama-index-llms-anthropic'))} does not work with the "
            rf"anthropic SDK {re.escape(anthropic.__version__)}: .+\. What to do: "
            r'pip install "anthropic>=0\.120,<1"',
            str(refused.value),
        )
        assert ("no message can be converted (TypeError: " in str(refused.value)) == (MAJOR >= 2)
        assert ("it sends temperature, which" in str(refused.value)) == (model == "claude-sonnet-4-6")
    assert len(server.exchanges) == 0


def test_a_parameter_of_the_applications_own_is_not_the_packages_fault(server: Emulator) -> None:
    llm = Anthropic(model="claude-sonnet-5", api_key="key-a", additional_kwargs={"no_such_parameter": 1})
    if MAJOR < 2:
        check_sdk(llm)
        return
    with pytest.raises(ConfigError) as refused:
        check_sdk(llm)
    assert "no_such_parameter" not in str(refused.value)


def test_other_packages_are_never_refused() -> None:
    check_sdk(MockLLM())
    check_sdk(OpenAILike(model="m", api_key="none"))
