"""What the embedder cannot tell apart, through the whole engine: each is a miss."""

from collections.abc import Callable

import pytest
from langchain_core.language_models import BaseChatModel

from headstay.emulator import Emulator
from langchain_headstay import SemanticCache

Road = Callable[[BaseChatModel, SemanticCache], BaseChatModel]

# Two questions with two answers, and whether they differ in something the embedder drops.
PAIRS = {
    "vietnamese tones": ("B\u1ea1n c\u00f3 b\u00e1n ma kh\u00f4ng?", "B\u1ea1n c\u00f3 b\u00e1n m\u00e1 kh\u00f4ng?"),
    "vietnamese without tones": ("ban co ban ma khong", "b\u1ea1n c\u00f3 b\u00e1n m\u00e3 kh\u00f4ng"),
    "thai": (
        "\u0e09\u0e31\u0e19\u0e08\u0e30\u0e40\u0e1b\u0e34\u0e14\u0e1a\u0e31\u0e0d\u0e0a\u0e35",
        "\u0e09\u0e31\u0e19\u0e08\u0e30\u0e1b\u0e34\u0e14\u0e1a\u0e31\u0e0d\u0e0a\u0e35",
    ),
    "khmer": (
        "\u1781\u17d2\u1789\u17bb\u17c6\u1785\u1784\u17cb\u1794\u17be\u1780",
        "\u1781\u17d2\u1789\u17bb\u17c6\u1785\u1784\u17cb\u1794\u17b7\u1791",
    ),
    "emoji": ("What does \U0001f600 mean?", "What does \U0001f620 mean?"),
    "switches of a command": ("What does ls -l do?", "What does ls -L do?"),
    "indentation": ("if a:\n    b()\nc()", "if a:\n    b()\n    c()"),
    "polish": ("How do I polish silver?", "How do I Polish silver?"),
    "accents": ("Where is my resume?", "Where is my r\u00e9sum\u00e9?"),
    "currencies": ("How do I convert USD to EUR?", "How do I convert EUR to USD?"),
    "who manages whom": ("Does Ann manage Bob?", "Does Bob manage Ann?"),
    "order numbers": ("Where is my order 1234?", "Where is my order 1235?"),
    "years": ("What were the sales in 2024?", "What were the sales in 2025?"),
    "enable": ("How do I enable two-factor login?", "How do I disable two-factor login?"),
    "negation": ("Which cards are accepted abroad?", "Which cards are not accepted abroad?"),
    "spaces": ("What does the option nowhere mean?", "What does the option now here mean?"),
}  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
@pytest.mark.parametrize("turned", [False, True], ids=["", "the other way round"])
def test_another_question_is_never_answered(
    pair: tuple[str, str],
    turned: bool,
    claude: Callable[..., BaseChatModel],
    road: Road,
    cache: SemanticCache,
    desk: Emulator,
) -> None:
    asked, then = reversed(pair) if turned else pair
    model = road(claude(), cache)
    model.invoke(asked)
    assert then in model.invoke(then).text
    assert len(desk.exchanges) == 2
    # The exact tier still works for both.
    assert asked in model.invoke(asked).text
    assert then in model.invoke(then).text
    assert len(desk.exchanges) == 2
    assert cache.metrics().hits == {"exact": 2}
