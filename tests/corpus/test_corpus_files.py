"""The corpus itself: every pair parses, its path and offset are true, and the counts asked for are met."""

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headstay.causes import Cause

HERE = Path(__file__).parent
WIRES = {"anthropic-messages": "messages", "openai-chat": "messages", "openai-responses": "input"}
ANTHROPIC_ONLY = {"tool_choice_changed", "markers_over_limit", "marker_ttl_order", "lookback_exceeded"}
NEED_MORE_THAN_TWO_REQUESTS = {"ttl_expired", "cold_fan_out", "provider_routing", "receipt_lost", "unknown"}
MARKS = ("cache_control", "prompt_cache_breakpoint")


@dataclass(frozen=True, slots=True)
class Pair:
    """One file: two request bodies and what is to be said of them."""

    wire: str
    folder: str
    name: str
    size: int
    content: dict[str, Any]

    @property
    def bodies(self) -> tuple[Any, Any]:
        return self.content["a"], self.content["b"]

    @property
    def later(self) -> Any:
        return self.content["b"]


def read(file: Path) -> Pair:
    text = file.read_text(encoding="utf-8")
    return Pair(file.parts[-3], file.parts[-2], file.stem, len(text.encode()), json.loads(text))


PAIRS = [read(file) for file in sorted(HERE.glob("*/*/*.json"))]
every_pair = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.wire}/{pair.folder}/{pair.name}")


def of(*codes: str) -> pytest.MarkDecorator:
    chosen = [pair for pair in PAIRS if pair.folder in codes]
    return pytest.mark.parametrize("pair", chosen, ids=lambda pair: f"{pair.wire}/{pair.folder}/{pair.name}")


def find(body: Any, path: str) -> Any:
    """Follow a path as in `messages[4].content[0].text`; None where it leads nowhere. A string is one text block."""
    found = body
    for step in re.findall(r"[^.\[\]]+|\[\d+\]", path):
        if step.startswith("["):
            blocks = [{"text": found}] if isinstance(found, str) else found
            if not isinstance(blocks, list) or int(step[1:-1]) >= len(blocks):
                return None
            found = blocks[int(step[1:-1])]
        elif isinstance(found, dict) and step in found:
            found = found[step]
        else:
            return None
    one_text = isinstance(found, list) and len(found) == 1 and isinstance(found[0], dict) and "text" in found[0]
    return found[0]["text"] if one_text else found


def first_difference(before: str, after: str) -> int:
    """Return the offset up to which two texts are the same."""
    return next(
        (at for at, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
    )


def without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_marks(item) for key, item in value.items() if key not in MARKS}
    return [without_marks(item) for item in value] if isinstance(value, list) else value


def marks(body: Any) -> list[dict[str, Any]]:
    """Collect the markers in the provider's order: tools, system, messages, and the automatic one last."""
    found: list[dict[str, Any]] = []

    def collect(value: Any) -> None:
        if isinstance(value, list):
            for item in value:
                collect(item)
        elif isinstance(value, dict):
            found.extend(value[key] for key in MARKS if key in value)
            for key, item in value.items():
                if key not in MARKS:
                    collect(item)

    for part in ("tools", "system", "instructions", "messages", "input"):
        collect(body.get(part))
    return [*found, *([body["cache_control"]] if "cache_control" in body else [])]


@every_pair
def test_the_file_has_the_agreed_form(pair: Pair) -> None:
    assert list(pair.content) == ["about", "a", "b", "first", "causes", "path", "at", "remedy_mentions"]
    assert len(pair.content["about"]) > 20
    assert "\n" not in pair.content["about"]
    for body in pair.bodies:
        assert body["model"]
        assert body[WIRES[pair.wire]]
        assert ("max_tokens" in body) == (pair.wire == "anthropic-messages")


@every_pair
def test_the_codes_are_those_of_the_vocabulary_and_the_folder_is_the_first(pair: Pair) -> None:
    causes = pair.content["causes"]
    assert set(causes) <= set(Cause)
    assert len(causes) == len(set(causes))
    assert pair.content["first"] == (causes[0] if causes else None)
    assert pair.folder == (pair.content["first"] or "clean")


@every_pair
def test_the_path_leads_somewhere_and_the_offset_is_the_first_difference(pair: Pair) -> None:
    path, at = pair.content["path"], pair.content["at"]
    if pair.folder == "clean":
        assert (path, at, pair.content["remedy_mentions"]) == (None, None, [])
        return
    before, after = (find(body, path) for body in pair.bodies)
    assert before is not None or after is not None
    if at is not None:
        assert isinstance(before, str)
        assert isinstance(after, str)
        assert before != after
        assert at == first_difference(before, after)


MARKER_CODES = {"markers_missing", "markers_over_limit", "marker_ttl_order", "lookback_exceeded", "below_minimum"}


@of(*(set(Cause) - MARKER_CODES))
def test_the_two_bodies_differ_at_the_path_by_more_than_markers(pair: Pair) -> None:
    before, after = (json.dumps(without_marks(find(body, pair.content["path"]))) for body in pair.bodies)
    assert before != after


@of(*MARKER_CODES)
def test_a_pair_about_markers_differs_in_nothing_else_that_was_sent_before(pair: Pair) -> None:
    before, after = (without_marks(body) for body in pair.bodies)
    assert before.get("tools") == after.get("tools")
    assert as_blocks(before.get("system")) == as_blocks(after.get("system"))
    sent = as_blocks(before[WIRES[pair.wire]])
    assert as_blocks(after[WIRES[pair.wire]])[: len(sent)] == sent


