"""Links between the pages lead somewhere, and pictures are well-formed."""

import re
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


def prose(page: Path) -> str:
    """Return a page without its code blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    seen: Counter[str] = Counter()
    for heading in _HEADING.findall(prose(page)):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(slug if not seen[slug] else f"{slug}-{seen[slug]}")
        seen[slug] += 1
    return found


def broken(page: Path) -> list[str]:
    """Return the links of a page that lead nowhere; links to other sites are not followed."""
    lost: list[str] = []
    for link in _LINK.findall(prose(page)):
        if re.match(r"https?://|mailto:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        found = target.exists() and (not anchor or (target.suffix == ".md" and anchor in anchors(target)))
        if not found:
            lost.append(link)
    return lost


def test_every_link_resolves(page: Path) -> None:
    assert broken(page) == []


def test_a_broken_link_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A title\n[a](#a-title) [b](#b-title) [c](other.md) [d](https://example.com)\n", encoding="utf-8")
    assert broken(page) == ["#b-title", "other.md"]


def test_the_pages_are_all_linked_from_the_index(root: Path) -> None:
    index = root / "docs" / "index.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in _LINK.findall(prose(index))}
    written = {*(root / "docs").glob("*.md"), *(root / "cookbook").glob("*.md")} - {index}
    assert {path.name for path in written if path.resolve() not in linked} == set()


def test_the_picture_shows_every_part(root: Path) -> None:
    picture = ElementTree.parse(root / "docs" / "img" / "layout.svg").getroot()
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    texts = " ".join(text.strip() for text in picture.itertext())
    for part in ("head", "semi-static", "body", "tail", "note", "cache_control", "prompt_cache_breakpoint"):
        assert part in texts
    # Two rows with a marker behind head, semi-static, body and tail each, and one in the legend.
    assert len(picture.findall("{http://www.w3.org/2000/svg}path")) == 2 * 4 + 1
