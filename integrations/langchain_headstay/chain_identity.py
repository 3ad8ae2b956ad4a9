"""Which chain or model this is, by content: prompts, parameters, code and constants, the same in every process.

Two chains that differ in anything that can change an answer must not share answers. What has no content to compare (a
client, a vector store, a compiled graph) is only itself: it shares with nothing, and with no other process.
"""

import weakref
from collections.abc import Callable, Sequence
from uuid import uuid4

from langchain_core.language_models import BaseChatModel

from headstay.canonical import digest, meaning_text
from headstay.semantic.forking import ForkedLock
from langchain_headstay.chain_content import ChainContent, class_name

_MOST_KNOWN = 1_024
_known: list[tuple[tuple[Callable[[], object], ...], str]] = []
_lock = ForkedLock()


def chain_identity(chain: object) -> tuple[str, ChainContent]:
    """Name a chain by what is in it.

    Args:
        chain: Any runnable.

    Returns:
        The name in hex, and what was found on the way.
    """
    content = ChainContent()
    name = digest(meaning_text(content.describe(chain))).hex()
    return (f"{name}-{_name_of(content.opaque)}" if content.opaque else name), content


def model_content(model: BaseChatModel) -> str:
    """Return the hash of what LangChain does not write about a model.

    It leaves the credentials out, and of a class that is not serialisable it shows only what the class tells.
    """
    content = ChainContent()
    more: list[object] = [content.secrets_of(model)]
    if not model.is_lc_serializable():
        more.append(content.describe(model))
    names = _name_of(content.opaque) if content.opaque else ""
    return digest(meaning_text(more), names).hex()


def unseen_classes(content: ChainContent) -> tuple[str, ...]:
    """Name the classes of the parts that have no content to compare."""
    return tuple(sorted({class_name(type(part)) for part in content.opaque}))


def _name_of(parts: Sequence[object]) -> str:
    """Return the name of some objects: the same for the same ones, and never given to others."""
    with _lock:
        _known[:] = [known for known in _known if all(held() is not None for held in known[0])]
        for held, name in _known:
            if len(held) == len(parts) and all(one() is part for one, part in zip(held, parts, strict=True)):
                return name
        name = uuid4().hex
        _known.append((tuple(map(_hold, parts)), name))
        del _known[:-_MOST_KNOWN]  # who is dropped gets another name, and so no answer of before
    return name


def _hold(part: object) -> Callable[[], object]:
    """Hold an object loosely where that is possible."""
    try:
        return weakref.ref(part)
    except TypeError:
        return lambda: part
