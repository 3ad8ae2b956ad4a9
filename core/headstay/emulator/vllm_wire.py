"""The answers of a vLLM server: completions whole and as chunks, models, tokens, metrics.

Recorded with vLLM 0.32.0 on 2026-11-29.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headstay.emulator.openai_output import Call, Output, deltas
from headstay.emulator.shape import mapping
from headstay.emulator.vllm_cache import Held
from headstay.emulator.vllm_engine import VLLMFigures
from headstay.emulator.vllm_settings import VLLMSettings

FINGERPRINT = "vllm-0.32.0-emulated"


def message_of(output: Output) -> dict[str, Any]:
    """Return the message of an answer."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if output.calls and not output.text else output.text,
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
        "reasoning": output.thinking,
    }
    if output.calls:
        message["tool_calls"] = [_call(call) for call in output.calls]
    return message


def completion(
    output: Output, held: Held, *, model: str, prompt: int, generated: int, name: str, created: int
) -> dict[str, Any]:
    """Return a whole completion.

    Args:
        output: The answer.
        held: What was read and put into the cache.
        model: The model's name.
        prompt: Tokens of the prompt; what was read and created are parts of it.
        generated: Tokens of the answer.
        name: The completion's id.
        created: Seconds since the epoch.
    """
    choice = {
        "index": 0,
        "message": message_of(output),
        "logprobs": None,
        "finish_reason": output.finish,
        "stop_reason": None,
        "token_ids": None,
    }
    details = {"cached_tokens": held.read, "created_cache_tokens": held.created, "multimodal_tokens": None}
    return {
        "id": name,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [choice],
        "service_tier": None,
        "system_fingerprint": FINGERPRINT,
        "usage": {
            "prompt_tokens": prompt,
            "total_tokens": prompt + generated,
            "completion_tokens": generated,
            "prompt_tokens_details": details,
            "completion_tokens_details": None,
        },
        "prompt_logprobs": None,
        "prompt_token_ids": None,
        "kv_transfer_params": None,
    }


def chunks(body: Mapping[str, Any], whole: Mapping[str, Any], output: Output) -> Iterator[Mapping[str, Any]]:
    """Return the chunks of a streamed completion.

    The usage comes in a last chunk without choices, and only if `stream_options.include_usage` asked for it.
    """
    wanted = mapping(body.get("stream_options")).get("include_usage") is True
    frame = {key: whole[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    for delta in _deltas(output):
        yield {**frame, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}]}
    last: dict[str, Any] = {
        "index": 0,
        "delta": {},
        "logprobs": None,
        "finish_reason": output.finish,
        "stop_reason": None,
    }
    end: dict[str, Any] = {**frame, "choices": [last]}
    yield end if wanted else {**end, "system_fingerprint": FINGERPRINT}
    if wanted:
        usage = {name: value for name, value in whole["usage"].items() if value is not None}
        details = {name: value for name, value in usage["prompt_tokens_details"].items() if value is not None}
        told = {**usage, "prompt_tokens_details": details}
        yield {**frame, "choices": [], "usage": told, "system_fingerprint": FINGERPRINT}


def models(settings: VLLMSettings, created: int) -> dict[str, Any]:
    """Return the list of models: the one that is served, and its adapters."""
    own = {"object": "model", "created": created, "owned_by": "vllm"}
    base = {"id": settings.model, **own, "root": settings.model, "parent": None, "max_model_len": settings.context}
    adapters = [
        {"id": name, **own, "root": name, "parent": settings.model, "max_model_len": None} for name in settings.adapters
    ]
    return {"object": "list", "data": [base, *adapters]}


def tokenized(tokens: Sequence[int], settings: VLLMSettings) -> dict[str, Any]:
    """Return the answer of `/tokenize`."""
    return {"count": len(tokens), "max_model_len": settings.context, "tokens": [*tokens], "token_strs": None}


def metrics(figures: VLLMFigures, settings: VLLMSettings) -> str:
    """Return the part of `/metrics` that tells of the prefix cache, in Prometheus' text format."""
    labels = f'engine="0",model_name="{settings.model}"'
    config = (
        f'block_size="{settings.block}",enable_prefix_caching="True",engine="0",'
        f'kv_cache_size_tokens="{settings.blocks * settings.block}",num_gpu_blocks="{settings.blocks}"'
    )
    samples = (
        ("vllm:kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.", labels, figures.usage),
        (
            "vllm:prefix_cache_queries_total",
            "counter",
            "Prefix cache queries, in terms of number of queried tokens.",
            labels,
            figures.queried,
        ),
        (
            "vllm:prefix_cache_hits_total",
            "counter",
            "Prefix cache hits, in terms of number of cached tokens.",
            labels,
            figures.read,
        ),
        ("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig", config, 1),
    )
    return "".join(
        f"# HELP {name} {text}\n# TYPE {name} {kind}\n{name}{{{listed}}} {float(value)}\n"
        for name, kind, text, listed, value in samples
    )


def _deltas(output: Output) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for text in deltas(output.thinking or ""):
        yield {"reasoning": text}
    for text in deltas(output.text):
        yield {"content": text}
    for index, call in enumerate(output.calls):
        opening = {"id": call.id, "type": "function", "index": index, "function": {"name": call.name}}
        yield {"content": None, "tool_calls": [opening]}
        for text in deltas(call.arguments):
            yield {"content": None, "tool_calls": [{"index": index, "function": {"arguments": text}}]}


def _call(call: Call) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
