"""What the tests of chat engines and memories share: a retriever that is told what to find, and a model to ask."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.llms.openai_like import OpenAILike

from headstay.emulator import Emulator


class Shelf(BaseRetriever):
    """Retrieves the texts it is given, one list for each question."""

    def __init__(self, *texts: Sequence[str]) -> None:
        self._texts = [list(batch) for batch in texts]
        self.asked: list[str] = []
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.asked.append(query_bundle.query_str)
        texts = self._texts[min(len(self.asked), len(self._texts)) - 1]
        return [NodeWithScore(node=TextNode(text=text, id_=text), score=0.5) for text in texts]


@dataclass(frozen=True)
class Shop:
    """A desk, and a model that asks it."""

    desk: Emulator
    model: Callable[..., OpenAILike]

    def sent(self, at: int = -1) -> list[tuple[str, str]]:
        """The messages of a request as they went over the wire."""
        return [(message["role"], message["content"]) for message in self.desk.exchanges[at].body["messages"]]


def memory() -> ChatMemoryBuffer:
    """A memory without a database, where the memory is not what is tested."""
    return ChatMemoryBuffer.from_defaults(token_limit=5_000)


def reply_to(question: str) -> str:
    """What the desk answers; see `conftest.py`."""
    return f"The answer to <{question}>, in some more words than one piece of a replay has."
