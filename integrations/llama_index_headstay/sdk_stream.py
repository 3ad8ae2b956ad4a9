"""A stream of an SDK, watched: each event is noted, and the call is accounted for however the stream ends."""

from contextlib import suppress
from typing import Any, Protocol, Self


class Watcher(Protocol):
    """Who follows a stream."""

    def note(self, event: Any) -> None:
        """Note one event."""
        ...

    def end(self, error: BaseException | None, *, closed: bool = False) -> None:
        """Account for the call, once."""
        ...


class _Watched:
    """What both kinds of stream share: they are the SDK's own in everything else.

    Args:
        stream: The SDK's stream.
        watcher: Who follows it.
    """

    def __init__(self, stream: Any, watcher: Watcher) -> None:
        self._stream = stream
        self._watcher = watcher
        self._open = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_stream"], name)

    def _ended(self, error: BaseException | None, *, closed: bool = False) -> None:
        if self._open:
            self._open = False
            self._watcher.end(error, closed=closed)


class WatchedStream(_Watched):
    """A stream read in a thread."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        try:
            event = next(self._stream)
        except StopIteration:
            self._ended(None)
            raise
        except BaseException as problem:
            self._ended(problem)
            raise
        self._watcher.note(event)
        return event

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it; what was not read is not accounted for as if it were."""
        self._ended(None, closed=True)
        self._stream.close()

    def __del__(self) -> None:
        if self.__dict__.get("_open"):  # left by a reader who wants no more
            with suppress(Exception):
                self.close()


class WatchedAsyncStream(_Watched):
    """A stream read in an event loop."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            event = await anext(self._stream)
        except StopAsyncIteration:
            self._ended(None)
            raise
        except BaseException as problem:
            self._ended(problem)
            raise
        self._watcher.note(event)
        return event

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close it; what was not read is not accounted for as if it were."""
        self._ended(None, closed=True)
        await self._stream.close()

    def __del__(self) -> None:
        if self.__dict__.get("_open"):
            with suppress(Exception):
                self._ended(None, closed=True)


def watched_stream(answer: Any, watcher: Watcher) -> Any:
    """Return a watched stream; None where an answer is no stream.

    Args:
        answer: What an SDK's method returned.
        watcher: Who follows it.
    """
    if hasattr(answer, "__anext__"):
        return WatchedAsyncStream(answer, watcher)
    return WatchedStream(answer, watcher) if hasattr(answer, "__next__") else None
