"""The SQLite store passes the suite for stores, in a file and in memory."""

from pathlib import Path

from headstay.semantic.conformance import StoreConformance
from headstay.semantic.sqlite_store import SQLiteStore
from headstay.semantic.store import Store


class TestSQLiteFile(StoreConformance):
    def make_store(self, folder: Path) -> Store:
        return SQLiteStore(folder / "answers.db")


class TestSQLiteMemory(StoreConformance):
    def make_store(self, folder: Path) -> Store:
        return SQLiteStore()
