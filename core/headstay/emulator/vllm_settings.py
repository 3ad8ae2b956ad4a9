"""Which vLLM server is emulated."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Tokenize = Callable[[Mapping[str, Any]], Sequence[int]]
"""Maps the body of a chat request to the token ids of its prompt."""


@dataclass(frozen=True, kw_only=True)
class VLLMSettings:
    """A vLLM server of one text model with full attention, started with prefix caching and prompt token details.

    It answers to any model name, all of them the same model, except those of adapters.

    Attributes:
        model: What it calls its model.
        block: Tokens of a block (`--block-size`): 16 by default on CUDA, and at least 32 on a CPU.
        blocks: Blocks of the cache as vLLM counts them (`num_gpu_blocks`); one is a placeholder and never used.
        context: Most tokens of a prompt and its answer together (`--max-model-len`); they must fit into the cache.
        adapters: Names of LoRA adapters, which share no cached blocks with the model or each other.
        tokenize: Returns the token ids of a prompt, e.g. from a real server's `/tokenize`; None to estimate them.
    """

    model: str = "emulated"
    block: int = 32
    blocks: int = 2_049
    context: int = 32_768
    adapters: Sequence[str] = ()
    tokenize: Tokenize | None = None

    def __post_init__(self) -> None:
        if self.block < 1 or self.context < 1:
            raise ValueError(f"block and context must be at least 1, not {self.block} and {self.context}")
        needed = -(-self.context // self.block) + 1
        if self.blocks < needed:
            raise ValueError(
                f"a request of {self.context} tokens does not fit into {self.blocks} blocks of {self.block}: "
                f"give at least {needed} blocks, one of them the placeholder, or a smaller context"
            )
