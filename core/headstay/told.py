"""What a reply says of itself beside its text and its usage: its id, who served it, and the provider's diagnosis."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headstay.call import Call
from headstay.diagnosis import read_diagnosis


def note_message(call: Call, told: Mapping[str, Any]) -> None:
    """Note what a message of Anthropic's says: its id and the diagnosis in it."""
    word, missed, reusable = read_diagnosis(_plain(told.get("diagnostics")))
    call.reply = replace(call.reply, id=_text(told.get("id")), word=word, missed=missed, reusable=reusable)


def note_served(call: Call, told: Mapping[str, Any]) -> None:
    """Note who served a reply of OpenAI's."""
    fingerprint, tier = _text(told.get("system_fingerprint")), _text(told.get("service_tier"))
    name = _text(told.get("id")) if call.diagnosed else ""
    if fingerprint or tier or name:
        known = call.reply
        call.reply = replace(
            known, id=name or known.id, fingerprint=fingerprint or known.fingerprint, tier=tier or known.tier
        )


def note_response(call: Call, response: Any) -> None:
    """Note the diagnosis in a response of OpenAI's Responses API."""
    word, missed, reusable = read_diagnosis(_plain(getattr(response, "prompt_cache_diagnostics", None)))
    call.reply = replace(call.reply, word=word, missed=missed, reusable=reusable)


def _plain(value: Any) -> object:
    return value.model_dump() if hasattr(value, "model_dump") else value


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
