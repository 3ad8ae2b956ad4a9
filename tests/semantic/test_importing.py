"""An imported answer is where the chain looks for it, whatever the question is made of."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from langchain_core.runnables import RunnableLambda

from headstay.errors import ConfigError
from headstay.semantic import CallableEmbedder, Entry, Filter, SQLiteStore
from headstay.semantic.faq import FaqRow
from headstay.semantic.importing import Chain, Like, entries_of
from langchain_headstay import SemanticCache, cached

QUESTIONS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60).filter(str.strip)
NAMES = st.text(min_size=1, max_size=8, alphabet="ab 0.\u00e9")
OWNERS = st.none() | NAMES


@pytest.fixture(scope="module")
def embedder() -> CallableEmbedder:
    return CallableEmbedder(lambda texts: [[1.0, len(text), ord(text[0])] for text in texts], name="by length")


def never(given: Any) -> str:
    raise AssertionError(f"the chain was asked {given!r}")


@pytest.fixture(scope="module")
def store() -> Iterator[SQLiteStore]:
    with SQLiteStore() as made:
        yield made


@given(question=QUESTIONS, key=st.none() | NAMES, name=NAMES, tenant=OWNERS, version=OWNERS)
def test_a_named_chain_finds_it(
    store: SQLiteStore,
    embedder: CallableEmbedder,
    question: str,
    key: str | None,
    name: str,
    tenant: str | None,
    version: str | None,
) -> None:
    place = Chain(name, key, tenant=tenant, version=version)
    entries, _ = entries_of([FaqRow("f:1", 1, question, "imported")], place, embedder=embedder, made=1.0)
    store.put_many(entries)
    cache = SemanticCache(store, embedder=embedder, now=lambda: 2.0)
    chain = cached(RunnableLambda(never), cache=cache, query=key, name=name, tenant=tenant, version=version)
    assert chain.invoke(question if key is None else {key: question}) == "imported"


@given(first=QUESTIONS, second=QUESTIONS)
def test_beside_an_answer_of_the_chain(embedder: CallableEmbedder, first: str, second: str) -> None:
    with SQLiteStore() as store:
        cache = SemanticCache(store, embedder=embedder, now=lambda: 1.0, tenant="birch", user="ada")
        cached(RunnableLambda(lambda _: "the chain's"), cache=cache, query="q", name="desk").invoke({"q": first})
        (kept,) = store.page(Filter()).entries
        assume(kept.vector is not None)
        entries, _ = entries_of([FaqRow("f:1", 1, second, "imported")], Like(kept), embedder=embedder, made=1.0)
        store.put_many(entries)
        chain = cached(RunnableLambda(never), cache=cache, query="q", name="desk")
        assert chain.invoke({"q": second}) == "imported"


def test_not_beside_an_answer_to_more_than_a_question(embedder: CallableEmbedder) -> None:
    """Nothing says which part of such a text is the question."""
    with SQLiteStore() as store:
        cache = SemanticCache(store, embedder=embedder, now=lambda: 1.0)
        asked = "Context:\nparcels take three days\n\nQuestion: how long?"
        cached(RunnableLambda(lambda _: "the chain's"), cache=cache, query=None, name="desk").invoke(asked)
        (kept,) = store.page(Filter()).entries
        with pytest.raises(ConfigError, match="more than a question in its text"):
            entries_of([FaqRow("f:1", 1, "q", "a")], Like(kept), embedder=embedder, made=1.0)


def test_not_beside_a_question_that_stands_in_its_text_twice(embedder: CallableEmbedder) -> None:
    kept = Entry("e", "s", "x", "why", "{}", None, 1.0, text="why, oh why")
    with pytest.raises(ConfigError, match="just once"):
        entries_of([FaqRow("f:1", 1, "q", "a")], Like(kept), embedder=embedder, made=1.0)
