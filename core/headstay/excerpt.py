"""Cuts a short piece out of a text for a report, with secrets and mail addresses hidden: reports end up in logs."""

import re

LIMIT = 80
_MARGIN = 400

_SECRET = re.compile(
    r"(?P<private>-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z))"
    r"|(?P<jwt>\beyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?)"
    r"|(?P<bearer>\b(?:[Bb]earer|[Bb]asic)\s+)[\w.~+/=-]{8,}"
    r"|(?P<prefix>\b(?:sk-ant-|sk-proj-|sk-|pk_live_|sk_live_|rk_live_|sk_test_|gh[pousr]_|github_pat_|glpat-|xox[abposr]-"
    r"|AKIA|ASIA|AIza|ya29\.|hf_|lsv2_|npm_|pypi-|SG\.|key-|dop_v1_|shpat_))[\w.-]{8,}"
    r"|(?P<url>\b[a-z][a-z0-9+.-]{0,30}://[^\s:/@]+:)[^\s@/]+(?=@)"
    r"|(?P<named>\b(?:[\w-]{0,80}(?:api[_-]?key|secret|passw(?:or)?d|passwd|access[_-]?token|auth[_-]?token|refresh[_-]?token"
    r"|private[_-]?key|client[_-]?secret)[\w-]{0,80})[\"']?\s*(?::=|=>|=|:|\bis\b)\s*[\"']?)(?=\S{4})[^\s\"',;}]+",
    re.IGNORECASE,
)
# Whose address it is, not where. The point may be written `\\.`, as in a pattern; `pkg@1.2` is a version.
_ADDRESS = r"(?<![\w.%+-])[\w.%+-]{1,64}+(?=@(?:[\w-]{1,63}\\?\.){1,8}[a-z]{2,63}\b)"
_SECRET_OR_ADDRESS = re.compile(f"{_SECRET.pattern}|{_ADDRESS}", re.IGNORECASE)
_HIDDEN = "***"


def hidden(text: str) -> str:
    """Return a text with every key, token, password and mail name replaced by `***`; how a key begins stays."""
    return _secrets(text).sub(_replaced, text)


def _secrets(text: str) -> re.Pattern[str]:
    return _SECRET_OR_ADDRESS if "@" in text else _SECRET  # few texts need the slower one


def _replaced(found: re.Match[str]) -> str:
    kept = found["bearer"] or found["prefix"] or found["url"] or found["named"] or ""
    return kept + _HIDDEN


def secret_spans(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Find the secrets and the names of mail addresses near a span of a text, how a key begins included.

    Args:
        text: The whole text.
        start: Where the span begins.
        end: Where it ends.
    """
    left, window = max(0, start - _MARGIN), text[max(0, start - _MARGIN) : end + _MARGIN]
    return [
        (left + found.start() + len(found["bearer"] or found["url"] or found["named"] or ""), left + found.end())
        for found in _secrets(window).finditer(window)
    ]


def excerpt(text: str, start: int, end: int) -> str:
    """Cut out a span of a text, secrets hidden, at most 80 characters.

    A secret that only reaches into the span is hidden as a whole, so the text around it is looked at too.

    Args:
        text: The whole text.
        start: Where the span begins.
        end: Where it ends.
    """
    left, right = max(0, start - _MARGIN), min(len(text), min(end, start + LIMIT) + _MARGIN)
    window = text[left:right]
    pieces: list[str] = []
    at = start - left
    stop = min(end, start + LIMIT * 2) - left
    for found in _secrets(window).finditer(window):
        if found.end() <= at or found.start() >= stop:
            continue
        pieces += [window[at : max(at, found.start())], _replaced(found)]
        at = found.end()
    pieces.append(window[at : max(at, stop)])
    shown = "".join(pieces)
    cut = left + max(at, stop) < end
    return shown[: LIMIT - 3] + "..." if len(shown) > LIMIT or (cut and len(shown) > LIMIT - 3) else shown + "..." * cut
