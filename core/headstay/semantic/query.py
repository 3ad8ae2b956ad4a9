"""Which text is compared by meaning.

The declared query, or the last human text without the constant text that a prompt template puts around it. A common
start of natural questions ("How do I ...") is no template. So a template ends only where a writer of templates ends
one: at a line break, after a label with a colon, at a tag; or, if at least half of all texts share it, after a full
sentence of five words. Three texts must have shown it, and a tenth of all, since one question asked about three
documents shares as many lines as a template does.

What is cut off stays in the scope, so cutting too much can lose a hit and can never serve a wrong answer; cutting too
little could, therefore text that still looks composed is not compared by meaning at all.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from headstay.canonical import DIGEST_BYTES
from headstay.semantic.reasons import Reason
from headstay.semantic.request import AskedRequest

MOST_WORDS = 80
"""A longer text is more than a question. The longest questions of support data sets have 79 words."""

_QUOTES = frozenset({'""', "''", "\u201c\u201d", "\u2018\u2019", "\u00ab\u00bb", "``"})
_SHOWN_BY = 3
_SHARE = 0.1
_SENTENCE_SHARE = 0.5
_SENTENCE_WORDS = 5
_FORGET_AT = 256
_MOST_COUNTS = 4_096
_EDGES = 48

_TAG = r"</?[A-Za-z][\w-]*>"
_LABEL = r"(?<=[A-Za-z)\]*]):"
_LEFT_EDGE = re.compile(rf"[^\S\n]*\n\s*|{_LABEL}[*_]*\s+|{_TAG}\s*|(?P<sentence>[.?!][\"')]?[^\S\n]+)")
_RIGHT_EDGE = re.compile(rf"\s*\n|\s*{_TAG}|\s+(?=[A-Z]\w*:(?:\s|$))|(?P<sentence>(?<=[.?!])[^\S\n]+)")
_COMPOSED = re.compile(rf"\n|{_LABEL}[*_]*\s|{_TAG}|\[/?[A-Z]{{2,}}\]")
_INSTRUCTION = re.compile(
    r"(?:you are|act as|your task|given the|based on|using the|use the|answer the|respond|reply|summari[sz]e|"
    r"translate|rewrite|classify|extract|correct the)\b[^.?!]*[.?!]\s+\w",
    re.IGNORECASE,
)
_MATERIAL = re.compile(
    r"\b(?:context|documents?|docs|sources?|passages?|articles?|chunks?|excerpts?|history|conversation|transcript|"
    r"background|data|results?|snippets?|references?|memor(?:y|ies)|information|evidence|knowledge)"
    r"\b[^\n:>]{0,20}[:>][*_]*\s*\Z",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Templates:
    """What the texts of one scope have shown so far; hashes and counts, never the texts.

    Attributes:
        texts: How many texts were seen; older ones fade.
        counts: How many of them start, or end, with a piece of text, by its hash.
    """

    texts: int = 0
    counts: Mapping[bytes, int] = field(default_factory=dict[bytes, int])


@dataclass(frozen=True, slots=True)
class Query:
    """The text that is compared by meaning.

    Attributes:
        text: The query.
        how: Whether it was declared, is the whole last human text, or what a template leaves of it.
        before: What stands before it in that text; part of the scope.
        after: What stands behind it; part of the scope.
        reason: Why it must not be compared by meaning, or None.
    """

    text: str
    how: Literal["declared", "whole", "template"]
    before: str = ""
    after: str = ""
    reason: Reason | None = None


def normal_text(text: str) -> str:
    """Normalise a text as the exact tier does: NFC, LF line ends, outer blanks off. Nothing else."""
    return unicodedata.normalize("NFC", text.replace("\r\n", "\n")).strip()


def learn(templates: Templates, text: str) -> Templates:
    """Return what is known after one more text.

    Args:
        templates: What the scope has shown so far.
        text: The whole last human text of a new entry. Give each text once, else it passes for a template of its own.
    """
    text = normal_text(text)
    counts = dict(templates.counts)
    for edge in (*_starts(text), *_ends(text)):
        counts[edge.key] = counts.get(edge.key, 0) + 1
    seen = templates.texts + 1
    if seen >= _FORGET_AT or len(counts) > _MOST_COUNTS:
        return Templates(seen // 2, {key: count // 2 for key, count in counts.items() if count > 1})
    return Templates(seen, counts)


def learn_all(texts: Iterable[str]) -> Templates:
    """Return what some texts show together; a text that comes twice counts once."""
    templates = Templates()
    for text in dict.fromkeys(texts):
        templates = learn(templates, text)
    return templates


def read_query(request: AskedRequest, templates: Templates) -> Query:
    """Find the text that is compared by meaning.

    Args:
        request: The request.
        templates: What its scope has shown: see `learn`.
    """
    asking = request.asking
    text = normal_text(request.turns[asking].text) if asking is not None else ""
    declared = normal_text(request.query or "")
    if declared:
        at = text.rfind(declared)
        if at < 0:
            return Query(declared, "declared", before=text, reason=Reason.QUERY_NOT_IN_TEXT)
        return Query(declared, "declared", text[:at], text[at + len(declared) :])
    query = _without_template(text, templates)
    if looks_composed(query.text) or _is_material(query):
        return replace(query, reason=Reason.TEMPLATED_TEXT)
    return query


def looks_composed(text: str) -> bool:
    """Whether a text seems to be put together from parts, as against one question or remark in a person's words."""
    return bool(_COMPOSED.search(text) or _INSTRUCTION.match(text)) or len(text.split()) > MOST_WORDS


