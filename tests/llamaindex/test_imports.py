"""Who uses LlamaIndex never imports LangChain, and who has no LlamaIndex is told which extra to install."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import llama_index_headstay

ROOT = Path(__file__).parents[2]
LANGCHAIN = ("langchain", "langgraph")
Imported = Callable[..., list[str]]


@pytest.fixture
def imported() -> Imported:
    """Run some lines in a process of their own; returns the top-level modules that it imported, of those asked for."""

    def run(code: str, *prefixes: str) -> list[str]:
        tail = f"import json, sys; print(json.dumps(sorted(m for m in sys.modules if m.startswith({prefixes!r}))))"
        places = [str(ROOT / place) for place in ("core", "integrations", "middleware")]
        done = subprocess.run(
            [sys.executable, "-c", f"{code}\n{tail}"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
        )
        assert done.returncode == 0, done.stderr
        return [name for name in json.loads(done.stdout) if "." not in name]

    return run


def test_the_package_alone_imports_no_host(imported: Imported) -> None:
    code = "import llama_index_headstay; dir(llama_index_headstay)"
    assert imported(code, "llama_index", "openai", "anthropic", *LANGCHAIN) == ["llama_index_headstay"]


@pytest.mark.parametrize("name", llama_index_headstay.__all__)
def test_no_public_name_imports_langchain(imported: Imported, name: str) -> None:
    assert imported(f"from llama_index_headstay import {name}; assert {name}", *LANGCHAIN) == []


def test_an_instrumented_model_imports_no_langchain(imported: Imported) -> None:
    code = """
from llama_index.core.llms import ChatMessage, MockLLM
from llama_index_headstay import cache_aware
assert cache_aware(MockLLM(), on_break="record").chat([ChatMessage("Hello")]).message.content
"""
    assert imported(code, *LANGCHAIN) == []


def test_without_llama_index_the_extra_is_named(imported: Imported) -> None:
    code = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "llama_index" or name.startswith("llama_index."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
import llama_index_headstay
for name in llama_index_headstay.__all__:
    try:
        getattr(llama_index_headstay, name)
    except ImportError as problem:
        assert str(problem) == f'{name} needs LlamaIndex: pip install "headstay[llama-index]"', problem
        assert isinstance(problem.__cause__, ModuleNotFoundError)
    else:
        raise AssertionError(name)
"""
    assert imported(code, "llama_index") == ["llama_index_headstay"]


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'llama_index_headstay' has no attribute 'Cache'"):
        llama_index_headstay.Cache  # noqa: B018 - the point
    assert dir(llama_index_headstay) == sorted(llama_index_headstay.__all__)


def test_every_public_name_is_there() -> None:
    for name in llama_index_headstay.__all__:
        found = getattr(llama_index_headstay, name)
        assert found.__name__ == name
        assert found.__module__.startswith("llama_index_headstay.")
