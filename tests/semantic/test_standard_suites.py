"""LangChain's own suites for caches."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from langchain_tests.integration_tests import AsyncCacheTestSuite, SyncCacheTestSuite

from langchain_headstay import SemanticCache


class TestInMemory(SyncCacheTestSuite):
    @pytest.fixture
    def cache(self) -> SemanticCache:
        return SemanticCache()


class TestInMemoryAsync(AsyncCacheTestSuite):
    @pytest.fixture
    async def cache(self) -> SemanticCache:
        return SemanticCache()


class TestInAFile(SyncCacheTestSuite):
    @pytest.fixture
    def cache(self, tmp_path: Path) -> Iterator[SemanticCache]:
        with SemanticCache(tmp_path / "answers.db") as made:
            yield made


class TestInAFileAsync(AsyncCacheTestSuite):
    @pytest.fixture
    async def cache(self, tmp_path: Path) -> SemanticCache:
        return SemanticCache(tmp_path / "answers.db")
