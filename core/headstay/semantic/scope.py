"""The exact part of a semantic key: everything that must be identical for an answer to be reusable.

Two keys are made of one request. In the *scope* the query is left out, and what is compared by meaning is compared
inside one scope only. In the *family* the whole last human text is left out; the exact tier adds it back, and the
templates are learned from the texts of one family. So an exact answer is found again even when what is known about
the template has changed in between.
"""

import hashlib

from headstay.canonical import meaning_text
from headstay.semantic.query import Query, normal_text
from headstay.semantic.reasons import Reason
from headstay.semantic.request import AskedRequest, Turn

KEY_VERSION = 1
"""Part of every key. Raised when the same request gets another key, so that no old answer is read by a new rule."""

_DIGEST_BYTES = 32


def scope_key(request: AskedRequest, *, embedder_fingerprint: str, query: Query | None) -> str:
    """Hash all of a request but its query.

    The order of JSON keys and of tools does not count (see `read_settings`), and no process, machine or hash seed
    has a key of its own.

    Args:
        request: The request, before `arrange`.
        embedder_fingerprint: Which vector space the query is compared in.
        query: What is compared by meaning; None leaves the whole last human text out, which gives the family.

    Returns:
        64 hexadecimal digits.
    """
    turns = [_turn_form(turn) for turn in request.turns]
    if request.asking is not None:
        turns[request.asking] = _asking_form(request.turns[request.asking], query)
    form: dict[str, object] = {
        "key": KEY_VERSION,
        "turns": turns,
        "settings": request.settings,
        "tenant": request.tenant,
        "user": request.user,
        "version": request.version,
        "exact": request.exact_fields,
        "embedder": embedder_fingerprint,
        "generations": request.generations,
    }
    return _hash(meaning_text(form))


def family_key(request: AskedRequest, *, embedder_fingerprint: str) -> str:
    """Hash all of a request but its last human text: `scope_key` without a query."""
    return scope_key(request, embedder_fingerprint=embedder_fingerprint, query=None)


def exact_key(family: str, text: str) -> str:
    """Hash a request whole.

    Args:
        family: Key of all but the last human text.
        text: The last human text. Its Unicode form (NFC), its line ends and outer blanks do not count; everything
            else does: case, accents and inner spaces may change what is asked.

    Returns:
        64 hexadecimal digits.
    """
    return _hash(meaning_text([KEY_VERSION, family, normal_text(text)]))


def _turn_form(turn: Turn) -> list[object]:
    return [turn.role, "text", turn.text, turn.other, turn.unhashed]


def _asking_form(turn: Turn, query: Query | None) -> list[object]:
    if query is None:
        return [turn.role, "asks", turn.other, turn.unhashed]
    if query.reason is Reason.QUERY_NOT_IN_TEXT:
        # Nothing of the text is explained by the query, so all of it stays exact.
        return [turn.role, "text", normal_text(turn.text), turn.other, turn.unhashed]
    return [turn.role, "query", query.before, query.after, turn.other, turn.unhashed]


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()
