"""What kind of section a place in a system text belongs to: memory, retrieved text, or plain instructions."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

from headstay.causes import Cause

_MEMORY = re.compile(
    r"memor(?:y|ies)|remember|recall|profile|\bfacts?\b|preferences|learn(?:ed|t) (?:about|so far)|know(?:n)? about"
    r"|notes? (?:about|on|from)|(?:personal|your) notes|about[ _-](?:the[ _-])?(?:user|customer)\b"
    r"|(?:past|previous|earlier) (?:sessions|interactions|conversations|chats)"
    r"|erinnerung|gedächtnis|mémoire|souvenirs|\bprofil|\bperfil|memoria|recuerdos|memória|geheugen|herinner"
    r"|gebruiker weet|pamię|haf.za|памят|профил|ذاكرة|記憶|覚え|メモリ|记忆|기억|메모리|프로필",
    re.IGNORECASE,
)
_RETRIEVED = re.compile(
    r"\bcontexts?\b|documents?\b|\bdocs?\b|retriev|sources?\b|search[ _-]results?|knowledge|passages?\b|excerpts?\b"
    r"|snippets?\b|\bchunks?\b|\brag\b|references?\b|articles?\b|relevant (?:information|text|material|code|content)"
    r"|\bevidence\b|\bfaqs?\b|web results|kontext|dokument|fundstellen|suchergebnis|contexte|contexto|contesto"
    r"|documentos|documenti|resultados|risultati|\bfuentes\b|\bfontes\b|\bfonti\b|\bbronnen\b|źródł|kaynak"
    r"|контекст|документ|источник|результаты поиска|سياق|مصادر|संदर्भ"
    r"|文書|検索結果|参考|上下文|资料|检索|문맥|컨텍스트|문서|검색",
    re.IGNORECASE,
)
# A line that announces what follows: a heading, a bold or ruled line, a label that ends with a colon.
_ANNOUNCED = re.compile(
    r"#{1,6}[ \t]+\S.*|\*\*[^*]+\*\*:?|__[^_]+__:?|[=*~-]{2,}[ \t]*\w.*[=*~-]{2,}|\[[^\]]+\]"
    r"|(?P<label>\w.*:|(?=.*\b(?:following|below)\b).*)"
)
_LONGEST = 160
_TAG = re.compile(r"<(?P<close>/?)(?P<name>[A-Za-z][\w.-]*)(?:\s[^<>\n]*)?>")
_INLINE = re.compile(r"[ \t]*(?:[-*][ \t]+)?[\[{ ]*\"?(?P<label>[A-Za-z][\w '-]{2,40})\"?:")


class Section(NamedTuple):
    """A section around a place in a text.

    Attributes:
        cause: What a change in it is; None where its words do not tell.
        form: What announces it: a Markdown heading, a tag, the label of the line, or another line above.
        words: The heading as it is written, the name of the tag, the line up to the value, or the line above.
    """

    cause: Cause | None
    form: Literal["heading", "tag", "line", "label"]
    words: str


def section_cause(text: str, start: int, end: int | None = None) -> Cause:
    """Name the cause that a changed passage is, by the section it stands in.

    A passage that begins with an announcement of its own (a heading, a tag) is of that section. Else the innermost
    open tag counts, else the nearest announcement above, else the label of its own line.

    Args:
        text: The whole text.
        start: Where the passage begins.
        end: Where it ends; without it only what stands above is looked at.

    Returns:
        `MEMORY_IN_HEAD`, `RETRIEVAL_IN_HEAD`, or `SYSTEM_TEXT_CHANGED`.
    """
    causes = (section.cause for section in sections_around(text, start, end))
    return next((cause for cause in causes if cause is not None), Cause.SYSTEM_TEXT_CHANGED)


def sections_around(text: str, start: int, end: int | None = None) -> Iterator[Section]:
    """Yield the sections that a passage may be of, the one that counts most first; see `section_cause`.

    Args:
        text: The whole text.
        start: Where the passage begins.
        end: Where it ends; without it only what stands above is looked at.
    """
    if end is not None and (passage := text[start:end]).strip():  # what is put in may begin with the line's end
        start += len(passage) - len(passage.lstrip())
    line = text.rfind("\n", 0, start) + 1
    own = text[line:end].lstrip() if end is not None else ""
    if own and (tag := _TAG.match(own)) and not tag["close"]:
        yield _section("tag", tag["name"])
    first = own.split("\n", 1)[0].rstrip()
    if len(first) <= _LONGEST and _ANNOUNCED.fullmatch(first):
        yield _announced(first)
        yield Section(Cause.SYSTEM_TEXT_CHANGED, "label", first)
    if (inline := _INLINE.match(text, line)) and inline.end() <= max(start, line + 60):
        yield Section(_by_words(inline["label"]), "line", inline.group())
    for name in reversed(_open_tags(text, start)):
        yield _section("tag", name)
    for announced in reversed(_announcements(text)):
        if announced.start >= line:
            continue
        yield _announced(announced.words)
        if not announced.is_label:  # a label stands under a heading, a heading ends what was before
            break


def _announced(words: str) -> Section:
    return _section("heading" if words.startswith("#") else "label", words)


def _section(form: Literal["heading", "tag", "label"], words: str) -> Section:
    return Section(_by_words(words), form, words)


def is_plain_value_section(text: str, start: int) -> bool:
    """Whether a short value at this place is a value of its own, though a section stands around it.

    A profile lists names and numbers, which are values; what was remembered or retrieved changes as a whole.
    """
    line = text.rfind("\n", 0, start) + 1
    above = [announced for announced in _announcements(text) if announced.start < line]
    return bool(above) and "profile" in above[-1].words.lower()


class _Announced(NamedTuple):
    start: int
    words: str
    is_label: bool


# A text is asked about once for each place where it differs.
@lru_cache(maxsize=8)
def _announcements(text: str) -> tuple[_Announced, ...]:
    found: list[_Announced] = []
    at = 0
    for line in text.splitlines(keepends=True):
        words = line.strip()
        if len(words) <= _LONGEST and (one := _ANNOUNCED.fullmatch(words)):
            found.append(_Announced(at, words, one["label"] is not None))
        at += len(line)
    return tuple(found)


@lru_cache(maxsize=8)
def _tags(text: str) -> tuple[tuple[int, str, bool], ...]:
    found = _TAG.finditer(text)
    return tuple((tag.end(), tag["name"], bool(tag["close"])) for tag in found if not tag.group().endswith("/>"))


def _by_words(text: str) -> Cause | None:
    if _MEMORY.search(text):
        return Cause.MEMORY_IN_HEAD
    return Cause.RETRIEVAL_IN_HEAD if _RETRIEVED.search(text) else None


def _open_tags(text: str, at: int) -> list[str]:
    stack: list[str] = []
    for end, name, closes in _tags(text):
        if end > at:
            break
        if not closes:
            stack.append(name)
        elif name in stack:
            del stack[len(stack) - 1 - stack[::-1].index(name) :]
    return stack
