"""Why the semantic cache did not answer, answered only exactly, or did not keep an answer: one vocabulary."""

from enum import StrEnum
from types import MappingProxyType


class Reason(StrEnum):
    """Every reason there is. `TEXT` holds a line for the user to each."""

    # who switched it off, or did not say enough
    DISABLED = "disabled"
    BYPASSED = "bypassed"
    REFRESHED = "refreshed"
    DRY_RUN = "dry_run"
    NO_TENANT = "no_tenant"
    NO_CONFIG = "no_config"
    # requests that are never looked up
    NO_QUERY = "no_query"
    NOT_HUMAN_LAST = "not_human_last"
    TOOL_RESULT_LAST = "tool_result_last"
    UNHASHED_MEDIA = "unhashed_media"
    SEVERAL_GENERATIONS = "several_generations"
    OPAQUE_SCHEMA = "opaque_schema"
    # requests that are looked up by their exact text only
    NO_TEXT = "no_text"
    TEMPLATED_TEXT = "templated_text"
    QUERY_NOT_IN_TEXT = "query_not_in_text"
    OVER_WINDOW = "over_window"
    UNKNOWN_TOKENS = "unknown_tokens"
    UNSUPPORTED_SCRIPT = "unsupported_script"
    UNFAMILIAR_LANGUAGE = "unfamiliar_language"
    CODE = "code"
    # nothing that fits
    NOTHING_STORED = "nothing_stored"
    BELOW_THRESHOLD = "below_threshold"
    MARKED_WRONG = "marked_wrong"
    TOOL_CALLS_NOT_REPLAYED = "tool_calls_not_replayed"
    LEASE_LOST = "lease_lost"
    # near enough by the embedder, and still another question
    VETO_SURFACE = "veto_surface"
    VETO_NUMBER = "veto_number"
    VETO_DATE = "veto_date"
    VETO_ID = "veto_id"
    VETO_CURRENCY = "veto_currency"
    VETO_UNIT = "veto_unit"
    VETO_QUOTE = "veto_quote"
    VETO_NEGATION = "veto_negation"
    VETO_POLARITY = "veto_polarity"
    VETO_KIND = "veto_kind"
    VETO_PERSON = "veto_person"
    VETO_TIME = "veto_time"
    VETO_NAME = "veto_name"
    VETO_QUESTION = "veto_question"
    VETO_ORDER = "veto_order"
    # answers that are not kept
    NOT_ADMITTED_UNFINISHED = "not_admitted_unfinished"
    NOT_ADMITTED_TRUNCATED = "not_admitted_truncated"
    NOT_ADMITTED_EMPTY = "not_admitted_empty"
    NOT_ADMITTED_REFUSAL = "not_admitted_refusal"
    NOT_ADMITTED_ERROR = "not_admitted_error"
    NOT_ADMITTED_TOOL_CALLS = "not_admitted_tool_calls"
    NOT_ADMITTED_TOO_LARGE = "not_admitted_too_large"
    NOT_ADMITTED_CALLER = "not_admitted_caller"
    NOT_ADMITTED_FORM = "not_admitted_form"
    # something failed, and the call went on without the cache
    EMBEDDER_FAILED = "embedder_failed"
    BAD_VECTOR = "bad_vector"
    STORE_FAILED = "store_failed"
    INTERNAL_ERROR = "internal_error"

    @property
    def text(self) -> str:
        """What it means and what to do about it, in one line."""
        return TEXT[self]


