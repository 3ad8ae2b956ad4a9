"""Settings for the OpenAI rules that sources disagree about, or that depend on the account."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class OpenAISwitches:
    """How the emulator decides where the public sources leave room.

    Attributes:
        implicit_developer_reuse: Whether, in implicit mode on GPT-5.6 and later, the end of the leading
            developer block becomes readable although nobody marked it. The prompt-caching guide says no ("a
            shared prefix is not always a cached prefix"), one replay on api.openai.com says yes; both seen
            2026-11-29. Either way the changing tail is written again on each call.
        lookup: "guide" looks at the first 2 and the latest 50 explicit markers, and in implicit mode also at
            the implicit breakpoint, 20 earlier message endings and the end of the leading developer block.
            "sdk" looks at the latest 80 breakpoints of any kind, as the docstrings of openai 3.57.0 put it.
        mode_in_key: Whether a switch between implicit and explicit mode hides what the other mode wrote.
        shards: Whether models before GPT-5.6 live on several machines that a request is routed to.
        machines: How many machines there are.
        shard_requests_per_minute: Requests a minute of one head and one `prompt_cache_key` that one machine
            takes before the next ones overflow. The guide says about 15.
        fingerprint_by_machine: Whether each machine has a `system_fingerprint` of its own. The reference says only that
            it stands for the configuration of the backend.
        seed: Seed of the routing, so that runs repeat.
        zero_data_retention: Whether the organization has zero data retention: then `prompt_cache_retention`
            defaults to `in_memory`, otherwise to `24h` where the model has it.
    """

    implicit_developer_reuse: bool = False
    lookup: Literal["guide", "sdk"] = "guide"
    mode_in_key: bool = True
    shards: bool = True
    machines: int = 64
    shard_requests_per_minute: int = 15
    fingerprint_by_machine: bool = False
    seed: int = 0
    zero_data_retention: bool = False

    def __post_init__(self) -> None:
        if self.machines < 1 or self.shard_requests_per_minute < 1:
            raise ValueError("machines and shard_requests_per_minute must be at least 1")
