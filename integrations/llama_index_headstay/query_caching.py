"""How the answers of a query engine are kept, and for whom a query is answered."""

import logging
from dataclasses import dataclass

from headstay.errors import ConfigError
from headstay.semantic.cache import Cache
from headstay.semantic.control import current_names
from headstay.semantic.reasons import Reason
from llama_index_headstay.identity import Named, name_of

_MOST_SAID = 64

_said: set[str] = set()
_log = logging.getLogger("headstay.semantic")


def _say(line: str) -> None:
    """Log a line once."""
    if line not in _said and len(_said) < _MOST_SAID:
        _said.add(line)
        _log.warning("%s", line)


class UnnamedError(Exception):
    """The application did not say for whom, or for which documents, a query is answered.

    Args:
        reason: Why the query goes past the cache.
    """

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Caching:
    """How the answers of an engine are kept.

    Attributes:
        cache: Where.
        version: What they depend on beyond engine and question.
        tenant: Whose they are.
        user: The same within a tenant.
        name: Stands for the parts of the engine that show no content.
    """

    cache: Cache
    version: Named
    tenant: Named = None
    user: Named = None
    name: str | None = None

    def names(self) -> dict[str, str | None]:
        """Return tenant, user and version of the query under way; what `headstay.semantic.caching` says comes first.

        Raises:
            UnnamedError: A callable raised, or gave nothing.
        """
        said = current_names()
        found: dict[str, str | None] = {}
        for what in ("tenant", "user", "version"):
            given: Named = getattr(said, what) or getattr(self, what)
            try:
                found[what] = name_of(what, given) or None
            except ConfigError as problem:  # the application's callable; its call goes on
                _say(f"{problem}; the query went on without the cache")
                raise UnnamedError(Reason.INTERNAL_ERROR) from problem
            if found[what] is None and callable(given):
                if what != "version":
                    raise UnnamedError(Reason.NO_TENANT)
                _say("version= gave no version; the query went on without the cache")
                raise UnnamedError(Reason.INTERNAL_ERROR)
        return found
