import datetime
import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_selector import MultiSelection, SingleSelection
from llama_index.core.base.response.schema import PydanticResponse, Response, StreamingResponse
from llama_index.core.llms import MockLLM
from llama_index.core.response_synthesizers import CompactAndRefine
from llama_index.core.schema import (
    Document,
    ImageNode,
    IndexNode,
    MediaResource,
    Node,
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)
from pydantic import BaseModel

from headstay.semantic import Cache
from llama_index_headstay.query_engine import SemanticCacheQueryEngine

ASKED = "How often does line 4 run?"
NOTHING: Any = None


class Fare(BaseModel):
    euros: float
    zones: tuple[str, ...] = ()


class Held(BaseQueryEngine):
    """Returns what it was given."""

    def __init__(self, response: Any) -> None:
        self.response, self.asked = response, 0
        super().__init__(callback_manager=None)

    def _get_prompt_modules(self) -> Any:
        return {}

    def _query(self, query_bundle: QueryBundle) -> Any:
        self.asked += 1
        return self.response

    async def _aquery(self, query_bundle: QueryBundle) -> Any:
        return self._query(query_bundle)


class Shaped(Held):
    """Has a synthesizer, which knows the class of its answers."""

    def __init__(self, response: Any, shape: type[BaseModel]) -> None:
        self.synthesizer = CompactAndRefine(MockLLM(), output_cls=shape)
        super().__init__(response)


def served(response: Any, cache: Cache | None = None) -> Any:
    """Return what a second query gives; the engine's own object where nothing was kept."""
    engine = SemanticCacheQueryEngine(Held(response), cache=cache or Cache(), version="1")
    assert engine.query(ASKED) is response
    return engine.query(ASKED)


LINKS = {
    NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc", node_type="4", metadata={"file": "a.md"}, hash="h"),
    NodeRelationship.CHILD: [RelatedNodeInfo(node_id="one"), RelatedNodeInfo(node_id="two")],
}
NODES = [
    TextNode(text="line 4", id_="a", metadata={"page": 3, "tags": ["x"]}, relationships=LINKS, start_char_idx=2),
    TextNode(text="line 4", embedding=[0.25, -1.5], excluded_llm_metadata_keys=["page"], metadata_template="{value}"),
    Node(text_resource=MediaResource(text="line 4"), relationships=LINKS),
    ImageNode(text="a tram", image_url="https://example.com/tram.png", image_mimetype="image/png"),
    ImageNode(image="aGVsbG8="),
    IndexNode(text="a chapter", index_id="chapter-4"),
]


@pytest.mark.parametrize("node", NODES, ids=lambda node: type(node).__name__)
@pytest.mark.parametrize("score", [0.75, 0.0, None])
def test_a_source_node_comes_back_as_it_was(node: Any, score: float | None) -> None:
    response = Response("Every 8 minutes.", [NodeWithScore(node=node, score=score)], {"a": {"page": 3}})
    found = served(response)
    assert found.response == "Every 8 minutes."
    assert found.metadata.pop("headstay")["cache"] == "hit"
    assert found.metadata == {"a": {"page": 3}}
    (one,) = found.source_nodes
    assert type(one.node) is type(node)
    assert one.node == node
    assert one.node is not node
    assert one.score == score


class OwnNode(TextNode):
    rank: int = 1


class OwnScored(NodeWithScore):
    pass


class OwnResponse(Response):
    pass


UNKEPT = [
    Response("x", [NodeWithScore(node=OwnNode(text="a"))]),
    Response("x", [OwnScored(node=TextNode(text="a"))]),
    Response("x", [NodeWithScore(node=Document(text="a"))]),
    Response("x", [NodeWithScore(node=Node(image_resource=MediaResource(data=b"aGVsbG8=")))]),
    Response("x", [NodeWithScore(node=IndexNode(text="a", index_id="b", obj={"what": "ever"}))]),
    Response("x", [NodeWithScore(node=TextNode(text="a", metadata={"at": datetime.date(2026, 3, 3)}))]),
    Response("x", [NodeWithScore(node=TextNode(text="a"), score=math.nan)]),
    Response("x", [], {"rows": [(1, "a")]}),
    Response("x", [], {"at": datetime.date(2026, 3, 3)}),
    Response("x", [], {3: "numbers are no names in JSON"}),
    PydanticResponse(Fare(euros=3.2)),  # its class is not the engine's
    OwnResponse("x"),
]


