"""LangSmith runs that were exported as OpenTelemetry spans, back to runs."""

from headstay.comparison.segment import Json
from headstay.trace.fields import decoded
from headstay.trace.otel_records import Record
from headstay.trace.untyped import first_text

_KIND = "langsmith.span.kind"
_METADATA = "langsmith.metadata."


def run_of(record: Record) -> Json | None:
    """Return the run that LangSmith's OpenTelemetry exporter (langsmith 0.15.1) wrote as a span.

    It keeps inputs and outputs as JSON texts, the metadata flat, and of the invocation parameters the tools and, in the
    metadata, what LangChain repeats there.

    Args:
        record: A span.

    Returns:
        The run, or None if the span is none of LangSmith's.
    """
    attributes = record.attributes
    if _KIND not in attributes:
        return None
    metadata = {
        name.removeprefix(_METADATA): decoded(value) for name, value in attributes.items() if name.startswith(_METADATA)
    }
    params = {name: value for name, value in metadata.items() if not name.startswith(("ls_", "lc_"))}
    tools = decoded(attributes.get("gen_ai.tool.definitions"))
    return {
        "run_type": attributes[_KIND],
        "inputs": attributes.get("gen_ai.prompt"),
        "outputs": attributes.get("gen_ai.completion"),
        "extra": {"metadata": metadata, "invocation_params": {**_sent(params), **({"tools": tools} if tools else {})}},
        "session_id": first_text(attributes, "langsmith.trace.session_id", "langsmith.trace.session_name"),
        "start_time": record.started,
        "first_token_time": record.first_token,
        "end_time": record.ended,
        "status": "error" if record.failed else "success",
        "prompt_tokens": attributes.get("gen_ai.usage.input_tokens"),
        "completion_tokens": attributes.get("gen_ai.usage.output_tokens"),
    }


def _sent(params: Json) -> Json:
    """Leave out the metadata that the application gave, as far as the parameters can be told from it."""
    known = ("thinking", "reasoning", "reasoning_effort", "output_config", "tool_choice", "text", "response_format")
    more = ("max_tokens", "service_tier", "parallel_tool_calls", "include", "previous_response_id", "use_responses_api")
    return {name: params[name] for name in (*known, *more) if name in params}
