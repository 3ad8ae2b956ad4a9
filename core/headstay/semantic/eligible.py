"""May a request be answered from the cache at all, and by meaning or only by its exact text?

The rules on the text are those of the bundled embedder, MiniLM: it is English, uncased, drops accents, and reads a sign
it does not know as one and the same unknown token. What it cannot tell apart must not be compared by it.
"""

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal, Protocol

from headstay.semantic.query import Query
from headstay.semantic.reasons import Reason
from headstay.semantic.request import AskedRequest
from headstay.semantic.veto_words import ENGLISH

Tier = Literal["semantic", "exact", "none"]

WINDOW = 256
"""Most tokens the bundled embedder reads: all-MiniLM-L6-v2 was trained on 256 (model card, seen 2026-11-29)."""

_COMMON_SIGNS = frozenset(
    "\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb"  # quotation marks
    "\u2013\u2014\u2026\u2022\u00b7\u00a0\u00bf\u00a1"  # dashes, ellipsis, bullets, hard space, turned marks
    "\u00b0\u20ac\u00a3\u00a5\u00a9\u00ae\u2122\u00d7\u00bd\u00bc\u00be\u00a7"  # degree, currencies, fractions
)
"""Signs outside ASCII that the bundled vocabulary holds, or that say nothing."""
_COMMON_ACCENTS = frozenset("\u0300\u0301\u0302\u0303\u0308\u030a\u0327")
"""Grave, acute, circumflex, tilde, diaeresis, ring, cedilla: those of words that English has borrowed."""

_CODE = re.compile(
    r"""
    `                                               # quoted code
    | (?:^|\n)(?:[ ]{2,}|\t)\S                      # indentation
    | (?<![^\s(])-[A-Za-z0-9]{0,2}[A-Za-z](?![\w-]) | (?<![^\s(])--[A-Za-z][\w-]*   # ls -l, git commit --amend
    | [{}\\] | \$\w*[A-Za-z_]\w* | \$\( | <\w+[^<>]*/?> | </\w+>
    | [=!<>]= | => | -> | <- | :: | && | \|\| | \|\s*\w+\s+-  | \b(?![cC]\+\+)\w+\+\+ | ;\s*(?:$|\n)
    | \b\w+\((?!s\)|es\)|ies\))[^()\s]{0,80}\)           # print(x), but not card(s)
    | \b\w+\[[^\]\n]{0,40}\]
    | (?<![\w@/])(?:~|\.{1,2})?/\w+(?:[./]\w+)+     # /etc/hosts, ./run.sh
    | \b[A-Za-z]:\\ | \b\w+\s?=\s?[\w"'\[] | \b[a-z]+[A-Z][a-z]+[A-Z]\w* | \b[a-z]+_[a-z]\w*
    | \b(?:SELECT|INSERT|UPDATE|DELETE)\b.{1,80}?\b(?:FROM|INTO|SET|WHERE)\b
    | ^\s*(?:sudo|git|ls|cd|rm|cp|mv|chmod|chown|curl|wget|grep|sed|awk|docker|kubectl|pip|npm|apt|ssh|tar)
        (?:\s+[\w./~*:@-]+){1,3}\s*$                  # a command without options
    | ^\s*(?:def|class|import|return|print|const|var|let|func|function|\#include|\#!)\s+[\w./~<*"'-]+\s*$
    """,
    re.VERBOSE,
)
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")
_PIECES_OF_OTHER_LANGUAGES = 1.4
_LEAST_WORDS = 3


class TokenCount(Protocol):
    """How an embedder reads a text: its tokens, the two that mark start and end included, and the unknown ones."""

    @property
    def count(self) -> int:
        """All tokens."""
        ...

    @property
    def unknown(self) -> int:
        """Those that stand for text the vocabulary does not hold."""
        ...


