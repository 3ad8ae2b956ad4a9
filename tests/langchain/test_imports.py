"""Who uses LangChain never imports LlamaIndex, although it is installed."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = """
import sys
{line}
from langchain_core.language_models import FakeListChatModel
from langchain_headstay import CacheAwareChatModel, cache_aware
assert CacheAwareChatModel(FakeListChatModel(responses=["Hello"]), on_break="record").invoke("Hello").content
print([name for name in sys.modules if name.startswith("llama_index")])
"""


@pytest.mark.parametrize(
    "line", ["", "from langgraph_headstay import AnswerCacheMiddleware, StableHeadMiddleware", "import pytest_headstay"]
)
def test_langchains_side_imports_no_llama_index(line: str) -> None:
    assert importlib.util.find_spec("llama_index") is not None
    places = os.pathsep.join(str(ROOT / place) for place in ("core", "integrations", "middleware"))
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(line=line)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": places},
    )
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
