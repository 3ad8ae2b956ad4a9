"""Few-shot examples, chosen once for a lane and then kept: the same bytes in every call."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, cast

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from headstay.errors import ConfigError

Example = Mapping[str, str]


class Selector(Protocol):
    """An example selector, as LangChain has them."""

    def select_examples(self, input_variables: dict[str, str], /) -> list[dict[str, Any]]:
        """Choose examples."""
        ...


FewShot = Sequence[Example] | Callable[[], Sequence[Example]] | Selector
"""A list of examples, a callable that returns one, or an example selector of LangChain."""

FewShotAs = Literal["system", "messages"]

_QUESTIONS = ("input", "question", "user", "human")
_ANSWERS = ("output", "answer", "assistant", "ai")


def choose(few_shot: Any) -> list[dict[str, str]]:
    """Ask for the examples; done once for a lane.

    Args:
        few_shot: A list, a callable, or a selector with `select_examples`.

    Returns:
        The examples as plain mappings of texts.

    Raises:
        ConfigError: What came back is no list of mappings.
    """
    select = getattr(few_shot, "select_examples", None)
    # No question: what is chosen is for every conversation of the lane. A selector may insist on its input keys.
    keys: Any = getattr(few_shot, "input_keys", None) or ()
    chosen: Any = (
        select(dict.fromkeys(keys, "")) if callable(select) else few_shot() if callable(few_shot) else few_shot
    )
    if not isinstance(chosen, (list, tuple)) or not all(isinstance(one, Mapping) for one in cast("list[Any]", chosen)):
        raise ConfigError("few_shot= gives no list of examples; give mappings such as {'input': ..., 'output': ...}")
    return [{str(key): str(value) for key, value in one.items()} for one in cast("Sequence[Example]", chosen)]


def dump(examples: Sequence[Example]) -> str:
    """Write examples in the form in which they are pinned."""
    return json.dumps([dict(one) for one in examples], ensure_ascii=False)


def load(pinned: str) -> list[dict[str, str]]:
    """Read pinned examples."""
    return cast("list[dict[str, str]]", json.loads(pinned))


def as_text(examples: Sequence[Example]) -> str:
    """Write examples as a block of system text."""
    shown = ["\n".join(f"{key}: {value}" for key, value in one.items()) for one in examples]
    return "\n\n".join(["Examples:", *shown])


def as_messages(examples: Sequence[Example]) -> list[AnyMessage]:
    """Write examples as message pairs.

    Raises:
        ConfigError: An example has no question or no answer.
    """
    messages: list[AnyMessage] = []
    for one in examples:
        question = next((one[key] for key in _QUESTIONS if key in one), None)
        answer = next((one[key] for key in _ANSWERS if key in one), None)
        if question is None or answer is None:
            raise ConfigError(f"few_shot_as='messages' needs 'input' and 'output' in each example, got {sorted(one)}")
        messages += [HumanMessage(question), AIMessage(answer)]
    return messages
