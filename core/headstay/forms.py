"""Where two texts part, and whether they differ in form only."""

import unicodedata

from headstay.causes import Cause


def first_difference(one: str, other: str) -> int:
    """Return the offset of the first character that differs; the shorter length where one continues the other."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low


def form_cause(before: str, after: str) -> Cause | None:
    """Name a difference of form only: the Unicode form, or blanks; None where the texts differ in more."""
    if unicodedata.normalize("NFC", before) == unicodedata.normalize("NFC", after):
        return Cause.UNICODE_FORM
    one, other = ("".join(text.split()) for text in (before, after))
    if one == other:
        return Cause.WHITESPACE
    return Cause.UNICODE_FORM if unicodedata.normalize("NFC", one) == unicodedata.normalize("NFC", other) else None
