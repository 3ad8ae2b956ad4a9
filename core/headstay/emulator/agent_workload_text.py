"""The fixed texts of the agent workload: tools, prompts, few-shot pairs, the form of the final record."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headstay.emulator.agent_workload_labels import Example, ToolForm
from headstay.emulator.workload_text import Tenant, policy_text
from headstay.emulator.workload_turns import Stability, SystemPart

LATE_TOOL = "send_confirmation"
REMOVED_TOOL = "loyalty_points"
CHANGED_TOOL = "book_repair"
SUBAGENT_TOOL = "ask_specialist"
FAN_OUT_TOOL = "track_parcel"

SUMMARY_REQUEST = "Write down what a colleague needs to know about this case"
"""The words by which the scripted model recognises that it is asked for a summary."""

SUMMARY_PROMPT = SUMMARY_REQUEST + ", in at most ten lines.\n\n<messages>\n{messages}\n</messages>"

RESOLUTION: Mapping[str, Any] = {
    "title": "resolution",
    "description": "The record of a closed case.",
    "type": "object",
    "properties": {
        "outcome": {"type": "string", "description": "refund, repair, replacement or none"},
        "amount_eur": {"type": "number", "description": "What is paid back, in euros; 0 if nothing is"},
        "follow_up": {"type": "string", "description": "The day of the next contact, or never"},
    },
    "required": ["outcome", "amount_eur", "follow_up"],
    "additionalProperties": False,
}
"""The JSON schema of a structured answer."""


class ToolScene(NamedTuple):
    """A tool with the arguments the model gives it and what it returns, as format strings."""

    form: ToolForm
    arguments: Mapping[str, str]
    result: str


def _schema(required: tuple[str, ...], **properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": list(required)}


def _text(description: str, *choices: str) -> dict[str, Any]:
    return {"type": "string", "description": description, **({"enum": list(choices)} if choices else {})}


_ORDER = _text("The order number from the confirmation e-mail, six digits without spaces")

DESK_TOOLS: Mapping[str, ToolScene] = {
    scene.form.name: scene
    for scene in (
        ToolScene(
            ToolForm(
                "lookup_order",
                "Look up one order by its number. Returns the items, the price paid, the day of delivery and the "
                "state of each item. Use it before any promise about an order, and never guess a number that the "
                "customer has not written.",
                _schema(("order",), order=_ORDER, detail=_text("How much to return", "short", "full")),
            ),
            {"order": "{order}", "detail": "full"},
            "order {order}: one item, {amount} euros, delivered on {day}, signed for by a neighbour; no return is "
            "open; the item was checked twice in the warehouse before it left",
        ),
        ToolScene(
            ToolForm(
                "track_parcel",
                "Return the scans of a parcel, newest first, with place and day. Works for deliveries and for "
                "returns. Courier data can be half a day old, so say so when a scan is missing.",
                _schema(("parcel",), parcel=_text("The parcel number on the label, with its letters")),
            ),
            {"parcel": "RX{order}"},
            "RX{order}: {place}, sorted on {day}; before that: received at the counter, {number} kilos",
        ),
        ToolScene(
            ToolForm(
                "list_payments",
                "List payments, reservations and refunds of an order with their days and amounts. A reservation "
                "is not a payment; it lapses within a week.",
                _schema(("order",), order=_ORDER, since=_text("Only entries after this day, as YYYY-MM-DD")),
            ),
            {"order": "{order}"},
            "order {order}: paid {amount}.00 euros on {day}; one reservation of the same amount, lapses in "
            "{number} hours; no refund",
        ),
        ToolScene(
            ToolForm(
                "open_return",
                "Open a return for one item of an order. Opens it once: a second call for the same item gives back "
                "the same case. Does not send a label; use create_label for that.",
                _schema(
                    ("order", "reason"),
                    order=_ORDER,
                    reason=_text("Why it comes back", "faulty", "damaged", "wrong_item", "no_reason"),
                    item=_text("The item, if the order has several"),
                ),
            ),
            {"order": "{order}", "reason": "faulty", "item": "1"},
            "return R-{order} is open for item 1, reason faulty, to be received within {number} days",
        ),
        ToolScene(
            ToolForm(
                "create_label",
                "Create a postage label for an open return and send it to the customer's e-mail address. The "
                "label works at every collection point of the courier.",
                _schema(
                    ("case",),
                    case=_text("The return or repair, such as R-123456"),
                    payer=_text("Who pays the postage", "shop", "customer"),
                ),
            ),
            {"case": "R-{order}", "payer": "shop"},
            "label RX{order} was sent by e-mail; nearest collection point: {place}, open until noon on {day}",
        ),
        ToolScene(
            ToolForm(
                CHANGED_TOOL,
                "Book a slot in the workshop for one item. Returns the first free day and how long the repair "
                "takes as a rule. A loan unit can be asked for in the same call.",
                _schema(
                    ("order", "fault"),
                    order=_ORDER,
                    fault=_text("The fault in the customer's own words, at most one sentence"),
                    loan_unit=_text("Whether a loan unit is wanted", "yes", "no"),
                ),
            ),
            {"order": "{order}", "fault": "switches itself off after {number} minutes", "loan_unit": "no"},
            "workshop: first free day is {day}, seven to ten working days; booked under W-{order}",
        ),
        ToolScene(
            ToolForm(
                "check_stock",
                "Say how many pieces of an item are in the warehouse and when the next delivery comes. Numbers "
                "are from last night.",
                _schema(("item",), item=_text("Name or article number"), place=_text("A warehouse, or all")),
            ),
            {"item": "article {order}", "place": "{place}"},
            "article {order}: {number} pieces in {place}, next delivery on {day}",
        ),
        ToolScene(
            ToolForm(
                "price_history",
                "Return the prices of an item over the last sixty days, for questions about a price that fell "
                "after the purchase.",
                _schema(("item",), item=_text("Name or article number")),
            ),
            {"item": "article {order}"},
            "article {order}: {amount} euros since {day}, before that {number} euros more",
        ),
        ToolScene(
            ToolForm(
                "search_policy",
                "Search the handbook of the desk for a rule and return the paragraph. For rules that the "
                "instructions do not answer; do not quote it to the customer word for word.",
                _schema(("words",), words=_text("Two to six words"), limit=_text("How many paragraphs")),
            ),
            {"words": "carton missing return {place}", "limit": "1"},
            "handbook {number}.{order}: a missing carton is never held against the customer; any sturdy box will "
            "do if it leaves a hand's width of paper on every side",
        ),
        ToolScene(
            ToolForm(
                REMOVED_TOOL,
                "Return the points on a member's card and what they are worth. Only for members, and only if the "
                "customer has asked about points.",
                _schema(("order",), order=_ORDER),
            ),
            {"order": "{order}"},
            "{amount} points, worth {number} euros, none of them expires this year",
        ),
        ToolScene(
            ToolForm(
                SUBAGENT_TOOL,
                "Ask the workshop's specialist a technical question about an item. The specialist knows the "
                "manuals and service bulletins but not the customer, and answers in a few sentences.",
                _schema(("question",), question=_text("The question, with everything the specialist must know")),
            ),
            {"question": "{question}"},
            "{answer}",
        ),
        ToolScene(
            ToolForm(
                LATE_TOOL,
                "Send the customer a confirmation of what was agreed, as an e-mail with one line for each point. "
                "Use it once, at the end, and only after the customer has agreed to every line.",
                _schema(
                    ("lines",),
                    lines=_text("What was agreed, one line for each point"),
                    copy_to=_text("A second address, if the customer asked for one"),
                ),
            ),
            {"lines": "pick-up on {day} in {place}; {amount} euros back"},
            "confirmation C-{order} was sent on {day}",
        ),
    )
}
"""The desk's tools by name; `LATE_TOOL` arrives late, `REMOVED_TOOL` is taken away."""

