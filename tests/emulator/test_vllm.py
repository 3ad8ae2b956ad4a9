"""The emulated vLLM server through the clients that talk to a real one."""

import json
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import httpx
import openai
import pytest
from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests
from pydantic import SecretStr

from headstay import emulator
from headstay.emulator import Emulator, Reply, VLLMSettings, serve
from headstay.emulator.tokens import count
from headstay.emulator.vllm_cache import VLLMRequest
from headstay.emulator.vllm_engine import VLLMEngine, VLLMFigures
from headstay.local.client import server_at

# A host's own: a parsed completion is dumped with its parsed model, and a Pydantic 1 schema is refused.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),
    pytest.mark.filterwarnings("ignore:Received a Pydantic BaseModel V1 schema:UserWarning"),
]

SETTINGS = VLLMSettings(model="small", block=16, blocks=129, context=1_024, adapters=("tuned",))
RULES = "Answer each question about an order in one short and kind sentence. " * 20
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tell the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture(scope="module")
def shared() -> Iterator[Emulator]:
    with serve(vllm=SETTINGS) as running:
        yield running


@pytest.fixture
def server(shared: Emulator) -> Emulator:
    shared.reset()
    return shared


@pytest.fixture
def client(server: Emulator) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.openai_url, api_key="none", max_retries=0) as made:
        yield made


def talk(*texts: str, system: str = RULES) -> list[Any]:
    """Return a conversation: the user's and the model's texts in turn."""
    said = [{"role": "assistant" if place % 2 else "user", "content": text} for place, text in enumerate(texts)]
    return [{"role": "system", "content": system}, *said]


def ask(client: openai.OpenAI, messages: list[Any], **more: Any) -> Any:
    return client.chat.completions.create(messages=messages, **{"model": "small", "max_tokens": 1, **more})


def read(client: openai.OpenAI, messages: list[Any], **more: Any) -> int:
    return int(ask(client, messages, **more).usage.prompt_tokens_details.cached_tokens)


def prompt_tokens(messages: list[Any]) -> int:
    """Count by hand: three tokens open a message, two close it, and three open the answer."""
    return 3 + sum(5 + count(message["content"]) for message in messages)