@dataclass(frozen=True, slots=True)
class Eligibility:
    """How a request may be answered from the cache.

    Attributes:
        tier: "semantic": by a question of the same meaning; "exact": by an identical request; "none": not at all.
        reason: Why not by meaning, or None.
    """

    tier: Tier
    reason: Reason | None = None


def eligibility(
    request: AskedRequest,
    query: Query,
    tokens: TokenCount | None,
    *,
    window: int | None = WINDOW,
    english: bool = True,
) -> Eligibility:
    """Say how a request may be answered from the cache.

    Args:
        request: The request.
        query: What is compared by meaning: see `read_query`.
        tokens: How the embedder reads the query; None if it cannot tell, or was not asked yet.
        window: Most tokens the embedder reads, or None if that is not known; if its tokens are not either, the
            window of the bundled one counts.
        english: Whether the embedder is an uncased English one, as the bundled one is. Otherwise its own tokens alone
            say what it can read.
    """
    refused = never(request)
    if refused:
        return Eligibility("none", refused)
    limit = query.reason or _only_exact(query.text, tokens, window, english)
    return Eligibility("exact", limit) if limit else Eligibility("semantic")


def never(request: AskedRequest) -> Reason | None:
    """Say why a request must not be answered from the cache at all, or None."""
    if request.asking is None:
        spoken = [turn.role for turn in request.turns if turn.role != "system"]
        return Reason.TOOL_RESULT_LAST if spoken[-1:] == ["tool"] else Reason.NOT_HUMAN_LAST
    if any(turn.unhashed for turn in request.turns):
        return Reason.UNHASHED_MEDIA
    if request.generations != 1:
        return Reason.SEVERAL_GENERATIONS
    return Reason.OPAQUE_SCHEMA if request.opaque else None


def _only_exact(text: str, tokens: TokenCount | None, window: int | None, english: bool) -> Reason | None:
    if not text.strip():
        return Reason.NO_TEXT
    # who neither counts tokens nor names a window reads a long text as far as nobody knows
    most = WINDOW if window is None and tokens is None else window
    if most is not None and (tokens.count if tokens else _least_tokens(text)) > most:
        return Reason.OVER_WINDOW
    if is_code(text):
        return Reason.CODE
    if english and not is_readable(text):
        return Reason.UNSUPPORTED_SCRIPT
    if tokens is not None and tokens.unknown:
        return Reason.UNKNOWN_TOKENS
    return Reason.UNFAMILIAR_LANGUAGE if english and _is_foreign(text, tokens) else None


def is_code(text: str) -> bool:
    """Whether a text holds code, a command or a path, where case, spaces and single signs matter."""
    return _CODE.search(text) is not None


def is_readable(text: str) -> bool:
    """Whether the bundled embedder sees every sign of a text, or misses only accents of borrowed words.

    Not readable are other scripts, emoji, invisible signs, and letters that carry a tone or another letter's accent,
    as in Vietnamese, Polish or Turkish: to the embedder they are all one unknown token, or gone.
    """
    return all(map(_is_readable, text))


def _is_readable(sign: str) -> bool:
    if sign.isascii():
        return sign in "\n\t" or sign.isprintable()
    if sign in _COMMON_SIGNS:
        return True
    parts = unicodedata.normalize("NFD", sign)
    return len(parts) == 2 and parts[0].isascii() and parts[0].isalpha() and parts[1] in _COMMON_ACCENTS


def _least_tokens(text: str) -> int:
    return len(text.split()) + 2


def _is_foreign(text: str, tokens: TokenCount | None) -> bool:
    """Whether a text is hardly English: none of its commonest words, and words that fall into many pieces."""
    words = _WORD.findall(text.lower().replace("\u2019", "'"))
    if len(words) < _LEAST_WORDS or tokens is None or not ENGLISH.isdisjoint(words):
        return False
    parts = len(re.findall(r"\w+|[^\w\s]", text))
    return tokens.count - 2 >= _PIECES_OF_OTHER_LANGUAGES * parts