_BEFORE = DESK_TOOLS[CHANGED_TOOL].form
CHANGED_FORM = _BEFORE._replace(
    description=_BEFORE.description + " Collection from the customer's door is possible on working days.",
    schema=_schema(
        ("order", "fault", "collect"),
        **_BEFORE.schema["properties"],
        collect=_text("How the item gets to the workshop", "door", "collection_point"),
    ),
)
"""What `CHANGED_TOOL` looks like from the moment on when it changes."""

SPECIALIST_TOOLS: Mapping[str, ToolScene] = {
    scene.form.name: scene
    for scene in (
        ToolScene(
            ToolForm(
                "search_manual",
                "Search the manual of an item and return the page that fits best.",
                _schema(("words",), words=_text("Two to six words")),
            ),
            {"words": "lamp blinks {number} times"},
            "manual, page {number}: two short signals of the lamp mean that the housing was too warm; it starts "
            "again after a quarter of an hour (print {order})",
        ),
        ToolScene(
            ToolForm(
                "service_bulletins",
                "List the bulletins of the maker for an item, newest first, with the numbers of the units that "
                "are concerned.",
                _schema(("item",), item=_text("Name or article number")),
            ),
            {"item": "article {order}"},
            "bulletin {number}: units up to {order} have a loose contact at the switch; exchange the board",
        ),
    )
}
"""The specialist's own tools by name."""

