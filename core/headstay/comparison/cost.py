"""What a finding costs: estimated tokens that both requests hold behind it."""

from collections.abc import Sequence

from headstay.canonical import size_of
from headstay.comparison.finding import TIERS, Draft
from headstay.comparison.history import Aligned
from headstay.comparison.segment import Request
from headstay.comparison.system_text import paired
from headstay.comparison.tool_list import tool_sizes
from headstay.layout import BYTES_PER_TOKEN


class Cost:
    """The sizes of what two requests have in common, tier by tier.

    Args:
        before: The earlier request.
        after: The later request.
        history: How their messages were aligned.
    """

    def __init__(self, before: Request, after: Request, history: Aligned) -> None:
        pairs = [(i, j) for i, j in paired(before.system, after.system) if i is not None and j is not None]
        both = {j: min(before.system[i].size, after.system[j].size) for i, j in pairs}
        self._after = after
        self._tiers: dict[int, list[int]] = {
            TIERS["tools"]: [size if known else 0 for size, known in tool_sizes(before, after)],
            TIERS["system"]: [both.get(j, 0) for j in range(len(after.system))],
            TIERS["messages"]: [
                segment.size if kept else 0 for segment, kept in zip(after.messages, history.kept, strict=True)
            ],
        }

    def lost(self, draft: Draft) -> int:
        """Return the tokens that a finding alone would cost."""
        size = self._behind(draft) if draft.lost is None else draft.lost
        return round(size / BYTES_PER_TOKEN)

    def shared(self, drafts: Sequence[Draft]) -> int:
        """Return the tokens before the first finding that costs anything."""
        total = sum(map(sum, self._tiers.values()))
        first = next((draft for draft in drafts if draft.lost is None), None)
        return round((total - (self._behind(first) if first else 0)) / BYTES_PER_TOKEN)

    def _behind(self, draft: Draft) -> int:
        """Return the bytes that both requests hold at and behind a place."""
        tier, index = draft.place.tier, draft.place.index
        behind = sum(sum(sizes) for rank, sizes in self._tiers.items() if rank > tier)
        sizes = self._tiers.get(tier, [])
        behind += sum(sizes[index + 1 :])
        if index < len(sizes):
            behind += max(0, sizes[index] - self._before(draft))
        return behind

    def _before(self, draft: Draft) -> int:
        """Return the bytes of a segment that stand before the difference in it."""
        if draft.place.tier == TIERS["tools"]:
            return 0
        messages = draft.place.tier == TIERS["messages"]
        segments = self._after.messages if messages else self._after.system
        segment = segments[draft.place.index]
        return size_of(segment.text[: draft.at]) if segment.path == draft.path else 0
