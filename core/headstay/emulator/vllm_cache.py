"""vLLM's prefix cache as pure decisions: what a request finds in the pool of blocks, takes from it and leaves there.

Typed from the source of vLLM 0.32.0, read 2026-11-29: hashes and the queue of free blocks from
`vllm/v1/core/kv_cache_utils.py`, the pool from `block_pool.py`, hits and the order of release from
`single_type_kv_cache_manager.py` and `kv_cache_manager.py`. It is the cache of a model with full attention in every
layer, without speculative decoding, offloading or a KV connector.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class VLLMRequest:
    """What the cache needs to know of a request.

    Attributes:
        prompt: The token ids of the prompt.
        answer: The token ids that the model will generate, an end-of-sequence token included.
        salt: `cache_salt`; "" for none.
        adapter: The LoRA adapter; "" for none.
    """

    prompt: Sequence[int]
    answer: Sequence[int] = ()
    salt: str = ""
    adapter: str = ""

    @property
    def computed(self) -> int:
        """Return how many tokens get an attention state: the last one that is generated does not."""
        return len(self.prompt) + max(0, len(self.answer) - 1)


@dataclass(frozen=True, kw_only=True)
class VLLMPool:
    """The pool of blocks between two requests; a block is free, or held by one request or more.

    Attributes:
        block: Tokens of a block.
        blocks: How many blocks there are, as vLLM counts them: one is a placeholder and never used.
        free: The free blocks in the order in which they are taken.
        digests: The hash of each block that is full and can be read, free or held.
        copies: The blocks of each hash, the one that is read first; equal blocks are not merged.
        holders: How many requests hold each block that is not free.
    """

    block: int
    blocks: int
    free: tuple[int, ...]
    digests: Mapping[int, bytes]
    copies: Mapping[bytes, tuple[int, ...]]
    holders: Mapping[int, int]

    @property
    def usage(self) -> float:
        """Return the share of blocks that are held, 0 to 1."""
        return 1 - len(self.free) / (self.blocks - 1)


@dataclass(frozen=True)
class Held:
    """What a request holds until it is finished.

    Attributes:
        blocks: Its blocks, in the order of its tokens.
        read: Tokens read from the cache.
        created: Tokens of the prompt that it put into the cache.
    """

    blocks: tuple[int, ...]
    read: int
    created: int


def empty_pool(*, block: int, blocks: int) -> VLLMPool:
    """Return a pool in which nothing is cached.

    Args:
        block: Tokens of a block.
        blocks: How many blocks, the placeholder included.

    Raises:
        ValueError: Not one block could be used.
    """
    if block < 1 or blocks < 2:
        raise ValueError(f"a pool needs blocks of 1 token or more, and 2 blocks or more; got {block} and {blocks}")
    return VLLMPool(block=block, blocks=blocks, free=tuple(range(1, blocks)), digests={}, copies={}, holders={})


def admit(pool: VLLMPool, request: VLLMRequest) -> tuple[VLLMPool, Held] | None:
    """Let a request begin: find what is cached, take blocks for the rest, cache those that fill up.

    What is found are the leading full blocks of the prompt, but never its last token: that one is computed again for
    the first token of the answer, and its whole block with it. A block that is taken loses what was cached in it.
    Blocks are readable as soon as they are planned, even by a request of the same step.

    Blocks of the answer are taken at once and not one by one; for requests that follow each other this is the same.

    Returns:
        The pool and what the request holds, or None while there is not enough room: then it waits.
    """
    chain = block_digests(request, pool.block)
    found = _found(pool, chain[: (len(request.prompt) - 1) // pool.block])
    still_free = frozenset(block for block in found if block not in pool.holders)
    free = tuple(block for block in pool.free if block not in still_free)
    missing = -(-request.computed // pool.block) - len(found)
    if missing > len(free):
        return None
    taken, free = free[:missing], free[missing:]
    blocks = (*found, *taken)
    filled = dict(zip(taken, chain[len(found) :], strict=False))
    read = len(found) * pool.block
    pool = _with_digests(_without_digests(pool, taken), filled)
    holders = dict(pool.holders)
    for block in blocks:
        holders[block] = holders.get(block, 0) + 1
    created = len(request.prompt) // pool.block * pool.block - read
    return replace(pool, free=free, holders=holders), Held(blocks, read, created)


def finish(pool: VLLMPool, held: Held) -> VLLMPool:
    """Let go of what a request holds.

    The tail of a request is evicted before its head, and blocks that hold nothing readable are taken first of all.
    """
    holders = dict(pool.holders)
    released: list[int] = []
    for block in reversed(held.blocks):
        holders[block] -= 1
        if not holders[block]:
            del holders[block]
            released.append(block)
    useless = tuple(block for block in released if block not in pool.digests)
    cached = tuple(block for block in released if block in pool.digests)
    return replace(pool, free=(*useless, *pool.free, *cached), holders=holders)


def block_digests(request: VLLMRequest, block: int) -> tuple[bytes, ...]:
    """Return the hash of each full block of computed tokens.

    Each hash covers the one before it, so that it stands for the whole prefix. The salt is part of the first block,
    the adapter of every one.
    """
    tokens = (*request.prompt, *request.answer)[: request.computed]
    digest = b""
    found: list[bytes] = []
    for start in range(0, len(tokens) - block + 1, block):
        salt = request.salt if start == 0 else ""
        content = repr((tokens[start : start + block], request.adapter, salt))
        digest = hashlib.blake2b(digest + content.encode(errors="replace"), digest_size=16).digest()
        found.append(digest)
    return tuple(found)


def _found(pool: VLLMPool, chain: Iterable[bytes]) -> tuple[int, ...]:
    found: list[int] = []
    for digest in chain:
        copies = pool.copies.get(digest)
        if copies is None:
            break
        found.append(copies[0])
    return tuple(found)


def _without_digests(pool: VLLMPool, taken: Iterable[int]) -> VLLMPool:
    """Evict what is cached in blocks that are taken."""
    digests, copies = dict(pool.digests), dict(pool.copies)
    for block in taken:
        digest = digests.pop(block, None)
        if digest is None:
            continue
        others = tuple(other for other in copies[digest] if other != block)
        if others:
            copies[digest] = others
        else:
            del copies[digest]
    return replace(pool, digests=digests, copies=copies)


def _with_digests(pool: VLLMPool, filled: Mapping[int, bytes]) -> VLLMPool:
    """Make full blocks readable; a copy of what is cached already stands behind it."""
    copies = dict(pool.copies)
    for block, digest in filled.items():
        copies[digest] = (*copies.get(digest, ()), block)
    return replace(pool, digests={**pool.digests, **filled}, copies=copies)
