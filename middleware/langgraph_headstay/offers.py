"""What was offered when a reply was made (invariant I5), kept until its calls have run.

A reply that comes back by way of a client, a rewriting middleware or an edited state may have lost its id and its
metadata. Its call ids stay, or no result could be matched to them. So an offer is known by the conversation (thread,
place in the graph, and what the user said) together with the reply's id or with the id of its first call.
"""

import json
import time
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Any, NamedTuple, cast

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig

from headstay.canonical import digest
from headstay.headstore import HeadStore
from langchain_headstay.identity import thread_of

MASKED = "masked"
_KEPT = 8_192
# The reviewer's decisions, as HumanInTheLoopMiddleware of langchain 1.5.2 keeps them in the state (read 2026-11-29).
_EDITED = "hitl_edited_tool_calls"


class Place(NamedTuple):
    """Where a reply was made.

    Attributes:
        scope: Tenant and agent, hashed; the head store is asked under it.
        where: Hash of thread, place in the graph, and the user's words.
    """

    scope: str
    where: str


def place_of(scope: str, config: RunnableConfig, state: Any) -> Place:
    """Name the place of a model call, or of the tool calls that follow it.

    Args:
        scope: Tenant and agent, hashed.
        config: The node's config.
        state: The agent's state; between the two only the reply is added.
    """
    namespace = str((config.get("configurable") or {}).get("checkpoint_ns") or "")
    said = [str(message.text) for message in messages_of(state) if isinstance(message, HumanMessage)]
    return Place(scope, digest(thread_of(config), namespace.rpartition("|")[0], *said).hex())


class Offers:
    """The offers of one agent.

    Args:
        store: Where an offer is kept for other processes, if it left out a tool that the lane knows.
    """

    def __init__(self, store: HeadStore) -> None:
        self._store = store
        self._kept: OrderedDict[tuple[Place, str], frozenset[str]] = OrderedDict()
        self._lock = Lock()

    def keep(self, place: Place, reply: AIMessage, offered: frozenset[str], *, withheld: bool) -> None:
        """Keep what was offered when a reply was made.

        Args:
            place: Where it was made.
            reply: The reply; nothing is kept for one that calls no tool.
            offered: Names of the tools that were offered.
            withheld: Whether the lane has tools that were not.
        """
        if not reply.tool_calls:
            return
        first = str(reply.tool_calls[0]["id"])
        with self._lock:
            for key in filter(None, (reply.id, first)):
                self._kept[place, key] = offered
                self._kept.move_to_end((place, key))
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        name = _name(place, first)
        if withheld or self._store.note(place.scope, name) is not None:  # servers there are that number their calls
            self._store.save_note(place.scope, name, json.dumps(sorted(offered)), time.time())

    def refuses(self, place: Place, reply: AIMessage, tool: str) -> bool:
        """Say whether a tool was not offered when a reply was made; what is not known is not refused.

        Args:
            place: Where it was made.
            reply: As it stands in the state now.
            tool: Name of the tool that is to run.
        """
        first = str(reply.tool_calls[0]["id"])
        with self._lock:
            offered = next((found for key in (reply.id or "", first) if (found := self._kept.get((place, key)))), None)
        if offered is None:
            stored = self._store.note(place.scope, _name(place, first))
            offered = None if stored is None else frozenset(json.loads(stored))
        return tool in noted(reply) if offered is None else tool not in offered


def noted(reply: AIMessage) -> Sequence[str]:
    """Return the names that a reply's metadata says were called and not offered."""
    own = reply.response_metadata.get("headstay")
    return cast("dict[str, Any]", own).get(MASKED, ()) if isinstance(own, dict) else ()


def reply_with(state: Any, call_id: str) -> AIMessage | None:
    """Find the reply that made a tool call."""
    for message in reversed(messages_of(state)):
        if isinstance(message, AIMessage) and any(str(call["id"]) == call_id for call in message.tool_calls):
            return message
    return None


def tool_of(state: Any, call_id: str, called: str) -> str:
    """Return the tool that a call will run: a reviewer may have chosen another one, which is put in further inside."""
    edited = _held(state).get(_EDITED)
    decision = cast("dict[str, Any]", edited).get(call_id) if isinstance(edited, dict) else None
    return str(cast("dict[str, Any]", decision).get("name", called)) if isinstance(decision, dict) else called


def messages_of(state: Any) -> Sequence[Any]:
    """Return the messages of an agent's state, in whatever form it is."""
    return cast("Sequence[Any]", _held(state).get("messages") or ())


def _held(state: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", state) if isinstance(state, dict) else getattr(state, "__dict__", {})


def _name(place: Place, first: str) -> str:
    return f"offered-{digest(place.where, first).hex()}"
