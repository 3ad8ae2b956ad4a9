"""The `x-ratelimit-*` headers. Cached tokens count like any other (prompt-caching guide, seen 2026-11-29)."""

from collections import deque

REQUESTS_PER_MINUTE = 30_000
TOKENS_PER_MINUTE = 180_000_000
_MINUTE = 60.0


class RateWindow:
    """Counts requests and tokens of the last minute for each workspace. It reports; it never refuses."""

    def __init__(self) -> None:
        self._used: dict[str, deque[tuple[float, int]]] = {}
        self._spent: dict[str, int] = {}

    def count(self, workspace: str, tokens: int, now: float) -> dict[str, str]:
        """Count one request and return the headers of its answer.

        Args:
            workspace: Whose limits they are.
            tokens: All input tokens, whether read from the cache or not, and the output tokens.
            now: Seconds since the epoch.
        """
        used = self._used.setdefault(workspace, deque())
        spent = self._spent.get(workspace, 0) + tokens
        while used and now - used[0][0] >= _MINUTE:
            spent -= used.popleft()[1]
        used.append((now, tokens))
        self._spent[workspace] = spent
        wait = _MINUTE - (now - used[0][0])
        return {
            "x-ratelimit-limit-requests": str(REQUESTS_PER_MINUTE),
            "x-ratelimit-limit-tokens": str(TOKENS_PER_MINUTE),
            "x-ratelimit-remaining-requests": str(max(0, REQUESTS_PER_MINUTE - len(used))),
            "x-ratelimit-remaining-tokens": str(max(0, TOKENS_PER_MINUTE - spent)),
            "x-ratelimit-reset-requests": f"{wait:g}s",
            "x-ratelimit-reset-tokens": f"{wait:g}s",
        }

    def forget(self) -> None:
        """Forget all traffic."""
        self._used.clear()
        self._spent.clear()
