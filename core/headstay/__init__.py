"""headstay keeps the head of a prompt byte-stable, so that prefix caches and semantic caches hit."""

from importlib import import_module
from typing import TYPE_CHECKING

from headstay._version import __version__

if TYPE_CHECKING:
    from headstay import emulator, semantic
    from headstay.comparison import Divergence, Finding, diff
    from headstay.flow import Flow, Settings
    from headstay.headstore import HeadStore
    from headstay.layout import Plan
    from headstay.ledger import Ledger
    from headstay.prompt import Prompt
    from headstay.slots import Slot, Template
    from headstay.values import Declared

_HOME = {
    "Declared": "headstay.values",
    "Divergence": "headstay.comparison",
    "Finding": "headstay.comparison",
    "Flow": "headstay.flow",
    "HeadStore": "headstay.headstore",
    "Ledger": "headstay.ledger",
    "Plan": "headstay.layout",
    "Prompt": "headstay.prompt",
    "Settings": "headstay.flow",
    "Slot": "headstay.slots",
    "Template": "headstay.slots",
    "diff": "headstay.comparison",
}

__all__ = [
    "Declared",
    "Divergence",
    "Finding",
    "Flow",
    "HeadStore",
    "Ledger",
    "Plan",
    "Prompt",
    "Settings",
    "Slot",
    "Template",
    "__version__",
    "diff",
    "emulator",
    "semantic",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: `import headstay` itself stays cheap."""
    if name in {"emulator", "semantic"}:
        return import_module(f"headstay.{name}")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'headstay' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
