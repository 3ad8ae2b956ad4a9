"""The public names of `headstay.semantic`: there, lazy, and clear where the extra is missing."""

import subprocess
import sys

import headstay
from headstay import semantic

HEAVY = ("numpy", "faiss", "onnxruntime", "tokenizers", "sqlite3")


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_name_is_there_and_documented() -> None:
    assert dir(semantic) == sorted(semantic.__all__)
    for name in semantic.__all__:
        assert getattr(semantic, name).__doc__ or name == "Mode", name


def test_the_package_is_an_attribute_of_headstay() -> None:
    assert headstay.semantic is semantic
    assert {"emulator", "semantic"} <= set(headstay.__all__)


def test_an_import_loads_nothing_heavy() -> None:
    loaded = f"import sys; print([name for name in {HEAVY} if name in sys.modules])"
    assert python(f"import headstay; headstay.semantic; {loaded}") == "[]"
    assert python(f"from headstay.semantic import Reason, caching, Lookup, Store, Entry; {loaded}") == "[]"
    # a cache whose store and embedder come from outside does without the extra
    assert python(f"from headstay.semantic import Cache; {loaded}") == "[]"
    assert python(f"from headstay.semantic import SQLiteStore; SQLiteStore(); {loaded}") == "['sqlite3']"


def test_an_unknown_name_is_no_attribute() -> None:
    assert not hasattr(semantic, "Cash")


def test_a_missing_extra_is_named() -> None:
    code = (
        "import sys\nfor name in ('numpy', 'onnxruntime'): sys.modules[name] = None\n"
        "try:\n    from headstay.semantic import MiniLM\nexcept ImportError as problem: print(problem)\n"
        "from headstay.semantic import Cache\nfrom headstay.errors import ConfigError\n"
        "try:\n    Cache()\nexcept ConfigError as problem: print(problem)"
    )
    first, second = python(code).splitlines()
    assert first == 'MiniLM needs numpy: pip install "headstay[semantic]"'
    assert second == 'the semantic cache needs numpy: pip install "headstay[semantic]"'
