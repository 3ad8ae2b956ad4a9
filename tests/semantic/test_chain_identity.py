"""Which chain is which: by content, in every process."""

import gc
import logging
import os
import subprocess
import sys
import types
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableBranch, RunnableLambda, RunnableParallel, RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel

from headstay.errors import ConfigError
from headstay.slots import Slot
from langchain_headstay import CacheAwareChatModel, SemanticCache, cache_aware, cached
from langchain_headstay.chain_identity import _MOST_KNOWN, _known, chain_identity, model_content

RESET = "How do I reset my password?"

Claude = Callable[..., BaseChatModel]


def name_of(chain: Any) -> str:
    return chain_identity(chain)[0]


class Rules(BaseRetriever):
    documents: list[Document]

    def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        return self.documents


class Mood(BaseModel):
    happy: bool


class MoodToo(BaseModel):
    happy: bool
    sure: bool


def prompt(text: str = "Answer briefly.", name: str = "question") -> Any:
    return ChatPromptTemplate.from_messages([("system", text), ("human", f"{{{name}}}")])


def ending(sign: str) -> Any:
    return RunnableLambda(lambda text: text + sign)


def _json(model: BaseChatModel, schema: type[BaseModel]) -> Any:
    return model.with_structured_output(schema, method="json_schema")


def _ender(default: str) -> Callable[[str], str]:
    def end(text: str, sign: str = default) -> str:
        return text + sign

    return end


ends_loudly, ends_asking = _ender("!"), _ender("?")


# Each pair differs in one thing that can change an answer.
def pairs(claude: Claude) -> dict[str, tuple[Any, ...]]:
    model: Any = claude()
    return {
        "prompt": (prompt() | model, prompt("Answer at length.") | model),
        "variable": (prompt() | model, prompt(name="query") | model),
        "model": (prompt() | model, prompt() | claude(model="claude-sonnet-4-6")),
        "parameter": (prompt() | model, prompt() | claude(max_tokens=7)),
        "endpoint": (prompt() | model, prompt() | claude(base_url="http://127.0.0.1:1")),
        "account": (prompt() | model, prompt() | claude(api_key="key-b")),
        "bound": (model.bind(stop=["."]), model.bind(stop=["!"])),
        "schema": (_json(model, Mood), _json(model, MoodToo)),
        "constant": (model | RunnableLambda(lambda r: r.text + "!"), model | RunnableLambda(lambda r: r.text + "?")),
        "code": (RunnableLambda(lambda text: text.upper()), RunnableLambda(lambda text: text.lower())),
        "closure": (ending("!"), ending("?")),
        "default": (RunnableLambda(ends_loudly), RunnableLambda(ends_asking)),
        "key": (RunnableLambda(itemgetter("a")), RunnableLambda(itemgetter("b"))),
        "order": (prompt() | model | StrOutputParser(), prompt() | StrOutputParser() | model),
        "branch": (
            RunnableBranch((lambda x: x > 1, RunnablePassthrough()), ending("!")),
            RunnableBranch((lambda x: x > 2, RunnablePassthrough()), ending("!")),
        ),
        "parallel": (RunnableParallel(a=ending("!")), RunnableParallel(b=ending("!"))),
        "fallback": (model.with_fallbacks([ending("!")]), model.with_fallbacks([ending("?")])),
        "retriever": (Rules(documents=[Document("1")]), Rules(documents=[Document("2")])),
        "index": tuple(InMemoryVectorStore(DeterministicFakeEmbedding(size=3)).as_retriever() for _ in range(2)),
        "agent": tuple(create_agent(model, [], system_prompt=text) for text in ("Be kind.", "Be brief.")),
        "responses": (FakeListChatModel(responses=["1"]), FakeListChatModel(responses=["2"])),
        "tail": (cache_aware(model, tail="a"), cache_aware(model, tail="b")),
        "tail of a wrapper": (CacheAwareChatModel(model, tail="a"), CacheAwareChatModel(model, tail="b")),
        "slots": (CacheAwareChatModel(model), CacheAwareChatModel(model, volatile=[Slot(r"\d+")])),
        "template": (PromptTemplate.from_template("{a} 1"), PromptTemplate.from_template("{a} 2")),
        "chain inside": (
            RunnablePassthrough.assign(a=prompt() | model),
            RunnablePassthrough.assign(a=prompt("Other") | model),
        ),
    }  # fmt: skip


