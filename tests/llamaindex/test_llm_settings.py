"""What `cache_aware` takes and refuses, and what a copy of an LLM is."""

import copy
import json
import pickle
from contextvars import ContextVar
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.llms import LLM, ChatMessage, MockLLM
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.prompts import ChatPromptTemplate, PromptTemplate, RichPromptTemplate
from llama_index.core.settings import Settings
from llama_index.llms.openai import OpenAI
from llama_index.llms.openai_like import OpenAILike
from openai import AzureOpenAI
from tests.llamaindex.llm_ways import POLICY

from headstay import Ledger, Slot
from headstay.emulator import Emulator, VLLMSettings, serve
from headstay.errors import ConfigError
from headstay.providers.vllm import Engine
from headstay.semantic import Cache
from llama_index_headstay import cache_aware

KEY = "sk-this-opens-doors"


def bare(**settings: Any) -> OpenAILike:
    known = {"model": "gpt-5.4", "api_key": KEY, "api_base": "http://localhost:9/v1", "is_chat_model": True}
    return OpenAILike(**{**known, "is_function_calling_model": True, **settings})


def test_copy_is_of_the_same_class() -> None:
    llm = bare()
    aware = cache_aware(llm)
    assert isinstance(aware, OpenAILike)
    for kind in (OpenAI, FunctionCallingLLM, LLM, BaseLLM):
        assert kind in type(aware).__mro__
    assert type(aware).__name__ == "OpenAILike"
    assert type(aware).__module__ == type(llm).__module__
    assert aware.class_name() == llm.class_name()
    assert aware.metadata == llm.metadata
    assert aware is not llm


def test_wrapping_twice_would_lose_the_first_settings() -> None:
    with pytest.raises(ConfigError, match="wrapped already"):
        cache_aware(cache_aware(bare(), tenant="acme"))


def test_it_can_be_the_llm_of_settings_and_agents() -> None:
    aware = cache_aware(bare())
    agent = FunctionAgent(tools=[], llm=aware, system_prompt=POLICY)
    assert agent.llm is aware
    before = Settings._llm
    try:
        Settings.llm = aware
        assert Settings.llm is aware
    finally:
        Settings._llm = before


@pytest.mark.parametrize("write", ["to_dict", "model_dump", "dict", "to_json", "json", "model_dump_json", "to_payload"])
def test_no_key_is_written(write: str) -> None:
    headers = {"Authorization": f"Bearer {KEY}", "x-api-key": KEY, "X-Team": "a"}
    aware = cache_aware(bare(default_headers=headers, additional_kwargs={"extra_headers": {"api-key": KEY}}))
    written = str(getattr(aware, write)())
    assert KEY not in written
    assert "gpt-5.4" in written


def test_what_an_agent_writes_of_it_has_no_key() -> None:
    agent = FunctionAgent(tools=[], llm=cache_aware(bare()), system_prompt="x")
    assert KEY not in json.dumps(agent.model_dump(), default=str)


def test_pickle_has_no_key_and_keeps_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    headers = {"Authorization": f"Bearer {KEY}", "X-Team": "a"}
    aware = cache_aware(
        bare(model="gpt-4.1", default_headers=headers, temperature=0.7), name="desk", volatile=[Slot("x(.)")]
    )
    written = pickle.dumps(aware)
    assert KEY.encode() not in written
    monkeypatch.setenv("OPENAI_API_KEY", "from-here")
    read = pickle.loads(written)
    assert isinstance(read, OpenAILike)
    assert (read.model, read.temperature, read.default_headers) == ("gpt-4.1", 0.7, {"X-Team": "a"})
    assert read.api_key == "from-here"
    assert read.headstay_binding.flow.settings == aware.headstay_binding.flow.settings  # type: ignore[attr-defined]


