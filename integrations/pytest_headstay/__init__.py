"""headstay for pytest: an emulated provider as a fixture, and an assertion that the prompt prefix stays."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_headstay.conversations import PrefixRecorder
    from pytest_headstay.stable import Allowed, allowed, assert_prefix_stable

_HOME = {
    "Allowed": "pytest_headstay.stable",
    "PrefixRecorder": "pytest_headstay.conversations",
    "allowed": "pytest_headstay.stable",
    "assert_prefix_stable": "pytest_headstay.stable",
}

__all__ = ["Allowed", "PrefixRecorder", "allowed", "assert_prefix_stable"]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: this package loads in every test run."""
    if name not in _HOME:
        raise AttributeError(f"module 'pytest_headstay' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
