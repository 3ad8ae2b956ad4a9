"""A vLLM server, or a gateway before several: what it needs in a request beside the layout.

It speaks OpenAI's wire format and caches by itself, so there are no markers. Three things are left: a salt that keeps
tenants apart, a name that keeps what belongs together on one server of a fleet, and nothing it would refuse.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, cast
from uuid import uuid4

from headstay.canonical import digest
from headstay.errors import ConfigError
from headstay.providers.rules import VLLM, CacheRules

Session = Literal["conversation", "head"]

SALT = "cache_salt"
SALT_KEY = "HEADSTAY_SALT_KEY"
"""Environment variable with a secret that tenants' salts are made with; see `Engine`."""
_TOLERATED_BLOCKS = 4  # an expectation is an estimate only where a note was dropped; reads are exact to the block
_LARGEST_DEFAULT = 128  # tokens of a block by default on a CPU; the server at a URL may have another than we were told
_SHORTEST_KEY = 16
_HEADER = re.compile(r"[A-Za-z0-9_-]{1,100}")
_TAKEN = frozenset(
    {"authorization", "connection", "content-length", "content-type", "cookie", "host", "transfer-encoding"}
)


def check_header(setting: str, name: object) -> None:
    """Refuse what cannot be the name of a header of ours.

    Raises:
        ConfigError: The message names the setting.
    """
    if not isinstance(name, str) or not _HEADER.fullmatch(name) or name.lower() in _TAKEN:
        raise ConfigError(f"{setting}={name!r}: give the name of a header, like X-Session-ID")


@lru_cache(maxsize=64)
def _rules(block: int, in_place_system: bool) -> CacheRules:
    return replace(
        VLLM,
        min_tokens=block,
        step=block,
        in_place_system=in_place_system,
        several_system=in_place_system,  # else tools that follow the system text would follow its values too
        tolerated_tokens=max(_TOLERATED_BLOCKS * block, _LARGEST_DEFAULT),
    )


@dataclass(frozen=True, slots=True)
class Engine:
    """What is known of a server.

    Attributes:
        block: Tokens of a block of its cache. Only whole blocks are read.
        in_place_system: Whether its chat template takes a system message behind other messages.
        session_header: Name of the header that a router goes by, or None: none is sent.
        session: What the header names: the conversation, or its head. With the head all conversations that share it
            go to one server.
        salt_key: Secret that tenants' salts are made with, or empty: then they are made from the tenants' names.

    Raises:
        ConfigError: A value that cannot work.
    """

    block: int = 16
    in_place_system: bool = False
    session_header: str | None = "X-Session-ID"
    session: Session = "conversation"
    salt_key: bytes = b""

    def __post_init__(self) -> None:
        if self.block < 1:
            raise ConfigError(f"block={self.block}: give the tokens of a block, as the server's --block-size")
        if self.session not in ("conversation", "head"):
            raise ConfigError(f'session={self.session!r}: say "conversation" or "head"')
        if self.salt_key and len(self.salt_key) < _SHORTEST_KEY:
            raise ConfigError(f"salt_key: give at least {_SHORTEST_KEY} bytes of a secret that nobody can guess")
        if self.session_header is not None:
            check_header("session_header", self.session_header)

    @property
    def rules(self) -> CacheRules:
        """The rules of every model that it serves."""
        return _rules(self.block, self.in_place_system)

    def salt(self, tenant: str | None) -> str | None:
        """Return the salt of a tenant, or None where there is one tenant only.

        It goes into the hash of the first block, so tenants with different salts read nothing of each other
        (vllm 0.32.0, `v1/core/kv_cache_utils.py`, seen 2026-11-29). vLLM advises 256 bits that nobody can guess: give
        a key where others than this application can send requests to the server.
        """
        if tenant is None:
            return None
        key = self.salt_key
        if len(key) > hashlib.blake2b.MAX_KEY_SIZE:
            key = hashlib.blake2b(key).digest()
        return hashlib.blake2b(digest("salt", tenant), key=key, digest_size=32).hexdigest()

    def with_salt(self, body: Mapping[str, object], tenant: str | None) -> dict[str, object]:
        """Write a tenant's salt into a request; the application's own stays.

        Args:
            body: The SDK's keyword arguments: fields that OpenAI's API does not have stand under `extra_body`.
            tenant: Whose request it is.
        """
        given, salt = body.get("extra_body"), self.salt(tenant)
        extra = dict(cast("Mapping[str, object]", given)) if isinstance(given, Mapping) else dict[str, object]()
        if salt is None or body.get(SALT) or extra.get(SALT):
            return dict(body)
        return {**body, "extra_body": {**extra, SALT: salt}}

    def kept_apart(self, body: Mapping[str, object], tenant: Callable[[], str | None]) -> dict[str, object]:
        """Write the salt of a tenant who has to be asked for; where nobody can say, one that no other request has.

        Args:
            body: As in `with_salt`.
            tenant: Asks for the tenant, and may raise ConfigError.
        """
        try:
            return self.with_salt(body, tenant())
        except ConfigError:
            return self.with_salt(body, f"unknown-{uuid4().hex}")

    def with_session(self, body: Mapping[str, object], *, conversation: str, head: str) -> dict[str, object]:
        """Write the name that a router goes by into the headers of a request; the application's own stays.

        Args:
            body: The SDK's keyword arguments.
            conversation: Name of the conversation.
            head: Name of its head.
        """
        name = self.session_header
        given = cast("Mapping[str, str]", body.get("extra_headers") or {})
        if name is None or any(own.lower() == name.lower() for own in given):
            return dict(body)
        value = conversation if self.session == "conversation" else head
        return {**body, "extra_headers": {**given, name: value}}
