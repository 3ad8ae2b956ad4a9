"""One request as the semantic cache sees it, before `arrange` touches it.

A host binding reads its own messages and settings into these; everything that decides about an answer is a pure
function of them. What must never count (message ids, run ids, tool-call ids, response metadata) has no place to go.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from headstay.canonical import meaning_text

Role = Literal["system", "user", "assistant", "tool"]

_NAMED_ONLY = re.compile(r"<(?:class|function|bound method|built-in|module) [^>]*>|<[\w.]+ object at 0x[0-9a-fA-F]+>")


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of the application's request.

    Attributes:
        role: Who said it.
        text: All its text, joined.
        other: Canonical JSON of what is not text (tool calls without their ids, images and files by the hash of their
            bytes); empty if there is nothing.
        unhashed: Whether it holds an image or file by reference, whose content is not known.
    """

    role: Role
    text: str
    other: str = ""
    unhashed: bool = False


@dataclass(frozen=True, slots=True)
class AskedRequest:
    """One request, host-neutral.

    Attributes:
        turns: Its messages in order, system messages included.
        settings: Canonical JSON of model, endpoint, call parameters, tools and response schema: see `read_settings`.
        opaque: What the settings name without showing (a class-valued schema), or empty.
        query: The declared query, or None. Where it stands in the last human text, only it is compared by meaning and
            the rest of that text must be identical.
        tenant: Whose answers may be read, or None.
        user: The same within a tenant, or None.
        version: What the answer depends on beyond the request (documents, policy), or None.
        exact_fields: Per-call values that may affect the answer, by name. What was declared `affects_answer=False` is
            not among them.
        generations: How many answers are asked for.
    """

    turns: tuple[Turn, ...]
    settings: str = "{}"
    opaque: str = ""
    query: str | None = None
    tenant: str | None = None
    user: str | None = None
    version: str | None = None
    exact_fields: Mapping[str, str] = field(default_factory=dict[str, str])
    generations: int = 1

    def named(self, *, tenant: str | None, user: str | None, version: str | None) -> "AskedRequest":
        """Return a copy for a tenant, a user and a version; what is named already stays."""
        return replace(
            self,
            tenant=tenant if self.tenant is None else self.tenant,
            user=user if self.user is None else self.user,
            version=version if self.version is None else self.version,
        )

    @property
    def asking(self) -> int | None:
        """Index of the turn that asks: the last one that is not a system message, if a human said it."""
        for index in range(len(self.turns) - 1, -1, -1):
            if self.turns[index].role != "system":
                return index if self.turns[index].role == "user" else None
        return None


def read_settings(settings: Mapping[str, object]) -> tuple[str, str]:
    """Write all settings of a call in one form, and name what that form does not show.

    The order of keys does not count, and neither does the order of `tools`: the same tools in another order are the
    same request. A schema class counts by its JSON schema, never by its name.

    Args:
        settings: Model, endpoint, call parameters, tools, tool choice, response schema; keys and credentials left out.

    Returns:
        The text for `AskedRequest.settings`, and for `AskedRequest.opaque` the first value that has a name but no
        content (a function, a class without a schema), or an empty text.
    """
    shown = dict(settings)
    tools = shown.get("tools")
    if isinstance(tools, (list, tuple)):
        shown["tools"] = sorted(meaning_text(tool) for tool in cast("list[object]", tools))
    return meaning_text(shown), _without_content(settings)


def opaque_in(text: str) -> str:
    """Return the first value in a settings text that only its `repr` stands for, as in `<class 'app.Answer'>`."""
    found = _NAMED_ONLY.search(text)
    return found.group() if found else ""


def _without_content(value: object) -> str:
    """Return the name of the first value inside that has no JSON form, or an empty text."""
    if value is None or isinstance(value, (str, int, float, bytes, bytearray)):
        return ""
    if isinstance(value, Mapping):
        return _first(list(cast("Mapping[object, object]", value).values()))
    if isinstance(value, (list, tuple, set, frozenset)):
        return _first(list(cast("list[object]", value)))
    if callable(getattr(value, "model_json_schema" if isinstance(value, type) else "model_dump", None)):
        return ""
    kind = value if isinstance(value, type) else type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def _first(values: list[object]) -> str:
    return next((name for name in map(_without_content, values) if name), "")
