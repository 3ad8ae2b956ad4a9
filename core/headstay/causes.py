"""The one vocabulary of causes: why a prefix did not stay, and whose doing it was."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from headstay.slots import classify

Owner = Literal["application", "policy", "provider", "expiry"]


class Cause(StrEnum):
    """Cause codes; the same in the ledger, in reports and on the command line."""

    CLOCK_IN_HEAD = "clock_in_head"
    RANDOM_ID_IN_HEAD = "random_id_in_head"
    VALUE_IN_HEAD = "value_in_head"
    SYSTEM_TEXT_CHANGED = "system_text_changed"
    MEMORY_IN_HEAD = "memory_in_head"
    RETRIEVAL_IN_HEAD = "retrieval_in_head"
    TOOL_ORDER = "tool_order"
    TOOL_ADDED = "tool_added"
    TOOL_REMOVED = "tool_removed"
    TOOL_SCHEMA_CHANGED = "tool_schema_changed"
    TOOL_DESCRIPTION_CHANGED = "tool_description_changed"
    SCHEMA_KEY_ORDER = "schema_key_order"
    CALL_KEY_ORDER = "call_key_order"
    WHITESPACE = "whitespace"
    UNICODE_FORM = "unicode_form"
    HISTORY_EDITED = "history_edited"
    HISTORY_DROPPED = "history_dropped"
    HISTORY_SUMMARISED = "history_summarised"
    TOOL_RESULT_CLEARED = "tool_result_cleared"
    MESSAGE_REORDERED = "message_reordered"
    PARALLEL_RESULTS_REORDERED = "parallel_results_reordered"
    IDS_REGENERATED = "ids_regenerated"
    IMAGE_REENCODED = "image_reencoded"
    THINKING_CHANGED = "thinking_changed"
    TOOL_CHOICE_CHANGED = "tool_choice_changed"
    PARAMETERS_CHANGED = "parameters_changed"
    MODEL_CHANGED = "model_changed"
    MARKERS_MISSING = "markers_missing"
    MARKERS_OVER_LIMIT = "markers_over_limit"
    MARKER_TTL_ORDER = "marker_ttl_order"
    LOOKBACK_EXCEEDED = "lookback_exceeded"
    BELOW_MINIMUM = "below_minimum"
    TTL_EXPIRED = "ttl_expired"
    COLD_FAN_OUT = "cold_fan_out"
    PROVIDER_ROUTING = "provider_routing"
    RECEIPT_LOST = "receipt_lost"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Break:
    """One reason why a request does not continue the prefix of an earlier one.

    Attributes:
        cause: The code.
        owner: Whose doing it was.
        path: Where, as in `system[0]` or `messages[3]`.
        remedy: What to do; for a varying value the `Slot(...)` line to paste.
        at: Character offset at `path`.
        before: What stood there, at most 80 characters.
        after: What stands there now, at most 80 characters.
    """

    cause: Cause
    owner: Owner
    path: str
    remedy: str
    at: int = 0
    before: str = ""
    after: str = ""


def value_cause(text: str) -> Cause:
    """Name the cause that a varying value in the head is."""
    kind = classify(text)
    if kind == "clock":
        return Cause.CLOCK_IN_HEAD
    if kind == "id":
        return Cause.RANDOM_ID_IN_HEAD
    return Cause.VALUE_IN_HEAD


def shorten(text: str, limit: int = 80) -> str:
    """Cut a text for a report."""
    return text if len(text) <= limit else text[: limit - 3] + "..."
