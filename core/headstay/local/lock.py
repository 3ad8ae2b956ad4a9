"""A lock between processes that ends with its holder, however that ends."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from headstay.errors import LocalError


class Held(Exception):  # noqa: N818 - an answer, not a fault
    """Another process holds the lock."""


@contextmanager
def hold(path: Path) -> Generator[None]:
    """Hold a lock file for as long as the block runs; the file stays, the lock does not.

    Raises:
        Held: Another process holds it.
        LocalError: The file cannot be made.
    """
    fcntl = cast("Any", import_module("fcntl"))  # not on Windows, where nothing is installed or started
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise LocalError(f"{path}: cannot be made: {problem.strerror or problem}") from problem
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            raise Held(str(path)) from problem
        yield
    finally:
        os.close(handle)