NAMES = (
    "prompt",
    "variable",
    "model",
    "parameter",
    "endpoint",
    "account",
    "bound",
    "schema",
    "constant",
    "code",
    "closure",
    "default",
    "key",
    "order",
    "branch",
    "parallel",
    "fallback",
    "retriever",
    "index",
    "agent",
    "responses",
    "tail",
    "slots",
    "template",
    "tail of a wrapper",
    "chain inside",
)


@pytest.mark.parametrize("what", NAMES)
def test_chains_that_differ_never_share(what: str, claude: Claude) -> None:
    one, other = pairs(claude)[what]
    assert name_of(one) != name_of(other)
    assert name_of(one) == name_of(one)


@pytest.mark.parametrize("what", [name for name in NAMES if name not in ("index", "agent")])
def test_a_chain_that_is_built_again_is_the_same(what: str, claude: Claude) -> None:
    assert name_of(pairs(claude)[what][0]) == name_of(pairs(claude)[what][0])
    assert name_of(pairs(claude)[what][1]) == name_of(pairs(claude)[what][1])


def test_how_a_chain_is_watched_does_not_count(claude: Claude) -> None:
    chain = prompt() | claude()
    assert name_of(chain.with_config(callbacks=[])) == name_of(chain.with_config(callbacks=[StrOutputParser()]))
    assert name_of(prompt() | claude(max_retries=5, verbose=True, cache=False)) != ""
    chain.invoke({"question": RESET})
    again = prompt() | claude()
    assert name_of(chain) == name_of(again)  # running it changes nothing


def test_what_a_function_refers_to_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("desk_rules")
    exec("RULE = 'be kind'\ndef rule():\n    return RULE\ndef answer(text):\n    return rule() + text", vars(module))
    monkeypatch.setitem(sys.modules, "desk_rules", module)
    chain = RunnableLambda(vars(module)["answer"])
    before = name_of(chain)
    assert name_of(chain) == before
    vars(module)["RULE"] = "be brief"
    assert name_of(chain) != before


def test_loggers_and_locks_have_no_content() -> None:
    log = logging.getLogger("desk")

    def answer(text: str) -> str:
        log.info("asked")
        return text

    assert chain_identity(RunnableLambda(answer))[1].opaque == []


def test_objects_without_content_are_only_themselves() -> None:
    class Client:
        def ask(self, text: str) -> str:
            return text

    one, other = Client(), Client()
    assert name_of(RunnableLambda(one.ask)) == name_of(RunnableLambda(one.ask))
    assert name_of(RunnableLambda(one.ask)) != name_of(RunnableLambda(other.ask))
    seen = {name_of(RunnableLambda(one.ask))}
    for _ in range(3):  # a new object at the place of one that is gone is another
        gone = Client()
        name = name_of(RunnableLambda(gone.ask))
        assert name not in seen
        seen.add(name)
        del gone
        gc.collect()


def test_a_chain_that_others_cannot_find_says_so(caplog: pytest.LogCaptureFixture) -> None:
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=3))
    cache = SemanticCache()
    cached(store.as_retriever(), cache=cache, query=None)
    (said,) = caplog.messages
    assert "InMemoryVectorStore" in said
    assert "give name=" in said
    cached(store.as_retriever(), cache=cache, query=None, name="rules")
    cached(prompt() | StrOutputParser(), cache=cache, query="question")
    assert len(caplog.messages) == 1


