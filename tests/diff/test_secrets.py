"""No key, token, password or mail name of a body gets into a report; excerpts are short."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstay import diff
from headstay.excerpt import excerpt, hidden

SECRETS = [
    "sk-ant-api03-Zk3mQ9xLr7TfB2nVw8",
    "sk-proj-Zk3mQ9xLr7TfB2nVw8",
    "sk-Zk3mQ9xLr7TfB2nVw8Zk3mQ9",
    "ghp_Zk3mQ9xLr7TfB2nVw8Zk3mQ9xLr7TfB2nVw8",
    "xoxb-123456789012-Zk3mQ9xLr7Tf",
    "AKIAZK3MQ9XLR7TFB2NV",
    "AIzaZk3mQ9xLr7TfB2nVw8Zk3mQ9xLr7TfB2n",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.Zk3mQ9xLr7TfB2nVw8",
]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    "around", ["{}", "key={} and more", "Authorization: Bearer {}", '{{"api_key": "{}"}}', "({})."]
)
def test_a_secret_is_hidden_wherever_it_stands(secret: str, around: str) -> None:
    text = around.format(secret)
    assert secret[12:] not in hidden(text)
    assert "***" in hidden(text)
    for start in range(len(text)):
        shown = excerpt(text, start, len(text))
        assert secret[-8:] not in shown
        assert len(shown) <= 80


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password: hunter22!", "password: ***"),
        ("DB_PASSWORD=hunter22", "DB_PASSWORD=***"),
        ("postgres://ada:hunter22@db.example/x", "postgres://ada:***@db.example/x"),
        ("client_secret is Zk3mQ9xLr7", "client_secret is ***"),
        ("Ask for the password first.", "Ask for the password first."),
        ("Today is 2026-11-29, task-list of Ada", "Today is 2026-11-29, task-list of Ada"),
        ("From: Ada <ada.l+x@mail.example.com>", "From: Ada <***@mail.example.com>"),
        (r'Slot(r"user: (ada@example\.com)")', r'Slot(r"user: (***@example\.com)")'),
        ("uses numpy@1.26 and actions/checkout@v4", "uses numpy@1.26 and actions/checkout@v4"),
    ],
)
def test_what_is_named_a_secret_is_one(text: str, shown: str) -> None:
    assert hidden(text) == shown


@given(text=st.text(max_size=300), start=st.integers(0, 300), length=st.integers(0, 300))
def test_an_excerpt_is_what_stands_there(text: str, start: int, length: int) -> None:
    shown = excerpt(text, start, start + length)
    assert len(shown) <= 80
    if "***" not in shown:
        whole = text[start : start + length]
        assert shown == whole or (shown.endswith("...") and whole.startswith(shown[:-3]))


def bodies(one: str, other: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The same change of a text in the system text, a tool, an old message, a call and a result."""

    def body(system: str, tool: str, said: str, argument: str, result: str) -> dict[str, Any]:
        call = {"type": "tool_use", "id": "c1", "name": "look", "input": {"q": argument}}
        messages = [
            {"role": "user", "content": said},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": result}]},
            {"role": "assistant", "content": "Well."},
            {"role": "user", "content": "And?"},
        ]
        tools = [{"name": "look", "description": tool, "input_schema": {"type": "object", "default": tool}}]
        return {"model": "claude-opus-5", "max_tokens": 9, "system": system, "tools": tools, "messages": messages}

    base = ["It is so."] * 5
    changed = [[[*base[:n], words, *base[n + 1 :]] for words in (one, other)] for n in range(5)]
    return [(body(*before), body(*after)) for before, after in changed]


@pytest.mark.parametrize("secret", SECRETS)
def test_no_report_holds_a_secret(secret: str) -> None:
    other = secret[:-4] + "wXyZ"
    for before, after in bodies(f"The key is {secret} here.", f"The key is {other} here."):
        found = diff(before, after).findings
        assert found
        for finding in found:
            assert secret[12:-4] not in f"{finding}"


def test_long_tool_names_are_cut_and_hide_secrets() -> None:
    def body(*names: str) -> dict[str, object]:
        tools = [{"name": name, "input_schema": {"type": "object", "properties": {}}} for name in names]
        messages = [{"role": "user", "content": "Hello"}]
        return {"model": "claude-opus-5", "max_tokens": 9, "tools": tools, "messages": messages}

    key = f"sk-proj-{'a' * 30}"
    names = [f"tool_{number}_{'x' * 60}" for number in range(3)]
    (found,) = diff(body(key, *names), body(*names, key)).findings
    for text in (found.before, found.after):
        assert len(text) <= 80
        assert "aaaa" not in text
