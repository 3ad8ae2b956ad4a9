"""The rules for cache markers that the Messages API enforces with a 400.

Source: platform.claude.com/docs/en/build-with-claude/prompt-caching, seen 2026-11-29; that blank text and thinking
cannot carry a marker is from older copies of the page.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from headstay.emulator.anthropic_blocks import THINKING, Part
from headstay.emulator.anthropic_errors import invalid
from headstay.emulator.anthropic_steps import automatic
from headstay.emulator.shape import mapping

LIMIT = 4

_ORDER = "Note that blocks are processed in the following order: `tools`, `system`, `messages`."


def check_marks(body: Mapping[str, Any], parts: Sequence[Part]) -> None:
    """Check every marker of a request.

    Args:
        body: The request.
        parts: All its blocks, deferred tools among them.

    Raises:
        ApiError: 400 for the first broken rule.
    """
    marks = [(part, path, mark) for part in parts for path, mark in part.marks]
    top = body.get("cache_control")
    for path, mark in [(path, mark) for _, path, mark in marks] + [("cache_control", top)] * (top is not None):
        _check_form(path, mark)
    for part, path, _ in marks:
        _check_bearer(part, path)
    if len(marks) > LIMIT:
        raise invalid(f"A maximum of {LIMIT} blocks with cache_control may be provided. Found {len(marks)}.")
    if top is not None:
        _check_automatic(body, parts, len(marks))
    _check_order(body, parts)


def _check_form(path: str, mark: object) -> None:
    fields = mapping(mark)
    if fields.get("type") != "ephemeral":
        raise invalid(f"{path}: Input tag '{fields.get('type')}' found using 'type' does not match 'ephemeral'")
    if fields.get("ttl", "5m") not in {"5m", "1h"}:
        raise invalid(f"{path}.ephemeral.ttl: Input should be '5m' or '1h'")
    extra = sorted(set(fields) - {"type", "ttl"})
    if extra:
        raise invalid(f"{path}.ephemeral.{extra[0]}: Extra inputs are not permitted")


def _check_bearer(part: Part, path: str) -> None:
    if part.deferred:
        raise invalid(f"{path}: cache_control cannot be set on a tool with defer_loading=true")
    if part.kind in THINKING:
        raise invalid(f"{path}: cache_control cannot be set for {part.kind} blocks")
    if part.blank:
        raise invalid(f"{path}: cache_control cannot be set for empty text blocks")


def _check_automatic(body: Mapping[str, Any], parts: Sequence[Part], explicit: int) -> None:
    """The top-level marker needs a free slot, and must agree with a marker already on its block."""
    if explicit >= LIMIT:
        raise invalid(
            f"cache_control: automatic caching needs one of the {LIMIT} breakpoints, "
            f"but {explicit} blocks already carry cache_control"
        )
    landing = automatic(body, parts)
    asked = mapping(body.get("cache_control")).get("ttl", "5m")
    for path, mark in parts[landing].marks if landing >= 0 else ():
        found = mapping(mark).get("ttl", "5m")
        if found != asked:
            raise invalid(
                f"cache_control: automatic caching asks for ttl='{asked}', but {path} already has ttl='{found}'"
            )


def _check_order(body: Mapping[str, Any], parts: Sequence[Part]) -> None:
    """Longer lifetimes come first."""
    landing = automatic(body, parts)
    short = False
    for index, part in enumerate(parts):
        marks = list(part.marks)
        if index == landing:
            marks.append(("cache_control", body.get("cache_control")))
        for path, mark in marks:
            long = mapping(mark).get("ttl") == "1h"
            if long and short:
                raise invalid(
                    f"{path}.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. "
                    + _ORDER
                )
            short = short or not long
