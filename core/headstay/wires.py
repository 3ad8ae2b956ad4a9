"""One door to the provider modules: read a body of any wire, and write a plan into it."""

from collections.abc import Mapping

from headstay.layout import Plan
from headstay.prompt import Prompt, Wire
from headstay.providers import anthropic, openai
from headstay.providers.rules import CacheRules


def parse(body: Mapping[str, object], wire: Wire) -> Prompt:
    """Read a request body.

    Args:
        body: The JSON object posted, or the SDK's keyword arguments.
        wire: Its wire format.

    Raises:
        WireError: The body is not of that format.
    """
    if wire == "anthropic-messages":
        return anthropic.parse(body)
    return openai.parse(body, wire=wire)


def render(body: Mapping[str, object], prompt: Prompt, plan: Plan, rules: CacheRules) -> dict[str, object]:
    """Write a plan into the body that `prompt` was read from; the body is not changed."""
    if prompt.wire == "anthropic-messages":
        return anthropic.render(body, prompt, plan)
    return openai.render(body, prompt, plan, rules)
