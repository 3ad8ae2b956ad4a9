"""Responses of LlamaIndex in JSON values, and back: a served response is a new object, with nodes of its own.

Nodes are read back into the four node classes of LlamaIndex by a list that stands here; no class is loaded by a name in
the file. What would not come back as it was is not written at all.
"""

import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any, cast

from llama_index.core.base.base_selector import MultiSelection
from llama_index.core.base.response.schema import (
    RESPONSE_TYPE,
    AsyncStreamingResponse,
    PydanticResponse,
    Response,
    StreamingResponse,
)
from llama_index.core.schema import ImageNode, IndexNode, Node, NodeWithScore, TextNode
from pydantic import BaseModel

from headstay.semantic.lookup import Lookup
from headstay.semantic.pieces import pieces_of_text
from llama_index_headstay.query_identity import class_name

_NODES: dict[str, type[TextNode] | type[Node]] = {
    "TextNode": TextNode,
    "Node": Node,
    "ImageNode": ImageNode,
    "IndexNode": IndexNode,
}
_SELECTED = "selector_result"
"""Under which key a `RouterQueryEngine` says in the metadata what it chose, as an object."""
_FORM = "form"

Classes = Mapping[str, type[BaseModel]]


def told_of(response: RESPONSE_TYPE, *, awaited: bool, classes: Classes) -> dict[str, Any]:
    """Write a response in JSON values; of a stream all but its text, which is not there yet.

    Args:
        response: What the engine returned.
        awaited: Whether it was asked by `aquery`.
        classes: The pydantic classes in the engine, by name.

    Raises:
        TypeError: Something in it could not be read back as it was.
        ValueError: The same.
    """
    told: dict[str, Any] = {"nodes": [_told_node(one) for one in response.source_nodes]}
    metadata = dict(response.metadata) if response.metadata is not None else None
    if metadata is not None and type(metadata.get(_SELECTED)) is MultiSelection:
        told[_SELECTED] = metadata.pop(_SELECTED).model_dump()
    told["metadata"] = _same(metadata)
    kind = type(response)
    if kind is Response:
        return {**told, _FORM: "text"}
    if kind is StreamingResponse:
        return {**told, _FORM: "plain stream" if awaited else "stream"}
    if kind is AsyncStreamingResponse and awaited:
        return {**told, _FORM: "stream"}
    if isinstance(response, PydanticResponse) and kind is PydanticResponse:
        return {**told, **_told_object(response.response, classes), _FORM: "object"}
    raise TypeError(f"a {kind.__name__} could not be read back as it was")


def response_of(lookup: Lookup, *, awaited: bool, classes: Classes) -> RESPONSE_TYPE:
    """Make the response of a hit: what the engine would return, with what the cache says of it in the metadata.

    Args:
        lookup: The hit.
        awaited: Whether it is asked by `aquery`: a stream is an asynchronous one then, as LlamaIndex's are.
        classes: The pydantic classes in the engine, by name.

    Raises:
        ValueError: The entry holds no response; so may TypeError and KeyError.
    """
    if lookup.answer is None:
        raise ValueError("no answer")
    text, told = lookup.answer.text, lookup.answer.body
    nodes = [_node(one) for one in cast("list[dict[str, Any]]", told["nodes"])]
    metadata: dict[str, Any] = {**(told["metadata"] or {}), "headstay": lookup.metadata()}
    if _SELECTED in told:
        metadata[_SELECTED] = MultiSelection.model_validate(told[_SELECTED])
    form = told[_FORM]
    if form == "text":
        return Response(text, source_nodes=nodes, metadata=metadata)
    if form == "object":
        value = classes[told["class"]].model_validate_json(told["object"])
        return PydanticResponse(value, source_nodes=nodes, metadata=metadata)
    if form not in ("stream", "plain stream"):
        raise ValueError("no form of a response")
    if awaited and form == "stream":
        return AsyncStreamingResponse(_awaited_pieces(text), source_nodes=nodes, metadata=metadata)
    return StreamingResponse(pieces_of_text(text), source_nodes=nodes, metadata=metadata)


def text_of(response: RESPONSE_TYPE) -> str | None:
    """Return the text of a response; None where a stream has yet to say it."""
    if isinstance(response, (StreamingResponse, AsyncStreamingResponse)):
        return response.response_txt
    if isinstance(response, PydanticResponse):
        return "" if response.response is None else response.response.model_dump_json()
    said: object = getattr(response, "response", None)  # an application's own engine may return anything
    return said if isinstance(said, str) else ""


def _told_node(scored: NodeWithScore) -> dict[str, Any]:
    node, name = scored.node, type(scored.node).__name__
    if type(scored) is not NodeWithScore or _NODES.get(name) is not type(node):
        raise TypeError(f"a {name} could not be read back as it was")
    if isinstance(node, IndexNode) and node.obj is not None:
        raise TypeError("an IndexNode with an object could not be read back as it was")
    plain = json.loads(json.dumps(node.model_dump(mode="json"), allow_nan=False))
    told = {"class": name, "node": plain, "score": None if scored.score is None else float(scored.score)}
    if _node(told).node != node:  # such as an image: LlamaIndex leaves its bytes out
        raise ValueError(f"a {name} could not be read back as it was")
    return cast("dict[str, Any]", _same(told))


def _node(told: Mapping[str, Any]) -> NodeWithScore:
    held = {name: item for name, item in told["node"].items() if name not in ("class_name", "obj")}
    return NodeWithScore(node=_NODES[told["class"]](**held), score=told["score"])


def _told_object(value: BaseModel | None, classes: Classes) -> dict[str, Any]:
    """Write an object whose class is the engine's own; no other could be found again."""
    if value is None or classes.get(class_name(type(value))) is not type(value):
        raise TypeError("an object of a class that is not the engine's could not be read back")
    text = value.model_dump_json()
    if type(value).model_validate_json(text) != value:
        raise ValueError("the object could not be read back as it was")
    return {"class": class_name(type(value)), "object": text}


def _same(value: Any) -> Any:
    """Return a value through JSON and back; one that is not the same afterwards is refused."""
    read = json.loads(json.dumps(value, ensure_ascii=False, allow_nan=False))
    if read != value:
        raise ValueError("it could not be read back from JSON as it was")
    return read


async def _awaited_pieces(text: str) -> AsyncGenerator[str, None]:
    for piece in pieces_of_text(text):
        yield piece
