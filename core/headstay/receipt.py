"""Kept notes: what a reply carries, and how a history is read back from it.

Where a model binds its thinking to the exact history, a note must stay where it was sent. The reply to that call then
carries a receipt: the note's name, and a MAC over tenant, lane, the message that the note follows, and the note. The
text stays in the head store. A receipt never chooses, rebuilds or teaches a head; one that does not check is ignored.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from headstay.canonical import digest

_NOTE_BYTES = 12
_MAC_BYTES = 15


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a reply carries.

    Attributes:
        note: Name of the note, a hash of its text.
        mac: Proof that this store issued it for this place.
    """

    note: str
    mac: str

    def as_metadata(self) -> dict[str, str]:
        """Return the form that stands in `response_metadata["headstay"]`; under 100 bytes as JSON."""
        return {"note": self.note, "mac": self.mac}


def note_name(text: str) -> str:
    """Name a note by a hash of its text."""
    return base64.urlsafe_b64encode(digest("note", text)[:_NOTE_BYTES]).decode()


def issue(key: bytes, *, tenant: str | None, lane: str, anchor: bytes, note: str) -> Receipt:
    """Make the receipt of a note.

    Args:
        key: The head store's secret.
        tenant: Whose call it was.
        lane: The lane's key.
        anchor: Canonical hash of the message that the note follows.
        note: The note's text.
    """
    name = note_name(note)
    return Receipt(name, _mac(key, tenant, lane, anchor, name))


def read(metadata: object) -> Receipt | None:
    """Read a receipt out of a reply's metadata; None where there is none."""
    if not isinstance(metadata, Mapping):
        return None
    found = cast("Mapping[str, object]", metadata)
    note, mac = found.get("note"), found.get("mac")
    return Receipt(note, mac) if isinstance(note, str) and isinstance(mac, str) else None


def checks(receipt: Receipt, key: bytes, *, tenant: str | None, lane: str, anchor: bytes) -> bool:
    """Whether a receipt was issued for this tenant, lane and place."""
    expected = _mac(key, tenant, lane, anchor, receipt.note)
    return hmac.compare_digest(receipt.mac.encode("utf-8", "surrogatepass"), expected.encode())


def _mac(key: bytes, tenant: str | None, lane: str, anchor: bytes, name: str) -> str:
    state = hashlib.blake2b(digest("receipt", repr(tenant), lane, anchor, name), key=key, digest_size=_MAC_BYTES)
    return base64.urlsafe_b64encode(state.digest()).decode()
