"""What a vLLM server refuses in a chat request, in its words (0.32.0, recorded 2026-11-29).

Fields it does not know are ignored, markers of other providers among them. The rules stand in
`vllm/entrypoints/openai/chat_completion/protocol.py` and `vllm/entrypoints/generate/base/protocol.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from headstay.emulator.shape import compact, mapping, sequence
from headstay.emulator.vllm_errors import VLLMError, malformed, refused
from headstay.emulator.vllm_settings import VLLMSettings

_SALT_LENGTH = 128
_SALT_FORBIDDEN = frozenset("@/\\\x00")
_TEXTS = frozenset({"text", "refusal", "input_text", "output_text"})
_MEDIA = frozenset({"image_url", "input_audio", "audio_url", "video_url", "input_image", "image_pil"})
_FORMATS = ("text", "json_object", "json_schema", "structural_tag")
_USAGE = 'Correct usage: `{"type": "function", "function": {"name": "my_function"}}`'

_UNMODELLED = (
    "echo",
    "prompt_logprobs",
    "truncate_prompt_tokens",
    "continue_final_message",
    "use_beam_search",
    "kv_transfer_params",
    "logprobs",
)
"""What the server has and the emulator does not; ignoring it would give wrong figures or a wrong answer."""


def check_chat(body: Mapping[str, Any], settings: VLLMSettings) -> None:
    """Check a chat request, all but its length.

    Raises:
        VLLMError: What the server would answer instead.
    """
    for name in _UNMODELLED:
        if body.get(name) not in (None, False):
            raise VLLMError(f"'{name}' is not emulated.", param=name)
    _check_salt(body.get("cache_salt"))
    if body.get("stream_options") and not body.get("stream"):
        raise refused("Stream options can only be defined when `stream=True`.", "stream_options")
    output_format = mapping(body.get("response_format"))
    if output_format.get("type", "text") not in _FORMATS:
        message = "Input should be 'text', 'json_object' or 'json_schema'"
        raise malformed("response_format.type", "literal_error", message, output_format.get("type"))
    if output_format.get("type") == "json_schema" and output_format.get("json_schema") is None:
        message = "When response_format type is 'json_schema', the 'json_schema' field must be provided."
        raise refused(message, "response_format")
    check_messages(body, settings)
    _check_tools(body)
    _check_numbers(body, settings)


def check_messages(body: Mapping[str, Any], settings: VLLMSettings) -> None:
    """Check the messages of a request.

    Raises:
        VLLMError: What the server would answer instead.
    """
    found = body.get("messages")
    if found is None:
        raise malformed("messages", "missing", "Field required", body)
    if found == []:
        raise VLLMError("Cannot apply chat template to an empty conversation. Provide at least one message.")
    if not sequence(found):
        raise malformed("messages", "list_type", "Input should be a valid list", found)
    for index, message in enumerate(sequence(found)):
        _check_message(mapping(message), f"messages.{index}", settings)


def room_for_answer(body: Mapping[str, Any], prompt: int, settings: VLLMSettings) -> int:
    """Return how many tokens the answer may have.

    Args:
        body: The request.
        prompt: Tokens of its prompt.
        settings: The server.

    Raises:
        VLLMError: The prompt leaves no room for one.
    """
    context = settings.context
    if prompt > context:
        # The server stops to count there, so that it never names more than one token too many.
        message = (
            f"This model's maximum context length is {context} tokens. However, your prompt contains at least "
            f"{context + 1} input tokens, which exceeds this limit even without any output tokens. Please reduce the "
            "length of the input prompt."
        )
        raise refused(message, "input_tokens", context + 1)
    if prompt == context:
        raise refused("max_tokens must be at least 1, got 0.", "max_tokens", 0)
    asked = _limit(body)
    return context - prompt if asked is None else min(asked, context - prompt)


def _limit(body: Mapping[str, Any]) -> int | None:
    found = body.get("max_completion_tokens")
    return body.get("max_tokens") if found is None else found


def _check_salt(salt: object) -> None:
    if salt is None:
        return
    if not isinstance(salt, str) or not salt:
        raise refused("Parameter 'cache_salt' must be a non-empty string if provided.", "cache_salt")
    if len(salt) > _SALT_LENGTH or _SALT_FORBIDDEN & {*salt}:
        message = "Parameter 'cache_salt' must be at most 128 characters and must not contain '@', '/', '\\\\', or NUL."
        raise refused(message, "cache_salt")


def _check_message(message: Mapping[str, Any], path: str, settings: VLLMSettings) -> None:
    content = message.get("content")
    if content is None and "content" in message and message.get("role") != "assistant":
        raise malformed(f"{path}.content", "string_type", "Input should be a valid string", None)
    for part in map(mapping, sequence(content)):
        kind = part.get("type")
        if kind in _MEDIA:
            raise VLLMError(f"{settings.model} is not a multimodal model")
        if kind not in _TEXTS:
            message_text = f"Unsupported chat content part type: {kind!r}. Supported types: text, refusal."
            raise VLLMError(message_text, param="type")


def _check_numbers(body: Mapping[str, Any], settings: VLLMSettings) -> None:
    for name in ("max_tokens", "max_completion_tokens", "n"):
        value = body.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise malformed(name, "int_parsing", "Input should be a valid integer", value)
    limit = _limit(body)
    if limit is not None and limit < 1:
        raise refused(f"max_tokens must be at least 1, got {limit}.", "max_tokens", limit)
    if limit is not None and limit > settings.context:
        message = (
            f"max_tokens={limit} cannot be greater than max_model_len={settings.context}. "
            "Please request fewer output tokens."
        )
        raise refused(message, "max_tokens", limit)
    choices = body.get("n")
    if choices is not None and choices < 1:
        raise VLLMError(f"n must be at least 1, got {choices}.")
    if choices not in (None, 1):
        raise VLLMError("'n' above 1 is not emulated.", param="n")


def _check_tools(body: Mapping[str, Any]) -> None:
    tools, choice = body.get("tools"), body.get("tool_choice")
    if tools == []:
        message = "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely."
        raise refused(message, "tools")
    for index, tool in enumerate(map(mapping, sequence(tools))):
        if tool.get("type", "function") != "function":
            path = f"tools.{index}.type"
            raise malformed(path, "literal_error", "Input should be 'function'", tool.get("type"))
    if choice is None or choice == "none":
        return
    if tools is None:
        raise refused("When using `tool_choice`, `tools` must be set.", "tool_choice")
    if mapping(choice) or choice == {}:
        _check_named_tool(mapping(choice), sequence(tools))
    elif choice not in ("auto", "required"):
        message = (
            f'Invalid value for `tool_choice`: {choice}! Only named tools, "none", "auto" or "required" are supported.'
        )
        raise refused(message, "tool_choice")


def _check_named_tool(choice: Mapping[str, Any], tools: Sequence[Any]) -> None:
    """Check a choice that is an object; `allowed_tools` is one that vLLM does not know."""
    function = choice.get("function")
    named = mapping(function)
    if not named and function != {}:
        message = f"Invalid value for `function`: `{_shown(function)}` in `tool_choice`! {_USAGE}"
        raise refused(message, "tool_choice.function")
    name = named.get("name")
    if "name" not in named:
        message = f"Expected field `name` in `function` in `tool_choice`! {_USAGE}"
        raise refused(message, "tool_choice.function.name")
    if not isinstance(name, str) or not name:
        message = f"Invalid `name` in `function`: `{_shown(name)}` in `tool_choice`! {_USAGE}"
        raise refused(message, "tool_choice.function.name")
    if all(mapping(mapping(tool).get("function")).get("name") != name for tool in tools):
        message = "The tool specified in `tool_choice` does not match any of the specified `tools`"
        raise refused(message, "tool_choice")


def _shown(value: object) -> str:
    return str(value) if value is None or isinstance(value, str) else compact(value)
