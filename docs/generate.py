"""Writes the parts of these pages that come out of the code: tables between `<!-- generated: NAME -->` marks.

Run: python docs/generate.py [--check]
"""

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

from headstay.ledger import Row
from headstay.providers import rules
from headstay.providers.rules import CacheRules
from headstay.semantic import Reason

DOCS = Path(__file__).resolve().parent
PACKAGES = (
    "headstay",
    "langchain_headstay",
    "langgraph_headstay",
    "llama_index_headstay",
    "pytest_headstay",
    "headstay.semantic",
    "headstay.ledger",
    "headstay.emulator",
)

_REGION = re.compile(r"(<!-- generated: (?P<name>[\w.-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_PROVIDERS = (*rules.RULES, rules.VLLM)
_ARGUMENT = re.compile(r"^    (?P<name>\w+): (?P<text>.+(?:\n {8}.+)*)", re.MULTILINE)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def provider_rules() -> str:
    """The rules table, in the order in which it is searched, and the rows for what it does not have."""
    known = [_rule_row(row, " ".join(f"`{name}`" for name in row.models)) for row in rules.RULES]
    other = [
        _vllm_row(),
        _rule_row(rules.find_rules("anthropic-messages", "unknown"), "any other on `anthropic-messages`"),
        _rule_row(rules.find_rules("openai-chat", "unknown"), "any other model, any other class"),
    ]
    head = (
        *("models", "minimum tokens", "markers", "TTL (default first)", "read", "write", "reads rounded to"),
        *("explicit mode", "cache key", "note as system message", "late tools appended", "binds thinking"),
    )
    return table(head, [*known, *other])


def _rule_row(row: CacheRules, models: str) -> list[str]:
    ttls = sorted(row.ttls, key=lambda name: name != row.default_ttl)
    write = ", ".join(f"{factor:g}x ({name})" for name, factor in row.write_multipliers.items())
    return [
        models,
        f"{row.min_tokens:,}",
        str(row.max_markers) if row.max_markers else "none",
        ", ".join(f'`"{name}"`' for name in ttls) or "none",
        f"{row.read_multiplier:g}x" if row.known else "not known",
        (write or "no charge") if row.known else "not known",
        f"{row.step:,} and 128" if row.step > 128 else f"{row.step:,}" if row.step > 1 else "exact",
        *(
            "yes" if flag else "no"
            for flag in (row.explicit_mode, row.affinity, row.in_place_system, row.late_tools, row.binds_thinking)
        ),
    ]


def _vllm_row() -> list[str]:
    """The row of vLLM, where the server decides what elsewhere the model does."""
    row = _rule_row(rules.VLLM, "any model on vLLM (`ChatLocal`, `OpenAILike`)")
    row[1] = row[6] = "a block"
    row[9] = "if its template does"
    return row


def provider_sources() -> str:
    """Where the rows were read, and when."""
    found = dict.fromkeys((row.provider, row.source, row.as_of) for row in _PROVIDERS)
    return table(("provider", "read in", "on"), found)


def provider_parameters() -> str:
    """The request fields that re-key a cache, by provider."""
    found = {
        (row.provider, _codes(row.lane_parameters), _codes(row.message_parameters), row.images_rekey_messages)
        for row in _PROVIDERS
    }
    rows = [
        [provider, lane, messages or "none", "drops the cached messages" if images else "no effect"]
        for provider, lane, messages, images in sorted(found)
    ]
    return table(("provider", "re-key everything", "re-key only the messages", "first image of a conversation"), rows)


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def ledger_row() -> str:
    """The fields of a ledger row, from its docstring."""
    arguments = (inspect.getdoc(Row) or "").split("Args:")[1]
    found = {match["name"]: " ".join(match["text"].split()) for match in _ARGUMENT.finditer(arguments)}
    return table(("field", "what it holds"), [(f"`{name}`", text) for name, text in found.items()])


def semantic_reasons() -> str:
    """Every reason of the semantic cache, in the order of its code."""
    return table(("reason", "means"), [(f"`{reason}`", reason.text) for reason in Reason])


def public_names(package: str) -> str:
    """The public names of a package with the first line of each docstring."""
    module = import_module(package)
    rows = [(f"`{name}`", _summary(getattr(module, name))) for name in module.__all__]
    return table(("name", "what it is"), rows)


def _summary(value: object) -> str:
    if isinstance(value, str):
        return "The version, as text."
    if not (inspect.isclass(value) or inspect.isfunction(value) or inspect.ismodule(value)):
        return "A type alias."
    return (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")


SECTIONS: Mapping[str, Callable[[], str]] = {
    "provider-rules": provider_rules,
    "provider-sources": provider_sources,
    "provider-parameters": provider_parameters,
    "ledger-row": ledger_row,
    "semantic-reasons": semantic_reasons,
    **{f"names.{package}": partial(public_names, package) for package in PACKAGES},
}


def rewritten(page: str) -> str:
    """Return a page with its generated parts as they should be.

    Raises:
        KeyError: It asks for a part that is not made here.
    """
    return _REGION.sub(lambda found: f"{found[1]}\n{SECTIONS[found['name']]()}\n\n{found[3]}", page)


def main() -> int:
    """Write every page anew; with `--check` only say which ones are stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when a page is stale")
    check = parser.parse_args().check
    stale: list[str] = []
    for path in sorted(DOCS.rglob("*.md")):
        page = path.read_text(encoding="utf-8")
        fresh = rewritten(page)
        if fresh != page:
            stale.append(str(path.relative_to(DOCS)))
            if not check:
                path.write_text(fresh, encoding="utf-8")
    for name in stale:
        print(f"{name}: {'stale, run python docs/generate.py' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