def test_the_usage_says_what_was_read_and_created(client: openai.OpenAI) -> None:
    first, second = ask(client, talk("Hello")).usage, ask(client, talk("Good day")).usage
    total = prompt_tokens(talk("Hello"))
    assert (first.prompt_tokens, first.completion_tokens, first.total_tokens) == (total, 1, total + 1)
    details = first.prompt_tokens_details
    assert (details.cached_tokens, details.created_cache_tokens) == (0, total // 16 * 16)
    # shared: the system message, and what opens the user's
    shared = 5 + count(RULES) + 3
    assert second.prompt_tokens_details.cached_tokens == shared // 16 * 16 > 0


def test_a_stream_says_the_same_in_its_last_chunk(client: openai.OpenAI, server: Emulator) -> None:
    ask(client, talk("Hello"))
    whole = ask(client, talk("Hello"), max_tokens=20)
    chunks = list(ask(client, talk("Hello"), max_tokens=20, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text == whole.choices[0].message.content
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason == "stop"
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens == whole.usage.prompt_tokens_details.cached_tokens > 0
    assert chunks[-1].system_fingerprint == whole.system_fingerprint
    assert [exchange.wire for exchange in server.exchanges] == ["openai-chat"] * 3
    plain = list(ask(client, talk("Hello"), stream=True))
    assert all(chunk.usage is None for chunk in plain)


def test_the_answer_is_read_in_the_next_turn(client: openai.OpenAI) -> None:
    asked = talk("Tell me all about the long answer that you are going to repeat to me in full now")
    answer = ask(client, asked, max_tokens=100).choices[0].message.content
    said = [*asked, {"role": "assistant", "content": answer}]
    known = prompt_tokens(said) - 3 - 1  # no answer is opened, and the line end behind it was not generated
    # the last token that was generated, which ends the message, has no attention state
    assert read(client, [*said, {"role": "user", "content": "And?"}]) == (known - 1) // 16 * 16


def test_a_tool_call_is_read_in_the_next_turn(client: openai.OpenAI) -> None:
    asked = talk("What is the weather in Rome, and in all the other places that I have told you about?")
    message = ask(client, asked, tools=[TOOL], max_tokens=200).choices[0].message
    (call,) = message.tool_calls
    assert (call.function.name, message.content) == ("get_weather", None)
    before = read(client, asked, tools=[TOOL])
    result = {"role": "tool", "tool_call_id": call.id, "content": "Sunny."}
    assert read(client, [*asked, message.model_dump(exclude_none=True), result], tools=[TOOL]) > before > 0


def test_what_was_thought_is_not_read_again() -> None:
    reply = Reply(text="It is sunny. " * 20, thinking="Let me see. " * 20)
    with (
        serve(vllm=SETTINGS, responder=lambda _, __: reply) as running,
        openai.OpenAI(base_url=running.openai_url, api_key="none") as client,
    ):
        message = ask(client, talk("Hello"), max_tokens=400).choices[0].message
        assert message.reasoning == reply.thinking
        said = [*talk("Hello"), {"role": "assistant", "content": message.content}, {"role": "user", "content": "And?"}]
        assert read(client, said) == prompt_tokens(talk("Hello")) // 16 * 16
        chunks = list(ask(client, talk("Hello"), max_tokens=400, stream=True))
        assert "".join(getattr(chunk.choices[0].delta, "reasoning", "") for chunk in chunks) == reply.thinking


def test_system_text_comes_before_the_tools(client: openai.OpenAI) -> None:
    assert read(client, talk("Hello"), tools=[TOOL]) == 0
    other = {"type": "function", "function": {"name": "other"}}
    same = count('{"type":"function","function":{"name":"')
    assert read(client, talk("Hello"), tools=[other]) == (3 + count(RULES) + 1 + same) // 16 * 16
    assert read(client, talk("Hello", system="Be brief."), tools=[TOOL]) == 0


def test_salts_and_adapters_do_not_share(client: openai.OpenAI) -> None:
    def with_salt(salt: str) -> int:
        return read(client, talk("Hello"), extra_body={"cache_salt": salt})

    assert [with_salt(salt) > 0 for salt in "aabab"] == [False, True, False, True, True]
    assert read(client, talk("Hello")) == 0
    assert read(client, talk("Hello"), model="tuned") == 0
    assert read(client, talk("Hello"), model="tuned") > 0


def test_any_model_name_is_the_same_model(client: openai.OpenAI) -> None:
    ask(client, talk("Hello"))
    reply = ask(client, talk("Hello"), model="any")
    assert (reply.model, reply.usage.prompt_tokens_details.cached_tokens > 0) == ("any", True)


def test_a_full_cache_loses_the_least_recently_used(client: openai.OpenAI) -> None:
    long = ["Answer in one short and kind sentence. " * 60 + str(number) for number in range(6)]
    assert 24 * 16 < prompt_tokens(talk("Hello", system=long[0])) < 37 * 16
    for text in long:
        ask(client, talk("Hello", system=f"{text[-1]} {text}"))
    assert read(client, talk("Hello", system=f"5 {long[5]}")) > 0
    assert read(client, talk("Hello", system=f"0 {long[0]}")) == 0


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"cache_salt": ""}, "cache_salt"),
        ({"cache_salt": "a/b"}, "cache_salt"),
        ({"tools": []}, "tools"),
        ({"tools": [TOOL], "tool_choice": "any"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": {}}}, "tool_choice.function"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "body.tools.0.type"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1_025}, "max_tokens"),
        ({"max_tokens": "many"}, "body.max_tokens"),
        ({"messages": "Hello"}, "body.messages"),
        ({"messages": [{"role": "user", "content": None}]}, "body.messages.0.content"),
        ({"messages": [{"role": "user", "content": "word " * 2_000}]}, "input_tokens"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
    ],
)
def test_what_is_refused_names_the_parameter(client: openai.OpenAI, body: Mapping[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as problem:
        ask(client, talk("Hello"), extra_body=body)
    assert problem.value.param == param
    assert problem.value.response.json()["error"]["code"] == 400


def test_the_words_are_those_of_the_server(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as problem:
        ask(client, talk("Hello"), extra_body={"cache_salt": ""})
    assert problem.value.body == {
        "message": "Parameter 'cache_salt' must be a non-empty string if provided. (parameter=cache_salt)",
        "type": "BadRequestError",
        "param": "cache_salt",
        "code": 400,
    }


def test_a_body_that_is_no_request_is_refused(server: Emulator) -> None:
    for path in ("/v1/chat/completions", "/tokenize"):
        for content in (b"{", b"[]", b"{}"):
            assert httpx.post(f"{server.base_url}{path}", content=content).status_code == 400


def test_markers_and_fields_of_others_mean_nothing(client: openai.OpenAI) -> None:
    ask(client, talk("Hello"))
    marked = [{"type": "text", "text": RULES, "prompt_cache_breakpoint": {"mode": "explicit"}}]
    messages: list[Any] = [{"role": "system", "content": marked}, *talk("Hello")[1:]]
    extra = {"prompt_cache_key": "x", "prompt_cache_options": {"mode": "explicit"}, "unknown": 1}
    assert read(client, messages, extra_body=extra) == (prompt_tokens(talk("Hello")) - 1) // 16 * 16


def test_the_answer_ends_with_the_context(client: openai.OpenAI) -> None:
    size = prompt_tokens([{"content": ""}])
    messages: list[Any] = [{"role": "user", "content": " word" * (1_024 - 7 - size)}]
    reply = ask(client, messages, max_tokens=1_024)
    assert (reply.usage.prompt_tokens, reply.usage.total_tokens) == (1_017, 1_024)
    assert reply.choices[0].finish_reason == "length"
    with pytest.raises(openai.BadRequestError, match="max_tokens must be at least 1, got 0"):
        ask(client, [{"role": "user", "content": " word" * (1_024 - size)}])


def test_status_routes_speak_as_the_server_does(client: openai.OpenAI, server: Emulator) -> None:
    first, second = ask(client, talk("Hello")).usage, ask(client, talk("Hello")).usage
    real = server_at(server.openai_url)
    assert real.is_healthy()
    assert real.models() == [model.id for model in client.models.list()] == ["small", "tuned"]
    figures = real.figures()
    assert figures is not None
    assert figures.queried_tokens == first.prompt_tokens + second.prompt_tokens
    assert figures.read_tokens == second.prompt_tokens_details.cached_tokens > 0
    assert (figures.kv_used, figures.block) == (0, 16)
    tokens = real.tokens({"messages": talk("Hello")})
    assert tokens is not None
    assert len(tokens) == first.prompt_tokens
    assert real.tokens({"messages": talk("Hello")[:1], "add_generation_prompt": False}) == tokens[: 5 + count(RULES)]
    server.reset()
    emptied = real.figures()
    assert emptied is not None
    assert emptied.queried_tokens == 0
    assert read(client, talk("Hello")) == 0


def test_requests_wait_for_room_in_turn() -> None:
    tight = VLLMSettings(block=16, blocks=65, context=1_024)
    with (
        serve(vllm=tight, latency=0.002) as running,
        openai.OpenAI(base_url=running.openai_url, api_key="none", max_retries=0) as client,
    ):
        texts = [f"{number} " + "Answer in one short and kind sentence. " * 70 for number in range(6)]
        assert all(32 * 16 < prompt_tokens(talk("Hello", system=text)) < 1_024 for text in texts)
        with ThreadPoolExecutor(6) as pool:
            told = list(pool.map(lambda text: read(client, talk("Hello", system=text)), texts))
        assert told == [0] * 6
        figures = server_at(running.openai_url).figures()
        assert figures is not None
        assert figures.kv_used == 0


def test_a_head_is_read_by_requests_that_start_together(client: openai.OpenAI, server: Emulator) -> None:
    server.hold(3)
    with ThreadPoolExecutor(3) as pool:
        told = sorted(pool.map(lambda number: read(client, talk(f"{number}")), range(3)))
    shared = (5 + count(RULES) + 3) // 16 * 16
    assert told == [0, shared, shared]


def test_blocks_are_held_while_an_answer_is_kept_back(client: openai.OpenAI, server: Emulator) -> None:
    server.hold(2)
    with ThreadPoolExecutor(1) as pool:
        kept = pool.submit(read, client, talk("Hello"))
        while server.waiting < 1:
            threading.Event().wait(0.001)
        figures = server_at(server.openai_url).figures()
        assert figures is not None
        assert figures.kv_used == pytest.approx(-(-prompt_tokens(talk("Hello")) // 16) / 128)
        assert read(client, talk("Hello")) > 0  # planned blocks can be read before they are computed
        assert kept.result() == 0


async def test_what_runs_while_the_cache_is_emptied_leaves_nothing() -> None:
    engine = VLLMEngine(SETTINGS, threading.RLock())
    request = VLLMRequest(prompt=range(100))
    before = await engine.admit(request)
    engine.forget()
    after = await engine.admit(request)
    engine.finish(before)
    assert engine.figures() == VLLMFigures(queried=100, read=0, usage=7 / 128)
    engine.finish(after)
    assert engine.figures().usage == 0


def test_failures_come_as_asked(client: openai.OpenAI, server: Emulator) -> None:
    server.fail_next(status=503, retry_after=2)
    with pytest.raises(openai.InternalServerError) as problem:
        ask(client, talk("Hello"))
    assert problem.value.response.headers["retry-after"] == "2"
    assert problem.value.type == "ServiceUnavailableError"
    server.fail_next(after_events=2)
    stream = ask(client, talk("Hello"), max_tokens=50, stream=True)
    with pytest.raises(openai.APIError, match="on purpose"):
        list(stream)
    server.fail_next(after_events=2)
    with pytest.raises(openai.InternalServerError):
        ask(client, talk("Hello"))


def test_a_tokenizer_of_ones_own_decides() -> None:
    settings = VLLMSettings(
        block=4, blocks=9, context=32, tokenize=lambda body: range(len(body["messages"][0]["content"]))
    )
    with (
        serve(vllm=settings) as running,
        openai.OpenAI(base_url=running.openai_url, api_key="none", max_retries=0) as client,
    ):
        letters: list[Any] = [{"role": "user", "content": "x" * 10}]
        assert ask(client, letters).usage.prompt_tokens == 10
        assert read(client, letters) == 8


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"block": 0}, "at least 1"),
        ({"context": 0}, "at least 1"),
        ({"block": 32, "blocks": 128, "context": 4_096}, "give at least 129 blocks"),
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VLLMSettings(**wrong)


def test_run_says_that_it_is_a_vllm_server() -> None:
    said: list[str] = []
    until = threading.Event()
    until.set()
    emulator.run(announce=said.append, until=until, vllm=SETTINGS)
    (line,) = said
    assert line.startswith("emulator: vllm http://127.0.0.1:")


def test_langchain_reads_the_usage(server: Emulator) -> None:
    model = ChatOpenAI(model="small", base_url=server.openai_url, api_key=SecretStr("none"), stream_usage=True)
    messages = [("system", RULES), ("human", "Hello")]
    model.invoke(messages)
    told = model.invoke(messages).usage_metadata
    assert told is not None
    expected = (prompt_tokens(talk("Hello")) - 1) // 16 * 16
    assert told["input_token_details"]["cache_read"] == expected
    last = None
    for chunk in model.stream(messages):
        last = chunk if last is None else last + chunk
    assert last is not None
    assert last.usage_metadata is not None
    assert last.usage_metadata["input_token_details"]["cache_read"] == expected


class TestLangChain(ChatModelIntegrationTests):
    """LangChain's own suite."""

    settings: ClassVar[dict[str, Any]] = {"model": "small", "stream_usage": True, "api_key": "none", "max_retries": 0}

    @pytest.fixture(autouse=True)
    def _use(self, server: Emulator) -> None:
        self._server = server

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatOpenAI

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"base_url": self._server.openai_url, **self.settings}

    @property
    def supports_json_mode(self) -> bool:
        return True

    @property
    def model_override_value(self) -> str:
        return "other"


def test_calls_stream_as_they_are(client: openai.OpenAI) -> None:
    tools: Any = [TOOL]
    chunks = list(ask(client, talk("Use get_weather for Rome"), tools=tools, max_tokens=50, stream=True))
    parts = [part for chunk in chunks for part in chunk.choices[0].delta.tool_calls or ()]
    assert parts[0].function.name == "get_weather"
    assert set(json.loads("".join(part.function.arguments or "" for part in parts))) == {"city"}
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
