"""What to do about each cause."""

from collections.abc import Mapping

from headstay.causes import Cause

REMEDIES: Mapping[Cause, str] = {
    Cause.CLOCK_IN_HEAD: 'declare the clock with Slot(..., every="call"), or send it last, behind the question',
    Cause.RANDOM_ID_IN_HEAD: "leave the id out of the prompt, or send it as request metadata",
    Cause.VALUE_IN_HEAD: "declare the value with Slot(...), or send it behind what stays the same",
    Cause.SYSTEM_TEXT_CHANGED: "keep one system text for a conversation; send a changed instruction as a new message",
    Cause.MEMORY_IN_HEAD: 'declare the section with Slot(..., every="conversation"), or send it last',
    Cause.RETRIEVAL_IN_HEAD: 'declare the section with Slot(..., every="call"), or pass it as tail=',
    Cause.TOOL_ORDER: "give the tools in one order, such as sorted by name",
    Cause.TOOL_ADDED: "declare every tool from the first call on; one that comes later goes last and stays",
    Cause.TOOL_REMOVED: "keep the tool declared and refuse its calls instead",
    Cause.TOOL_SCHEMA_CHANGED: "give a changed tool a new name, or change it between conversations",
    Cause.TOOL_DESCRIPTION_CHANGED: "keep dates, counts and ids out of the description",
    Cause.SCHEMA_KEY_ORDER: "build the schema with its keys in one order",
    Cause.CALL_KEY_ORDER: "send the arguments of a call back as the model wrote them; do not parse and rewrite them",
    Cause.WHITESPACE: "send the text with the same blanks, line breaks and blocks in every call",
    Cause.UNICODE_FORM: "write the text in one Unicode form and one way of escaping, such as NFC",
    Cause.HISTORY_EDITED: "send messages back as they were first sent; add what is new at the end",
    Cause.HISTORY_DROPPED: "drop old messages seldom and many at once, not one each turn",
    Cause.HISTORY_SUMMARISED: "summarise seldom; the head still hits, the history is new",
    Cause.TOOL_RESULT_CLEARED: "clear old results seldom and many at once, and leave cleared what is cleared",
    Cause.MESSAGE_REORDERED: "send the messages in the order they were said",
    Cause.PARALLEL_RESULTS_REORDERED: "put the results of parallel calls in the order of their calls",
    Cause.IDS_REGENERATED: "store the ids of tool calls with the messages, and send them back",
    Cause.IMAGE_REENCODED: "encode an image once, and send the stored bytes back",
    Cause.THINKING_CHANGED: "send thinking blocks back whole and unchanged, signatures included",
    Cause.TOOL_CHOICE_CHANGED: "keep tool_choice the same for a conversation",
    Cause.PARAMETERS_CHANGED: "keep this field the same for a conversation",
    Cause.MODEL_CHANGED: "keep one model for a conversation; every model has a cache of its own",
    Cause.MARKERS_MISSING: "put a cache marker on the end of the head and of the last message, in every call",
    Cause.MARKERS_OVER_LIMIT: "take markers off: those on older messages first",
    Cause.MARKER_TTL_ORDER: "put longer lifetimes before shorter ones along tools, system, messages",
    Cause.LOOKBACK_EXCEEDED: "keep the marker of the call before in its place, or set one at least every 20 blocks",
    Cause.BELOW_MINIMUM: "none is needed: a prompt this short is not cached, and cheap",
    Cause.TTL_EXPIRED: (
        'ask for a longer lifetime (ttl="1h" at Anthropic, "12h" at OpenAI from GPT-5.6 on), or ask again before the '
        "entry has expired"
    ),
    Cause.COLD_FAN_OUT: "let one call begin to answer before the others with the same head are sent",
    Cause.PROVIDER_ROUTING: (
        "stay with one provider, region and deployment, and send one prompt_cache_key for a head; several where more "
        "than about 15 requests a minute share it"
    ),
    Cause.RECEIPT_LOST: "send replies back as they came, with their response_metadata, and share one head store",
    Cause.UNKNOWN: 'compare both requests with "headstay diff", and ask the provider: verify="provider"',
}
"""For every cause, whether two requests show it or only their usage and times."""
