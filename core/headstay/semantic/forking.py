"""A lock that a forked child gets anew: one that another thread held at the fork would never be let go of."""

import os
from threading import Lock
from weakref import WeakSet

_all: "WeakSet[ForkedLock]" = WeakSet()


class ForkedLock:
    """A lock for `with`, free in every forked child. Not for forking while it is held by the same thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        _all.add(self)

    def renew(self) -> None:
        """Be free, whoever held it."""
        self._lock = Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def _renew_all() -> None:
    for lock in list(_all):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