TEXT = MappingProxyType(
    {
        Reason.DISABLED: "the cache is switched off",
        Reason.BYPASSED: "this call asked to go past the cache",
        Reason.REFRESHED: "this call asked for a fresh answer; it replaces the kept one",
        Reason.DRY_RUN: "dry run: the answer was found and not served",
        Reason.NO_TENANT: "several tenants or users share this cache and this call names none; pass tenant= or user=",
        Reason.NO_CONFIG: "LangChain hands this cache no config for functions of it; use cache_aware() or "
        "caching(tenant=)",
        Reason.NO_QUERY: "the input has no text where query= says the question is",
        Reason.NOT_HUMAN_LAST: "the last message is not a human's",
        Reason.TOOL_RESULT_LAST: "the last message is a tool result; steps of an agent are never answered from a cache",
        Reason.UNHASHED_MEDIA: "an image or file is given by reference, so its content is not known; send its bytes",
        Reason.SEVERAL_GENERATIONS: "more than one answer is asked for (n > 1)",
        Reason.OPAQUE_SCHEMA: "a part has no content to compare; give plain values, and a schema as JSON schema "
        "or to CacheAwareChatModel",
        Reason.NO_TEXT: "the last message has no text to compare; identical requests only",
        Reason.TEMPLATED_TEXT: "the last message holds more than a question; identical requests only. Declare query=",
        Reason.QUERY_NOT_IN_TEXT: "the declared query is not a part of the last message; identical requests only",
        Reason.OVER_WINDOW: "the query is longer than the embedder reads; identical requests only",
        Reason.UNKNOWN_TOKENS: "the embedder does not know all words of the query; identical requests only",
        Reason.UNSUPPORTED_SCRIPT: "the embedder does not read this script or sign; identical requests only",
        Reason.UNFAMILIAR_LANGUAGE: "the embedder reads English and this seems to be none; identical requests only",
        Reason.CODE: "the query holds code, where one sign matters; identical requests only",
        Reason.NOTHING_STORED: "nothing is kept yet for this model, system prompt, history and settings",
        Reason.BELOW_THRESHOLD: "no kept question is near enough",
        Reason.MARKED_WRONG: "the kept answer was marked wrong by feedback",
        Reason.TOOL_CALLS_NOT_REPLAYED: "the kept answer holds tool calls; these are replayed by opt-in only",
        Reason.LEASE_LOST: "another call was fetching the same answer and did not finish in time",
        Reason.VETO_SURFACE: "differs only in case, accents or spaces, which the embedder cannot see",
        Reason.VETO_NUMBER: "the numbers differ, or the signs between them",
        Reason.VETO_DATE: "the dates differ",
        Reason.VETO_ID: "a code, version, address or name with digits differs",
        Reason.VETO_CURRENCY: "the currencies differ, or their order does",
        Reason.VETO_UNIT: "the units differ, or their order does",
        Reason.VETO_QUOTE: "the quoted texts differ",
        Reason.VETO_NEGATION: "one of them is negated and the other is not",
        Reason.VETO_POLARITY: "they ask for opposites",
        Reason.VETO_KIND: "they name different things of one kind",
        Reason.VETO_PERSON: "they are about different people",
        Reason.VETO_TIME: "they are about different times",
        Reason.VETO_NAME: "the names differ",
        Reason.VETO_QUESTION: "they ask for different things (who, when, where, why)",
        Reason.VETO_ORDER: "the same words stand in another order",
        Reason.NOT_ADMITTED_UNFINISHED: "the answer did not finish normally, so it is not kept",
        Reason.NOT_ADMITTED_TRUNCATED: "the answer was cut at its token limit, so it is not kept",
        Reason.NOT_ADMITTED_EMPTY: "the answer is empty, so it is not kept",
        Reason.NOT_ADMITTED_REFUSAL: "the answer is a refusal or was filtered, so it is not kept",
        Reason.NOT_ADMITTED_ERROR: "the call failed, so nothing is kept",
        Reason.NOT_ADMITTED_TOOL_CALLS: "the answer holds tool calls; these are kept by opt-in only",
        Reason.NOT_ADMITTED_TOO_LARGE: "the answer is larger than one entry may be",
        Reason.NOT_ADMITTED_CALLER: "this call asked not to be kept",
        Reason.NOT_ADMITTED_FORM: "the answer holds what could not be read back from JSON as it was",
        Reason.EMBEDDER_FAILED: "the embedder failed; the call went on without the cache",
        Reason.BAD_VECTOR: "the embedder returned something that is no usable vector",
        Reason.STORE_FAILED: "the store failed; the call went on without the cache",
        Reason.INTERNAL_ERROR: "the cache failed; the call went on without it",
    }
)
"""One line for the user to each reason."""