@pytest.mark.parametrize("response", UNKEPT, ids=lambda response: str(response)[:8])
def test_what_would_come_back_as_something_else_is_not_kept(response: Any) -> None:
    cache = Cache()
    assert served(response, cache) is response
    assert cache.metrics().not_stored == {"not_admitted_form": 2}


@pytest.mark.parametrize("response", [Response(None), Response(""), Response("  "), Response("Empty Response")])
def test_no_answer_is_not_kept(response: Response) -> None:
    cache = Cache()
    assert served(response, cache) is response
    assert cache.metrics().not_stored == {"not_admitted_empty": 2}


def test_what_a_router_chose_is_kept() -> None:
    chosen = MultiSelection(selections=[SingleSelection(index=1, reason="prices")])
    found = served(Response("x", [], {"selector_result": chosen}))
    assert found.metadata["selector_result"] == chosen
    assert found.metadata["selector_result"] is not chosen


def test_objects_of_the_engines_class_are_kept() -> None:
    inner = Shaped(PydanticResponse(Fare(euros=3.2, zones=("a", "b")), [], {"of": 1}), Fare)
    engine = SemanticCacheQueryEngine(inner, cache=Cache(), version="1")
    engine.query(ASKED)
    found = engine.query(ASKED)
    assert type(found) is PydanticResponse
    assert found.response == Fare(euros=3.2, zones=("a", "b"))
    assert (found.euros, found.metadata["of"]) == (3.2, 1)
    assert found.metadata["headstay"]["tier"] == "exact"
    assert inner.asked == 1


def test_no_class_is_loaded_by_a_name_in_the_file() -> None:
    cache = Cache()
    inner = Held(Response("Every 8 minutes.", [NodeWithScore(node=TextNode(text="line 4"))]))
    engine = SemanticCacheQueryEngine(inner, cache=cache, version="1")
    engine.query(ASKED)
    lookup = engine._ask(QueryBundle(ASKED), awaited=False)
    assert lookup.entry is not None
    written = json.loads(lookup.entry.answer)
    for forged in ("OwnNode", "Document", "os.system"):
        written["body"]["nodes"][0]["class"] = forged
        cache.clear()
        cache.store.put(replace(lookup.entry, answer=json.dumps(written)))
        assert engine.query(ASKED) is inner.response
    written["body"]["form"] = "whatever"
    cache.store.put(replace(lookup.entry, answer=json.dumps(written)))
    assert "headstay" not in (engine.query(ASKED).metadata or {})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    text=st.text(min_size=1).filter(lambda text: text.strip() not in ("", "Empty Response")),
    metadata=st.dictionaries(
        st.text().filter(lambda name: name not in ("headstay", "selector_result")), JSON, max_size=3
    ),
    nodes=st.lists(
        st.builds(
            NodeWithScore,
            node=st.builds(
                TextNode, text=st.text(), id_=st.text(), metadata=st.dictionaries(st.text(), JSON, max_size=2)
            ),
            score=st.none() | st.floats(allow_nan=False, allow_infinity=False),
        ),
        max_size=3,
    ),
)
def test_any_response_comes_back_as_it_was(text: str, metadata: dict[str, Any], nodes: list[Any]) -> None:
    try:
        (text + json.dumps([metadata, [one.model_dump() for one in nodes]], ensure_ascii=False)).encode()
    except UnicodeEncodeError:  # half a surrogate pair is no text in a file
        return
    found = served(Response(text, nodes, metadata))
    assert found.response == text
    assert found.source_nodes == nodes
    found.metadata.pop("headstay")
    assert found.metadata == metadata


@given(st.text(min_size=1).filter(lambda text: text.strip() not in ("", "Empty Response")))
def test_a_replayed_stream_adds_up_to_the_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    engine = SemanticCacheQueryEngine(Held(StreamingResponse(NOTHING, response_txt=text)), cache=Cache(), version="1")
    engine.query(ASKED)
    pieces = list(engine.query(ASKED).response_gen)
    assert "".join(pieces) == text
    assert all(pieces)