EXAMPLES: tuple[Example, ...] = (
    Example("My parcel says delivered, but I have nothing.", "I open a search today; if it is not found by the fifth "
            "working day you choose between a second parcel and your money."),
    Example("Can I keep the headset and get part of the price back?", "Yes, if you are content with it as it is: name "
            "the scratch, and I can offer a fifth of the price instead of an exchange."),
    Example("The voucher did not work.", "That was our fault, so I apply it afterwards; the difference is paid back "
            "the way you paid."),
    Example("You took the money twice!", "The second one is a reservation. It lapses within a week without anybody "
            "asking for it; write to me if it is still there after that."),
    Example("How long is the guarantee?", "Two years from the day of delivery, three if the item was registered within "
            "the first month."),
    Example("I want to talk to a person.", "I pass the case to a senior colleague now. They read the whole thread, so "
            "you need not repeat anything."),
    Example("It smells of smoke.", "Please stop using it and cut the power at the fuse, without touching it if it is "
            "hot. Everything else comes after that."),
    Example("Where is the label?", "It was sent to your e-mail address an hour ago; look for the courier's name among "
            "the unwanted mail, and tell me if it is not there."),
)  # fmt: skip
"""What the example selector chooses from."""

_MARK = re.compile(r"<<(\w+)>>")
_STABILITY: Mapping[str, Stability] = {"customer_name": "conversation", "clock": "call", "request_id": "call"}
_SPECIALIST_OPENING = """You are the workshop's specialist of {brand}. Colleagues of the written desk ask you about \
{goods}; you never write to a customer yourself. It is <<clock>> by the workshop's clock.

# How you answer
Look into the manual or the bulletins before you answer, and name the page or the number. Say what the fault most \
likely is, how sure you are, and which one test would settle it. If a unit is dangerous, say that first. Three to six \
sentences are enough. The rules of the shop follow, so that you do not propose what the desk may not promise."""
_SPECIALIST_SECTIONS = ("# Warranty", "# Orders", "# Safety", "# Returns", "# Delivery", "# When to pass")


def desk_prompt(tenant: Tenant) -> str:
    """Return the desk's system text with marks: about 2,500 tokens, with `customer_name`, `clock`, `request_id`."""
    paragraphs = policy_text(tenant, "A").split("\n\n")
    return "\n\n".join(text for text in paragraphs if "<<account>>" not in text and "<<today>>" not in text)


def specialist_prompt(tenant: Tenant) -> str:
    """Return the specialist's system text with a mark for its clock: above 1,024 tokens."""
    opening = _SPECIALIST_OPENING.format(brand=tenant.brand, goods=tenant.goods)
    sections = re.split(r"\n\n(?=# )", policy_text(tenant, "B"))
    chosen = [text for text in sections if text.startswith(_SPECIALIST_SECTIONS)]
    return "\n\n".join((opening, *(_MARK.sub("(not shown)", text) for text in chosen)))


def fill(prompt: str, values: Mapping[str, str]) -> tuple[SystemPart, ...]:
    """Fill a system text; odd places of the split are the names of marks, even ones are prose."""
    parts: list[SystemPart] = []
    for place, piece in enumerate(_MARK.split(prompt)):
        if place % 2:
            parts.append(SystemPart(values[piece], _STABILITY[piece], piece))
        else:
            parts.append(SystemPart(piece, "stable"))
    return tuple(parts)


def as_format(prompt: str) -> str:
    """Return a system text as a format string: marks become replacement fields, braces of the prose are doubled."""
    return _MARK.sub(r"{\1}", prompt.replace("{", "{{").replace("}", "}}"))


def examples_text(examples: Sequence[Example]) -> str:
    """Write few-shot pairs as a block of system text."""
    pairs = (f"input: {one.question}\noutput: {one.answer}" for one in examples)
    return "\n\n".join(("Examples:", *pairs))
