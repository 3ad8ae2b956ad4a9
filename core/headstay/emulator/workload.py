"""The support-desk workload: a seeded generator of labelled conversations."""

import itertools
import random
import re
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

from headstay.emulator import workload_dialogue
from headstay.emulator.workload_text import TENANTS, Policy, Tenant, policy_text
from headstay.emulator.workload_turns import Break, Message, Stability, SystemPart, Turn, Workload
from headstay.emulator.workload_wire import png

__all__ = ["START", "Break", "Message", "Stability", "SystemPart", "Turn", "Workload", "support_desk"]

START = datetime(2026, 3, 31, 23, 45, tzinfo=UTC).timestamp()
"""When the first call of the generated workload is made: a quarter of an hour before midnight UTC."""

_STABILITY: Mapping[str, Stability] = {
    "customer_name": "conversation",
    "account": "conversation",
    "clock": "call",
    "today": "call",
    "request_id": "call",
}
_MARK = re.compile(r"<<(\w+)>>")
_STAGGER_S = 58
_MIN_GAP_S, _MAX_GAP_S = 30, 150
_LATE_PHOTO_TURN, _CHANGE_TURN = 3, 4


def support_desk(*, seed: int = 7, conversations: int = 20, turns: int = 6) -> Workload:
    """Generate the support-desk chain: interleaved conversations of two tenants, across midnight UTC.

    With the default shape: five conversations of one lane open with the same words, some bring a photo with
    their first message, one brings its first photo at turn 3, and one is moved from policy A to policy B at
    turn 4. Smaller shapes hold those of the special conversations that fit. The same arguments give the same
    workload in every process.

    Args:
        seed: Chooses values, texts and gaps, not the structure.
        conversations: How many, 1 to 400.
        turns: User messages in each conversation, at least 1.

    Raises:
        ValueError: A number is out of its range.
    """
    if not 1 <= conversations <= len(_NAMES):
        raise ValueError(f"conversations must be 1 to {len(_NAMES)}, not {conversations}")
    if turns < 1:
        raise ValueError(f"turns must be at least 1, not {turns}")
    generator = _Generator(seed, conversations)
    planned = [generator.conversation(index, turns) for index in range(conversations)]
    return Workload(tuple(sorted(itertools.chain.from_iterable(planned), key=lambda turn: turn.at)), seed)


_Kind = Literal["plain", "same opening", "photo", "late photo", "policy change"]
_PLAN: tuple[tuple[int, Policy, _Kind], ...] = (
    (0, "A", "same opening"),
    (1, "A", "photo"),
    (0, "B", "late photo"),
    (0, "A", "same opening"),
    (1, "B", "plain"),
    (1, "A", "policy change"),
    (0, "A", "same opening"),
    (0, "B", "photo"),
    (1, "B", "photo"),
    (1, "A", "plain"),
    (0, "A", "same opening"),
    (1, "A", "plain"),
    (0, "B", "plain"),
    (0, "A", "same opening"),
    (1, "B", "plain"),
    (1, "A", "photo"),
    (0, "A", "plain"),
    (0, "B", "plain"),
    (1, "B", "plain"),
    (1, "A", "plain"),
)
"""Tenant, policy and kind of each conversation; longer workloads go on with plain ones in the same lanes."""

_GIVEN = (
    *("Siobhán", "José María", "Thandiwe", "Zoë", "Łukasz", "Ngọc Ánh", "Émilie"),
    *("Bartholomew", "Søren", "Priya", "Anne-Sophie", "İpek", "Matteo", "Tomáš"),
    *("Chukwuemeka", "Hélène", "Jürgen", "Aoife", "Rosalind", "Birgitta"),
)
_FAMILY = (
    *("O'Rourke", "de la Fuente, Jr.", "Nkosi-Dlamini", "D'Angelo", "Wójcik", "van der Meer"),
    *("N'Diaye", "Okonkwo, MD", "Thorvaldsen", "Ramanathan", "L'Estrange", "Çelik", "Sjöström"),
    *("dell'Acqua, PhD", "Achterberg", "von Weißenfels", "Ó Súilleabháin", "Featherstone, Sr."),
    *("Dvořáková", "M'Bappé-Laurent"),
)
_NAMES = tuple(f"{given} {family}" for given, family in itertools.product(_GIVEN, _FAMILY))


