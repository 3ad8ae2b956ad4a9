"""Whether two questions that an embedder takes for one another are different ones.

Sequences are compared and not sets: `USD to EUR` has the words of `EUR to USD`. A veto costs a hit wherever it is
wrong, so each looks for one thing that changes the answer, and a text that only says more is mostly left alone.
"""

from collections.abc import Iterator

from headstay.semantic import veto_marks, veto_order, veto_sense
from headstay.semantic.reading import Reading, read
from headstay.semantic.veto_marks import Veto

__all__ = ["Veto", "compare", "differences", "veto"]

_RULES = (
    veto_marks.surface,
    veto_marks.numbers,
    veto_marks.dates,
    veto_marks.codes,
    veto_marks.currencies,
    veto_marks.units,
    veto_marks.quotes,
    veto_sense.negations,
    veto_sense.groups,
    veto_sense.prefixes,
    veto_sense.particles,
    veto_sense.moments,
    veto_sense.names,
    veto_sense.questions,
    veto_order.direction,
    veto_order.order,
)


def veto(asked: str, stored: str) -> Veto | None:
    """Compare two questions.

    Args:
        asked: The question that is asked.
        stored: A kept question that is near to it by the embedder.

    Returns:
        The first difference that changes the answer, or None. With the questions exchanged, the same with its pieces
        exchanged.
    """
    return compare(read(asked), read(stored))


def compare(asked: Reading, stored: Reading) -> Veto | None:
    """Compare two questions that were read already: see `veto`."""
    return next(differences(asked, stored), None)


def differences(asked: Reading, stored: Reading) -> Iterator[Veto]:
    """Yield every difference that changes the answer, the surest kind first."""
    if asked.text == stored.text:
        return
    for rule in _RULES:
        found = rule(asked, stored)
        if found is not None:
            yield found
