"""What imports what, what a bare import costs, and how long files and functions may be."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "core" / "headstay"
PLACES = [ROOT / name for name in ("core", "integrations", "middleware", "bench", "tests") if (ROOT / name).exists()]
FILES = sorted(path for place in PLACES for path in place.rglob("*.py"))
PACKAGES = sorted(path.parent.name for place in PLACES[:-2] for path in place.glob("*/__init__.py"))

# A checkout is importable without being installed.
PATHS = ":".join([*(str(place) for place in PLACES[:-2]), *sys.path])

HOSTS = {"langchain", "langchain_core", "langchain_anthropic", "langchain_openai", "langgraph", "llama_index"}
SDKS = {"anthropic", "openai"}

LISTING = """
import sys
before = {name.partition(".")[0] for name in sys.modules}
import NAME
after = {name.partition(".")[0] for name in sys.modules}
print(*sorted(after - before - set(sys.stdlib_module_names)))
"""


def came_along(name: str) -> set[str]:
    """Import a module in a fresh interpreter and list what came with it, beside the standard library."""
    script = LISTING.replace("NAME", name)
    return set(said(script).split())


def said(script: str) -> str:
    """Run a script in a fresh interpreter."""
    command = [sys.executable, "-c", script]
    return subprocess.run(command, check=True, capture_output=True, text=True, env={"PYTHONPATH": PATHS}).stdout


@pytest.mark.parametrize(
    "name",
    [
        *("headstay", "headstay.flow", "headstay.headstore", "headstay.slots", "headstay.wires", "headstay.ledger"),
        *("headstay.divergence", "headstay.providers.rules", "headstay.emulator.oracle", "headstay.emulator.workload"),
    ],
)
def test_the_engine_brings_nothing_along(name: str) -> None:
    assert came_along(name) == {"headstay"}


@pytest.mark.parametrize("name", PACKAGES)
def test_each_package_imports_alone_and_without_its_host(name: str) -> None:
    assert came_along(name) <= {"headstay", name}


def test_a_bare_import_loads_no_engine() -> None:
    script = "import sys, headstay; print(*[name for name in sys.modules if name.startswith('headstay')])"
    assert set(said(script).split()) == {"headstay", "headstay._version"}


@pytest.mark.parametrize("name", [*PACKAGES, "headstay.ledger", "headstay.emulator"])
def test_public_names_are_sorted_and_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in PLACES[:-2]:
        monkeypatch.syspath_prepend(place)
    module = import_module(name)
    public: list[str] = module.__all__
    assert public == sorted(public)
    assert len(set(public)) == len(public)
    assert all(getattr(module, each) is not None for each in public)
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        _ = module.no_such_name


def imports(path: Path) -> Iterator[str]:
    """Every module a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield str(node.module)


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda path: str(path.relative_to(CORE)))
def test_the_core_knows_no_host_and_the_examiners_know_no_core(path: Path) -> None:
    found = set(imports(path))
    roots = {name.partition(".")[0] for name in found}
    ours = {name for place in PLACES[1:-2] for name in (child.name for child in place.iterdir() if child.is_dir())}
    assert roots.isdisjoint(HOSTS | SDKS | ours)
    if CORE / "emulator" in path.parents:
        assert {name for name in found if name.startswith("headstay")} <= {
            name for name in found if name.startswith("headstay.emulator")
        }
    else:
        assert roots <= {"headstay", *sys.stdlib_module_names, *brought(path)}


def brought(path: Path) -> set[str]:
    """Return what beside the standard library a file of the core may import; all of it comes with an extra."""
    if path.name.startswith("cli"):
        return {"typer"}
    if path.name.endswith("_table.py"):
        return {"rich"}
    if CORE / "ledger" in path.parents:
        return {"genai_prices"}
    if path == CORE / "semantic" / "conformance.py":
        return {"pytest"}
    semantic = {"numpy", "onnxruntime", "tokenizers", "sentence_transformers", "matplotlib"}
    return semantic if CORE / "semantic" in path.parents else set()


ORDER = [
    "errors",
    "prompt",
    "canonical",
    "fingerprint",
    "slots",
    "causes",
    "values",
    "providers.rules",
    "toolset",
    "layout",
]


def test_the_floors_of_the_core_point_downward() -> None:
    """Nothing on a floor imports a floor above it."""
    for height, name in enumerate(ORDER):
        above = {f"headstay.{other}" for other in ORDER[height + 1 :]}
        path = CORE / f"{name.replace('.', '/')}.py"
        assert above.isdisjoint(imports(path)), name


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_stay_short(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert source.count("\n") <= 500
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert (node.end_lineno or 0) - node.lineno < 80, node.name


def test_every_package_is_typed() -> None:
    assert PACKAGES
    for place in PLACES[:-2]:
        for package in place.glob("*/__init__.py"):
            assert (package.parent / "py.typed").exists(), package.parent.name
