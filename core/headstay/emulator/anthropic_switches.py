"""How the emulator decides the Anthropic rules whose evidence conflicts."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class AnthropicSwitches:
    """Choices for contested rules.

    Attributes:
        thinking_mismatch: What happens to a returned thinking block whose conversation changed, when the request
            does not say: "error" is the default in the SDK's types (anthropic 2.14.0) and on Bedrock's page
            "Preserved thinking"; public copies of the vendor's pages also show "drop_block". "allow" shows the
            block all the same and reports it, as the API does where the check is not enforced.
        speed_keeps_tools: False keys whole entries by `speed` (the isolation row of the caching page); True keeps
            the tools tier when only `speed` changes (its invalidation table). Both seen 2026-11-29.
        thinking_rekeys: The tiers that a change of `thinking` or `output_config.effort` gives up: "messages", or
            "all" of them; the page says "by model" for tools and system.
    """

    thinking_mismatch: Literal["error", "drop_block", "allow"] = "error"
    speed_keeps_tools: bool = False
    thinking_rekeys: Literal["messages", "all"] = "messages"
