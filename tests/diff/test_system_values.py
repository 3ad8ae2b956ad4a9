"""What a changed stretch of a system text is: many ways to write a date, an id, a name, memory, retrieved text."""

from typing import Any

import pytest

from headstay import diff

PAIRS = {
    "clock_in_head": [
        (
            "The current date and time is Sunday 29 November 2026, 14:05 CET.",
            "The current date and time is Sunday 29 November 2026, 14:06 CET.",
        ),
        ("Current time: 2:05 pm", "Current time: 2:06 pm"),
        ("Heute ist Sonntag, der 29. November 2026.", "Heute ist Montag, der 30. November 2026."),
        ("Nous sommes le dimanche 29 novembre 2026.", "Nous sommes le lundi 30 novembre 2026."),
        ("Hoy es domingo, 29 de noviembre de 2026.", "Hoy es lunes, 30 de noviembre de 2026."),
        ("今日は2026年11月29日です。", "今日は2026年11月30日です。"),
        ("现在时间:2026年11月29日 14时05分", "现在时间:2026年11月29日 14时06分"),
        ("Current date: 2026-11-29 (Sunday)", "Current date: 2026-11-30 (Monday)"),
        ("It is now 2026-11-29T10:15:00.123456+00:00", "It is now 2026-11-29T10:15:02.998123+00:00"),
        ("Timestamp: 1795910400123", "Timestamp: 1795910465456"),
        ("Today's date is Nov 29, 2026", "Today's date is Dec 1, 2026"),
        ("<current_time>10:15</current_time>", "<current_time>10:45</current_time>"),
        ("today=20261129", "today=20261130"),
        ('{"now": "2026-11-29T10:15:00Z", "tz": "UTC"}', '{"now": "2026-11-29T10:16:00Z", "tz": "UTC"}'),
        ("It is 9 o'clock.", "It is 10 o'clock."),
        ("Last updated 5 minutes ago.", "Last updated 7 minutes ago."),
        ("The year is 2026.", "The year is 2027."),
        ("Сегодня воскресенье, 29 ноября 2026 года.", "Сегодня понедельник, 30 ноября 2026 года."),
        ("Dziś jest niedziela, 29 listopada 2026 r.", "Dziś jest poniedziałek, 30 listopada 2026 r."),
        ("Dnes je neděle 29. listopadu 2026.", "Dnes je pondělí 30. listopadu 2026."),
        ("I dag er det søndag 29. november 2026.", "I dag er det mandag 30. november 2026."),
        ("Hôm nay là ngày 29 tháng 11 năm 2026.", "Hôm nay là ngày 30 tháng 11 năm 2026."),
        ("आज 29 नवंबर 2026 है।", "आज 30 नवंबर 2026 है।"),
        ("اليوم هو 29 نوفمبر 2026.", "اليوم هو 30 نوفمبر 2026."),
        ("오늘은 2026년 11월 29일 일요일입니다.", "오늘은 2026년 11월 30일 월요일입니다."),
        ("현재 시각: 오후 3시 12분", "현재 시각: 오후 3시 14분"),
        ("当前时间:2026年11月29日 下午3:05", "当前时间:2026年11月29日 下午3:06"),
        ("Current hour: 14", "Current hour: 15"),
        ("Quarter: Q3 2026", "Quarter: Q4 2026"),
        ("unix_time=1795910400.123", "unix_time=1795910411.871"),
        ("It is a Sunday afternoon.", "It is a Monday morning."),
        ("Fecha: 29-nov-2026", "Fecha: 30-nov-2026"),
        ("Сейчас 28 ноября 21:15.", "Сейчас 29 ноября 21:16."),
    ],
    "random_id_in_head": [
        ("Session ID: abc123", "Session ID: xyz789"),
        ("session_id=9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d", "session_id=1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"),
        (
            "Trace-Id: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "Trace-Id: 00-5cf92f3577b34da6a3ce929d0e0e4999-11f067aa0ba902b7-01",
        ),
        ("cch=a94a8;", "cch=fe0f2;"),
        ("Commit: a94a8fe", "Commit: 0fe5ccb"),
        (
            "x-anthropic-billing-header: cc_version=2.1.37.3a7; cch=00000;",
            "x-anthropic-billing-header: cc_version=2.1.37.3a7; cch=9f21b;",
        ),
        ("Nonce: qwxzkjvb", "Nonce: plmoknij"),
        ("Run ID: run-20261129-7f3a", "Run ID: run-20261129-9c1b"),
        ("ULID 01ARZ3NDEKTSV4RRFFQ69G5FAV", "ULID 01BX5ZZKBKACTAV9WEVGEMMVRZ"),
        ("Request #48213377", "Request #48213398"),
        ("Last: msg_01XFDUDYJgAACzvnptvVoYEL", "Last: msg_01QpWcRrKsTnNbyyGZcHdVmK"),
    ],
    "value_in_head": [
        ("You are assisting Acme Corp (enterprise plan).", "You are assisting Globex GmbH (starter plan)."),
        ("Balance: $1,204.50", "Balance: $980.00"),
        ("The customer's name is Søren Ødegård.", "The customer's name is Zoë Müller."),
        ("User: ada@example.com", "User: max@example.org"),
        ("The user lives in Bergen, Norway.", "The user lives in Lyon, France."),
        ("Tier: gold", "Tier: silver"),
        ("You have 12 credits left.", "You have 11 credits left."),
        ("Version 1.2.34 is installed.", "Version 1.2.35 is installed."),
        ("Unread messages: 4", "Unread messages: 7"),
        ("Working directory: /home/ada/project", "Working directory: /home/max/other"),
        ("Der Kunde heißt Anna Schmidt.", "Der Kunde heißt Jürgen Weiß."),
        ("顧客は田中太郎です。", "顧客は鈴木花子です。"),
        ("The user speaks German.", "The user speaks French."),
        ("You serve the tenant acme.", "You serve the tenant globex."),
        ("Git branch: main", "Git branch: feature/login"),
        ("Order 88213 is open.", "Order 88217 is open."),
        ("Keep a friendly tone.", "Keep a formal tone."),
        ("You are a pirate.", "You are a robot."),
        ("Waiting time right now: 25 minutes.", "Waiting time right now: 40 minutes."),
        ("Average response time: 340 ms", "Average response time: 512 ms"),
        ("Holidays left this year: 12", "Holidays left this year: 11"),
        ("Report for Acme of 2026-11-29", "Report for Globex of 2026-11-29"),
        ("Open files: a.py, b.py", "Open files: a.py, c.py, d.py"),
        ("Hello ann, your balance is 51 EUR.", "Hello bob, your balance is 0 EUR."),
        ("Hello ann, you are gold.", "Hello Bob, you are basic."),
    ],
    "system_text_changed": [
        ("Answer briefly.", "Answer in detail."),
        ("You must not give discounts.", "You may give discounts up to ten percent."),
        ("You may use tools.", "You must use tools."),
        ("Plan first.", "Plan first, always."),
        ("Use tools only when needed.", "Use tools whenever they might help, and say so."),
        ("Rule one.\nRule two.\nRule three.", "Rule two.\nRule one.\nRule three."),
        ("Rule one.\nRule two.", "Rule one.\nRule two.\nRule three is new."),
        ("Rule one.\nRule two.", "Rule one."),
        ("Keep answers short and friendly.", "Keep replies brief and formal."),
        ("Antworte immer kurz.", "Antworte immer ausführlich und freundlich."),
    ],
    "memory_in_head": [
        ("Memory: likes tea; has cats", "Memory: likes tea; has cats; moved to Oslo"),
        ("**Memories**\n- a\n- b", "**Memories**\n- a\n- b\n- c"),
        ("=== MEMORY ===\nlikes tea\n=== END ===", "=== MEMORY ===\nlikes coffee\n=== END ==="),
        ("What you know about the user:\n- likes tea", "What you know about the user:\n- likes tea\n- is 40"),
        (
            "<memories>\n<memory>likes tea</memory>\n</memories>",
            "<memories>\n<memory>likes tea</memory>\n<memory>is 40</memory>\n</memories>",
        ),
        ("## User preferences\n- short answers", "## User preferences\n- long answers"),
        ("# Erinnerungen\n- mag Tee", "# Erinnerungen\n- mag Kaffee"),
        ("Facts about the user:\nAge: 40", "Facts about the user:\nAge: 41"),
        ("# Память\n- любит чай", "# Память\n- любит чай\n- живёт в Омске"),
        ("## 사용자 기억\n- 고양이", "## 사용자 기억\n- 고양이\n- 부산"),
        ("<about_user>\nlikes tea\n</about_user>", "<about_user>\nlikes tea, has cats\n</about_user>"),
    ],
    "retrieval_in_head": [
        ('Context:\n"""\nParcels take three days.\n"""', 'Context:\n"""\nRefunds are free.\n"""'),
        ("<context>\nDoc A says x.\n</context>", "<context>\nDoc B says y.\n</context>"),
        (
            "Use the following pieces of context to answer the question at the end.\n\nParcels take three days.",
            "Use the following pieces of context to answer the question at the end.\n\nRefunds are free.",
        ),
        ("## Retrieved documents\n[1] a.md: x y z", "## Retrieved documents\n[1] b.md: p q r"),
        ("### Sources\n1. https://a.example/x", "### Sources\n1. https://b.example/y"),
        (
            '<documents>\n<document index="1">A b</document>\n</documents>',
            '<documents>\n<document index="1">C d</document>\n<document index="2">E</document>\n</documents>',
        ),
        (
            "Relevant information from the knowledge base:\nFoo bar.",
            "Relevant information from the knowledge base:\nBaz qux.",
        ),
        ("## 관련 문서\n배송은 3일", "## 관련 문서\n환불은 무료"),
        ("FAQ entries:\n- Parcels take three days", "FAQ entries:\n- Refunds are free"),
        ('{"context": "Parcels take three days."}', '{"context": "Refunds are free."}'),
    ],
}
CASES = [(cause, *pair) for cause, pairs in PAIRS.items() for pair in pairs]


def body(text: str, *more: dict[str, Any]) -> dict[str, Any]:
    system = f"You are a desk agent. Be good.\n{text}\nAlways cite the policy.\nEnd."
    messages = [{"role": "user", "content": "Where is it?"}, *more]
    return {"model": "claude-opus-5", "max_tokens": 9, "system": system, "messages": messages}


@pytest.mark.parametrize(("cause", "before", "after"), CASES)
def test_a_changed_stretch_has_one_cause(cause: str, before: str, after: str) -> None:
    turn = ({"role": "assistant", "content": "Here."}, {"role": "user", "content": "Thanks."})
    findings = diff(body(before), body(after, *turn)).findings
    assert {finding.cause.value for finding in findings} == {cause}
    one, other = (str(body(text)["system"]) for text in (before, after))
    assert findings[0].at == next(n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