def as_blocks(value: Any) -> Any:
    """Write each string content as a list of one text block, so that only what was said is compared."""
    if isinstance(value, str):
        return [{"text": value}]
    if isinstance(value, list):
        return [as_blocks(item) for item in value]
    if not isinstance(value, dict):
        return value
    plain = {key: item for key, item in value.items() if key != "type" or item not in ("text", "input_text", "message")}
    return {key: as_blocks(item) if key == "content" else item for key, item in plain.items()}


@of("markers_missing")
def test_the_earlier_body_is_marked_where_the_later_is_not(pair: Pair) -> None:
    path = pair.content["path"]
    before, after = pair.bodies
    if path == "cache_control":
        assert path in before
    else:
        assert any(mark in find(before, path) for mark in MARKS)
        assert not marks({"input": find(after, path)})
    assert len(marks(after)) < len(marks(before))


@of("markers_over_limit")
def test_four_markers_are_allowed_and_the_path_is_the_fifth(pair: Pair) -> None:
    before, after = pair.bodies
    assert len(marks(before)) <= 4 < len(marks(after))
    fifth = find(after, pair.content["path"])
    mark = fifth if pair.content["path"] == "cache_control" else fifth["cache_control"]
    assert marks(after)[4] is mark


@of("marker_ttl_order")
def test_the_path_is_the_first_hour_behind_five_minutes(pair: Pair) -> None:
    after = find(pair.later, pair.content["path"])
    late = after if pair.content["path"] == "cache_control" else after["cache_control"]
    lives = [mark.get("ttl", "5m") for mark in marks(pair.later)]
    place = next(at for at, mark in enumerate(marks(pair.later)) if mark is late)
    assert lives[place] == "1h"
    assert lives.index("5m") < place
    assert "1h" not in lives[lives.index("5m") : place]


@of("lookback_exceeded")
def test_more_than_twenty_positions_lie_between_the_old_marker_and_the_new(pair: Pair) -> None:
    before, after = pair.bodies
    appended = after["messages"][len(before["messages"]) :]
    runs = [kind for message in appended for kind in positions(message)]
    assert len(runs) > 20
    assert len(marks({"messages": after["messages"]})) == 1


def positions(message: Any) -> list[str]:
    """Count the way that gives the fewest: a run of calls or of results in one message is one position."""
    blocks = message["content"]
    kinds = ["text"] if isinstance(blocks, str) else [block["type"] for block in blocks]
    return [
        kind
        for at, kind in enumerate(kinds)
        if not (at and kind == kinds[at - 1] and kind in ("tool_use", "tool_result"))
    ]


@of("below_minimum")
def test_even_a_generous_estimate_is_below_the_minimum(pair: Pair) -> None:
    minimum = 4096 if pair.wire == "anthropic-messages" else 1024
    assert marks(pair.later)
    assert len(json.dumps(pair.later, ensure_ascii=False).encode()) / 3 < minimum


@every_pair
def test_apart_from_the_pairs_about_it_a_marked_prefix_reaches_the_minimum(pair: Pair) -> None:
    if pair.folder == "below_minimum":
        return
    minimum = 512 if pair.wire == "anthropic-messages" else 1024
    for body in pair.bodies:
        if marks(body) and pair.content["first"] not in MARKER_CODES:
            head = [body.get(part, "") for part in ("tools", "system")] + body[WIRES[pair.wire]][:1]
            assert len(json.dumps(head, ensure_ascii=False).encode()) / 4.3 > minimum


def test_there_are_three_pairs_for_every_code_and_wire_that_can_express_it() -> None:
    counts = Counter((pair.wire, pair.folder) for pair in PAIRS)
    for code in set(Cause) - NEED_MORE_THAN_TWO_REQUESTS:
        for wire in WIRES:
            wanted = 3 if wire == "anthropic-messages" or code not in ANTHROPIC_ONLY else 0
            assert counts[wire, code] >= wanted, f"{wire}/{code}: {counts[wire, code]} pairs"
            assert wanted or not counts[wire, code]


def test_no_pair_needs_more_than_two_requests() -> None:
    assert not {cause for pair in PAIRS for cause in pair.content["causes"]} & NEED_MORE_THAN_TWO_REQUESTS


def test_there_are_enough_clean_pairs_and_pairs_with_several_causes() -> None:
    clean = Counter(pair.wire for pair in PAIRS if pair.folder == "clean")
    assert sum(clean.values()) >= 40
    assert min(clean[wire] for wire in WIRES) >= 15
    several = Counter(pair.wire for pair in PAIRS if len(pair.content["causes"]) > 1)
    assert min(several[wire] for wire in WIRES) >= 3


def test_the_corpus_stays_small_and_holds_no_secret() -> None:
    assert sum(pair.size for pair in PAIRS) < 5 * 2**20
    assert max(pair.size for pair in PAIRS) < 40_000
    for pair in PAIRS:
        keys = re.findall(r"\b(?:sk|ghp|xoxb|AKIA)[-_A-Za-z0-9]{12,}", json.dumps(pair.content))
        assert all(key.startswith("sk-test-") for key in keys)