def _is_material(query: Query) -> bool:
    """Whether what a template leaves is what the question is about, and the question itself was cut off."""
    asks_outside = "?" in query.after or query.before.rstrip().endswith("?")
    return bool(_MATERIAL.search(query.before)) or (asks_outside and "?" not in query.text)


class _Edge(NamedTuple):
    """A place where a template may end, and the hash of what it would cut off."""

    at: int
    key: bytes
    sentence: bool


def _without_template(text: str, templates: Templates) -> Query:
    """Cut the longest shown end off, then the longest shown start that leaves something to ask."""
    ends = [edge.at for edge in _ends(text) if _is_shown(templates, edge, text[edge.at :])]
    starts = [edge.at for edge in _starts(text) if _is_shown(templates, edge, text[: edge.at])]
    for end in (*ends[::-1], len(text)):
        for start in (*starts[::-1], 0):
            inner = text[start:end].strip()
            if start < end and any(sign.isalnum() for sign in inner):
                if inner != text and inner[0] + inner[-1] in _QUOTES and any(map(str.isalnum, inner[1:-1])):
                    inner = inner[1:-1].strip()  # the template quotes the question
                begin = text.index(inner, start)
                how: Literal["whole", "template"] = "whole" if inner == text else "template"
                return Query(inner, how, text[:begin], text[begin + len(inner) :])
    return Query(text, "whole")


def _is_shown(templates: Templates, edge: _Edge, piece: str) -> bool:
    count = templates.counts.get(edge.key, 0)
    if edge.sentence and len(piece.split()) < _SENTENCE_WORDS:
        return False
    return count >= max(_SHOWN_BY, templates.texts * (_SENTENCE_SHARE if edge.sentence else _SHARE))


def _starts(text: str) -> list[_Edge]:
    """Where a template before the query may end, shortest first; the outermost edges of a long text only."""
    found = [(match.end(), _is_sentence(match)) for match in _LEFT_EDGE.finditer(text)]
    return _hashed(text, found, "start")


def _ends(text: str) -> list[_Edge]:
    """Where a template behind the query may begin, shortest first."""
    found = [(match.start(), _is_sentence(match)) for match in _RIGHT_EDGE.finditer(text)]
    mirrored = [(len(text) - at, sentence) for at, sentence in reversed(found)]
    return [_Edge(len(text) - at, key, sentence) for at, key, sentence in _hashed(text[::-1], mirrored, "end")]


def _is_sentence(match: re.Match[str]) -> bool:
    """Whether an edge is only the end of a sentence."""
    return match.lastgroup == "sentence"


def _hashed(text: str, found: list[tuple[int, bool]], side: str) -> list[_Edge]:
    kept = found if len(found) <= 2 * _EDGES else [*found[:_EDGES], *found[-_EDGES:]]
    state = hashlib.blake2b(side.encode(), digest_size=DIGEST_BYTES)
    edges: list[_Edge] = []
    last = 0
    for at, sentence in kept:
        if 0 < at < len(text):
            state.update(text[last:at].encode("utf-8", "surrogatepass"))
            last = at
            edges.append(_Edge(at, state.copy().digest(), sentence))
    return edges