class _Generator:
    """Draws what must be unique over the whole workload."""

    def __init__(self, seed: int, conversations: int) -> None:
        self._rng = random.Random(seed)
        self._names = self._rng.sample(_NAMES, conversations)
        self._accounts = self._rng.sample(range(10_000_000, 100_000_000), conversations)
        self._seconds: set[int] = set()
        self._texts: set[str] = {workload_dialogue.SHARED_OPENING}

    def conversation(self, index: int, turns: int) -> list[Turn]:
        """Make one conversation."""
        place, policy, kind = _PLAN[index % len(_PLAN)]
        if index >= len(_PLAN):
            kind = "plain"
        tenant = TENANTS[place]
        moments = self._moments(index, turns)
        users = self._user_texts(tenant, kind, turns)
        made: list[Turn] = []
        for turn, (at, user) in enumerate(zip(moments, users, strict=True), start=1):
            now: Policy = "B" if kind == "policy change" and turn >= _CHANGE_TURN else policy
            made.append(
                Turn(
                    conversation=f"{tenant.name}-{index + 1:03d}",
                    turn=turn,
                    tenant=tenant.name,
                    policy=now,
                    at=float(at),
                    system=_system_parts(tenant, now, self._values(index, tenant, at)),
                    user=user,
                    image=png(index) if _has_photo(kind, turn) else None,
                    reply=workload_dialogue.reply_to(user),
                )
            )
        return made

    def _moments(self, index: int, turns: int) -> list[int]:
        """Draw start times in whole seconds; no two calls share one, as their clocks must differ."""
        moments: list[int] = []
        at = int(START) + index * _STAGGER_S
        for _ in range(turns):
            window = range(at, at + _MAX_GAP_S - _MIN_GAP_S + 1)
            free = [second for second in window if second not in self._seconds]
            moments.append(self._rng.choice(free) if moments else free[0])
            self._seconds.add(moments[-1])
            at = moments[-1] + _MIN_GAP_S
        return moments

    def _values(self, index: int, tenant: Tenant, at: int) -> dict[str, str]:
        moment = datetime.fromtimestamp(at, tz=UTC)
        return {
            "customer_name": self._names[index],
            "account": f"{tenant.account_prefix}-{self._accounts[index]}",
            "clock": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "today": moment.strftime("%Y-%m-%d"),
            "request_id": str(uuid.UUID(int=self._rng.getrandbits(128), version=4)),
        }

    def _user_texts(self, tenant: Tenant, kind: _Kind, turns: int) -> list[str]:
        item = self._rng.choice(workload_dialogue.ITEMS[tenant.name])
        texts: list[str] = []
        if kind == "same opening":
            item = workload_dialogue.ITEMS[tenant.name][0]
            texts.append(workload_dialogue.SHARED_OPENING)
        while len(texts) < turns:
            text = workload_dialogue.message(self._rng, turn=len(texts) + 1, item=item)
            if text not in self._texts:
                self._texts.add(text)
                texts.append(text)
        return texts


def _has_photo(kind: _Kind, turn: int) -> bool:
    return (kind, turn) in {("photo", 1), ("late photo", _LATE_PHOTO_TURN)}


def _system_parts(tenant: Tenant, policy: Policy, values: Mapping[str, str]) -> tuple[SystemPart, ...]:
    """Fill a policy text; odd places of the split are the names of marks, even ones are prose."""
    parts: list[SystemPart] = []
    for place, piece in enumerate(_MARK.split(policy_text(tenant, policy))):
        if place % 2:
            parts.append(SystemPart(values[piece], _STABILITY[piece], piece))
        else:
            parts.append(SystemPart(piece, "stable"))
    return tuple(parts)
