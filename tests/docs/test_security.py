"""What SECURITY says of a query engine's kept answers: source nodes are in the file, and `forget` removes them."""

from pathlib import Path

from llama_index.core import VectorStoreIndex
from llama_index.core.schema import TextNode
from llama_index.llms.openai_like import OpenAILike
from openai import OpenAI

from headstay.emulator import serve
from headstay.semantic import Cache
from llama_index_headstay import BundledEmbedding, SemanticCacheQueryEngine

TOLD = (b"The key to the shed is under the third pot.", b"warden-ada", b"Where is the key to the shed?")


def found(folder: Path) -> list[bytes]:
    """Return what of the document and the question stands in the bytes of the cache's files."""
    held = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
    return [text for text in TOLD if text in held]


def test_source_nodes_are_kept_with_an_answer_and_forgotten_with_their_user(tmp_path: Path) -> None:
    node = TextNode(text=TOLD[0].decode(), metadata={"owner": TOLD[1].decode()})
    index = VectorStoreIndex([node], embed_model=BundledEmbedding())
    cache = Cache(tmp_path / "answers.db")
    with serve() as server, OpenAI(api_key="none", base_url=server.openai_url) as client:
        llm = OpenAILike(model="gpt-5.4", is_chat_model=True, api_key="none", openai_client=client)
        engine = SemanticCacheQueryEngine(
            index.as_query_engine(llm=llm), cache=cache, version="1", tenant="larkfield", user="ada"
        )
        for _ in range(2):
            response = engine.query(TOLD[2].decode())
        assert len(server.exchanges) == 1
    assert [one.node.metadata for one in response.source_nodes] == [{"owner": "warden-ada"}]
    assert found(tmp_path) == list(TOLD)
    assert cache.forget(tenant="larkfield", user="ada") == 1
    assert found(tmp_path) == []
    cache.close()