def test_copies_share_stores_and_keep_the_key() -> None:
    aware = cache_aware(bare())
    for made in (copy.copy(aware), copy.deepcopy(aware), aware.model_copy(update={"temperature": 0.9})):
        assert type(made) is type(aware)
        assert made.api_key == KEY


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("gpt-5.4", "is a name and no LLM"),
        (OpenAILike, "is a class and no LLM"),
        (object(), "is no LLM of LlamaIndex"),
        (bare().as_structured_llm(ChatMessage), "give the LLM inside it"),
    ],
)
def test_what_is_no_llm_is_refused(given: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        cache_aware(given)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ttl": "7m"}, "ttl='7m' is not offered"),
        ({"on_break": "shout"}, 'say "warn", "raise" or "record"'),
        ({"verify": "twice"}, 'say "off", "local" or "provider"'),
        ({"volatile": "everything"}, "a list of Slot"),
        ({"volatile": 7}, "a list of Slot"),
        ({"volatile": Slot("{plan}")}, "there is no template="),
        ({"template": 7}, "give a PromptTemplate"),
        ({"template": ChatPromptTemplate([ChatMessage(content="{question}")])}, "holds no system text"),
        ({"tenant": 7}, "tenant=7"),
        ({"tenant": ""}, "tenant=''"),
        ({"tail": 7}, "tail=7"),
        ({"tenant": lambda config: "acme"}, "a callable without arguments"),
        ({"tenant": str}, "a callable without arguments"),
        ({"name": 5}, "name=5: give a str"),
        ({"semantic_cache": "answers.db"}, "semantic_cache=str: give a cache"),
        ({"semantic_cache": Cache}, "semantic_cache=the class Cache: give a cache"),
        ({"tail_affects_answer": "no"}, "say True or False"),
        ({"engine": "vllm"}, "engine=str: give an Engine"),
        ({"head_store": "heads.db"}, "give a HeadStore"),
        ({"ledger": "calls.db"}, "give a Ledger"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        cache_aware(bare(), **settings)


TEMPLATE = f"You serve {{customer}} on {{plan}}.\n{POLICY}"


@pytest.mark.parametrize(
    "template",
    [
        TEMPLATE,
        PromptTemplate(TEMPLATE),
        PromptTemplate(TEMPLATE.replace("{plan}", "{tariff}")),
        ChatPromptTemplate([ChatMessage(role="system", content=TEMPLATE), ChatMessage(content="{question}")]),
        RichPromptTemplate(TEMPLATE.replace("{", "{{ ").replace("}", " }}")),
        RichPromptTemplate(
            '{% chat role="system" %}'
            + TEMPLATE.replace("{", "{{ ").replace("}", " }}")
            + '{% endchat %}{% chat role="user" %}{{ question }}{% endchat %}'
        ),
        [PromptTemplate("Something else for {nobody}."), PromptTemplate(TEMPLATE)],
    ],
    ids=["text", "prompt", "other names", "chat", "rich", "rich chat", "several"],
)
async def test_template_names_the_spans(template: Any, desk: Emulator, desk_llm: Any) -> None:
    llm = cache_aware(desk_llm(), template=template, on_break="raise")
    for customer, plan in (("Ada", "gold"), ("Bob Li", "a plan with, many. words")):
        system = TEMPLATE.format(customer=customer, plan=plan)
        llm.chat([ChatMessage(role="system", content=system), ChatMessage(content="hello")])
    first, second = (exchange.body["messages"] for exchange in desk.exchanges)
    assert first[0] == second[0]
    assert "[[customer]]" in str(first[0])
    assert "Bob Li" in str(second[1:])


def test_partly_filled_template_has_that_constant(desk: Emulator, desk_llm: Any) -> None:
    template = PromptTemplate(TEMPLATE).partial_format(plan="gold")
    llm = cache_aware(desk_llm(), template=template, on_break="raise")
    system = TEMPLATE.format(customer="Ada", plan="gold")
    llm.chat([ChatMessage(role="system", content=system), ChatMessage(content="hello")])
    assert "on gold." in str(desk.exchanges[0].body["messages"][0])


def test_braces_of_an_example_are_text(desk: Emulator, desk_llm: Any) -> None:
    template = PromptTemplate('Answer as {"total": 7} for {customer}.\n' + POLICY)
    llm = cache_aware(desk_llm(), template=template, on_break="raise")
    system = template.format(customer="Ada")
    llm.chat([ChatMessage(role="system", content=system), ChatMessage(content="hello")])
    assert 'Answer as {"total": 7} for [[customer]].' in str(desk.exchanges[0].body["messages"][0])


def test_template_of_more_than_variables_says_so() -> None:
    with pytest.raises(ConfigError, match="more of banks than plain variables"):
        cache_aware(bare(), template=RichPromptTemplate("{% if gold %}Be quick.{% endif %}"))


_tenant: ContextVar[str | None] = ContextVar("tenant", default=None)


async def test_vllm_gets_a_salt_of_the_tenant_in_the_context_of_the_call(desk_llm: Any) -> None:
    """A stream is asked for in one context and may be read in another."""
    with serve(vllm=VLLMSettings()) as server:
        settings: dict[str, Any] = {"api_base": server.openai_url, "model": "some-model"}
        llm = cache_aware(desk_llm(**settings), tenant=_tenant.get, engine=Engine(), on_break="record")
        said = [ChatMessage(role="system", content=POLICY), ChatMessage(content="hello")]
        token = _tenant.set("acme")
        stream = llm.stream_chat(said)
        llm.chat(said)
        _tenant.reset(token)
        list(stream)
        llm.chat(said)
        salts = [exchange.body.get("cache_salt") for exchange in server.exchanges]
        assert salts[0] == salts[1] == Engine().salt("acme")
        assert salts[2] is None


async def test_tenant_that_cannot_be_told_shares_with_nobody(desk_llm: Any) -> None:
    def unknown() -> str:
        raise LookupError("no user here")

    ledger = Ledger()
    with serve(vllm=VLLMSettings()) as server:
        settings: dict[str, Any] = {"api_base": server.openai_url, "model": "some-model"}
        llm = cache_aware(desk_llm(**settings), tenant=unknown, engine=Engine(), on_break="record", ledger=ledger)
        for _ in range(2):
            assert llm.chat([ChatMessage(content="hello")]).message.content
        salts = [exchange.body["cache_salt"] for exchange in server.exchanges]
    assert len(set(salts)) == 2
    assert [row.unverified for row in ledger.rows()] == ["tenant= raised LookupError"] * 2


def test_mock_llm_is_an_llm_too() -> None:
    assert isinstance(cache_aware(MockLLM()), MockLLM)


_talk: ContextVar[str | None] = ContextVar("talk", default=None)


async def test_edited_history_is_named_where_the_conversation_is(desk: Emulator, desk_llm: Any) -> None:
    """Without a name for it, a history with another past is another conversation."""
    for conversation, causes in ((_talk.get, ["history_edited"]), (None, [])):
        ledger = Ledger()
        llm = cache_aware(desk_llm(), conversation=conversation, on_break="record", ledger=ledger)
        token = _talk.set("one")
        for first in ("hello", "good day"):
            said = [("system", POLICY), ("user", first), ("assistant", "Hello!"), ("user", "Where is my parcel?")]
            said += [] if first == "hello" else [("assistant", "In Rome."), ("user", "And now?")]
            llm.chat([ChatMessage(role=role, content=text) for role, text in said])
        _talk.reset(token)
        rows = list(ledger.rows())
        assert [str(found.cause) for found in rows[1].breaks] == causes


class Deployed(OpenAI):
    """As LlamaIndex's class for Azure: requests name a deployment, and the model is only a setting."""

    engine: str = "our-deployment"

    def _get_client(self) -> Any:
        return self._client

    def _get_model_kwargs(self, **kwargs: Any) -> dict[str, Any]:
        return {**super()._get_model_kwargs(**kwargs), "model": self.engine}


async def test_deployment_of_azure_has_the_rules_of_its_model(desk: Emulator) -> None:
    """The emulator knows no deployments, so this one bears the name of another model."""
    client = AzureOpenAI(azure_endpoint=desk.base_url, api_key="key-a", api_version="2026-09-01", max_retries=0)
    ledger = Ledger()
    bare = Deployed(model="gpt-5.4", engine="gpt-5.6-terra", api_key="key-a", openai_client=client)
    llm = cache_aware(bare, on_break="record", ledger=ledger)
    llm.chat([ChatMessage(role="system", content=POLICY), ChatMessage(content="hello")])
    client.close()
    (exchange,) = desk.exchanges
    assert exchange.body["model"] == "gpt-5.6-terra"
    assert "prompt_cache_breakpoint" not in json.dumps(exchange.body)  # which 5.6 has, and 5.4 has not
    assert [row.model for row in ledger.rows()] == ["gpt-5.4"]


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-5.4"])
def test_engines_send_their_system_prompt_as_the_operators(model: str) -> None:
    """LlamaIndex would send it as a human's words to newer models, where no template and no marker finds it."""
    llm = cache_aware(OpenAI(model=model, api_key=KEY))
    assert llm.metadata.system_role.value == "system"
    assert OpenAI(model=model, api_key=KEY).metadata.system_role.value == ("user" if model == "gpt-5.4" else "system")
