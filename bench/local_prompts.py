"""Twenty prompts of 300 to 1,500 tokens that no clock, id or name varies in: four kinds, each in five lengths.

Within a kind a longer prompt goes on where the shorter one leaves off, as conversations and documents do, so that it
can read from the cache what the shorter one left there.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

KINDS = ("handbook", "tools", "dialogue", "documents")
LENGTHS = 5

_TOPICS = (
    "returns",
    "refunds",
    "deliveries",
    "repairs",
    "vouchers",
    "spare parts",
    "invoices",
    "members",
    "gift cards",
)
_MANNERS = (
    "in one sentence",
    "with the day and the hour",
    "without naming colleagues",
    "only after a look at the order",
)
_PEOPLE = ("a customer", "a courier", "the workshop", "the warehouse", "a member of the board")

_TOOL_NAMES = ("book_courier", "find_order", "open_repair")  # in order of the alphabet, as headstay sends them
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Does what its name says: {name.replace('_', ' ')}. Ask for the order first.",
            "parameters": {
                "type": "object",
                "properties": {"order": {"type": "string", "description": "Six digits"}, "day": {"type": "string"}},
                "required": ["order"],
            },
        },
    }
    for name in _TOOL_NAMES
]

_PIECES = (
    "Der Gürtel der Waschmaschine riß am {n}. Tag; die Kundin möchte keinen Ersatz, sondern ihr Geld zurück.",
    "La garantie du modèle n° {n} court deux ans ; le client a gardé l'emballage, mais pas la facture.",
    "保証書の番号は{n}です。修理には十日ほどかかります。",
    "total_{n} = sum(line.price * line.count for line in order.lines[{n}:]) - voucher.get('value', 0.0)",
    '{{"order": {n}, "state": "shipped", "lines": [{{"sku": "A-{n}", "count": 2}}], "note": null}}',
    "Заказ № {n} задержан на границе; перевозчик обещает доставку через три дня. 🚚",
)


class Prompt(NamedTuple):
    """A prompt as the body of a Chat Completions request has it.

    Attributes:
        kind: What it is made of.
        messages: Its messages.
        tools: Its tools, in the order and form in which headstay sends them.
    """

    kind: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]


def prompts(kind: str) -> list[Prompt]:
    """Return the prompts of a kind, the shortest first.

    Args:
        kind: One of `KINDS`.
    """
    return [_MAKERS[kind](length) for length in range(1, LENGTHS + 1)]


def clocked(number: int, clock: str) -> Prompt:
    """Return a prompt with a clock in its system text, which headstay takes out of the head.

    Args:
        number: Which rules it has.
        clock: The time, as a full timestamp.
    """
    system = f"You serve customers of shop {number}. It is {clock} now. {_rules(4 + 6 * number)}"
    return Prompt("clocked", [_said("system", system), _said("user", "What do you do first, and why?")], [])


def _said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def _rules(count: int) -> str:
    return " ".join(_rule(number) for number in range(1, count + 1))


def _rule(number: int) -> str:
    topic, manner, who = (
        _TOPICS[number % len(_TOPICS)],
        _MANNERS[number % len(_MANNERS)],
        _PEOPLE[number % len(_PEOPLE)],
    )
    return f"Rule {number}: when {who} asks about {topic}, answer {manner}, and write down case {number * 37 % 1000}."


def _handbook(length: int) -> Prompt:
    system = f"You are the clerk of a shop. {_rules(10 * length)}"
    return Prompt("handbook", [_said("system", system), _said("user", "Which rule comes first, and what is it?")], [])


def _with_tools(length: int) -> Prompt:
    system = f"You look things up before you answer. {_rules(8 * length - 6)}"
    return Prompt("tools", [_said("system", system), _said("user", "Where is order 123456?")], _TOOLS)


def _dialogue(length: int) -> Prompt:
    messages = [_said("system", "You are patient, and you answer in whole sentences.")]
    for number in range(1, 5 * length + 1):
        messages += _round(number)
    return Prompt("dialogue", [*messages, _said("user", "Please sum up what we agreed on so far.")], [])


def _round(number: int) -> Iterator[dict[str, Any]]:
    topic, other = _TOPICS[number % len(_TOPICS)], _TOPICS[(number + 3) % len(_TOPICS)]
    yield _said("user", f"My {number}. question is about {topic}. Does it also concern {other}, or are they apart?")
    yield _said(
        "assistant",
        f"They are apart: {topic} are settled within {number + 2} days, and {other} only once the first is closed.",
    )


def _documents(length: int) -> Prompt:
    pieces = (_PIECES[number % len(_PIECES)].format(n=number * 7) for number in range(6 * length))
    text = "Here is what I have:\n" + "\n".join(pieces)
    messages = [_said("system", "You read what customers send."), _said("user", f"{text}\n\nWhat is it about?")]
    return Prompt("documents", messages, [])


_MAKERS = {"handbook": _handbook, "tools": _with_tools, "dialogue": _dialogue, "documents": _documents}