def test_two_chains_of_one_name_share(claude: Claude) -> None:
    cache = SemanticCache()
    one = cached(RunnableLambda(lambda q: f"one {q}"), cache=cache, query=None, name="desk")
    other = cached(RunnableLambda(lambda q: f"other {q}"), cache=cache, query=None, name="desk")
    third = cached(RunnableLambda(lambda q: f"third {q}"), cache=cache, query=None, name="shop")
    assert one.invoke(RESET) == other.invoke(RESET) == f"one {RESET}"
    assert third.invoke(RESET) == f"third {RESET}"


def test_a_graph_that_keeps_threads_is_refused(claude: Claude) -> None:
    cache = SemanticCache()
    cached(create_agent(claude(), []), cache=cache, query=None, name="agent")
    with pytest.raises(ConfigError, match="keeps a conversation"):
        cached(create_agent(claude(), [], checkpointer=InMemorySaver()), cache=cache, query=None, name="agent")


REBUILT = """
import sys
from operator import itemgetter
from langchain_anthropic import ChatAnthropic
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_headstay.chain_identity import chain_identity

STYLES = {"brief", "kind", "long"}
RULE = "Be " + sys.argv[1]

def styled(text):
    return RULE + text if text in STYLES else text.strip()

prompt = ChatPromptTemplate.from_messages([("system", "Answer."), ("human", "{question}")])
model = ChatAnthropic(model="claude-opus-5-5", api_key="k")
context = itemgetter("question") | RunnableLambda(styled)
name, content = chain_identity(RunnablePassthrough.assign(context=context) | prompt | model)
assert not content.opaque, content.opaque
print(name)
"""


def rebuilt(word: str, seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-c", REBUILT, word], env=environment, capture_output=True, check=True, text=True
    )
    return done.stdout.strip()


def test_a_chain_that_is_built_again_in_another_process_shares() -> None:
    names = {rebuilt("kind", seed) for seed in ("1", "2")}
    assert len(names) == 1
    assert rebuilt("brief", "1") not in names


def test_models_of_a_class_that_tells_nothing_are_told_apart() -> None:
    contents = [model_content(FakeListChatModel(responses=[text])) for text in ("1", "1", "2")]
    assert contents[0] == contents[1] != contents[2]


def test_nothing_of_a_secret_is_in_an_identity(claude: Claude, tmp_path: Path) -> None:
    key = "sk-very-secret-7731"
    model = claude(api_key=key)
    assert key not in str(chain_identity(model))
    assert key not in model_content(model)
    assert model_content(model) != model_content(claude())


APPLICATION = """
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import RunnableLambda

class Texts:
    PARTS = {{"start": "{part}"}}
    PROMPT = PromptTemplate.from_template("{prompt} {{{{question}}}}")

class Base:
    def end(self):
        return "{end}"

class Desk(Base):
    pass

def answer(question):
    return Texts.PARTS["start"] + Texts.PROMPT.format(question=question) + Desk().end()

chain = RunnableLambda(answer)
"""


def application(**texts: str) -> Any:
    module = types.ModuleType("desk_application")
    exec(APPLICATION.format(**{"part": "Hello.", "prompt": "Answer", "end": "Bye.", **texts}), vars(module))
    sys.modules[module.__name__] = module
    return module.chain


@pytest.mark.parametrize("what", ["part", "prompt", "end"])
def test_constants_and_bases_of_an_applications_classes_count(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "desk_application", types.ModuleType("desk_application"))
    assert name_of(application()) == name_of(application())
    assert name_of(application()) != name_of(application(**{what: "Another text"}))


def test_chains_made_again_and_again_are_not_kept_for_ever() -> None:
    names = {name_of(RunnableLambda(partial(max, iter([1])))) for _ in range(_MOST_KNOWN + 10)}
    assert len(names) == _MOST_KNOWN + 10
    assert len(_known) <= _MOST_KNOWN
