"""The ledger: what each model call read, wrote and cost, and why a read came out short.

The names below load on first use, so that importing headstay opens no database module and no price table.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headstay.ledger.record import Ledger
    from headstay.ledger.row import Row
    from headstay.ledger.usage import Usage
    from headstay.ledger.verdict import Verdict

__all__ = ["Ledger", "Row", "Usage", "Verdict"]

_HOMES = {
    "Ledger": "headstay.ledger.record",
    "Row": "headstay.ledger.row",
    "Usage": "headstay.ledger.usage",
    "Verdict": "headstay.ledger.verdict",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value
