"""Refuses what is given as a setting and cannot work, in words that say what to give."""

from typing import TYPE_CHECKING, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.messages.utils import convert_to_messages
from langchain_core.runnables.base import RunnableBindingBase

from headstay.errors import ConfigError
from headstay.slots import Slot

if TYPE_CHECKING:
    from collections.abc import Sequence


def given_as(value: object) -> str:
    """Name what was given by its class, or say that it is one."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def check_named(setting: str, value: object) -> None:
    """Refuse what is no name, no callable on the config and not None.

    Raises:
        ConfigError: It is none of these.
    """
    if value is not None and not (isinstance(value, str) and value) and not callable(value):
        raise ConfigError(f"{setting}={value!r}: give a str that is not empty, a callable on the config, or None")


def idle_slots(volatile: object) -> list[Slot]:
    """Return the slots that a semantic cache is given.

    Raises:
        ConfigError: They are no slots.
    """
    given: object = [volatile] if isinstance(volatile, Slot) else volatile
    slots = cast("Sequence[object]", given) if isinstance(given, (list, tuple)) else [None]
    if not all(isinstance(slot, Slot) for slot in slots):
        raise ConfigError(
            f"volatile={volatile!r} of a SemanticCache: give Slot(..., affects_answer=False) or a list of such slots"
        )
    return cast("list[Slot]", list(slots))


def messages_of(asked: object) -> list[BaseMessage]:
    """Return what is asked, as messages.

    Raises:
        ConfigError: It is neither a question nor messages.
    """
    if isinstance(asked, str):
        return [HumanMessage(asked)]
    if isinstance(asked, BaseMessage):
        return [asked]
    try:
        return convert_to_messages(cast("Sequence[BaseMessage]", asked))
    except (ValueError, TypeError, NotImplementedError) as problem:
        raise ConfigError(f"explain({given_as(asked)}): give a question or a list of messages") from problem


def check_asked_model(model: object) -> None:
    """Refuse what is no chat model, for `explain`.

    Raises:
        ConfigError: The message says what to give.
    """
    if model is None or isinstance(model, BaseChatModel):
        return
    kind = given_as(model)
    if isinstance(model, str):
        to_do = f"give the chat model itself, init_chat_model({model!r})"
    elif callable(getattr(model, "explain", None)) and not isinstance(model, type):
        to_do = "a chain made by cached() explains itself: chain.explain(input)"
    elif isinstance(model, RunnableBindingBase):
        to_do = "give the chat model itself, and what is bound to it as settings: explain(messages, model, tools=...)"
    else:
        to_do = "give a chat model; for a chain use cached(...).explain(input)"
    raise ConfigError(f"explain(model={kind}): {to_do}")
