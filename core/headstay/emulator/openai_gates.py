"""The request fields both OpenAI APIs share, checked strictly against the generation of the model.

Sources: prompt-caching guide (developers.openai.com/api/docs/guides/prompt-caching, page state 2026-09-23)
and the types of openai 3.57.0, both seen 2026-11-29. A field of another generation is a 400 that names it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from headstay.emulator.openai_errors import (
    ApiError,
    known_only,
    mapping,
    one_of,
    required,
    string,
    unsupported,
)
from headstay.emulator.openai_models import ModelFacts, Retention, find_model
from headstay.emulator.openai_prompt import Prompt

_MODES = ("implicit", "explicit")
_LIFETIMES = ("30m", "12h")
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_VERBOSITIES = ("low", "medium", "high")
_TIERS = ("auto", "default", "flex", "scale", "priority", "fast", "ultrafast")
_TOOL_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")


@dataclass(frozen=True)
class CacheFields:
    """The prompt-cache fields of a request.

    Attributes:
        key: `prompt_cache_key`.
        mode: `prompt_cache_options.mode`.
        ttl: `prompt_cache_options.ttl`.
        retention: `prompt_cache_retention`.
        prewarm: `prompt_cache_options.prewarm`, Responses only.
        compare: `prompt_cache_options.comparison_response_id`, Responses only.
    """

    key: str | None = None
    mode: Literal["implicit", "explicit"] = "implicit"
    ttl: str = "30m"
    retention: Retention | None = None
    prewarm: bool = False
    compare: str | None = None


@dataclass(frozen=True)
class Reading:
    """A checked request.

    Attributes:
        body: The request body.
        model: The facts of its model.
        prompt: Its rendered prompt.
        settings: Parameters that are part of the prefix without being tokens, by name.
        cache: Its prompt-cache fields.
        items: Its messages or input items, behind those of the response it continues.
        stream: Whether the answer is streamed.
        limit: The most output tokens, or None.
    """

    body: Mapping[str, Any]
    model: ModelFacts
    prompt: Prompt
    settings: Mapping[str, object]
    cache: CacheFields
    items: Sequence[Any]
    stream: bool
    limit: int | None


def read_model(body: Mapping[str, Any]) -> ModelFacts:
    """Return the facts of the model a request names.

    Raises:
        ApiError: 400 if it names none, 404 if there is no such model.
    """
    name = string(required(body, "model", ""), "model")
    model = find_model(name)
    if model is None:
        message = f"The model `{name}` does not exist or you do not have access to it."
        raise ApiError(message, status=404, code="model_not_found")
    return model


def refuse_unmodelled(body: Mapping[str, Any], *names: str) -> None:
    """Refuse parameters that the API has and the emulator does not: ignoring them would give wrong figures."""
    for name in names:
        if body.get(name) not in (None, False):
            raise ApiError(f"'{name}' is not emulated.", param=name, code="not_emulated")


def read_cache_fields(body: Mapping[str, Any], model: ModelFacts, *, api: Literal["chat", "responses"]) -> CacheFields:
    """Read and check the request-level prompt-cache fields.

    `prompt_cache_retention` belongs to models before GPT-5.6 and `prompt_cache_options` to GPT-5.6 and later;
    each is refused on the other side. `12h` at request level, `prewarm` and `comparison_response_id` exist in
    the Responses API only.
    """
    key = body.get("prompt_cache_key")
    key = None if key is None else string(key, "prompt_cache_key")
    retention = body.get("prompt_cache_retention")
    if retention is not None:
        if model.marked:
            raise unsupported("prompt_cache_retention")
        one_of(retention, model.retentions, "prompt_cache_retention")
    found = body.get("prompt_cache_options")
    if found is None:
        return CacheFields(key=key, retention=cast("Retention | None", retention))
    if not model.marked:
        raise unsupported("prompt_cache_options")
    options = mapping(found, "prompt_cache_options")
    allowed = {"mode", "ttl"} if api == "chat" else {"mode", "ttl", "prewarm", "comparison_response_id"}
    known_only(options, allowed, "prompt_cache_options")
    lifetimes = _LIFETIMES[:1] if api == "chat" else _LIFETIMES
    mode = one_of(options.get("mode", "implicit"), _MODES, "prompt_cache_options.mode")
    return CacheFields(
        key=key,
        mode=cast("Literal['implicit', 'explicit']", mode),
        ttl=one_of(options.get("ttl", "30m"), lifetimes, "prompt_cache_options.ttl"),
        prewarm=options.get("prewarm") is True,
        compare=options.get("comparison_response_id"),
    )


def read_marker(part: Mapping[str, Any], model: ModelFacts, path: str) -> tuple[bool, str | None]:
    """Return whether a content part carries a breakpoint, and its own lifetime if it names one."""
    if part.get("prompt_cache_breakpoint") is None:
        return False, None
    path = f"{path}.prompt_cache_breakpoint"
    if not model.marked:
        raise unsupported(path)
    marker = mapping(part["prompt_cache_breakpoint"], path)
    known_only(marker, {"mode", "ttl"}, path)
    one_of(required(marker, "mode", path), ("explicit",), f"{path}.mode")
    ttl = marker.get("ttl")
    return True, None if ttl is None else one_of(ttl, _LIFETIMES, f"{path}.ttl")


def read_settings(
    body: Mapping[str, Any], *, effort: object, verbosity: object, output_format: object
) -> dict[str, object]:
    """Return the parameters a cached prefix depends on beside its tokens, with defaults filled in.

    Model and tools are not here: the model is part of the cache's scope and tools are tokens. `tool_choice`
    and `allowed_tools` are not here because they do not change the prefix.
    """
    if effort is not None:
        one_of(effort, _EFFORTS, "reasoning.effort")
    if verbosity is not None:
        one_of(verbosity, _VERBOSITIES, "verbosity")
    tier = body.get("service_tier")
    tier = "default" if tier is None else one_of(tier, _TIERS, "service_tier")
    return {
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "text_format": output_format,
        "reasoning_effort": effort,
        "verbosity": "medium" if verbosity is None else verbosity,
        "service_tier": {"auto": "default", "fast": "priority"}.get(tier, tier),
        "context_management": body.get("context_management"),
    }


def check_tool_names(names: Sequence[tuple[str, str]]) -> None:
    """Refuse malformed and repeated tool names.

    Args:
        names: (name, path) of each named tool, in order.
    """
    seen: set[str] = set()
    for name, path in names:
        if not _TOOL_NAME.match(name):
            message = (
                f"Invalid '{path}': string does not match pattern. "
                "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
            )
            raise ApiError(message, param=path, code="invalid_value")
        if name in seen:
            message = f"Invalid '{path}': tool names must be unique, but '{name}' is there more than once."
            raise ApiError(message, param=path, code="invalid_value")
        seen.add(name)


def check_schema(name: str, schema: object, path: str) -> None:
    """Refuse function parameters that are not an object schema."""
    if schema is None:
        return
    kind = mapping(schema, path).get("type")
    if schema and kind != "object":
        message = (
            f"Invalid schema for function '{name}': schema must be a JSON Schema of 'type: \"object\"', "
            f"got 'type: \"{kind}\"'."
        )
        raise ApiError(message, param=path, code="invalid_function_parameters")


def read_limit(body: Mapping[str, Any], *names: str) -> int | None:
    """Return the first limit on output tokens that is set."""
    for name in names:
        value = body.get(name)
        if value is not None:
            if not isinstance(value, int) or value < 1:
                message = f"Invalid '{name}': expected an integer of at least 1."
                raise ApiError(message, param=name, code="integer_below_min_value")
            return value
    return None
