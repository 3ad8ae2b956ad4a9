"""Instructions that are added inside a conversation: said in place where the model has that, so that its head stays.

A conversation keeps the system text it began with as its head. Where the application's text is that text and something
more at its end, the addition is said at the end of the input of the call that first has it, and stands there in every
later call (invariant I2). Anything else is another text, and makes another head: what was said before and does not hold
any more must stand nowhere (invariant I3).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from headstay.added import Addition, joined, remainder, wording
from headstay.late import Carried, fresh_place, still_there
from headstay.prompt import Prompt
from headstay.values import EXAMPLES_TITLE, Declared, Extraction, placeholder


@dataclass(frozen=True, slots=True)
class Worded:
    """The system text of one call: what stands in the head and what is said in place.

    Attributes:
        head: The blocks of the head, with placeholders.
        additions: What is said in place, in wire order.
    """

    head: tuple[str, ...]
    additions: tuple[Addition, ...] = ()


def word(prompt: Prompt, taken: Extraction, declared: Declared, before: Carried | None) -> Worded:
    """Decide what of the system text stands in the head.

    Args:
        prompt: The request, as the application made it.
        taken: Its system text, taken apart.
        declared: Templates and slots.
        before: What the conversation brings along; None for a new one, or where the model takes no system message in
            place.

    Returns:
        The head of the call, and the additions to it. Together they are the text of this call and nothing else.
    """
    now = taken.head
    if before is None or before.wordless or not any(text.strip() for text in before.system):
        return Worded(now)
    there = still_there(prompt, before.texts)
    held = tuple(takewhile(there.__contains__, before.texts))  # behind one that moves, all are said anew
    so_far = joined(before.system, [found.form for found in held])
    more = remainder(so_far, now, fixed=_not_its_own(prompt.system, declared))
    if more == "":
        return Worded(before.system, held)
    place = fresh_place(prompt, again=True)  # a marker may stand on it, so it may stand behind the user's words
    if more is None or place is None or not place.blocks or not wording(more) or _moves_a_value(taken, so_far, more):
        return Worded(now)
    return Worded(before.system, (*held, Addition("", more, place)))


def _not_its_own(system: Sequence[str], declared: Declared) -> int:
    """Count the blocks at the end that hold examples; they are put behind the application's text in every call."""
    count = 0
    while count < len(system) and _holds_examples(system[-1 - count], declared):
        count += 1
    return count


def _holds_examples(text: str, declared: Declared) -> bool:
    return text in declared.constant or (declared.examples and text.startswith(EXAMPLES_TITLE))


def _moves_a_value(taken: Extraction, so_far: Sequence[str], more: str) -> bool:
    """Whether an addition brings a value for the conversation, which would change the block right behind the head."""
    names = [placeholder(value.name) for value in taken.values if value.every == "conversation"]
    return any(name in more and not any(name in text for text in so_far) for name in names)
